"""The script of `make live`, on a GitHub emulator by a third party instead of GitHub; it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.emulate.github import OWNER, EmulatedGitHub, Repository

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
README = {"README.md": "# Scratch\n"}


def begin(github: EmulatedGitHub, repository: Repository, **others: str) -> "subprocess.Popen[str]":
    """As the Makefile does."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "LIVE_REPOSITORY": repository.full_name,
        "GITHUB_TOKEN": github.token_of(OWNER),
        "AGENT_FIX_APP_ID": str(github.app_id),
        "AGENT_FIX_PRIVATE_KEY": github.private_key,
        "GITHUB_API_URL": github.api_url,
        "GITHUB_SERVER_URL": github.server_url,
        **others,
    }
    words = [sys.executable, "-m", "tests.live"]
    given = {name: value for name, value in environment.items() if value}
    return subprocess.Popen(words, cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def nothing_stays(repository: Repository, head: str) -> None:
    site = repository.site
    assert site.branches() == {"main": head}
    assert not [pull for pull in site.pulls() if pull.open]
    assert "agent-done" not in site.labels(1)


def test_the_whole_story(github: EmulatedGitHub) -> None:
    repository = github.add_repository("", README)
    head = repository.head
    process = begin(github, repository)
    said, _ = process.communicate(timeout=540)
    assert process.returncode == 0, said
    told = ["made: issue #1", "made: pull request #2 on agent-fix/issue-1-half-loses-a-cent"]
    told += ["ok: the pull request is a draft", "ok: a second commit on the branch", "ok: the pull request is closed"]
    told += ["removed: branches and pull requests of #1", "removed: issue #1", "removed: a commit on main"]
    places = [said.find(each) for each in told]
    assert places == sorted(places), said
    assert -1 not in places, said
    assert "NOT removed" not in said
    nothing_stays(repository, head)


def test_an_interrupted_story_leaves_nothing(github: EmulatedGitHub) -> None:
    repository = github.add_repository("", README)
    head = repository.head
    process = begin(github, repository)
    commented = ("POST", f"/repos/{repository.full_name}/issues/1/comments")
    github.wait(lambda: commented in {(call.method, call.path) for call in github.calls}, "a comment", timeout=300)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "removed: issue #1" in said
    nothing_stays(repository, head)


def test_a_repository_that_somebody_works_in_is_left_alone(github: EmulatedGitHub) -> None:
    repository = github.add_repository("", {"main.py": "print(1)\n"})
    before = len(github.calls)
    process = begin(github, repository)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is no scratch repository: it has main.py" in said
    assert not [call for call in github.calls[before:] if call.method != "GET"]


def test_missing_programs_are_named(github: EmulatedGitHub) -> None:
    repository = github.add_repository("", README)
    process = begin(github, repository, AGENT_FIX_APP_ID="", AGENT_FIX_PRIVATE_KEY="")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "LIVE_REPOSITORY=OWNER/NAME" in said
