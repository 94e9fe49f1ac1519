"""What a release is checked for, says and pins, and how its moving tag moves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy import release
from tests.support.installed_programs import ROOT
from tests.support.repositories import ENVIRONMENT, git

CHANGELOG = """# Changelog

## [Unreleased]

- soon

## [1.2.0] - 2026-11-30

### Added

- It.

## [1.1.0]

- Old.
"""


def test_a_release_says_the_same_everywhere() -> None:
    release.check("v1.2.0", "1.2.0", CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("1.2.0", "1.2.0", "no release's tag"),
        ("v1.2", "1.2", "no release's tag"),
        ("v01.2.0", "01.2.0", "no release's tag"),
        ("v1.2.0;id", "1.2.0", "no release's tag"),
        ("v1.2.0", "1.1.0", "says 1.1.0"),
        ("v1.3.0", "1.3.0", "says nothing"),
        ("v1.1.0", "1.1.0", "no date"),
    ],
)
def test_a_release_that_does_not_is_refused(tag: str, version: str, why: str) -> None:
    with pytest.raises(release.ReleaseError, match=why):
        release.check(tag, version, CHANGELOG)


def test_notes_are_the_changelogs_section() -> None:
    assert release.notes("1.2.0", CHANGELOG) == "### Added\n\n- It.\n"
    assert release.notes("1.1.0", CHANGELOG) == "- Old.\n"
    assert release.notes("9.9.9", CHANGELOG) == ""


@pytest.mark.parametrize(("tag", "moves"), [("v1.2.3", "v1"), ("v0.4.0", "v0"), ("v2.0.0rc1", ""), ("latest", "")])
def test_a_pre_release_moves_no_tag(tag: str, moves: str) -> None:
    assert release.moving_tag(tag) == moves


def test_pins_are_whole_commits_of_the_repository_that_releases() -> None:
    text = "- uses: actions/checkout@v4 # v4\n- uses: agent-fix/agent-fix@v0 # zizmor: ignore[x] why\n"
    made = release.pinned(text, "0.2.0", f"octo/fixer@{'b' * 40}")
    assert made == f"- uses: actions/checkout@v4 # v4\n- uses: octo/fixer@{'b' * 40} # v0.2.0\n"
    for wrong in (f"octo/fixer@{'b' * 39}", "b" * 40, f"octo@{'b' * 40}"):
        with pytest.raises(release.ReleaseError, match="full commit id"):
            release.pinned(text, "0.2.0", wrong)
    with pytest.raises(release.ReleaseError, match="does not use"):
        release.pinned("steps: []", "0.2.0", f"octo/fixer@{'b' * 40}")


# The moving tag. The script of the workflow itself, with a `gh` that answers from a local repository as GitHub would.

GH = """\
import json, os, subprocess, sys

def git(*words, **rest):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, **rest).stdout.strip()

words = sys.argv[2:]
path = next(word for word in words if word.startswith("repos/octo/fixer/git/")).removeprefix("repos/octo/fixer/git/")
method = words[words.index("--method") + 1] if "--method" in words else "GET"
given = dict(word.split("=", 1) for flag, word in zip(words, words[1:]) if flag in ("-f", "-F"))

def refuse(status, why):
    sys.exit(f"gh: {why} (HTTP {status})")

def point(ref, commit):
    # Reported: scanaislop/aislop#311, Tracer-Cloud/opensre#3594, int128/release-typescript-action#690
    if git("ls-tree", commit, ".github/workflows/"):
        refuse(403, "Resource not accessible by integration")
    git("update-ref", ref, commit)

if method == "GET":
    rows = [row.split(None, 3) for row in git("ls-tree", path.removeprefix("trees/")).splitlines()]
    print(json.dumps({"tree": [dict(mode=m, type=t, sha=s, path=p, url="u") for m, t, s, p in rows]}))
elif path == "trees":
    entries = json.load(sys.stdin)["tree"]
    print(git("mktree", input="".join("{mode} {type} {sha}\\t{path}\\n".format(**entry) for entry in entries)))
elif path == "commits":
    print(git("commit-tree", given["tree"], "-m", given["message"]))
elif path == "refs":
    if git("for-each-ref", given["ref"]):
        refuse(422, "Reference already exists")
    point(given["ref"], given["sha"])
else:
    if os.environ.get("NEVER"):
        refuse(403, "Resource not accessible by integration")
    if not git("for-each-ref", "refs/tags/" + path.removeprefix("refs/tags/")):
        refuse(422, "Reference does not exist")
    point(path, given["sha"])
"""


class Tagging:
    """A repository whose workflows change between two releases."""

    def __init__(self, place: Path) -> None:
        self.repository, self.bin = place / "repository", place / "bin"
        self.bin.mkdir()
        (self.bin / "gh.py").write_text(GH)
        (self.bin / "gh").write_text(f'#!/bin/sh\nexec {sys.executable} -I {self.bin}/gh.py "$@"\n')
        (self.bin / "gh").chmod(0o755)
        git(place, "init", "-q", "--initial-branch=main", "--template=", str(self.repository))
        workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
        steps = workflow["jobs"]["release"]["steps"]
        self.script = next(step["run"] for step in steps if step.get("name") == "Move the major version's tag")

    def release(self, version: str) -> str:
        files = {"action.yml": version, "app/cli/__init__.py": version, ".github/workflows/release.yml": version}
        for name, text in files.items():
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repository / name).write_text(text)
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-q", "-m", version)
        return git(self.repository, "rev-parse", "HEAD").strip()

    def move(self, commit: str, version: str, **more: str) -> "subprocess.CompletedProcess[str]":
        own = {"GH_REPO": "octo/fixer", "GITHUB_SHA": commit, "GITHUB_REF_NAME": version, "MOVING": "v0", **more}
        return subprocess.run(
            ["bash", "-e", "-c", self.script],
            cwd=self.repository,
            env={**ENVIRONMENT, "PATH": f"{self.bin}:{os.environ['PATH']}", **own},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_the_moving_tag_follows_releases_that_change_workflows(tmp_path: Path) -> None:
    tagging = Tagging(tmp_path)
    for version in ("v0.1.0", "v0.2.0"):
        commit = tagging.release(version)
        done = tagging.move(commit, version)
        assert done.returncode == 0, done.stdout + done.stderr
        assert git(tagging.repository, "show", "v0:app/cli/__init__.py") == version
        assert git(tagging.repository, "ls-tree", "-r", "--name-only", "v0").split() == [
            "action.yml",
            "app/cli/__init__.py",
        ]
        assert commit in git(tagging.repository, "log", "-1", "--format=%s", "v0")
        assert git(tagging.repository, "log", "--format=%P", "v0").split() == []


def test_a_tag_that_github_does_not_let_us_move_is_moved_by_hand(tmp_path: Path) -> None:
    tagging = Tagging(tmp_path)
    assert tagging.move(tagging.release("v0.1.0"), "v0.1.0").returncode == 0
    done = tagging.move(tagging.release("v0.2.0"), "v0.2.0", NEVER="1")
    assert done.returncode == 1
    assert "::error::v0.2.0 is released, but v0 was not moved" in done.stdout
    by_hand = done.stdout[done.stdout.index("git push") :].split()
    assert git(tagging.repository, "show", f"{by_hand[-1].partition(':')[0]}:app/cli/__init__.py") == "v0.2.0"
