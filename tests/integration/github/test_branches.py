"""Branches on GitHub: pushed under a lease with a token that nobody sees, and never over a person's work."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.github.base import NeedsHumanAction, NoAccess, TemporaryFailure
from app.github.effects import GitHubForge
from app.repo.git_command import secret_variables
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault
from tests.support.github.publishing import BRANCH, commit
from tests.support.repositories import git


async def test_pushing_a_branch_twice_creates_it_once(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    ours = await commit(forge, fake_github, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert fake_github.repo.branches[BRANCH] == ours
    assert len(fake_github.repo.pushes) == 1
    assert git(fake_github.repo.path, "show", f"{ours}:app/money.py") == "half = 0.25"
    author = git(fake_github.repo.path, "show", "-s", "--format=%ae", ours)
    assert author == f"{fake_github.world.bot.id}+agent-fix-test[bot]@users.noreply.127.0.0.1"


@pytest.mark.parametrize("lost", [3, 4])
async def test_a_lost_list_of_branches_is_asked_for_again(
    forge: GitHubForge, fake_github: FakeGitHubSetup, lost: int
) -> None:
    """As with every read, three times; what pushes is sent once."""
    ours = await commit(forge, fake_github, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, ours)
    fake_github.github.faults.append(Fault("GET .*/info/refs.*", times=lost))
    if lost > 3:
        with pytest.raises(TemporaryFailure, match="502"):
            await forge.ensure_branch(BRANCH, ours)
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    fake_github.github.faults.append(Fault("POST .*/git-receive-pack"))
    with pytest.raises(TemporaryFailure):
        await forge.advance_branch(BRANCH, await commit(forge, fake_github, "half = 0.125\n", base=ours), ours)
    assert len(fake_github.repo.pushes) == 1


async def test_the_name_of_somebody_elses_branch_is_not_taken(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    theirs = fake_github.world.push_as_human(fake_github.repo, BRANCH, {"mine.txt": "mine\n"})
    ours = await commit(forge, fake_github, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == f"{BRANCH}-2"
    assert fake_github.repo.branches[BRANCH] == theirs


async def test_our_branch_is_updated(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    first = await commit(forge, fake_github, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, fake_github, "half = 0.125\n", base=first)
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH, "said twice"
    assert fake_github.repo.branches[BRANCH] == second
    assert len(fake_github.repo.pushes) == 2


async def test_a_humans_commit_is_never_overwritten(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    first = await commit(forge, fake_github, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    theirs = fake_github.world.push_as_human(fake_github.repo, BRANCH, {"mine.txt": "mine\n"})
    second = await commit(forge, fake_github, "half = 0.125\n")
    with pytest.raises(NeedsHumanAction, match="Someone else"):
        await forge.advance_branch(BRANCH, second, first)
    with pytest.raises(NeedsHumanAction, match="Someone else"):
        await forge.advance_branch(BRANCH, second, theirs)
    assert fake_github.repo.branches[BRANCH] == theirs
    assert len(fake_github.repo.pushes) == 1, "not even tried"


async def test_a_persons_push_wins_against_our_lease(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    first = await commit(forge, fake_github, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, fake_github, "half = 0.125\n")
    theirs: list[str] = []

    class ConcurrentPush:
        """Pushes between our look and our leap."""

        def hits(self, method: str, path: str) -> bool:
            if f"{method} {path}" == f"GET /repos/ada/sample/commits/{first}" and not theirs:
                theirs.append(fake_github.world.push_as_human(fake_github.repo, BRANCH, {"mine.txt": "mine\n"}))
            return False

    fake_github.github.faults.append(ConcurrentPush())  # type: ignore[arg-type]
    with pytest.raises(NeedsHumanAction, match="Someone else"):
        await forge.advance_branch(BRANCH, second, first)
    assert [fake_github.repo.branches[BRANCH]] == theirs


async def test_a_deleted_branch_is_not_made_again(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    first = await commit(forge, fake_github, "half = 0.25\n")
    with pytest.raises(NeedsHumanAction, match="deleted"):
        await forge.advance_branch(BRANCH, first, "0" * 39 + "1")


async def test_a_protected_branch_is_left_to_people(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.protect(BRANCH)
    with pytest.raises(NeedsHumanAction, match="GH006") as caught:
        await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    assert "that rule" in caught.value.hint


async def test_a_signed_commits_rule_is_a_clear_error(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.demand_signatures()
    with pytest.raises(NeedsHumanAction, match="GH013") as caught:
        await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    assert "sign: true" in caught.value.hint
    assert "agent-fix/" in caught.value.hint


async def test_a_push_needs_only_contents_and_its_token_ends_with_it(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    pushing = [token for token in fake_github.world.tokens.values() if token.permissions == {"contents": "write"}]
    assert pushing
    assert all(token.revoked for token in pushing)
    assert all(token.repositories == {fake_github.repo.id} for token in fake_github.world.tokens.values())


@pytest.mark.parametrize("long", [False, True])
async def test_no_command_line_no_configuration_and_no_log_shows_the_token(
    forge: GitHubForge, fake_github: FakeGitHubSetup, tmp_path: Path, caplog: pytest.LogCaptureFixture, long: bool
) -> None:
    """Looked at from inside the push, and in what GitPython logs: each command as it is given to the kernel."""
    fake_github.world.long_tokens = long
    hook = fake_github.repo.path / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ncat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {tmp_path}/seen\nexit 0\n")
    with caplog.at_level("DEBUG"):
        await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    commands = "\n".join(record.getMessage() for record in caplog.records)
    processes = (tmp_path / "seen").read_text(errors="replace")
    assert "'push', '--porcelain'" in commands
    assert "push --porcelain" in processes, "the look was taken while the push was under way"
    shown = commands + processes + (tmp_path / "store.git" / "config").read_text()
    for token in fake_github.world.tokens:
        assert token not in shown
        assert base64.b64encode(f"x-access-token:{token}".encode()).decode() not in shown


async def test_a_moved_repository_gets_no_push_and_no_token(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    ours = await commit(forge, fake_github, "half = 0.25\n")
    fake_github.repo.rename("moved")
    with pytest.raises(NoAccess) as caught:
        await forge.ensure_branch(BRANCH, ours)
    assert "moved" in caught.value.hint
    with pytest.raises(NoAccess, match="moved"):
        await forge.ensure_comment("j1", "hello")
    assert not [call for call in fake_github.github.calls if "/moved" in call.path]
    assert not fake_github.issue.comments


def test_the_secret_launcher_gives_variables_and_nothing_on_standard_input() -> None:
    words, stdin = secret_variables({"A": "ü=1"})
    show = [sys.executable, "-c", "import json, os, sys; print(json.dumps([os.environ['A'], sys.stdin.read()]))"]
    done = subprocess.run([*words, *show], input=stdin, capture_output=True, check=True)
    assert json.loads(done.stdout) == ["ü=1", ""]


async def test_a_commit_on_top_of_a_persons_is_added_and_theirs_stays(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    theirs = fake_github.world.push_as_human(fake_github.repo, "feature", {"mine.txt": "mine\n"})
    ours = await commit(forge, fake_github, "half = 0.25\n", base=theirs)
    assert await forge.advance_branch("feature", ours, theirs) == "feature"
    assert git(fake_github.repo.path, "rev-list", "feature").splitlines()[:2] == [ours, theirs]
