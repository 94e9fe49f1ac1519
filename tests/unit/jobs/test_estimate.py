"""What a job will probably cost, from the results of earlier ones."""

import pytest

from app.core.job import JobResult
from app.core.model_usage import DOLLAR, Totals
from app.jobs.estimate import estimate


def ended(cents: int, minutes: float, turns: int = 3) -> JobResult:
    return JobResult(
        exit_status="pr_opened", usage=Totals(cost=cents * DOLLAR // 100), seconds=minutes * 60, turns=turns
    )


TEN = [ended(cents, cents / 10) for cents in (90, 10, 20, 30, 40, 50, 60, 70, 80, 500)]


def test_median_and_nine_in_ten_are_told() -> None:
    assert estimate(TEN, 5 * DOLLAR) == (
        "Earlier jobs here cost $0.55 and took 6 min (median of 10); nine in ten at most $0.90 and 9 min."
    )


def test_budget_below_the_median_is_told() -> None:
    assert estimate(TEN, DOLLAR // 2).endswith(" The budget of $0.50 may not suffice; then the job pauses and asks.")
    assert "budget" not in estimate(TEN, DOLLAR)


@pytest.mark.parametrize(
    "results",
    [
        [],
        TEN[:4],
        [*TEN[:4], ended(0, 3), ended(9, 3, turns=0), ended(9, 0), None],
    ],
    ids=["none", "few", "unpriced, without turns, without time, unreadable"],
)
def test_too_few_jobs_give_no_estimate(results: list[JobResult | None]) -> None:
    assert estimate(results, DOLLAR) == ""


def test_one_job_gives_no_fraction_of_a_minute() -> None:
    assert "took 1 min" in estimate([ended(1, 0.1)] * 5, DOLLAR)
