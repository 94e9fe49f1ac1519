"""The first part of a job's conversation: the model looks at the base, then hands in a plan with examples.

look … look ─► plan ─► examples on the base ─► corrected once ─► cut ─► the work continues from the looks

The cut leaves out the first plan and all that follows, so that what the hidden examples print is not in the prompt.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import NoReturn

from app.agent.actions import (
    EditAction,
    MalformedError,
    ParsedCall,
    PlanAction,
    SubmitAction,
    WriteAction,
    parse_calls,
    read_object,
    specs,
)
from app.agent.base import ModelPort
from app.agent.history import ConversationHistory, messages_of
from app.agent.observation import LIMIT
from app.agent.prompts import head, render_answers
from app.agent.step import Observation, Step, StoredAnswer, StoredTurn
from app.agent.tools import AgentTools, ToolLimits
from app.core.errors import ExitCode
from app.core.examples import Example, OutdatedTest, PlanExamples
from app.core.job import Journal, Progress, QuestionAnswers, WaitingForUser
from app.core.plan import Fields, Plan, PlanError, plan_from_fields, render_plan
from app.core.record import Record
from app.core.text import one_line
from app.llm.base import Message
from app.llm.errors import ModelError
from app.sandbox.base import Sandbox
from app.verify.examples.checks import FEW, mark_hidden

MAX_QUESTION_ROUNDS = 2
"""How often people are asked a plan's questions; after that, the most likely answer is assumed."""
MAX_QUESTIONS = 3
MAX_LOOKS = 15
"""Turns until the plan is handed in; two more than that are never needed."""
LOOK_SECONDS = 300.0
"""Of one command while the plan is made."""

Freeze = Callable[[Sequence[Example], Sequence[OutdatedTest]], Awaitable[tuple[PlanExamples, str]]]
"""(examples, outdated tests) → those that are kept, as they ran on the base, and the answer to their author."""

_NOT_BEFORE_THE_PLAN = "Not carried out: nothing is changed before the plan. Call `plan`; the work begins after it."
_ALONE = "Not carried out: `plan` has to be the only call of its turn."
_CALL_PLAN = "Nothing happens without a tool call: look at what you need, or call `plan`."
_LAST = "This is the last turn before the work begins: call `plan` now."
_CORRECT = "Call `plan` once more with the whole plan: corrected, or as it is if no better example is possible."
_NO_EXAMPLES = (
    "The plan has no examples. Can a small program print what the issue is about? Then write some. If not (a change of "
    "documentation, of structure, of settings), call `plan` once more without."
)
_PLAN_AGAIN = "Call `plan` anew with this."
_NO_MORE_QUESTIONS = (
    "No more questions can be asked: leave `questions` empty, assume what is likeliest, and say in `summary` what you "
    "assumed."
)


class ProposedPlan(Record):
    """A plan, and its examples as they ran on the base."""

    plan: Plan
    found: PlanExamples = PlanExamples()


class PlanTurn(StoredTurn):
    """A turn of the conversation before the work; the plan if it handed one in."""

    proposed: ProposedPlan | None = None


