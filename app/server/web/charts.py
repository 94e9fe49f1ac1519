"""Two small bar charts as figures for an SVG: jobs by verdict, and dollars a day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.jobs.job_list import DayCost
from app.llm.ledger import usd
from app.server.web.job_filter import VERDICTS

WIDTH: Final = 300
HEIGHT: Final = 84
LABEL: Final = 76
"""How wide the words beside horizontal bars are."""
ROW: Final = HEIGHT // len(VERDICTS)
BASELINE: Final = HEIGHT - 16
"""Below it are the days."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar in pixels; `name` and `value` are what it says."""

    x: float
    y: float
    width: float
    height: float
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`summary` says what the picture shows, for people who do not see it."""

    bars: tuple[Bar, ...]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT


def verdict_chart(counts: Mapping[str, int]) -> Chart:
    """One horizontal bar for each verdict, the best first."""
    most = max(counts.values(), default=0)
    room = WIDTH - LABEL - 44
    bars = tuple(
        Bar(LABEL, ROW * row + 3, _part(counts.get(name, 0), most) * room, ROW - 7, name, f"{counts.get(name, 0):,}")
        for row, name in enumerate(VERDICTS)
    )
    return Chart(bars, ", ".join(f"{bar.name}: {bar.value}" for bar in bars))


def day_chart(costs: Sequence[DayCost]) -> Chart:
    """One vertical bar for each day, the oldest first."""
    most = max((each.cost for each in costs), default=0)
    step = WIDTH / max(len(costs), 1)
    bars = []
    for number, each in enumerate(costs):
        height = _part(each.cost, most) * (BASELINE - 2)
        value = usd(each.cost)
        bars.append(Bar(step * number + 2, BASELINE - height, step - 4, height, f"{each.day:%d %b}", value))
    return Chart(tuple(bars), ", ".join(f"{bar.name}: {bar.value}" for bar in bars))


def _part(value: int, most: int) -> float:
    return value / most if most else 0.0
