"""Branches on GitHub: pushed under a lease with a token that nobody sees, and never over a person's work."""

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.forge.errors import NeedsHuman, NoAccess
from app.forge.github.forge import GitHubForge
from app.gitclean import secret_variables
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.publishing import BRANCH, commit, forge_at
from tests.repositories import git


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def forge(ground: Ground, tmp_path: Path) -> AsyncIterator[GitHubForge]:
    async with forge_at(ground, tmp_path) as forge:
        yield forge


async def test_a_branch_is_pushed_and_said_twice_is_there_once(forge: GitHubForge, ground: Ground) -> None:
    ours = await commit(forge, ground, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert ground.repo.branches[BRANCH] == ours
    assert len(ground.repo.pushes) == 1
    assert git(ground.repo.path, "show", f"{ours}:app/money.py") == "half = 0.25"
    author = git(ground.repo.path, "show", "-s", "--format=%ae", ours)
    assert author == f"{ground.world.bot.id}+agent-fix-test[bot]@users.noreply.127.0.0.1"


async def test_the_name_of_somebody_elses_branch_is_not_taken(forge: GitHubForge, ground: Ground) -> None:
    theirs = ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"})
    ours = await commit(forge, ground, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == f"{BRANCH}-2"
    assert ground.repo.branches[BRANCH] == theirs


async def test_our_branch_moves_on(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, ground, "half = 0.125\n", base=first)
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH, "said twice"
    assert ground.repo.branches[BRANCH] == second
    assert len(ground.repo.pushes) == 2


async def test_a_humans_commit_is_never_overwritten(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    theirs = ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"})
    second = await commit(forge, ground, "half = 0.125\n")
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, first)
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, theirs)
    assert ground.repo.branches[BRANCH] == theirs
    assert len(ground.repo.pushes) == 1, "not even tried"


async def test_a_race_is_lost_to_the_human_by_the_lease(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, ground, "half = 0.125\n")
    theirs: list[str] = []

    class Racer:
        """Pushes between our look and our leap."""

        def hits(self, method: str, path: str) -> bool:
            if f"{method} {path}" == f"GET /repos/ada/sample/commits/{first}" and not theirs:
                theirs.append(ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"}))
            return False

    ground.github.faults.append(Racer())  # type: ignore[arg-type]
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, first)
    assert [ground.repo.branches[BRANCH]] == theirs


async def test_a_deleted_branch_is_not_made_again(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    with pytest.raises(NeedsHuman, match="deleted"):
        await forge.advance_branch(BRANCH, first, "0" * 39 + "1")


async def test_a_protected_branch_is_a_matter_for_people(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.protect(BRANCH)
    with pytest.raises(NeedsHuman, match="GH006") as caught:
        await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    assert "rule of the repository" in caught.value.hint


async def test_a_rule_that_wants_signed_commits_is_told_in_a_sentence(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.demand_signatures()
    with pytest.raises(NeedsHuman, match="GH013") as caught:
        await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    assert "wants signed commits" in caught.value.message
    assert "agent-fix/" in caught.value.hint


async def test_a_push_needs_only_contents_and_its_token_ends_with_it(forge: GitHubForge, ground: Ground) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    pushing = [token for token in ground.world.tokens.values() if token.permissions == {"contents": "write"}]
    assert pushing
    assert all(token.revoked for token in pushing)
    assert all(token.repositories == {ground.repo.id} for token in ground.world.tokens.values())


@pytest.mark.parametrize("long", [False, True])
async def test_no_command_line_no_configuration_and_no_log_shows_the_token(
    forge: GitHubForge, ground: Ground, tmp_path: Path, caplog: pytest.LogCaptureFixture, long: bool
) -> None:
    """Looked at from inside the push, and in what GitPython logs: each command as it is given to the kernel."""
    ground.world.long_tokens = long
    hook = ground.repo.path / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ncat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {tmp_path}/seen\nexit 0\n")
    with caplog.at_level("DEBUG"):
        await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    commands = "\n".join(record.getMessage() for record in caplog.records)
    processes = (tmp_path / "seen").read_text(errors="replace")
    assert "'push', '--porcelain'" in commands
    assert "push --porcelain" in processes, "the look was taken while the push was under way"
    shown = commands + processes + (tmp_path / "store.git" / "config").read_text()
    for token in ground.world.tokens:
        assert token not in shown
        assert base64.b64encode(f"x-access-token:{token}".encode()).decode() not in shown


async def test_a_moved_repository_gets_no_push_and_no_token(forge: GitHubForge, ground: Ground) -> None:
    ours = await commit(forge, ground, "half = 0.25\n")
    ground.repo.moved = True
    with pytest.raises(NoAccess) as caught:
        await forge.ensure_branch(BRANCH, ours)
    assert "moved" in caught.value.hint
    with pytest.raises(NoAccess, match="moved"):
        await forge.ensure_comment("j1", "hello")
    assert not [call for call in ground.github.calls if call.path.startswith("/moved")]
    assert not ground.issue.comments


def test_the_secret_launcher_gives_variables_and_nothing_on_standard_input() -> None:
    words, stdin = secret_variables({"A": "ü=1"})
    show = [sys.executable, "-c", "import json, os, sys; print(json.dumps([os.environ['A'], sys.stdin.read()]))"]
    done = subprocess.run([*words, *show], input=stdin, capture_output=True, check=True)
    assert json.loads(done.stdout) == ["ü=1", ""]


async def test_a_commit_on_top_of_a_persons_is_added_and_theirs_stays(forge: GitHubForge, ground: Ground) -> None:
    theirs = ground.world.push_as_human(ground.repo, "feature", {"mine.txt": "mine\n"})
    ours = await commit(forge, ground, "half = 0.25\n", base=theirs)
    assert await forge.advance_branch("feature", ours, theirs) == "feature"
    assert git(ground.repo.path, "rev-list", "feature").splitlines()[:2] == [ours, theirs]