@dataclass(slots=True)
class PlanConversation:
    """The conversation in which the plan is made; the work continues it.

    `brief` is its first message, `smallest` the same of the issue alone, for a model that the brief does not fit.
    `open_sandbox` opens a sandbox with the base, in which the model looks and runs things; nothing of it is kept.
    Without `freeze` the task changes no behaviour, and no examples are expected.
    """

    brief: str
    smallest: str
    title: str
    issue: str
    """What people wrote: known to everybody."""
    open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]]
    progress: Progress
    freeze: Freeze | None = None
    steps: list[Step] = field(default_factory=list)
    turns_left: int = MAX_LOOKS
    _first_plan: int | None = None
    """The number of steps before the first plan."""
    _proposed: ProposedPlan | None = None
    _toolbox: AgentTools | None = None
    _history: ConversationHistory | None = None

    async def make_plan(
        self, budgeted_model: ModelPort, journal: Journal, answers: Sequence[QuestionAnswers] = ()
    ) -> ProposedPlan:
        """The model's plan. Each call and its results are durable steps (`plan.1.answer`, `plan.1.act`, …).

        A model that hands in no plan never fails the job: the summary is then the title. Errors that concern all calls
        (no key, no budget) are raised.
        """
        self._proposed = None
        self._history = self._history or self._begin(budgeted_model, self.brief)
        if answers:
            self._answered(answers)
        async with AsyncExitStack() as stack:
            handed_in = 0
            while self.turns_left > 0:
                self.turns_left -= 1
                if not await self._turn(budgeted_model, journal, stack):
                    break
                proposed = self._last_turn.proposed
                handed_in += proposed is not None
                if self._is_enough(handed_in) or self._is_silent():
                    break
            self._toolbox = None
        return self._proposed or ProposedPlan(plan=Plan(summary=self.title), found=_absent("no plan was handed in."))

    def opening(self) -> tuple[Message, ...]:
        """What the work continues: the brief and the looks, without thinking; empty if it has to begin by itself."""
        if self._history is None or self._history.head[1].content != self.brief:
            return ()
        kept = self.steps if self._first_plan is None else self.steps[: self._first_plan]
        looks = (message for step in kept for message in messages_of(step))
        return (*self._history.head[1:], *(message.model_copy(update={"thinking": ()}) for message in looks))

    def with_hidden(self, found: PlanExamples) -> PlanExamples:
        """The examples, each marked if the work's prompt has none of its values."""
        kept = self.steps if self._first_plan is None else self.steps[: self._first_plan]
        # What a command printed is left out: whoever ran a hidden program has typed its values, too.
        typed = [text for step in kept for text in (step.answer.content, *(call.arguments for call in step.turn.calls))]
        if self._proposed is not None:  # the work is told of it, but for the programs
            plan = self._proposed.plan
            typed += [plan.summary, *plan.steps, *(one.because for one in found.outdated)]
        typed += [one.behaviour for one in found.examples]
        return mark_hidden(found, (self.issue,), "\n".join(typed))

    @property
    def _last_turn(self) -> PlanTurn:
        turn = self.steps[-1].turn
        if not isinstance(turn, PlanTurn):
            raise TypeError("a turn of this conversation is a PlanTurn")
        return turn

    def _begin(self, budgeted_model: ModelPort, brief: str) -> ConversationHistory:
        return ConversationHistory(head(brief), specs(), budgeted_model.info)

    def _answered(self, answers: Sequence[QuestionAnswers]) -> None:
        """What people answered becomes the next message."""
        last = _NO_MORE_QUESTIONS if len(answers) >= MAX_QUESTION_ROUNDS else ""
        text = "\n\n".join(filter(None, (render_answers(answers[-1:]), _PLAN_AGAIN, last)))
        self.turns_left = max(self.turns_left, FEW)
        if self._history is not None:
            self._history.say(text)

    async def _turn(self, budgeted_model: ModelPort, journal: Journal, stack: AsyncExitStack) -> bool:
        """One call and what it asks for; False if the conversation cannot go on."""
        number = len(self.steps) + 1
        answer = await self._ask(budgeted_model, journal, number)
        if answer is None or self._history is None:
            return False
        calls = () if answer.answer.finish_reason == "content_filter" else parse_calls(answer.answer.tool_calls, number)
        work = partial(self._carry_out, number, answer, calls, stack)
        turn = await journal.step(f"plan.{number}.act", PlanTurn, work)
        if turn.proposed is not None:
            self._first_plan = number - 1 if self._first_plan is None else self._first_plan
            self._proposed = _better(self._proposed, turn.proposed)
        self.steps.append(Step(answer, turn))
        self._history.add(self.steps[-1])
        return True

    async def _ask(self, budgeted_model: ModelPort, journal: Journal, number: int) -> StoredAnswer | None:
        """The answer; a prompt that does not fit is tried with the issue alone, once."""
        for name in (f"plan.{number}.answer", f"plan.{number}.small.answer"):
            if self._history is None or (self._history.full() and not self._history.compact() and self.steps):
                return None
            request = self._history.request()

            async def ask(key: str = name.removesuffix(".answer")) -> StoredAnswer:
                self.progress.report("note", f"plan: turn {number}")
                started = monotonic()
                found = await budgeted_model.ask(key, request)  # noqa: B023  # awaited before the next round
                return StoredAnswer(answer=found, seconds=monotonic() - started)

            try:
                return await journal.step(name, StoredAnswer, ask)
            except ModelError as error:
                if error.kind != "shrink":
                    raise
            if self.steps:
                return None
            self._history = self._begin(budgeted_model, self.smallest)
        self._history = None
        return None

    async def _carry_out(
        self, number: int, answer: StoredAnswer, calls: Sequence[ParsedCall], stack: AsyncExitStack
    ) -> PlanTurn:
        started = monotonic()
        proposed: ProposedPlan | None = None
        observations, notes = [], []
        for index, parsed in enumerate(calls, 1):
            action = parsed.action
            text, outcome = parsed.problem, "refused"
            if isinstance(action, PlanAction):
                if len(calls) == 1:
                    proposed, text = await self._propose(action)
                    outcome = "ok"
                else:
                    text, outcome = _ALONE, "not_executed"
            elif isinstance(action, EditAction | WriteAction | SubmitAction):
                text, outcome = _NOT_BEFORE_THE_PLAN, "not_executed"
            elif action is not None:
                toolbox = await self._open_toolbox(stack)
                self.progress.report("command", f"{parsed.call.name} {one_line(action.target)[:200]}")
                limits = ToolLimits(max(2_500, LIMIT // len(calls)), LOOK_SECONDS, f"plan-{number}-{index}")
                result = await toolbox.execute(action, limits)
                text, outcome = result.text, result.outcome
            observations.append(
                Observation.model_validate(
                    {"call_id": parsed.call.id, "tool": parsed.call.name, "outcome": outcome, "text": text}
                )
            )
        if not calls:
            proposed = _from_text(answer.answer.content)
            notes += [] if proposed else [_CALL_PLAN]
        if self.turns_left == 1 and proposed is None:
            notes.append(_LAST)
        return PlanTurn(
            number=number,
            calls=tuple(parsed.call for parsed in calls),
            observations=tuple(observations),
            notes=tuple(notes),
            proposed=proposed,
            seconds=monotonic() - started,
        )

    async def _open_toolbox(self, stack: AsyncExitStack) -> AgentTools:
        if self._toolbox is None:
            self._toolbox = AgentTools(await stack.enter_async_context(self.open_sandbox()), self.progress)
        return self._toolbox

    async def _propose(self, action: PlanAction) -> tuple[ProposedPlan | None, str]:
        """The plan with those of its examples that say something, and the answer to its author."""
        try:
            plan = plan_of(action)
        except PlanError as error:
            return None, f"This cannot be used as a plan: {error.message}"
        if self.freeze is None:
            return ProposedPlan(plan=plan), "The plan is taken."
        written = tuple(one.example for one in action.examples)
        outdated = tuple(OutdatedTest(test=one.test, because=one.because) for one in action.outdated)
        found, text = await self.freeze(written, outdated)
        if not written:
            absent = found.model_copy(update={"absent": "the plan has none."})
            return ProposedPlan(plan=plan, found=absent), "\n".join(filter(None, (text, _NO_EXAMPLES)))
        self.progress.report("note", f"{len(found.examples)} of {len(written)} examples are kept")
        plan = plan.model_copy(update={"examples": tuple(one.written for one in found.examples)})
        if not found.examples:
            found = found.model_copy(update={"absent": "none of those that the plan has could be used."})
        return ProposedPlan(plan=plan, found=found), f"{text}\n{_CORRECT}"

    def _is_enough(self, handed_in: int) -> bool:
        """True if nothing is left to correct: at once if people are asked or all examples are good."""
        proposed = self._last_turn.proposed
        if proposed is None:
            return False
        if handed_in > 1 or self.freeze is None or proposed.plan.questions or not self._last_turn.calls:
            return True
        found = proposed.found
        telling = [one for one in found.examples if one.kind == "shows"]
        return len(telling) >= FEW and any(one.quoted for one in telling[1:]) and not (found.refused or found.already)

    def _is_silent(self) -> bool:
        return len(self.steps) > 1 and not any(step.turn.calls for step in self.steps[-2:])


def plan_of(action: PlanAction) -> Plan:
    """The plan without its examples. Raises PlanError."""
    fields: Fields = {
        "summary": one_line(action.summary),
        "candidate_files": [one_line(path) for path in action.files if path.strip()],
        "steps": [one_line(step) for step in action.steps if step.strip()],
        "questions": [one_line(question) for question in action.questions if question.strip()][:MAX_QUESTIONS],
    }
    return plan_from_fields(fields)


def _from_text(content: str) -> ProposedPlan | None:
    """A plan that was written as text instead of being handed in by a call."""
    try:
        values = read_object(content)[0]
        values.setdefault("files", values.get("candidate_files", ()))
        action = PlanAction.model_validate({name: values[name] for name in PlanAction.model_fields if name in values})
        return ProposedPlan(plan=plan_of(action), found=_absent("the plan was written as text, without examples."))
    except (MalformedError, PlanError, ValueError):
        return None


def _absent(reason: str) -> PlanExamples:
    return PlanExamples(absent=reason)


def _better(one: ProposedPlan | None, other: ProposedPlan) -> ProposedPlan:
    """The later plan, unless it has fewer examples that differ on the base."""
    if one is None or _count(other) >= _count(one):
        return other
    return ProposedPlan(plan=other.plan.model_copy(update={"examples": one.plan.examples}), found=one.found)


def _count(proposed: ProposedPlan) -> int:
    return sum(example.kind == "shows" for example in proposed.found.examples)


Planner = Callable[[Journal, Sequence[QuestionAnswers]], Awaitable[ProposedPlan]]
Answerer = Callable[[tuple[str, ...], int], Awaitable[QuestionAnswers]]
"""(questions, the number of the last message read before) → the answers; WaitingForUser until somebody answers."""


async def resolve_questions(
    proposed: ProposedPlan, replan: Planner, ask: Answerer, journal: Journal, progress: Progress
) -> tuple[ProposedPlan, tuple[QuestionAnswers, ...]]:
    """The plan to work with, and the questions and answers before it.

    A plan that still has questions after the last round is used anyway: the agent makes assumptions and states them.
    """
    answers: tuple[QuestionAnswers, ...] = ()
    while proposed.plan.questions and len(answers) < MAX_QUESTION_ROUNDS:
        after = max((message.seq for answer in answers for message in answer.messages), default=0)
        given = partial(ask, proposed.plan.questions, after)
        answers = (*answers, await journal.step(f"answers.{len(answers) + 1}", QuestionAnswers, given))
        proposed = await replan(journal, answers)
        progress.report("plan", render_plan(proposed.plan))
    return proposed, answers


async def refuse_questions(questions: tuple[str, ...], after: int) -> NoReturn:
    """For the command line, where nobody can answer: the job ends with its questions."""
    raise questions_wait(questions, hint=_HINT)


def questions_wait(questions: tuple[str, ...], *, hint: str = "") -> WaitingForUser:
    """The wait for people's answers; the reason contains the questions."""
    question_list = " ".join(f"({number}) {question}" for number, question in enumerate(questions, 1))
    reason = f"The work cannot start without an answer: {question_list}"
    return WaitingForUser("needs_input", reason, code=ExitCode.NEEDS_INPUT, hint=hint)


_HINT = (
    "Write the answers into the issue file and run the same command again; or start without them with --no-plan, or "
    "with your own plan: --plan FILE."
)
