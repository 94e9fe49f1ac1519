"""Tests by the independent test author: frozen once, objections decided once, all submissions count."""

import pytest

from app.agent.base import Submission
from app.core.errors import ExitCode
from app.core.verification import (
    Control,
    Facts,
    Reproduction,
)
from app.pipeline.pipeline import solve
from app.verify.verdict import with_verdict
from tests.support.memory_journal import CrashMoment, Died, MemoryJournal
from tests.support.scripted_job import (
    FROZEN,
    SUBMISSION,
    SUBMITTED,
    Agent,
    Author,
    World,
    asks,
    facts,
    job,
    objects,
    patch,
    says,
    verification,
    willing,
    work,
)


async def test_the_tests_are_frozen_once_for_all_attempts_and_every_resume() -> None:
    author, world = Author(), World(Agent([SUBMISSION], SUBMITTED), [facts("passed")] * 3, [patch()])
    journal = MemoryJournal(die_at="verify.1", moment="before")
    with pytest.raises(Died):
        await solve(job(attempts=2), author.services(world), journal)
    await solve(job(attempts=2), author.services(world), journal.resumed())
    assert author.asked == [("specification", 0)]
    assert world.known[-1].specification == FROZEN


async def test_no_specification_is_written_if_no_red_is_expected() -> None:
    author, world = Author(), World(Agent([SUBMISSION], SUBMITTED), [verification("tested")], [patch()])
    await solve(job(conflicts=("a",)), author.services(world), MemoryJournal())
    assert author.asked == []
    assert world.known[-1].specification is None


async def test_answers_are_passed_to_the_specification_author() -> None:
    author, world = Author(), willing([asks("Which currency?")], says(7, "Euro."))
    await solve(job(), author.services(world), MemoryJournal())
    assert author.asked == [("specification", 0), ("specification.answered", 1)]


async def test_objection_is_decided_once_and_withdrawn_tests_cap_the_verdict() -> None:
    author = Author(withdraws=("t::0",))
    agent = Agent([SUBMISSION, objects(), objects("Again.")], SUBMITTED)
    world = World(agent, [facts("failed", "failed"), facts("failed", "failed"), facts("failed", "passed")], [patch()])
    world.patches = [patch(b"1"), patch(b"2"), patch(b"3")]
    result = await solve(job(), author.services(world), MemoryJournal())
    assert author.decided == ["objection"]
    assert [review.accepted for review in agent.reviews] == [False, False, True]
    assert "  - Sentence 1." in agent.reviews[1].text
    assert "  - Sentence 0." not in agent.reviews[1].text
    assert "these requirements stand" in agent.reviews[1].text
    assert result.verification is not None
    assert (result.verification.verdict, result.verification.rules[0]) == ("unproved", "nothing_shown")
    assert "specification_disputed" in result.verification.rules


async def test_failing_upheld_test_leaves_the_change_unproved() -> None:
    author, agent = Author(), Agent([objects(), objects()], SUBMITTED)
    world = World(agent, [facts("failed")], [patch()])
    result = await solve(job(), author.services(world), MemoryJournal())
    assert result.verification is not None
    assert (result.verification.verdict, result.exit_code) == ("unproved", ExitCode.UNPROVED)
    assert result.verification.rules[0] == "specification_disputed"
    assert result.exit_status == "pr_opened", "people see the disagreement"
    assert world.executed == 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("step", ["specification", "objection"])
async def test_a_crash_around_the_author_changes_nothing(step: str, moment: CrashMoment) -> None:
    author = Author(withdraws=("t::0",))
    world = World(Agent([objects()], SUBMITTED), [facts("failed", "passed")], [patch()])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(), author.services(world), journal)
    result = await solve(job(), author.services(world), journal.resumed())
    assert result.verification is not None
    assert "specification_disputed" in result.verification.rules
    assert len(author.decided) + len(author.asked) == (3 if moment == "during" else 2)


async def test_same_sources_must_give_the_same_result_in_every_submission() -> None:
    """A submission that was only unlucky before is one that was only lucky now."""
    submissions = [SUBMISSION, Submission(summary="done", reproduction="other")]
    world = World(Agent(submissions, SUBMITTED), [facts("failed"), facts("passed")], [patch()])
    result = await solve(job(), Author().services(world), MemoryJournal())
    assert result.verification is not None
    assert "repeats_agree" in result.verification.rules
    assert any("an earlier submission with the same sources" in reason for reason in result.verification.reasons)


async def test_own_tests_must_give_the_same_result_in_every_submission() -> None:
    """The same command on the same sources: red before, green now."""
    control = Control(name="failing_copies_fail", outcome="held")
    red = Reproduction(command="run", on_base="red", on_head="red", controls=(control,))
    ended = [red, red.model_copy(update={"on_head": "green", "ids": ("t::own",)})]
    submissions = [SUBMISSION, Submission(summary="done", reproduction=" run")]
    world = World(Agent(submissions, SUBMITTED), [with_verdict(Facts(reproduction=each)) for each in ended], [patch()])
    result = await work(world)
    assert result.verification is not None
    assert (result.verification.verdict, result.verification.rules[0]) == ("unproved", "repeats_agree")


async def test_submissions_are_numbered_across_attempts() -> None:
    world = World(Agent([SUBMISSION] * 2, SUBMITTED), [verification("unproved")] * 4, [patch(), patch(b"2")])
    result = await work(world, attempts=2)
    assert result.verification is not None
    assert {each.verdict for each in result.attempts} == {"unproved"}
    assert result.verification.submission in (2, 4)
