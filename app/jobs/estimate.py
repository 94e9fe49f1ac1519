"""What a job will probably cost: the figures of earlier jobs of the same repository."""

from collections.abc import Iterable
from math import ceil
from statistics import median

from app.core.job import JobResult
from app.core.model_usage import usd

MIN_JOBS = 5
"""With fewer, nothing is said."""
MAX_JOBS = 50


def estimate(results: Iterable[JobResult | None], budget: int) -> str:
    """One sentence for people, from jobs in which a model worked for a known price; empty if there are too few.

    `budget` is the new job's, in micro-dollars.
    """
    worked = [each for each in results if each is not None and each.turns and each.usage.cost and each.seconds]
    if len(worked) < MIN_JOBS:
        return ""
    costs, minutes = sorted(each.usage.cost for each in worked), sorted(each.seconds / 60 for each in worked)
    place = ceil(0.9 * len(worked)) - 1
    middle = round(median(costs))
    usual = f"Earlier jobs here cost {usd(middle)} and took {_minutes(median(minutes))} (median of {len(worked)})"
    most = f"nine in ten at most {usd(costs[place])} and {_minutes(minutes[place])}"
    short = f" The budget of {usd(budget)} may not suffice; then the job pauses and asks." if middle > budget else ""
    return f"{usual}; {most}.{short}"


def _minutes(number: float) -> str:
    return f"{max(round(number), 1):,} min"
