"""Bad input: each kind with its own message and exit code, before anything costs and with nothing changed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.repository import SOURCE
from tests.support import wallet_project
from tests.support.console import Console, branches
from tests.support.repositories import commit_files, git, make_repository, snapshot


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


def _plain_directory(path: Path) -> Path:
    path.mkdir()
    (path / "a.txt").write_text("not versioned")
    return path


def _file(path: Path) -> Path:
    path.write_text("a file")
    return path


def _without_commits(path: Path) -> Path:
    path.mkdir()
    git(path, "init", "-q", "--initial-branch=main", "--template=")
    return path


def _bare(path: Path) -> Path:
    git(path.parent, "clone", "-q", "--bare", str(wallet_project.make_wallet(path.with_name("original"))), str(path))
    return path


def _shallow(path: Path) -> Path:
    original = wallet_project.make_wallet(path.with_name("original"))
    commit_files(original, {"more.txt": "more"})
    git(path.parent, "clone", "-q", "--depth=1", f"file://{original}", str(path))
    return path


def _incomplete(path: Path) -> Path:
    """A partial clone that does not say so, as a copied or mirrored one may not."""
    original = wallet_project.make_wallet(path.with_name("original"))
    git(original, "config", "uploadpack.allowFilter", "true")
    git(path.parent, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{original}", str(path))
    for key in ("remote.origin.promisor", "remote.origin.partialclonefilter"):
        git(path, "config", "--unset", key)
    return path


def _damaged(path: Path) -> Path:
    repository = wallet_project.make_wallet(path)
    tree = git(repository, "rev-parse", "HEAD:wallet")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    return repository


def _sha256(path: Path) -> Path:
    path.mkdir()
    git(path, "init", "-q", "--object-format=sha256", "--template=")
    commit_files(path, wallet_project.FILES)
    return path


REPOSITORIES: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "missing": (lambda path: path, 30, "does not exist"),
    "a file": (_file, 30, "is a file, not a repository"),
    "not versioned": (_plain_directory, 30, "is not a git repository"),
    "no commits": (_without_commits, 31, "has no commits yet"),
    "bare": (_bare, 32, "is a bare repository"),
    "shallow": (_shallow, 33, "`git fetch --unshallow`"),
    "incomplete": (_incomplete, 37, "is incomplete: objects of the commit"),
    "damaged": (_damaged, 37, "is incomplete: objects of the commit"),
    "SHA-256": (_sha256, 37, "object format sha256"),
}


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_a_repository_that_cannot_be_used(console: Console, tmp_path: Path, kind: str) -> None:
    make, code, words = REPOSITORIES[kind]
    refused(console, make(tmp_path / "repository"), wallet_project.ISSUE, code=code, says=("repository", words))


ISSUES: dict[str, tuple[bytes | None, int, str]] = {
    "missing": (None, 40, "does not exist"),
    "empty": (b" \n\t\n", 41, "is empty"),
    "hidden characters only": ("\u200b<!-- text -->\n".encode(), 41, "is empty"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0", 42, "is binary"),
    "UTF-16": ("Title".encode("utf-16"), 42, "UTF-16"),
    "Latin-1": ("Grüße\n".encode("latin-1"), 42, "not UTF-8"),
    "1 MB": (b"Title\n" + b"x" * 1_048_570, 43, "1,048,576 bytes"),
}


@pytest.mark.parametrize("kind", ISSUES)
def test_an_issue_that_cannot_be_used(console: Console, tmp_path: Path, kind: str) -> None:
    content, code, words = ISSUES[kind]
    path = tmp_path / "the-issue.md"
    if content is not None:
        path.write_bytes(content)
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), path, code=code, says=("the-issue.md", words))


def test_an_issue_that_is_a_directory(console: Console, tmp_path: Path) -> None:
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), tmp_path, code=40, says=("is a directory",))


def test_a_base_that_does_not_exist_names_its_neighbours(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    git(repository, "branch", "release-2.0")
    options = ("--base", "relase-2.0")
    refused(
        console,
        repository,
        wallet_project.ISSUE,
        *options,
        code=36,
        says=("is not a commit", "Did you mean release-2.0?"),
    )


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


def test_a_misspelled_provider_is_not_asked_of_another_endpoint(console: Console, tmp_path: Path) -> None:
    console.environment |= {"OPENAI_API_KEY": "not-a-key", "OPENAI_API_BASE": "http://127.0.0.1:9/v1"}
    says = ("LiteLLM does not know the provider 'antropic'", "Did you mean anthropic/claude-sonnet-4-5?")
    options = ("--model", "antropic/claude-sonnet-4-5")
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), wallet_project.ISSUE, *options, code=7, says=says)


def test_an_endpoint_where_nobody_answers(console: Console, tmp_path: Path) -> None:
    console.environment |= {"OPENAI_API_KEY": "not-a-key", "OPENAI_API_BASE": "http://127.0.0.1:9/v1"}
    says = ("Nothing answers for openai/gpt-4o", "http://127.0.0.1:9/v1", "OPENAI_API_BASE")
    options = ("--model", "openai/gpt-4o")
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), wallet_project.ISSUE, *options, code=7, says=says)


CONFIGURATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "an unknown key": ("test: make test\ntets: make\n", (":2: tets: ", "test")),
    "several problems": ("budget:\n  usd: .nan\nnetwork: ['*']\n", (":2: budget.usd: ", ":3: network")),
    "broken YAML": ("test: [make\n", (":",)),
    "a key twice": ("test: make\nlint: make\ntest: make\n", (":3: test: ",)),
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_configuration_that_is_broken(console: Console, tmp_path: Path, kind: str) -> None:
    text, says = CONFIGURATIONS[kind]
    repository = wallet_project.make_wallet(tmp_path / "wallet", {SOURCE: text})
    refused(console, repository, wallet_project.ISSUE, code=5, says=(SOURCE, *says))


def test_an_uncommitted_configuration_is_ignored(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    (repository / SOURCE).parent.mkdir()
    (repository / SOURCE).write_text("broken: [")
    finished = console.fix(repository, wallet_project.ISSUE, "--plan-only", recording=wallet_project.planned())
    assert finished.code == 0, finished.said


def test_an_unknown_sandbox(console: Console, tmp_path: Path) -> None:
    console.environment["AGENT_FIX_SANDBOX"] = "chroot"
    says = ("AGENT_FIX_SANDBOX is 'chroot'", "bubblewrap or docker or podman or e2b or none")
    refused(console, wallet_project.make_wallet(tmp_path / "wallet"), wallet_project.ISSUE, code=2, says=says)


@pytest.mark.parametrize("option", ["--out", "--state"])
@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/agent-fix", "no permission"])
def test_a_place_that_cannot_be_written(console: Console, tmp_path: Path, option: str, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "closed").mkdir(mode=0o500)
    if place == "no permission" and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    places = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "deeper",
        "no permission": tmp_path / "closed" / "deeper",
    }
    path = places.get(place, Path(place))
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    refused(
        console, repository, wallet_project.ISSUE, option, path, code=9, says=("cannot be written", str(path), option)
    )
    assert (tmp_path / "file").read_text() == "in the way"


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


def test_a_branch_that_exists_keeps_its_commit(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    git(repository, "branch", wallet_project.BRANCH)
    base = git(repository, "rev-parse", "main")
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 0, finished.said
    assert finished.job["branch"] == f"{wallet_project.BRANCH}-2"
    assert f"branch   {wallet_project.BRANCH}-2" in finished.stdout
    assert branches(repository) == [wallet_project.BRANCH, f"{wallet_project.BRANCH}-2", "main"]
    assert git(repository, "rev-parse", wallet_project.BRANCH) == base


def test_the_same_input_works_from_standard_input_and_a_subdirectory(console: Console, tmp_path: Path) -> None:
    """The other side of all these refusals: unusual input that can be used is used."""
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    recording = wallet_project.planned().save(tmp_path / "recording.jsonl")
    arguments = console.fix_arguments(repository / "wallet", Path("-"), "--model", f"recorded/{recording}")
    finished = console.execute(*arguments, "--plan-only", stdin=wallet_project.ISSUE.encode())
    assert finished.code == 0, finished.said
    assert "uses the whole repository" in finished.stdout
    assert branches(repository) == ["main"]


def test_a_repository_whose_history_has_no_common_shape(console: Console, tmp_path: Path) -> None:
    """A linked work tree with a detached HEAD and a work tree that was emptied."""
    repository = make_repository(tmp_path / "wallet", wallet_project.FILES)
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    shutil.rmtree(tmp_path / "linked" / "wallet")
    finished = console.fix(tmp_path / "linked", wallet_project.ISSUE, "--plan-only", recording=wallet_project.planned())
    assert finished.code == 0, finished.said
