"""The plan's conversation: look, plan, examples on the base, corrected once; what is hidden is not in what follows."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.agent.actions import specs
from app.agent.prompts import head
from app.core.examples import Example, JudgedExample, OutdatedTest, PlanExamples, ProgramRun
from app.core.job import QuestionAnswers, UserMessage
from app.core.plan import Plan
from app.llm.errors import BudgetError, ModelError
from app.pipeline.planner import MAX_LOOKS, PlanConversation, ProposedPlan
from app.sandbox.base import CompletedCommand, Sandbox
from tests.support.agent_harness import UnbudgetedModel, act, say
from tests.support.memory_journal import Died, MemoryJournal
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel, Turn

ISSUE = "half(7) prints 3, expected 3.5"
SHRINK = ModelError("too long", kind="shrink", reason="does_not_fit")


def written(number: int, **changes: Any) -> dict[str, Any]:
    values = {
        "behaviour": f"Behaviour {number}.",
        "because": {"quote": "expected 3.5", "source": "issue"},
        "run": "python",
        "program": f"print(half({number}11))",
        "stdout": f"{number}05.5\n",
    }
    return values | changes


def plan(*examples: dict[str, Any], **changes: Any) -> Turn:
    values = {"examples": list(examples), "summary": "Divide exactly.", "steps": ["Fix."], "files": ["half.py"]}
    return act(("plan", json.dumps(values | changes)))


LOOK = act(("bash", '{"command": "cat half.py"}'))


class Shelf:
    """A sandbox that answers every command with a file."""

    key = "j.plan"
    isolated = True
    left_out = ()
    created = ()

    async def exec(self, argv: Sequence[str], **options: object) -> CompletedCommand:
        return CompletedCommand(0, b"def half(x): return x // 2\n")

    async def close(self) -> None:
        pass

    async def destroy(self) -> None:
        pass


@asynccontextmanager
async def shelf() -> AsyncIterator[Sandbox]:
    yield Shelf()


async def freeze(examples: Sequence[Example], outdated: Sequence[OutdatedTest]) -> tuple[PlanExamples, str]:
    """Keeps what has a digit in its sentence that is not 9."""
    kept = [one for one in examples if "9" not in one.behaviour]
    judged = tuple(
        JudgedExample(**dict(one) | {"name": str(number)}, quoted=True, base=(ProgramRun(stdout="3\n"),) * 2)
        for number, one in enumerate(kept, 1)
    )
    refused = tuple(f"{one.behaviour} no" for one in examples if one not in kept)
    return PlanExamples(examples=judged, refused=refused, outdated=tuple(outdated)), f"kept {len(kept)}"


def conversation(**changes: Any) -> PlanConversation:
    values: dict[str, Any] = {
        "brief": f"Fix it. {ISSUE}",
        "smallest": ISSUE,
        "title": "Halves are wrong",
        "issue": ISSUE,
        "open_sandbox": shelf,
        "progress": ListProgress(),
        "freeze": freeze,
    }
    return PlanConversation(**values | changes)


async def made_by(
    *turns: Turn | ModelError, made: PlanConversation | None = None, journal: MemoryJournal | None = None
) -> tuple[ProposedPlan, ScriptedModel]:
    model = ScriptedModel(turns)
    proposed = await (made or conversation()).make_plan(UnbudgetedModel(model), journal or MemoryJournal())
    assert model.left == 0
    return proposed, model


async def test_a_plan_with_good_examples_is_taken_at_once() -> None:
    proposed, model = await made_by(LOOK, plan(written(1), written(2)))
    assert proposed.plan.summary == "Divide exactly."
    assert [one.behaviour for one in proposed.plan.examples] == ["Behaviour 1.", "Behaviour 2."]
    assert model.keys == ["plan.1", "plan.2"]
    assert model.requests[0].tools == specs()
    assert model.requests[0].messages[0] == head("")[0]


async def test_examples_are_corrected_once_and_the_better_plan_counts() -> None:
    proposed, model = await made_by(plan(written(1), written(9)), plan(written(1), written(2)))
    assert "kept 1" in model.requests[1].messages[-1].content
    assert len(proposed.found.examples) == 2
    proposed, _ = await made_by(plan(written(1), written(2), written(9)), plan(written(1)))
    assert len(proposed.found.examples) == 2, "a correction does not lose what was good"


async def test_the_work_continues_from_the_looks_without_the_plan() -> None:
    made = conversation()
    proposed, model = await made_by(
        LOOK, plan(written(1), written(2), written(9)), plan(written(1), written(2)), made=made
    )
    opening = made.opening()
    assert opening == model.requests[1].messages[1:], "the same bytes, so that caches hold"
    text = "\n".join(message.content + str(message.tool_calls) for message in opening)
    assert "211" not in text
    assert "205.5" not in text
    hidden = made.with_hidden(proposed.found).examples
    assert [one.hidden for one in hidden] == [False, True]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"behaviour": "Half of 211 is exact."}, {}),
        ({}, {"summary": "half(211) must be 105.5."}),
        ({}, {"steps": ["Return 205.5 for such numbers."]}),
    ],
)
async def test_values_that_the_plan_tells_the_work_are_not_hidden(other: dict[str, Any], words: dict[str, Any]) -> None:
    made = conversation()
    proposed, _ = await made_by(LOOK, plan(written(1), written(2, **other), **words), made=made)
    assert not any(one.hidden for one in made.with_hidden(proposed.found).examples)


async def test_values_tried_while_looking_are_not_hidden() -> None:
    made = conversation()
    tried = act(("bash", '{"command": "python -c \\"print(half(211))\\""}'))
    proposed, _ = await made_by(tried, plan(written(1), written(2)), made=made)
    assert not any(one.hidden for one in made.with_hidden(proposed.found).examples)


async def test_nothing_is_changed_before_the_plan() -> None:
    edit = act(("write", '{"path": "half.py", "content": "x"}'), ("submit", '{"summary": "done"}'))
    _, model = await made_by(edit, plan(written(1), written(2)))
    answers = [message.content for message in model.requests[1].messages if message.role == "tool"]
    assert len(answers) == 2
    assert all("nothing is changed before the plan" in answer for answer in answers)


async def test_a_plan_beside_other_calls_is_not_taken() -> None:
    both = act(("bash", '{"command": "ls"}'), ("plan", '{"summary": "x"}'))
    _, model = await made_by(both, plan(written(1), written(2)))
    assert "has to be the only call" in model.requests[1].messages[-1].content


async def test_a_plan_without_examples_is_asked_once_for_some() -> None:
    proposed, model = await made_by(plan(), plan())
    assert "The plan has no examples" in model.requests[1].messages[-1].content
    assert proposed.found.absent == "the plan has none."
    proposed, _ = await made_by(plan(), made=conversation(freeze=None))
    assert proposed.found == PlanExamples()


async def test_tests_that_a_plan_without_examples_calls_outdated_are_kept() -> None:
    bare = act(("plan", json.dumps({"summary": "x", "outdated": [{"test": "t.py::test", "because": "It is wrong."}]})))
    proposed, _ = await made_by(bare, bare)
    assert [one.test for one in proposed.found.outdated] == ["t.py::test"]
    assert proposed.found.absent == "the plan has none."


async def test_a_plan_written_as_text_is_taken_without_examples() -> None:
    text = json.dumps({"summary": "Divide exactly.", "candidate_files": ["half.py"], "hypotheses": ["//"]})
    proposed, _ = await made_by(say(text))
    assert proposed.plan.candidate_files == ("half.py",)
    assert "without examples" in proposed.found.absent


async def test_a_model_that_only_talks_gets_a_minimal_plan() -> None:
    proposed, model = await made_by(say("Let me think."), say("Still thinking."))
    assert proposed.plan == Plan(summary="Halves are wrong")
    assert "Nothing happens without a tool call" in model.requests[1].messages[-1].content


async def test_looking_has_an_end() -> None:
    proposed, model = await made_by(*[LOOK] * MAX_LOOKS)
    assert proposed.plan == Plan(summary="Halves are wrong")
    assert "last turn" in model.requests[-1].messages[-1].content


async def test_a_brief_that_does_not_fit_is_replaced_by_the_issue_alone() -> None:
    made = conversation()
    proposed, model = await made_by(SHRINK, plan(written(1), written(2)), made=made)
    assert model.requests[1].messages[1].content == ISSUE
    assert len(proposed.found.examples) == 2
    assert made.opening() == (), "the work starts from the whole brief"


async def test_an_issue_that_never_fits_gets_a_minimal_plan() -> None:
    made = conversation()
    assert (await made_by(SHRINK, SHRINK, made=made))[0].plan == Plan(summary="Halves are wrong")
    assert made.opening() == ()


@pytest.mark.parametrize("error", [ModelError("no key", kind="give_up", reason="no_key"), BudgetError("cap")])
async def test_errors_that_concern_all_calls_are_raised(error: ModelError | BudgetError) -> None:
    def fail(_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        await made_by(fail)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["plan.1.answer", "plan.1.act", "plan.2.answer", "plan.2.act"])
async def test_nothing_is_bought_twice_and_nothing_hidden_comes_back(step: str) -> None:
    model = ScriptedModel([LOOK, plan(written(1), written(2))])
    journal = MemoryJournal(die_at=step, moment="after")
    with pytest.raises(Died):
        await conversation().make_plan(UnbudgetedModel(model), journal)
    resumed = conversation()
    proposed = await resumed.make_plan(UnbudgetedModel(model), journal.resumed())
    assert model.calls == 2
    assert len(proposed.found.examples) == 2
    assert "205.5" not in str(resumed.opening())


async def test_answers_of_people_continue_the_conversation() -> None:
    made, journal = conversation(), MemoryJournal()
    model = ScriptedModel([plan(questions=["Round?"]), plan(written(1), written(2))])
    first = await made.make_plan(UnbudgetedModel(model), journal)
    assert first.plan.questions == ("Round?",)
    said = UserMessage(seq=1, author="octocat", text="No rounding.")
    answered = QuestionAnswers(questions=("Round?",), messages=(said,))
    second = await made.make_plan(UnbudgetedModel(model), journal, [answered])
    assert "octocat answered: No rounding." in model.requests[1].messages[-1].content
    assert len(second.found.examples) == 2
