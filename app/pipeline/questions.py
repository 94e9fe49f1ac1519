"""What a plan cannot begin without is asked of people, and planned again with what they said; twice at most."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NoReturn

from app.core.errors import ExitCode
from app.core.job import Journal, Progress, QuestionAnswers, WaitingForUser
from app.core.plan import Plan
from app.core.plan_text import render_plan
from app.pipeline.planner import MAX_ROUNDS

Planner = Callable[[Journal, Sequence[QuestionAnswers]], Awaitable[Plan]]
Answerer = Callable[[tuple[str, ...], int], Awaitable[QuestionAnswers]]
"""(questions, the number of the last words heard before) → what was said since; Parked while nobody has answered."""


async def resolve_questions(
    plan: Plan, replan: Planner, ask: Answerer, journal: Journal, progress: Progress
) -> tuple[Plan, tuple[QuestionAnswers, ...]]:
    """The plan that work can begin with, and what was asked and answered on the way to it.

    A plan that still has questions after the last round is gone on with: the agent assumes, and says what.
    """
    answers: tuple[QuestionAnswers, ...] = ()
    while plan.questions and len(answers) < MAX_ROUNDS:
        after = max((said.seq for answer in answers for said in answer.last_message_seq), default=0)
        given = partial(ask, plan.questions, after)
        answers = (*answers, await journal.step(f"answers.{len(answers) + 1}", QuestionAnswers, given))
        plan = await replan(journal, answers)
        progress.report("plan", render_plan(plan))
    return plan, answers


async def refuse_questions(questions: tuple[str, ...], after: int) -> NoReturn:
    """Where there is nobody to wait for, as on the command line: the job ends with its questions."""
    raise unanswered(questions, hint=_HINT)


def unanswered(questions: tuple[str, ...], *, hint: str = "") -> WaitingForUser:
    """The wait for people to answer; the reason has the questions."""
    asked = " ".join(f"({number}) {question}" for number, question in enumerate(questions, 1))
    reason = f"The work cannot begin without an answer: {asked}"
    return WaitingForUser("needs_input", reason, code=ExitCode.NEEDS_INPUT, hint=hint)


_HINT = (
    "Write the answers into the issue file and give the same command again; or begin without them: --no-plan, or "
    "--plan FILE with a plan of your own."
)
