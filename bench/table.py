"""Figures as people read them: a median with its spread, what was aimed at, and what it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing. `aim` is what we want it to be at most; `than` holds the same of what it is compared with."""

    name: str
    samples: Sequence[float]
    unit: str
    aim: float | None = None
    than: Sequence[float] = ()
    note: str = ""

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def ratio(self) -> float | None:
        """How many times the other it is; of pairs measured one right after the other, the median of their ratios."""
        if not self.than:
            return None
        if len(self.than) == len(self.samples):
            return median(ours / theirs for ours, theirs in zip(self.samples, self.than, strict=True))
        return self.median / median(self.than)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "samples": list(self.samples),
            "aim": self.aim,
            "ratio": self.ratio,
            "note": self.note,
        }


HEAD = ("", "median", "min-max", "aim", "ratio", "")


def render(rows: Sequence[Row]) -> str:
    """A Markdown table, which reads well in a terminal too."""
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{_figure(row.median)} {row.unit}",
        f"{_figure(min(row.samples))}-{_figure(max(row.samples))}",
        "" if row.aim is None else f"<= {_figure(row.aim)}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.note,
    )


def _figure(number: float) -> str:
    if abs(number) >= 1_000:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that reads well in a terminal too."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(c.ljust(w) for c, w in zip(line, widths, strict=True))} |" for line in lines)
