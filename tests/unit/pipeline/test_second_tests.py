"""A second author sees the first supported submission; later submissions have to pass that author's tests, too."""

from dataclasses import dataclass, field, replace

import pytest

from app.core.patch import Patch
from app.core.verification import (
    Control,
    Facts,
    Outcome,
    Specification,
    SpecificationResult,
    SpecifiedTest,
    Verification,
)
from app.pipeline.pipeline import JobServices, solve
from app.verify.verdict import with_verdict
from tests.support.memory_journal import CrashMoment, Died, MemoryJournal
from tests.support.scripted_job import SUBMISSION, SUBMITTED, Agent, Author, World, job, objects, patch, specified

HELD = (Control(name="failing_copies_fail", outcome="held"),)


def second(*heads: Outcome) -> SpecificationResult:
    tests = tuple(
        SpecifiedTest(id=f"s::{number}", sentence=f"Doubt {number}.", role="guards", head=head)
        for number, head in enumerate(heads)
    )
    return SpecificationResult(tests=tests, digest="e", controls=HELD)


def facts(first: Outcome, *heads: Outcome) -> Verification:
    """The first author's tests, and the second one's if there are any."""
    found = specified(first, first).model_copy(update={"controls": HELD})
    return with_verdict(Facts(specification=found, second_tests=second(*heads) if heads else None))


@dataclass
class TwoAuthors(Author):
    """Writes tests against a change, too."""

    writes: Specification = field(default_factory=lambda: Specification(tests=second("not_run").tests, digest="e"))
    shown: list[tuple[str, Patch]] = field(default_factory=list)

    async def test_change(self, key: str, submitted: Patch, first: Specification) -> Specification:
        self.shown.append((key, submitted))
        return self.writes

    def services(self, world: World) -> JobServices:
        return replace(super().services(world), test_change=self.test_change)


async def test_second_author_sees_a_supported_change_once() -> None:
    author, world = TwoAuthors(), World(Agent([SUBMISSION], SUBMITTED), [facts("passed")], [patch()])
    world.second_results = [second("passed")]
    result = await solve(job(), author.services(world), MemoryJournal())
    assert author.shown == [("second_tests", patch())]
    assert result.verification is not None
    assert result.verification.second_tests == second("passed")
    assert "One more test that a second author wrote against this change passes on the head." in result.reason


async def test_second_author_is_not_asked_about_a_change_that_fails() -> None:
    author, world = TwoAuthors(), World(Agent([SUBMISSION], SUBMITTED), [facts("failed")], [patch()])
    await solve(job(), author.services(world), MemoryJournal())
    assert author.shown == []


async def test_change_that_fails_a_second_test_is_sent_back_with_its_sentence() -> None:
    author, agent = TwoAuthors(), Agent([SUBMISSION, SUBMISSION], SUBMITTED)
    world = World(agent, [facts("passed"), facts("passed", "passed")], [patch(b"1"), patch(b"2")])
    world.second_results = [second("failed")]
    result = await solve(job(), author.services(world), MemoryJournal())
    assert [review.accepted for review in agent.reviews] == [False, True]
    assert "behaviour that it broke:\n  - Doubt 0." in agent.reviews[0].text
    assert "s::0" not in agent.reviews[0].text
    assert len(author.shown) == 1
    assert [known.second_tests is not None for known in world.known] == [False, True]
    assert result.verification is not None
    assert not result.verification.second_tests.failing  # type: ignore[union-attr]


async def test_objection_to_a_second_test_is_decided_by_a_third_call_and_caps_the_verdict() -> None:
    author, agent = TwoAuthors(withdraws=("s::0",)), Agent([SUBMISSION, objects()], SUBMITTED)
    world = World(agent, [facts("passed"), facts("passed", "failed")], [patch(b"1"), patch(b"2")])
    world.second_results = [second("failed")]
    result = await solve(job(), author.services(world), MemoryJournal())
    assert author.decided == ["second_tests.objection"]
    assert result.verification is not None
    assert "second_tests_disputed" in result.verification.rules
    assert result.verification.verdict != "broken"


async def test_without_second_tests_the_reason_is_kept_and_nothing_is_run() -> None:
    author = TwoAuthors(writes=Specification(absent="nothing could be wrong."))
    world = World(Agent([SUBMISSION], SUBMITTED), [facts("passed")], [patch()])
    result = await solve(job(), author.services(world), MemoryJournal())
    assert result.verification is not None
    assert result.verification.second_tests == SpecificationResult(absent="nothing could be wrong.")


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("step", ["second_tests", "second_tests.head"])
async def test_a_crash_around_the_second_author_changes_nothing(step: str, moment: CrashMoment) -> None:
    author, world = TwoAuthors(), World(Agent([SUBMISSION], SUBMITTED), [facts("passed")], [patch()])
    world.second_results = [second("passed")] * 2
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(), author.services(world), journal)
    result = await solve(job(), author.services(world), journal.resumed())
    assert result.verification is not None
    assert result.verification.second_tests == second("passed")
    assert world.executed == 1
