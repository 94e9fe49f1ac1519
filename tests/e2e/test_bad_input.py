"""Bad input: each kind with its own message and exit code, before anything costs and with nothing changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.repository import SOURCE
from tests.support import wallet_project
from tests.support.console import Console, branches
from tests.support.repositories import git, snapshot


def refused(
    console: Console, repository: Path, issue: str | Path, *options: str | Path, code: int, says: tuple[str, ...]
) -> None:
    """The command is refused with this code and these words; neither a file nor a cent has moved."""
    before = snapshot(repository)
    model = (
        ()
        if "--model" in options
        else ("--model", f"recorded/{wallet_project.mended().save(console.place / 'r.jsonl')}")
    )
    finished = console.fix(repository, issue, *model, *options)
    assert finished.code == code, finished.said
    assert [words for words in says if words not in finished.stderr] == [], finished.stderr
    first, *hints = finished.stderr.splitlines()
    assert first.startswith("agent-fix: ")
    assert len(hints) <= 3
    assert finished.stdout == ""
    assert console.calls_bought() == 0
    assert snapshot(repository) == before
    assert console.rows("jobs", "progress", "blobs") == 0


def _damaged(path: Path) -> Path:
    repository = wallet_project.make_wallet(path)
    tree = git(repository, "rev-parse", "HEAD:wallet")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    return repository


REPOSITORIES: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "missing": (lambda path: path, 30, "does not exist"),
    "damaged": (_damaged, 37, "is incomplete: objects of the commit"),
}
"""Two of those that the tests of its inspection have."""


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_a_repository_that_cannot_be_used(console: Console, tmp_path: Path, kind: str) -> None:
    make, code, words = REPOSITORIES[kind]
    refused(console, make(tmp_path / "repository"), wallet_project.ISSUE, code=code, says=("repository", words))


def test_an_issue_that_cannot_be_used(console: Console, tmp_path: Path) -> None:
    path = tmp_path / "the-issue.md"
    path.write_bytes("Title".encode("utf-16"))
    says = ("the-issue.md", "UTF-16")
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), path, code=42, says=says)


OPTIONS: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "a budget that is no number": (("--budget", "NaN"), 2, ("'NaN' is not an amount of dollars",)),
    "an endless budget": (("--budget", "inf"), 2, ("'inf' is not an amount of dollars",)),
    "a negative budget": (("--budget=-3",), 2, ("'-3' is not an amount of dollars",)),
    "no step": (("--max-steps", "0"), 2, ("--max-steps must be a positive number",)),
    "minutes that are no number": (("--max-minutes", "nan"), 2, ("--max-minutes must be a positive number",)),
    "endless minutes": (("--max-minutes", "inf"), 2, ("--max-minutes must be a positive number",)),
    "an unknown runner": (("--runner", "copilot"), 5, ("no runner 'copilot'", "native")),
    "a missing plan": (("--plan", "plan.md"), 44, ("plan.md cannot be read",)),
    "a model that is no name": (("--model", "gpt please"), 7, ("gpt please",)),
    "an unknown model": (("--model", "openai/gpt-5-maximal"), 7, ("gpt-5-maximal",)),
    "a missing recording": (("--model", "recorded/no.jsonl"), 7, ("no.jsonl cannot be read",)),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_option_that_cannot_be_meant(console: Console, tmp_path: Path, kind: str) -> None:
    options, code, says = OPTIONS[kind]
    console.environment["OPENAI_API_KEY"] = "not-a-key"
    refused(
        console, wallet_project.make_wallet(tmp_path / "wallet"), wallet_project.ISSUE, *options, code=code, says=says
    )


PLANS: dict[str, tuple[str, str]] = {
    "empty": ("", "is empty"),
    "an unknown part": ("summary: Mend it.\nstep: [one]\n", "line 2"),
    "another type": ("summary: [1, 2]\n", "line 1"),
    "broken": ("summary: 'never closed\n", "line"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_that_cannot_be_read(console: Console, tmp_path: Path, kind: str) -> None:
    text, words = PLANS[kind]
    plan = tmp_path / "plan.yml"
    plan.write_text(text)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    refused(console, repository, wallet_project.ISSUE, "--plan", plan, code=44, says=(words,))


def test_no_model_was_named(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    before = snapshot(repository)
    finished = console.fix(repository, wallet_project.ISSUE)
    assert finished.code == 7
    assert "No model is set." in finished.stderr
    assert "AGENT_FIX_MODEL" in finished.stderr
    assert snapshot(repository) == before


def test_a_missing_key_is_named(console: Console, tmp_path: Path) -> None:
    options = ("--model", "anthropic/claude-sonnet-4-5")
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    refused(console, repository, wallet_project.ISSUE, *options, code=7, says=("ANTHROPIC_API_KEY",))


def test_a_configuration_that_is_broken(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet", {SOURCE: "budget:\n  usd: .nan\nnetwork: ['*']\n"})
    refused(console, repository, wallet_project.ISSUE, code=5, says=(SOURCE, ":2: budget.usd: ", ":3: network"))


def test_an_uncommitted_configuration_is_ignored(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    (repository / SOURCE).parent.mkdir()
    (repository / SOURCE).write_text("broken: [")
    finished = console.fix(repository, wallet_project.ISSUE, "--plan-only", recording=wallet_project.planned())
    assert finished.code == 0, finished.said


def test_an_unknown_sandbox(console: Console, tmp_path: Path) -> None:
    console.environment["AGENT_FIX_SANDBOX"] = "chroot"
    says = ("no sandbox 'chroot'", "bubblewrap, docker, podman, e2b, none")
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), wallet_project.ISSUE, code=6, says=says)


@pytest.mark.parametrize("option", ["--out", "--state"])
def test_a_place_that_cannot_be_written(console: Console, tmp_path: Path, option: str) -> None:
    path = tmp_path / "file"
    path.write_text("in the way")
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    says = ("cannot be written", str(path), option)
    refused(console, repository, wallet_project.ISSUE, option, path / "deeper", code=9, says=says)
    assert path.read_text() == "in the way"


def test_a_state_that_is_damaged(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    damaged = {name: tmp_path / f"damaged-{name}" / name for name in ("agent-fix.db", "journal.db")}
    for path in damaged.values():
        path.parent.mkdir()
        path.write_bytes(b"no database " * 1_000)
    database = damaged["agent-fix.db"]
    says = (str(database), "cannot be used", "--state")
    refused(console, repository, wallet_project.ISSUE, "--state", database.parent, code=9, says=says)
    listed = console.execute("jobs", "--state", database.parent)
    assert (listed.code, listed.stdout) == (9, "")
    assert str(database) in listed.stderr
    journal = damaged["journal.db"].parent
    finished = console.fix(repository, wallet_project.ISSUE, "--state", journal, recording=wallet_project.mended())
    assert finished.code == 9
    assert str(journal) in finished.stderr
    assert branches(repository) == ["main"]


def test_the_same_input_works_from_standard_input_and_a_subdirectory(console: Console, tmp_path: Path) -> None:
    """The other side of all these refusals: unusual input that can be used is used."""
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    recording = wallet_project.planned().save(tmp_path / "recording.jsonl")
    arguments = console.fix_arguments(repository / "wallet", Path("-"), "--model", f"recorded/{recording}")
    finished = console.execute(*arguments, "--plan-only", stdin=wallet_project.ISSUE.encode())
    assert finished.code == 0, finished.said
    assert "uses the whole repository" in finished.stdout
    assert branches(repository) == ["main"]
