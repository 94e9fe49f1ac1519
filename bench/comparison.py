"""The figures of all harnesses side by side, the aims, and where we lose; pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.figures import CACHED_WEIGHT, UNCACHED_WEIGHT, Figures

OURS, BESIDE = "agent-fix", "mini-swe-agent"


class Column(NamedTuple):
    title: str
    show: Callable[[Figures], str]


COLUMNS = (
    Column("script", lambda one: one.script),
    Column("steps", lambda one: str(one.steps)),
    Column("harness", lambda one: f"{one.harness} {one.version}"),
    Column("total tokens", lambda one: _thousands(one.total)),
    Column("uncached", lambda one: _thousands(one.uncached)),
    Column("cacheable", lambda one: f"{one.cacheable:.1%}"),
    Column("cost", lambda one: _thousands(one.cost)),
    Column("head", lambda one: f"{one.head:,}"),
    Column("prefix kept", lambda one: f"{one.kept:.2%}"),
    Column("breaks", lambda one: str(one.breaks)),
    Column("ms a step", lambda one: f"{one.ms:.0f}"),
    Column("first, last fifth", lambda one: f"{one.first_ms:.0f}, {one.last_ms:.0f}"),
    Column("processor ms a step", lambda one: f"{one.cpu_ms:.0f}"),
    Column("first, last fifth", lambda one: f"{one.first_cpu_ms:.0f}, {one.last_cpu_ms:.0f}"),
    Column("peak MB", lambda one: f"{one.peak:.0f}"),
    Column("requests", lambda one: str(one.requests)),
    Column("characters / 4", lambda one: _thousands(one.estimate)),
)


class Aim(NamedTuple):
    """What a figure is to be at most, as a share of mini-swe-agent's of as many steps of a script of that kind."""

    name: str
    steps: int
    of: Callable[[Figures], float]
    share: float
    script: str = "clauses"


ORDINARY = "ordinary"
AIMS = (
    Aim("total tokens", 40, lambda one: one.total, 0.50),
    Aim("total tokens", 100, lambda one: one.total, 0.25),
    Aim("cost", 40, lambda one: one.cost, 0.60),
    Aim("cost", 100, lambda one: one.cost, 0.35),
    Aim("total tokens", 40, lambda one: one.total, 0.70, ORDINARY),
    Aim("total tokens", 100, lambda one: one.total, 0.40, ORDINARY),
    Aim("cost", 40, lambda one: one.cost, 0.90, ORDINARY),
    Aim("cost", 100, lambda one: one.cost, 0.50, ORDINARY),
)
PREFIX = 0.99


def render(taken: Sequence[Figures], absent: Mapping[str, str], floor: float) -> str:
    """`floor` is how many milliseconds the median command takes by itself."""
    rows = sorted(taken, key=lambda one: (one.script, one.steps))
    weights = (
        f"Cost: new tokens at {UNCACHED_WEIGHT:g}, those that a cache still has at {CACHED_WEIGHT:g}; answers left out."
    )
    weights += f" The same commands in a plain shell take {floor:.0f} ms (median)."
    missing = [f"{name}: not measured. {why}" for name, why in absent.items()]
    parts = [table([column.title for column in COLUMNS], [[c.show(row) for c in COLUMNS] for row in rows]), weights]
    parts += [by_part(rows)] if any(len(row.parts) > 1 for row in rows) else []
    return "\n\n".join(filter(None, [*parts, "\n".join(missing), "\n".join(aims(rows)), "\n".join(losses(rows))]))


def by_part(rows: Sequence[Figures]) -> str:
    """Each conversation of ours: its requests, tokens, cost, and the tokens of its answers."""
    return table(
        ["script", "part", "requests", "tokens", "uncached", "cost", "answers"],
        [
            [
                row.script,
                part.part,
                *map(str, (part.requests, part.total, part.uncached)),
                f"{part.cost:.0f}",
                str(part.answers),
            ]
            for row in rows
            if row.harness == OURS
            for part in row.parts
        ],
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that reads well in a terminal too."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(c.ljust(w) for c, w in zip(line, widths, strict=True))} |" for line in lines)


def aims(taken: Sequence[Figures]) -> list[str]:
    """Each aim with what was reached."""
    said = []
    for ours, theirs in pairs(taken):
        ratios = [f"{name} {of(ours) / of(theirs):.2f}" for name, of in _COMPARED.items()]
        if ours.script.startswith("short"):
            said.append(f"{ours.script}, {ours.steps} steps: {', '.join(ratios)} of {BESIDE}'s")
        for aim in AIMS:
            if aim.steps == theirs.steps and ours.script.startswith(aim.script):
                share = aim.of(ours) / aim.of(theirs)
                where = "" if aim.script == ours.script else f" of {ours.script}"
                told = f"{aim.name} at {aim.steps} steps{where}"
                said.append(_aim(told, f"{share:.2f} of {BESIDE}'s", share <= aim.share, aim.share))
    said += [
        _aim(
            f"prefix kept at {one.steps} steps",
            f"{one.kept:.2%}, all but {one.breaks} times",
            one.kept >= PREFIX,
            PREFIX,
        )
        for one in taken
        if one.harness == OURS and not one.script.startswith("short")
    ]
    return said


_MAX_AGAIN = 2
_COMPARED: dict[str, Callable[[Figures], float]] = {
    "total tokens": lambda one: one.total,
    "cost": lambda one: one.cost,
    "cost of the work": lambda one: one.work,
}


def pairs(taken: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
    """Ours with mini's of the same script and length; a submission that comes back once makes ours a step longer."""
    return [
        (ours, theirs)
        for ours in taken
        for theirs in taken
        if (ours.harness, theirs.harness) == (OURS, BESIDE)
        and ours.script == theirs.script
        and 0 <= ours.steps - theirs.steps <= _MAX_AGAIN
    ]


def _aim(name: str, reached: str, met: bool, wanted: float) -> str:
    return f"{name}: {reached}, aim {wanted:g}: {'met' if met else 'MISSED'}"


HIGHER_IS_WORSE: dict[str, Callable[[Figures], float]] = {
    "total tokens": lambda one: one.total,
    "uncached tokens": lambda one: one.uncached,
    "cost": lambda one: one.cost,
    "fixed head": lambda one: one.head,
    "breaks of the prefix": lambda one: one.breaks,
    "milliseconds a step": lambda one: one.ms,
    "processor milliseconds a step": lambda one: one.cpu_ms,
    "peak memory": lambda one: one.peak,
}


def losses(taken: Sequence[Figures]) -> list[str]:
    """Where another is better than we are."""
    said = []
    for ours in (one for one in taken if one.harness == OURS):
        for other in (
            one for one in taken if one.harness != OURS and (one.script, one.steps) == (ours.script, ours.steps)
        ):
            worse = [
                f"{name} {_plain(of(ours))} to {_plain(of(other))}"
                for name, of in HIGHER_IS_WORSE.items()
                if of(ours) > of(other)
            ]
            if worse:
                said.append(f"{ours.steps} steps, we lose to {other.harness}: {'; '.join(worse)}")
    return said


def _thousands(number: float) -> str:
    return f"{number / 1_000:,.0f} k"


def _plain(number: float) -> str:
    return f"{number:,.0f}"
