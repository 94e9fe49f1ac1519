"""The option `--budget`: a sum, or what is added to the budget of a job; and the options that an operator locks."""

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from app.cli import parser
from app.cli.fix import FixOptions, effective_budget, find_or_create, options_of, refuse_locked
from app.cli.local_context import LocalContext, LocalJob
from app.config.repository import OperatorDefaults
from app.config.settings import settings_from
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget
from app.core.model_usage import DOLLAR
from tests.support.repositories import make_repository

NEW = Budget(usd=5 * DOLLAR)


def dollars(option: str | None, had: int, *, extra_to: int) -> float:
    options = FixOptions(repo=Path(), issue=Path("-"), budget=option)
    budgets = (NEW.model_copy(update={"usd": amount * DOLLAR}) for amount in (had, extra_to))
    return effective_budget(options, next(budgets), extra_to=next(budgets)).usd / DOLLAR


def draft_of(place: Path, environment: dict[str, str], **options: Any) -> LocalJob:
    (place / "issue.md").write_text("# Wrong\n\nIt is.\n")
    repository = make_repository(place / "repo", {"a.py": "x = 1\n"})
    settings = settings_from({"HOME": str(place), "PATH": os.environ["PATH"], **environment}, place / "state")
    given = FixOptions(repo=repository, issue=place / "issue.md", **options)
    return find_or_create(given, LocalContext(settings))


def test_the_environments_budget_is_that_of_a_repository_without_one(tmp_path: Path) -> None:
    environment = {"AGENT_FIX_MODEL": "some/model", "AGENT_FIX_BUDGET": "2"}
    assert draft_of(tmp_path, environment).job.budget.usd == 2 * DOLLAR


@pytest.mark.parametrize(
    ("locked", "options"),
    [
        ("budget.usd", {"budget": "100"}),
        ("budget", {"max_steps": 9}),
        ("model", {"model": "other/one"}),
        ("protected_paths", {"allow": ("deploy/",)}),
    ],
)
def test_an_option_for_a_key_that_the_operator_locks_is_refused(
    locked: str, options: dict[str, Any], tmp_path: Path
) -> None:
    environment = {"AGENT_FIX_DEFAULTS": f"model: some/model\nlock: [{locked}]\n"}
    with pytest.raises(AgentFixError, match=f"the operator has locked `{locked}") as caught:
        draft_of(tmp_path, environment, **options)
    assert caught.value.code == ExitCode.USAGE
    assert not (tmp_path / "state").exists()


SETS = {
    "--model": ("some/model", "model"),
    "--reasoning": ("low", "reasoning"),
    "--runner": ("native", "runner"),
    "--budget": ("3", "budget.usd"),
    "--max-steps": ("9", "budget.steps"),
    "--max-minutes": ("9", "budget.minutes"),
    "--allow": ("deploy/", "protected_paths"),
    "--no-images": (None, "images"),
    "--approve": (None, "plan"),
    "--no-plan": (None, "plan"),
}
"""An option with a value, and the key that it sets."""
SETS_NONE = {"--help", "--repo", "--issue", "--base", "--sandbox", "--out", "--record", "--events", "--json", "--state"}
SETS_NONE |= {
    "--quiet",
    "--verbose",
    "--restart",
    "--kind",
    "--prompt",
    "--fixed-by",
    "--attempts",
    "--plan-only",
    "--plan",
}


def refused(key: str, *words: str) -> None:
    parsed = parser().parse_args(["fix", "--issue", "issue.md", *words])
    refuse_locked(options_of(parsed), OperatorDefaults(lock=(key,)))


@pytest.mark.parametrize("option", SETS)
def test_every_option_that_sets_a_locked_key_is_refused_as_it_is_written(option: str) -> None:
    value, key = SETS[option]
    words = (option,) if value is None else (option, value)
    with pytest.raises(AgentFixError, match=f"^{option}: the operator has locked `{key}`") as caught:
        refused(key, *words)
    assert caught.value.hint == f"Run the command without {option}."
    refused("labels", *words)


def test_an_option_sets_a_key_or_none() -> None:
    """A new option of `fix` is added to one of the two."""
    commands = next(each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    options = {each.option_strings[-1] for each in commands.choices["fix"]._actions if each.option_strings}
    assert options == SETS.keys() | SETS_NONE


@pytest.mark.parametrize("words", [("--plan-only",), ("--plan", "plan.md")])
def test_a_plan_alone_is_made_or_used_if_its_key_is_locked(words: tuple[str, ...]) -> None:
    """As `/agent plan` on GitHub; a given plan is approved as the configuration says."""
    refused("plan", *words)


def test_a_paused_job_gets_more_than_it_had() -> None:
    assert dollars("+3", had=8, extra_to=8) == 11


def test_repeating_the_command_of_an_interrupted_job_adds_nothing() -> None:
    assert dollars("+3", had=8, extra_to=5) == 8
    assert dollars("+3", had=5, extra_to=5) == 8


def test_a_sum_replaces_it_and_no_option_keeps_it() -> None:
    assert dollars("2", had=8, extra_to=5) == 2
    assert dollars(None, had=8, extra_to=5) == 8
