"""Verification of somebody's change: what counts against it, what is only a question, and who is asked what."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.agent.prompts import render_derivation
from app.agent.second_opinion import SecondOpinion, second_opinion
from app.core.errors import AgentFixError, ExitCode
from app.core.examples import (
    Because,
    Example,
    FrozenExamples,
    JudgedExample,
    OutdatedTest,
    PlanExamples,
    ProgramRun,
    Review,
)
from app.core.job import JobResult
from app.core.patch import Patch
from app.core.verification import Execution, Facts, GateResult, SuiteComparison, SuiteResult, TestCount, Verification
from app.llm.base import ModelAnswer, ModelRequest
from app.llm.errors import ModelError
from app.pipeline.change_verification import ChangeServices, verify_change
from app.verify.verdict import with_verdict
from tests.support.memory_journal import MemoryJournal
from tests.support.scripted_job import SUBMITTED, Agent, World, job, patch

RAN = Execution(command="pytest", exit_code=0, seconds=1.0)
SUITE = SuiteComparison(
    command="pytest",
    base=SuiteResult(execution=RAN, count=TestCount(passed=3)),
    head=SuiteResult(execution=RAN, count=TestCount(passed=4)),
)
DISAGREE = "another output was derived."


def one(name: str, base: str, change: str, expected: str = "right", **more: Any) -> JudgedExample:
    """An example that should print `right`; `today` in its name means that it must go on as it is."""
    return JudgedExample(
        name=name,
        behaviour=f"Behaviour {name}.",
        because=Because(quote="it is right", source="issue"),
        run="python",
        program=f"print('{name} of the project')",
        stdout=expected,
        quoted=True,
        **{"base": (ProgramRun(stdout=base),) * 2, "change": (ProgramRun(stdout=change),) * 2, **more},
    )


TURNS = one("1", "wrong", "right")
FAILS = one("2", "wrong", "worse")
KEPT_NOT = one("3", "right", "worse", kind="keeps")
REGRESSION = one("r1", "right", "worse", origin="reviewer")
ALIKE = one("r2", "wrong", "wrong", origin="reviewer")


@dataclass
class Judged:
    """A change whose runs are known, and what the two conversations say."""

    examples: Sequence[JudgedExample] = (TURNS,)
    counter: Sequence[JudgedExample] = ()
    doubts: dict[str, str] = field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    change: Patch = field(default_factory=patch)
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        found = PlanExamples(examples=tuple(self.examples))
        hidden = tuple(each.model_copy(update={"hidden": True}) for each in self.examples)
        facts = Facts(examples=PlanExamples(examples=hidden), suite=SUITE, gates=self.gates, of_others=True)
        self.world = World(Agent([], SUBMITTED), [with_verdict(facts)], [patch()], found=found)

    async def review(self, key: str, change: Patch, known: Verification) -> Review:
        self.shown += [each.name for each in known.examples.examples] if known.examples else []
        return Review(examples=tuple(self.counter), nothing="" if self.counter else "Nothing.")

    async def ask_again(self, whose: str, examples: Sequence[JudgedExample]) -> SecondOpinion:
        self.asked.append((whose, tuple(each.name for each in examples)))
        return SecondOpinion(unconfirmed=self.doubts)

    async def run_counter(self, written: Sequence[Example], change: Patch) -> Review:
        self.asked.append(("counter", tuple(each.behaviour for each in written)))
        return Review(examples=tuple(self.counter))

    async def freeze(self, written: Sequence[Example], outdated: Sequence[OutdatedTest]) -> tuple[PlanExamples, str]:
        return PlanExamples(examples=tuple(self.examples)), ""

    async def verdict(self, **options: object) -> JobResult:
        services = replace(self.world.services(), ask_reviewer=self.review, freeze=self.freeze)
        change = ChangeServices(lambda: self.change, lambda _: (), "the issue", self.ask_again, self.run_counter)
        return await verify_change(job(aim="verify", change="1" * 40, **options), services, change, MemoryJournal())


def verdict_of(result: JobResult) -> tuple[str, ExitCode]:
    assert result.verification is not None
    assert result.exit_status == "verified"
    return result.verification.verdict, result.exit_code


@pytest.mark.parametrize(
    ("judged", "verdict", "code"),
    [
        (Judged(), "proved", 0),
        (Judged((TURNS, FAILS)), "broken", 21),
        (Judged((TURNS, FAILS), doubts={"2": DISAGREE}), "unproved", 20),
        (Judged((TURNS, KEPT_NOT)), "broken", 21),
        (Judged((TURNS, KEPT_NOT), doubts={"3": DISAGREE}), "unproved", 20),
        (Judged((TURNS, FAILS, KEPT_NOT), doubts={"2": DISAGREE}), "broken", 21),
        (Judged(counter=(REGRESSION,)), "broken", 21),
        (Judged(counter=(REGRESSION,), doubts={"r1": DISAGREE}), "unproved", 20),
        (Judged(counter=(ALIKE,)), "tested", 0),
        (Judged(()), "unproved", 20),
        (Judged(gates=(GateResult(name="secrets", outcome="blocked", details=("a key",)),)), "broken", 21),
        (Judged(gates=(GateResult(name="size", outcome="warned", details=("4,000 files",)),)), "unproved", 20),
    ],
)
async def test_verdict_and_exit_code(judged: Judged, verdict: str, code: int) -> None:
    assert verdict_of(await judged.verdict()) == (verdict, code)


async def test_each_is_asked_about_what_the_other_wrote_and_that_fails() -> None:
    judged = Judged((TURNS, FAILS, KEPT_NOT), counter=(REGRESSION, ALIKE))
    await judged.verdict()
    assert judged.asked == [("author", ("2", "3")), ("reviewer", ("r1",))]


async def test_the_reviewer_sees_only_examples_that_hold() -> None:
    judged = Judged((TURNS, FAILS))
    await judged.verdict()
    assert judged.shown == ["1"]


async def test_nothing_is_asked_if_nothing_fails() -> None:
    judged = Judged(counter=(ALIKE,))
    await judged.verdict()
    assert judged.asked == []


async def test_a_refactoring_has_no_author_but_a_reviewer() -> None:
    judged = Judged(counter=(REGRESSION,))
    task = job().task.model_copy(update={"kind": "refactoring"})
    services = replace(judged.world.services(), ask_reviewer=judged.review)
    change = ChangeServices(lambda: judged.change, lambda _: (), "the issue", judged.ask_again, judged.run_counter)
    result = await verify_change(job(aim="verify", task=task), services, change, MemoryJournal())
    assert judged.world.answered == []
    assert result.verification is not None
    assert result.verification.verdict == "broken"


async def test_a_change_without_files_is_refused() -> None:
    with pytest.raises(AgentFixError, match="same files") as refused:
        await Judged(change=Patch(base="0" * 40)).verdict()
    assert refused.value.code == ExitCode.NO_CHANGE


def says(text: str) -> Any:
    async def ask(request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(content=text)

    return ask


@pytest.mark.parametrize(
    ("answer", "example", "confirmed"),
    [
        ('{"answers": [{"number": 1, "output": "right\\n", "as_before": false}]}', FAILS, True),
        ('{"answers": [{"number": 1, "output": "Right", "as_before": false}]}', FAILS, False),
        ('{"answers": [{"number": 1, "output": "worse", "as_before": false}]}', FAILS, False),
        ('{"answers": [{"number": 1, "output": "", "as_before": true}]}', FAILS, False),
        ('{"answers": [{"number": 1, "output": "", "as_before": true}]}', KEPT_NOT, True),
        ('{"answers": [{"number": 1, "output": "", "as_before": true}]}', REGRESSION, True),
        ('{"answers": [{"number": 1, "output": "", "as_before": false}]}', KEPT_NOT, False),
        ('{"answers": [{"number": 2, "output": "right", "as_before": false}]}', FAILS, False),
        ('{"answers": "right"}', FAILS, False),
        ('{"answers": [{"number": "1", "output": "right"}]}', FAILS, False),
        ("right", FAILS, False),
        ("", FAILS, False),
    ],
)
async def test_only_the_same_output_confirms(answer: str, example: JudgedExample, confirmed: bool) -> None:
    found = await second_opinion(says(answer), job(aim="verify"), [example])
    assert (found.unconfirmed[example.name] == "") is confirmed


async def test_a_model_that_refuses_confirms_nothing_and_an_outage_is_waited_for() -> None:
    async def refuse(request: ModelRequest) -> ModelAnswer:
        raise ModelError("no", kind="give_up", reason="refused")

    async def be_down(request: ModelRequest) -> ModelAnswer:
        raise ModelError("later", kind="wait", reason="rate_limit")

    assert "could not be asked" in (await second_opinion(refuse, job(), [FAILS])).unconfirmed["2"]
    with pytest.raises(ModelError):
        await second_opinion(be_down, job(), [FAILS])


def test_derivation_has_neither_expected_nor_real_output() -> None:
    text = render_derivation(job(aim="verify"), [FAILS, KEPT_NOT])
    assert "print('2 of the project')" in text
    for hidden in ("right", "worse", "wrong", "Behaviour"):
        assert hidden not in text


@pytest.mark.parametrize(
    ("judged", "doubted", "verdict"),
    [
        (Judged(), (), "unproved"),  # it holds, but nobody has seen this commit
        (Judged((TURNS, FAILS)), (), "broken"),
        (Judged((TURNS, FAILS)), ("2",), "unproved"),
        (Judged(counter=(REGRESSION,)), (), "broken"),
        (Judged(counter=(REGRESSION,)), ("r1",), "unproved"),
    ],
)
async def test_a_later_commit_is_judged_by_the_frozen_examples(
    judged: Judged, doubted: tuple[str, ...], verdict: str
) -> None:
    def before(examples: Sequence[JudgedExample]) -> tuple[JudgedExample, ...]:
        return tuple(each.model_copy(update={"unconfirmed": DISAGREE * (each.name in doubted)}) for each in examples)

    frozen = FrozenExamples(author=before(judged.examples), reviewer=before(judged.counter))
    found = verdict_of(await judged.verdict(frozen=frozen))
    assert found[0] == verdict
    assert judged.world.answered == [], "no author was asked"
    assert judged.shown == [], "no reviewer was asked"
    assert {whose for whose, _ in judged.asked} <= {"counter"}, "no second opinion was asked for"


@pytest.mark.parametrize(
    ("review", "verdict"),
    [(None, "unproved"), (Review(absent="no money."), "unproved"), (Review(nothing="Nothing."), "tested")],
)
def test_a_title_that_calls_it_a_refactoring_is_no_evidence(review: Review | None, verdict: str) -> None:
    """The title is the author's own; without examples somebody has to have looked at the change."""
    facts = Facts(suite=SUITE, review=review, expects_red=False, of_others=True)
    assert with_verdict(facts).verdict == verdict
