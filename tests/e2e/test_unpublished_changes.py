"""A verified change that cannot be published: told with its cause, kept as a patch, and published later for nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import wallet_project
from tests.support.console import Console, branches
from tests.support.repositories import git


def block_the_reflog(repository: Path) -> Path:
    """A file where git wants a directory for the log of the new branch."""
    log = repository / ".git" / "logs" / "refs" / "heads"
    log.mkdir(parents=True, exist_ok=True)
    (log / "agent-fix").write_text("")
    return log / "agent-fix"


def lock_the_branch(repository: Path) -> Path:
    """What a git that was killed has left."""
    lock = repository / ".git" / "refs" / "heads" / f"{wallet_project.BRANCH}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("")
    return lock


@pytest.mark.parametrize(
    ("block", "cause"), [(block_the_reflog, "Not a directory"), (lock_the_branch, ".lock': File exists")]
)
def test_a_change_without_a_branch_is_kept_and_the_same_command_publishes_it(
    tmp_path: Path, block: Callable[[Path], Path], cause: str
) -> None:
    console = Console(tmp_path)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    obstacle = block(repository)
    arguments = console.fix_arguments(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    failed = console.execute(*arguments)
    assert failed.code == 9
    assert "proved, not published: The change passed verification" in failed.stdout
    assert cause in failed.stdout
    assert cause in failed.stderr
    assert branches(repository) == ["main"]
    bought = console.calls_bought()
    git(repository, "apply", "--check", str(console.out / "change.patch"))
    assert f"apply {console.out / 'change.patch'}" in failed.stdout
    assert failed.job["verification"]["verdict"] == "proved"

    obstacle.unlink()
    done = console.execute(*arguments)
    assert done.code == 0, done.said
    assert branches(repository) == [wallet_project.BRANCH, "main"]
    assert console.calls_bought() == bought
    assert "turn 1" not in done.stdout


def test_the_reason_and_the_patch_are_in_json_too(tmp_path: Path) -> None:
    console = Console(tmp_path)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    block_the_reflog(repository)
    failed = console.fix(repository, wallet_project.ISSUE, "--json", recording=wallet_project.mended())
    document = json.loads(failed.stdout)
    assert (document["exit_status"], document["patch"]) == ("paused", "change.patch")
    assert "Not a directory" in document["reason"]
    assert "costs no model call" in document["hint"]
