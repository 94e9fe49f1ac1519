"""What one harness's requests come to: tokens, what a provider's cache saves of them, and time; pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any, NamedTuple

from bench.counting import Record
from bench.script import Part

UNCACHED_WEIGHT, CACHED_WEIGHT = 1.0, 0.1
"""Price of a prompt token that is new, and of one that the provider still has; answers are the same for all."""


class PartFigures(NamedTuple):
    """The requests of one conversation, their tokens, and those of the answers."""

    part: Part
    requests: int
    total: int
    uncached: int
    answers: int

    @property
    def cost(self) -> float:
        return _cost(self.total, self.uncached)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one script. Tokens are those of OpenAI's tokenizer; `estimate` is characters / 4.

    `head` is the first request without the task. `kept` is how much of each request the next repeats, of all that it
    could; `breaks` how often it was not all. `ms` is the median time between an answer and the next request, with the
    command in between; `first_ms` and `last_ms` those of the first and last fifth. `cpu_ms` and its two are the mean
    processor time of the harness itself, without its commands. `peak` is the largest process in megabytes. `prompts`
    are the tokens of each request that offered tools.
    """

    harness: str
    version: str
    steps: int
    requests: int
    wire: int
    estimate: int
    total: int
    uncached: int
    head: int
    kept: float
    breaks: int
    ms: float
    first_ms: float
    last_ms: float
    cpu_ms: float
    first_cpu_ms: float
    last_cpu_ms: float
    peak: float
    prompts: tuple[int, ...] = ()
    script: str = "clauses"
    parts: tuple[PartFigures, ...] = ()

    @property
    def work(self) -> float:
        """The cost of the conversation that did the work."""
        return sum(part.cost for part in self.parts if part.part == "work")

    @property
    def cacheable(self) -> float:
        return 1 - self.uncached / self.total

    @property
    def cost(self) -> float:
        """Tokens as they are paid for: those from the cache at a tenth."""
        return _cost(self.total, self.uncached)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "cacheable": self.cacheable, "cost": self.cost}


def _cost(total: int, uncached: int) -> float:
    return UNCACHED_WEIGHT * uncached + CACHED_WEIGHT * (total - uncached)


def figures(
    harness: str, version: str, records: Sequence[Record], *, task: int, peak: float, script: str = "clauses"
) -> Figures:
    """`task` is how many tokens the task's own text has."""
    steps = [record for record in records if record.step is not None]
    later = steps[1:]
    gaps = [1_000 * record.gap for record in later if record.gap is not None]
    used = [1_000 * record.cpu for record in later]
    fifth = max(len(gaps) // 5, 1)
    return Figures(
        harness=harness,
        version=version,
        steps=len(steps),
        requests=len(records),
        wire=sum(record.wire for record in records),
        estimate=sum(record.characters for record in records) // 4,
        total=sum(record.tokens for record in records),
        uncached=sum(record.tokens - record.cached for record in records),
        head=steps[0].tokens - task,
        kept=sum(record.kept for record in later) / max(sum(record.before for record in later), 1),
        breaks=sum(record.kept < record.before for record in later),
        ms=median(gaps),
        first_ms=median(gaps[:fifth]),
        last_ms=median(gaps[-fifth:]),
        cpu_ms=mean(used),
        first_cpu_ms=mean(used[:fifth]),
        last_cpu_ms=mean(used[-fifth:]),
        peak=peak,
        prompts=tuple(record.tokens for record in steps),
        script=script,
        parts=tuple(_part(part, records) for part in dict.fromkeys(record.part for record in records)),
    )


def _part(part: Part, records: Sequence[Record]) -> PartFigures:
    own = [record for record in records if record.part == part]
    return PartFigures(
        part,
        requests=len(own),
        total=sum(record.tokens for record in own),
        uncached=sum(record.tokens - record.cached for record in own),
        answers=sum(record.answer for record in own),
    )
