"""Several attempts: each has its share, the best one is published, a crash changes nothing."""

from dataclasses import dataclass

import pytest

from app.agent.base import Assignment, Reviewer, RunnerEnding
from app.core.job import WaitingForUser
from app.pipeline.pipeline import solve
from tests.support.memory_journal import CrashMoment, Died, MemoryJournal
from tests.support.scripted_job import SUBMISSION, SUBMITTED, Agent, World, job, patch, verification, work


async def test_attempt_that_spent_its_share_is_followed_by_a_clean_one() -> None:
    agent = Agent([SUBMISSION], SUBMITTED, spends_its_share=[True, False])
    world = World(agent, [verification("proved")], [patch()])
    result = await work(world, attempts=2)
    assert [each.exit_status for each in result.attempts] == ["limit_reached", "pr_opened"]
    assert result.attempts[0].reason == "This attempt's share of the money is used."
    assert world.sandbox.destroyed
    assert world.published == [patch()]


async def test_last_attempt_pauses_at_a_limit_unless_an_earlier_one_is_publishable() -> None:
    limited = RunnerEnding(exit_status="limit_reached", reason="50 steps")
    with pytest.raises(WaitingForUser):
        await work(World(Agent([], limited), [], [patch()]), attempts=2)

    @dataclass
    class ExhaustedAgent(Agent):
        async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
            return await super().work(assignment, review) if not self.assignments else limited

    tested = verification("tested", "red", "green")
    result = await work(World(ExhaustedAgent([SUBMISSION], SUBMITTED), [tested], [patch()]), attempts=2)
    assert [(each.exit_status, each.taken) for each in result.attempts] == [
        ("pr_opened", True),
        ("limit_reached", False),
    ]
    assert result.exit_status == "pr_opened"


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("step", ["attempt.1.share", "verify.1", "attempt.2.verify.1", "publish"])
async def test_a_crash_at_any_step_of_several_attempts_changes_nothing(step: str, moment: CrashMoment) -> None:
    facts = [verification("tested", "red", "green"), verification("proved"), verification("proved")]
    if step == "verify.1" and moment == "during":  # it was executed and lost: the next process executes it again
        facts.insert(0, facts[0])
    world = World(Agent([SUBMISSION], SUBMITTED), facts, [patch()])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(attempts=3), world.services(), journal)
    result = await solve(job(attempts=3), world.services(), journal.resumed())
    assert [(each.verdict, each.taken) for each in result.attempts] == [("tested", False), ("proved", True)]
