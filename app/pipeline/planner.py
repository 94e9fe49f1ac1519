"""Makes the plan, the first turn of the work's conversation: one repair, and a minimal plan as a fallback."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from app.agent.actions import MalformedError, read_object
from app.agent.base import ModelPort
from app.agent.prompts import head, render, render_answers
from app.core.errors import ExitCode
from app.core.job import Journal, Progress, QuestionAnswers, WaitingForUser
from app.core.plan import COMMANDS, LIST_FIELDS, Fields, Plan, PlanError, plan_from_fields, render_plan
from app.core.text import one_line, plain
from app.llm.base import Message, ModelAnswer, ModelRequest, ToolSpec
from app.llm.errors import ModelError

MAX_QUESTION_ROUNDS = 2
"""How often people are asked a plan's questions; after that, the most likely answer is assumed."""
MAX_QUESTIONS = 3
_MAX_PLAN_SIZE = 4_096
"""Tokens of the answer."""
_PLAN_AGAIN = "Make the plan anew with this, as the same JSON object."
_NO_QUESTIONS = re.compile(r"(?:none|no|nothing|n/a|-|no (?:more )?questions)[.!]?", re.IGNORECASE)
"""How models write an empty list of questions."""
_NO_MORE_QUESTIONS = (
    "No more questions can be asked: leave `questions` empty, assume what is likeliest, and say in `summary` what you "
    "assumed."
)


@dataclass(slots=True)
class PlanConversation:
    """The conversation in which the plan is made; the work continues it.

    `tools` are those of the work, so that the prompts have the same beginning; a model that calls one has `begun` the
    work without a plan. Without tools that is impossible. `smallest` is a brief of the issue alone.
    """

    brief: str
    request: str
    """The text that asks for the plan."""
    smallest: str
    tools: tuple[ToolSpec, ...] = ()
    turns: tuple[Message, ...] = ()
    """What was said after the system text, the plan last; empty if the work has to start a new conversation."""
    plan: Plan | None = None
    begun: ModelAnswer | None = None

    async def make_plan(
        self, budgeted_model: ModelPort, journal: Journal, title: str, answers: Sequence[QuestionAnswers] = ()
    ) -> Plan:
        """The model's plan; its calls are durable steps (`plan.answer`, `plan.repair.answer`; with answers `plan.2.…`).

        A plan that cannot be read twice never fails the job: its summary is then the title. Errors that concern all
        calls (no key, no budget) are raised.
        """
        key = f"plan.{len(answers) + 1}" if answers else "plan"
        follow_up = _answers_message(answers[-1:] if self.turns else answers, last=len(answers) >= MAX_QUESTION_ROUNDS)
        smallest_message = _user_message(self.smallest, self.request, follow_up)
        if self.turns:
            turns = (*self.turns, Message(role="user", content=follow_up))
        else:
            turns = (_user_message(self.brief, self.request, follow_up),)
        self.plan = None
        for name, begin in ((key, turns), (f"{key}.small", (smallest_message,))):
            try:
                await self._ask(budgeted_model, journal, name, begin)
                break
            except ModelError as error:
                if error.kind != "shrink":
                    raise
        else:
            self.turns = ()
        if self.turns[:1] == (smallest_message,):
            self.turns, self.begun = (), None  # the work starts from the whole brief, and finds out by itself
        self.plan = self.plan or Plan(summary=title)
        return self.plan

    async def _ask(self, budgeted_model: ModelPort, journal: Journal, key: str, turns: tuple[Message, ...]) -> None:
        """Ask once, and again if the answer is not a plan; no plan if the second one is not either."""
        self.turns = ()
        for name in (key, f"{key}.repair"):
            request = ModelRequest(
                messages=(*head(turns[0].content)[:1], *turns), tools=self.tools, max_tokens=_MAX_PLAN_SIZE
            )
            answer = await journal.step(f"{name}.answer", ModelAnswer, partial(budgeted_model.ask, name, request))
            reply = Message(role="assistant", content=answer.content or "(no answer)")
            try:
                self.plan = parse_plan(answer.content)
            except PlanError as error:
                if answer.tool_calls and self.tools:
                    self.begun, self.turns = answer, turns
                    return
                problem = "the answer was empty." if not answer.content.strip() else error.message
            else:
                self.turns = (*turns, reply)
                return
            turns = (*turns, reply, Message(role="user", content=render("repair", problem=problem)))


def _user_message(*parts: str) -> Message:
    return Message(role="user", content="\n\n".join(filter(None, parts)))


def _answers_message(answers: Sequence[QuestionAnswers], *, last: bool) -> str:
    """What people answered, and the request for a new plan."""
    if not answers:
        return ""
    return "\n\n".join(filter(None, (render_answers(answers), _PLAN_AGAIN, _NO_MORE_QUESTIONS if last else "")))


def parse_plan(text: str) -> Plan:
    """The plan in a model's answer: a JSON object, perhaps in a code fence or among other text. Raises PlanError."""
    try:
        values = read_object(text)[0]
    except MalformedError as error:
        raise PlanError(f"it is not a JSON object: {error}.") from None
    if isinstance(values.get("plan"), dict):
        values = values["plan"]
    fields: Fields = {"summary": one_line(_text(values.get("summary")))}
    for name in LIST_FIELDS:
        fields[name] = _texts(values.get(name))
    fields["questions"] = [text for text in fields["questions"] if not _NO_QUESTIONS.fullmatch(text)][:MAX_QUESTIONS]
    for name in COMMANDS:
        fields[name] = plain(" && ".join(_texts(values.get(name), split=False))).strip()
    return plan_from_fields(fields)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object, *, split: bool = True) -> list[str]:
    """A list of texts from the forms that models write: a text of several lines, objects, gaps."""
    if isinstance(value, str):
        value = value.split("\n") if split else [value]
    if not isinstance(value, list):
        return []
    texts = [", ".join(map(str, item.values())) if isinstance(item, dict) else str(item or "") for item in value]
    return [one_line(text) if split else text for text in texts if text.strip()]


Planner = Callable[[Journal, Sequence[QuestionAnswers]], Awaitable[Plan]]
Answerer = Callable[[tuple[str, ...], int], Awaitable[QuestionAnswers]]
"""(questions, the number of the last message read before) → the answers; WaitingForUser until somebody answers."""


async def resolve_questions(
    plan: Plan, replan: Planner, ask: Answerer, journal: Journal, progress: Progress
) -> tuple[Plan, tuple[QuestionAnswers, ...]]:
    """The plan to work with, and the questions and answers before it.

    A plan that still has questions after the last round is used anyway: the agent makes assumptions and states them.
    """
    answers: tuple[QuestionAnswers, ...] = ()
    while plan.questions and len(answers) < MAX_QUESTION_ROUNDS:
        after = max((message.seq for answer in answers for message in answer.messages), default=0)
        given = partial(ask, plan.questions, after)
        answers = (*answers, await journal.step(f"answers.{len(answers) + 1}", QuestionAnswers, given))
        plan = await replan(journal, answers)
        progress.report("plan", render_plan(plan))
    return plan, answers


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
