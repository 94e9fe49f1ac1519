"""The option `--budget`: a sum, or what is added to the budget of a job."""

from pathlib import Path

from app.cli.fix import FixOptions, effective_budget
from app.core.job import Budget
from app.core.model_usage import DOLLAR

NEW = Budget(usd=5 * DOLLAR)


def dollars(option: str | None, had: int, *, extra_to: int) -> float:
    options = FixOptions(repo=Path(), issue=Path("-"), budget=option)
    budgets = (NEW.model_copy(update={"usd": amount * DOLLAR}) for amount in (had, extra_to))
    return effective_budget(options, next(budgets), extra_to=next(budgets)).usd / DOLLAR


def test_a_paused_job_gets_more_than_it_had() -> None:
    assert dollars("+3", had=8, extra_to=8) == 11


def test_repeating_the_command_of_an_interrupted_job_adds_nothing() -> None:
    assert dollars("+3", had=8, extra_to=5) == 8
    assert dollars("+3", had=5, extra_to=5) == 8


def test_a_sum_replaces_it_and_no_option_keeps_it() -> None:
    assert dollars("2", had=8, extra_to=5) == 2
    assert dollars(None, had=8, extra_to=5) == 8
