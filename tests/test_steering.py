"""People speak while the agent works: each word is read once, before the work can end, and the same after any crash."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.agent.words import LONGEST, MOST, told
from app.job import Budget, Heard
from app.model.base import Answer, ModelInfo, Request
from app.runners.base import Review, Submission
from tests.fakes.agent_desk import FIX, SUBMIT, Desk, act, bash, say
from tests.fakes.memory_journal import Died, Moment
from tests.fakes.scripted_model import Turn
from tests.test_history import check_protocol

LOOK = act(("view", {"path": "app.py"}))
MORE = act(bash("echo subtracts too >> README"))


def meanwhile(desk: Desk, answer: Answer, *texts: str) -> Callable[[Request], Answer]:
    """The model answers, and while it thinks people say something."""

    def turn(_: Request) -> Answer:
        for text in texts:
            desk.say(text)
        return answer

    return turn


def prompts(desk: Desk) -> list[str]:
    """What was sent to the model each time, as one text."""
    return ["\n".join(message.content for message in request.messages) for request in desk.model.requests]


async def test_words_are_notes_of_the_turn_in_which_they_came(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [LOOK, FIX, SUBMIT])
    desk.say("Use sum().", who="the\nmaintainer")
    await desk.work()
    first, second, _ = prompts(desk)
    assert "Use sum()." not in first
    assert second.endswith("From the maintainer, who may ask: Use sum().")
    assert [len(step.turn.words) for step in desk.steps] == [1, 0, 0]
    for request in desk.model.requests:
        check_protocol(request)


async def test_words_that_came_before_a_submission_are_read_first_and_nothing_is_verified(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.plays(FIX, meanwhile(desk, SUBMIT, "And the README."), MORE, SUBMIT)
    ending = await desk.work()
    assert ending.exit_status == "submitted"
    assert [step.turn.fate for step in desk.steps] == [None, "words_first", None, "accepted"]
    assert len(desk.submissions) == 1
    assert "people said something" in desk.seen(2)
    assert prompts(desk)[2].endswith("who may ask: And the README.")


async def test_words_that_came_during_verification_keep_it_from_being_the_end(tmp_path: Path) -> None:
    desk = Speaking(tmp_path, [FIX, SUBMIT, MORE, SUBMIT], reviews=[Review(accepted=True)] * 2)
    desk.during_review = ["One more thing."]
    ending = await desk.work()
    assert ending.exit_status == "submitted"
    assert [step.turn.fate for step in desk.steps] == [None, "words_first", None, "accepted"]
    assert len(desk.submissions) == 2
    assert prompts(desk)[2].endswith("who may ask: One more thing.")


class Speaking(Desk):
    """Somebody speaks while a submission is verified."""

    during_review: list[str]

    async def review(self, submission: Submission) -> Review:
        review = await Desk.review(self, submission)
        for text in self.during_review:
            self.say(text)
        self.during_review = []
        return review


async def test_a_rejection_stays_one_and_its_facts_are_told_beside_the_words(tmp_path: Path) -> None:
    rejected = Review(accepted=False, text="test_add fails on the head")
    desk = Speaking(tmp_path, [FIX, SUBMIT, MORE, SUBMIT], reviews=[rejected, Review(accepted=True)])
    desk.during_review = ["Hurry."]
    await desk.work()
    assert desk.steps[1].turn.fate == "rejected"
    assert "test_add fails on the head" in prompts(desk)[2]
    assert "Hurry." in prompts(desk)[2]


async def test_nothing_to_change_is_not_the_end_when_words_were_not_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.plays(LOOK, SUBMIT, meanwhile(desk, SUBMIT, "There is: a - b."), FIX, SUBMIT)
    assert (await desk.work()).exit_status == "submitted"


async def test_an_agent_that_fell_silent_has_another_chance_when_it_is_spoken_to(tmp_path: Path) -> None:
    talk = say("I think that is all.")
    desk = Desk(tmp_path)
    desk.plays(FIX, talk, talk, meanwhile(desk, talk, "Then submit."), SUBMIT)
    assert (await desk.work()).exit_status == "submitted"


async def test_words_are_no_way_round_the_budget(tmp_path: Path) -> None:
    desk = Desk(tmp_path, budget=Budget(steps=4))
    desk.plays(*[meanwhile(desk, act(bash(f"echo {n}")), f"Faster! {n}") for n in range(4)])
    assert (await desk.work()).exit_status == "limit_reached"


async def test_many_words_are_taken_in_over_several_turns_and_none_is_lost(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [LOOK, FIX, SUBMIT, SUBMIT])
    for number in range(2 * MOST + 1):
        desk.say(f"word {number}.")
    assert (await desk.work()).exit_status == "submitted"
    heard = [said.text for step in desk.steps for said in step.turn.words]
    assert heard == [f"word {number}." for number in range(2 * MOST + 1)]
    assert [step.turn.fate for step in desk.steps] == [None, None, "words_first", "accepted"]


def test_long_words_are_cut_and_say_by_how_much() -> None:
    text = told([Heard(seq=1, who="octocat", text="x" * (LONGEST + 1_234))])
    assert len(text) < LONGEST + 100
    assert text.endswith("(… 1,234 more characters are left out)")


async def test_words_survive_a_compaction_whole(tmp_path: Path) -> None:
    small = ModelInfo(name="small", context_window=8_000, max_output=1_000)
    chatter = [act(bash(f"seq {n}000 {n}600")) for n in range(1, 9)]
    desk = Desk(tmp_path, [*chatter, FIX, SUBMIT], info=small, budget=Budget(steps=20))
    desk.say("Never touch the README.\n\nThe docs team does.")
    await desk.work()
    last = prompts(desk)[-1]
    assert "replaced by this digest" in last
    assert last.count("From octocat, who may ask: Never touch the README.\n\nThe docs team does.") == 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize(
    "step", [f"turn.{n}.{part}" for n in (1, 2, 3, 4, 5) for part in ("answer", "act")] + ["verify.1", "verify.2"]
)
async def test_a_crash_anywhere_loses_no_word_and_tells_none_twice(step: str, moment: Moment, tmp_path: Path) -> None:
    whole, desk = (Speaking(tmp_path / name, reviews=[Review(accepted=True)] * 3) for name in ("whole", "crashed"))
    for each in (whole, desk):
        each.during_review = ["second"]
        each.plays(meanwhile(each, LOOK, "first"), FIX, SUBMIT, MORE, SUBMIT)
    await whole.work()
    if step.endswith("answer") and moment == "during":  # the one moment at which an answer is paid for and gone
        answers: list[Turn] = [LOOK, FIX, SUBMIT, MORE, SUBMIT]
        number = int(step.split(".")[1])
        desk.plays(*[meanwhile(desk, LOOK, "first"), *answers[1:]][:number], *answers[number - 1 :])
    desk.journal.die_at, desk.journal.moment = step, moment
    with pytest.raises(Died):
        await desk.work()
    desk.journal = desk.journal.resumed()
    assert (await desk.work()).exit_status == "submitted"
    assert desk.model.left == 0
    assert [said.text for each in desk.steps for said in each.turn.words] == ["first", "second"]
    assert desk.model.requests[-1] == whole.model.requests[-1]


async def test_what_is_said_while_nobody_works_is_heard_by_the_next_process(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [LOOK, FIX, SUBMIT, SUBMIT], reviews=[Review(accepted=True)] * 2)
    desk.journal.die_at, desk.journal.moment = "turn.3.answer", "after"
    with pytest.raises(Died):
        await desk.work()
    desk.say("Wait for me.")
    desk.journal = desk.journal.resumed()
    assert (await desk.work()).exit_status == "submitted"
    assert [step.turn.fate for step in desk.steps] == [None, None, "words_first", "accepted"]
