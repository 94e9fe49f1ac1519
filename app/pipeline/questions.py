"""Asks people a plan's questions and plans again with their answers, at most twice."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NoReturn

from app.core.errors import ExitCode
from app.core.job import Journal, Progress, QuestionAnswers, WaitingForUser
from app.core.plan import Plan
from app.core.plan_text import render_plan
from app.pipeline.planner import MAX_QUESTION_ROUNDS

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
