"""People speak while the agent works: each word is read once, before the work can end, and the same after any crash."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.agent.base import ReviewResult, Submission
from app.agent.step import MAX_MESSAGE_CHARACTERS, MAX_MESSAGES, format_messages
from app.core.job import Budget, UserMessage
from app.llm.base import ModelAnswer, ModelInfo, ModelRequest
from tests.support.agent_harness import FIX, SUBMIT, AgentHarness, act, bash, say
from tests.support.memory_journal import CrashMoment, Died
from tests.unit.agent.test_history import check_protocol

if TYPE_CHECKING:
    from tests.support.scripted_model import Turn

LOOK = act(("view", {"path": "app.py"}))
MORE = act(bash("echo subtracts too >> README"))


def meanwhile(harness: AgentHarness, answer: ModelAnswer, *texts: str) -> Callable[[ModelRequest], ModelAnswer]:
    """The model answers, and while it thinks people say something."""

    def turn(_: ModelRequest) -> ModelAnswer:
        for text in texts:
            harness.report(text)
        return answer

    return turn


def prompts(harness: AgentHarness) -> list[str]:
    """What was sent to the model each time, as one text."""
    return ["\n".join(message.content for message in request.messages) for request in harness.model.requests]


async def test_messages_are_added_to_the_turn_they_arrive_in(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [LOOK, FIX, SUBMIT])
    harness.report("Use sum().", who="the\nmaintainer")
    await harness.work()
    first, second, _ = prompts(harness)
    assert "Use sum()." not in first
    assert second.endswith("From the maintainer, who may ask: Use sum().")
    assert [len(step.turn.user_messages) for step in harness.steps] == [1, 0, 0]
    for request in harness.model.requests:
        check_protocol(request)


async def test_message_before_a_submission_is_read_before_verification(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path)
    harness.plays(FIX, meanwhile(harness, SUBMIT, "And the README."), MORE, SUBMIT)
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert [step.turn.fate for step in harness.steps] == [None, "messages_first", None, "accepted"]
    assert len(harness.submissions) == 1
    assert "people said something" in harness.seen(2)
    assert prompts(harness)[2].endswith("who may ask: And the README.")


async def test_message_during_verification_keeps_the_job_running(tmp_path: Path) -> None:
    harness = MessagingHarness(tmp_path, [FIX, SUBMIT, MORE, SUBMIT], reviews=[ReviewResult(accepted=True)] * 2)
    harness.during_review = ["One more thing."]
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert [step.turn.fate for step in harness.steps] == [None, "messages_first", None, "accepted"]
    assert len(harness.submissions) == 2
    assert prompts(harness)[2].endswith("who may ask: One more thing.")


class MessagingHarness(AgentHarness):
    """Somebody speaks while a submission is verified."""

    during_review: list[str]

    async def review(self, submission: Submission) -> ReviewResult:
        review = await AgentHarness.review(self, submission)
        for text in self.during_review:
            self.report(text)
        self.during_review = []
        return review


async def test_rejection_is_reported_together_with_new_messages(tmp_path: Path) -> None:
    rejected = ReviewResult(accepted=False, text="test_add fails on the head")
    harness = MessagingHarness(tmp_path, [FIX, SUBMIT, MORE, SUBMIT], reviews=[rejected, ReviewResult(accepted=True)])
    harness.during_review = ["Hurry."]
    await harness.work()
    assert harness.steps[1].turn.fate == "rejected"
    assert "test_add fails on the head" in prompts(harness)[2]
    assert "Hurry." in prompts(harness)[2]


async def test_unread_message_keeps_a_no_change_job_running(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path)
    harness.plays(LOOK, SUBMIT, meanwhile(harness, SUBMIT, "There is: a - b."), FIX, SUBMIT)
    assert (await harness.work()).exit_status == "submitted"


async def test_message_gives_a_stalled_agent_another_turn(tmp_path: Path) -> None:
    talk = say("I think that is all.")
    harness = AgentHarness(tmp_path)
    harness.plays(FIX, talk, talk, meanwhile(harness, talk, "Then submit."), SUBMIT)
    assert (await harness.work()).exit_status == "submitted"


async def test_user_messages_do_not_extend_the_budget(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, budget=Budget(steps=4))
    harness.plays(*[meanwhile(harness, act(bash(f"echo {n}")), f"Faster! {n}") for n in range(4)])
    assert (await harness.work()).exit_status == "limit_reached"


async def test_many_messages_are_read_over_several_turns(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [LOOK, FIX, SUBMIT, SUBMIT])
    for number in range(2 * MAX_MESSAGES + 1):
        harness.report(f"word {number}.")
    assert (await harness.work()).exit_status == "submitted"
    heard = [said.text for step in harness.steps for said in step.turn.user_messages]
    assert heard == [f"word {number}." for number in range(2 * MAX_MESSAGES + 1)]
    assert [step.turn.fate for step in harness.steps] == [None, None, "messages_first", "accepted"]


def test_long_message_is_cut_with_a_count() -> None:
    text = format_messages([UserMessage(seq=1, author="octocat", text="x" * (MAX_MESSAGE_CHARACTERS + 1_234))])
    assert len(text) < MAX_MESSAGE_CHARACTERS + 100
    assert text.endswith("(… 1,234 more characters are left out)")


async def test_messages_survive_a_compaction_unchanged(tmp_path: Path) -> None:
    small = ModelInfo(name="small", context_window=8_000, max_output=1_000)
    chatter = [act(bash(f"seq {n}000 {n}600")) for n in range(1, 9)]
    harness = AgentHarness(tmp_path, [*chatter, FIX, SUBMIT], info=small, budget=Budget(steps=20))
    harness.report("Never touch the README.\n\nThe docs team does.")
    await harness.work()
    last = prompts(harness)[-1]
    assert "replaced by this digest" in last
    assert last.count("From octocat, who may ask: Never touch the README.\n\nThe docs team does.") == 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize(
    "step", [f"turn.{n}.{part}" for n in (1, 2, 3, 4, 5) for part in ("answer", "act")] + ["verify.1", "verify.2"]
)
async def test_crash_at_any_step_neither_loses_nor_repeats_a_message(
    step: str, moment: CrashMoment, tmp_path: Path
) -> None:
    whole, harness = (
        MessagingHarness(tmp_path / name, reviews=[ReviewResult(accepted=True)] * 3) for name in ("whole", "crashed")
    )
    for each in (whole, harness):
        each.during_review = ["second"]
        each.plays(meanwhile(each, LOOK, "first"), FIX, SUBMIT, MORE, SUBMIT)
    await whole.work()
    if step.endswith("answer") and moment == "during":  # the one moment at which an answer is paid for and gone
        answers: list[Turn] = [LOOK, FIX, SUBMIT, MORE, SUBMIT]
        number = int(step.split(".")[1])
        harness.plays(*[meanwhile(harness, LOOK, "first"), *answers[1:]][:number], *answers[number - 1 :])
    harness.journal.die_at, harness.journal.moment = step, moment
    with pytest.raises(Died):
        await harness.work()
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert harness.model.left == 0
    assert [said.text for each in harness.steps for said in each.turn.user_messages] == ["first", "second"]
    assert harness.model.requests[-1] == whole.model.requests[-1]


async def test_message_between_two_processes_is_read_by_the_next_one(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [LOOK, FIX, SUBMIT, SUBMIT], reviews=[ReviewResult(accepted=True)] * 2)
    harness.journal.die_at, harness.journal.moment = "turn.3.answer", "after"
    with pytest.raises(Died):
        await harness.work()
    harness.report("Wait for me.")
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert [step.turn.fate for step in harness.steps] == [None, None, "messages_first", "accepted"]
