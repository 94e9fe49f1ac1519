"""The base of `agent-fix fix`: the option, else the branch that the configuration names, else what is checked out."""

from pathlib import Path

import pytest

from app.cli.fix import FixOptions, find_or_create
from app.cli.local_context import LocalContext, LocalJob
from app.config.settings import settings_from
from app.core.errors import AgentFixError, ExitCode
from app.core.job import JobResult
from app.core.model_usage import DOLLAR, Totals
from tests.support.repositories import commit_files, git, make_repository

CONFIG = 'base: {default: develop, "label:hotfix": main}\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "project", {".github/agent-fix.yml": CONFIG, "a.txt": "a\n"})
    git(made, "switch", "-q", "-c", "develop")
    commit_files(made, {"develop.txt": "here\n", ".github/agent-fix.yml": "test: false\n"})
    git(made, "switch", "-q", "main")
    return made


def created(repository: Path, *, labels: str = "", base: str | None = None, defaults: str = "") -> LocalJob:
    issue = repository.parent / "issue.md"
    issue.write_text(f"---\nlabels: [{labels}]\n---\nA title\n\nText.\n")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "AGENT_FIX_MODEL": "openai/x", "OPENAI_API_KEY": "x"}
    settings = settings_from(
        {**environment, **({"AGENT_FIX_DEFAULTS": defaults} if defaults else {})}, repository.parent / "state"
    )
    return find_or_create(FixOptions(repo=repository, issue=issue, base=base), LocalContext(settings))


def test_configuration_names_the_base_and_a_note_says_so(repository: Path) -> None:
    order = created(repository)
    assert order.job.task.base_ref == "refs/heads/develop"
    assert "develop.txt" in order.tree.entries()
    assert order.config.test is None, "the configuration is that of what is checked out"
    assert any("Starts from develop" in note and "--base HEAD" in note for note in order.local_notes)


def test_label_of_the_issue_chooses_another_base(repository: Path) -> None:
    order = created(repository, labels="Hotfix")
    assert order.job.task.base_ref == "refs/heads/main"
    assert not any("Starts from" in note for note in order.local_notes)


@pytest.mark.parametrize("base", ["HEAD", "main"])
def test_option_comes_before_the_configuration(repository: Path, base: str) -> None:
    assert created(repository, base=base).job.task.base == git(repository, "rev-parse", "main")


def test_branch_that_is_not_here_is_told_before_anything_is_paid(repository: Path) -> None:
    git(repository, "branch", "-D", "develop")
    with pytest.raises(AgentFixError) as caught:
        created(repository)
    assert caught.value.code == ExitCode.UNKNOWN_BASE
    assert "git fetch origin develop" in (caught.value.hint or "")


def test_terminal_says_what_earlier_jobs_cost(repository: Path) -> None:
    result = JobResult(exit_status="pr_opened", usage=Totals(cost=DOLLAR), seconds=300, turns=4)
    settings = settings_from({"PATH": "/usr/bin"}, repository.parent / "state")
    for _ in range(5):
        order = created(repository, base="main")
        assert not any("Earlier jobs" in note for note in order.local_notes)
        store = LocalContext(settings).store
        store.finish(order.job.id, "pr_opened", "", result.model_dump(mode="json"))
        store.mark_reported(order.job.id)
    assert created(repository, base="main").local_notes[-1].startswith("Earlier jobs here cost $1.00 and took 5 min")


def test_operator_can_lock_the_base(repository: Path) -> None:
    with pytest.raises(AgentFixError, match="locked `base`"):
        created(repository, base="main", defaults="base: develop\nlock: [base]\n")
