"""A plan with questions waits for answers, and is made again with them."""

import pytest

from app.core.errors import ExitCode
from app.core.job import WaitingForUser
from app.pipeline.pipeline import solve
from app.pipeline.planner import refuse_questions
from tests.support.memory_journal import CrashMoment, Died, MemoryJournal
from tests.support.scripted_job import PLAN, asks, job, says, willing, work


async def test_plan_questions_pause_the_job_and_answers_lead_to_a_new_plan() -> None:
    world, journal = willing([asks("Which currency?")]), MemoryJournal()
    with pytest.raises(WaitingForUser) as parked:
        await solve(job(), world.services(), journal)
    assert (parked.value.state, parked.value.code) == ("needs_input", ExitCode.NEEDS_INPUT)
    assert "(1) Which currency?" in parked.value.message
    assert any("Which currency?" in text for kind, text in world.progress.said if kind == "plan")
    assert not world.agent.assignments

    world.said.append(says(7, "Euro."))
    resumed = journal.resumed()
    result = await solve(job(), world.services(), resumed)
    assert (result.exit_status, result.plan) == ("pr_opened", PLAN)
    assert world.answered[-1] == ("Euro.",)
    assert "Euro." in world.agent.assignments[0].brief
    assert resumed.executed == ["answers.1", "plan.1", "examples", "verify.1", "publish"]


async def test_plan_questions_are_asked_at_most_twice() -> None:
    plans = [asks("One?"), asks("Two?"), asks("Three?")]
    world = willing(plans, says(3, "Yes."), says(5, "No."), says(9, "Enough."))
    result = await work(world)
    assert world.answered == [(), ("Yes.",), ("Yes.", "No.")]
    assert result.exit_status == "pr_opened"
    assert result.plan == asks("Three?")


async def test_each_answer_counts_for_one_round_of_questions() -> None:
    world = willing([asks("One?"), asks("Two?")], says(3, "Yes."))
    with pytest.raises(WaitingForUser) as parked:
        await work(world)
    assert "Two?" in parked.value.message


@pytest.mark.parametrize("step", ["plan.0", "baseline", "answers.1", "plan.1", "answers.2", "plan.2"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_crash_while_asking_repeats_no_question(step: str, moment: CrashMoment) -> None:
    world = willing([], says(3, "Yes."), says(5, "No."))
    world.plans = [asks("One?"), asks("Two?"), PLAN]
    if moment == "during" and step.startswith("plan"):  # that plan was made and lost: the next process makes it again
        number = int(step.partition(".")[2])
        world.plans.insert(number, world.plans[number])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(), world.services(), journal)
    result = await solve(job(), world.services(), journal.resumed())
    assert (result.exit_status, result.plan) == ("pr_opened", PLAN)
    assert world.answered[-1] == ("Yes.", "No.")


async def test_plan_from_a_person_has_no_questions() -> None:
    result = await work(willing([asks("Which currency? Euro.")]), plan_file="summary: x")
    assert result.exit_status == "pr_opened"


async def test_plan_only_shows_questions_without_waiting() -> None:
    result = await work(willing([asks("Which currency?")]), plan_mode="only")
    assert (result.exit_status, result.plan) == ("answered", asks("Which currency?"))


async def test_questions_without_a_person_to_ask_give_a_hint() -> None:
    with pytest.raises(WaitingForUser) as parked:
        await refuse_questions(("Which currency?",), 0)
    assert (parked.value.state, parked.value.code) == ("needs_input", ExitCode.NEEDS_INPUT)
    assert "--no-plan" in parked.value.hint
