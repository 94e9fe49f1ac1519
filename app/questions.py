"""What a plan cannot begin without is asked of people, and planned again with what they said; twice at most."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NoReturn

from app.errors import ExitCode
from app.job import Answers, Journal, Parked, Progress
from app.plan import Plan
from app.plan_text import render_plan
from app.planner import MAX_ROUNDS

Planner = Callable[[Journal, Sequence[Answers]], Awaitable[Plan]]
Answerer = Callable[[tuple[str, ...], int], Awaitable[Answers]]
"""(questions, the number of the last words heard before) → what was said since; Parked while nobody has answered."""


async def settle(
    plan: Plan, replan: Planner, ask: Answerer, journal: Journal, progress: Progress
) -> tuple[Plan, tuple[Answers, ...]]:
    """The plan that work can begin with, and what was asked and answered on the way to it.

    A plan that still has questions after the last round is gone on with: the agent assumes, and says what.
    """
    answers: tuple[Answers, ...] = ()
    while plan.questions and len(answers) < MAX_ROUNDS:
        after = max((said.seq for answer in answers for said in answer.heard), default=0)
        given = partial(ask, plan.questions, after)
        answers = (*answers, await journal.step(f"answers.{len(answers) + 1}", Answers, given))
        plan = await replan(journal, answers)
        progress.say("plan", render_plan(plan))
    return plan, answers


async def nobody_answers(questions: tuple[str, ...], after: int) -> NoReturn:
    """Where there is nobody to wait for, as on the command line: the job ends with its questions."""
    raise unanswered(questions, hint=_HINT)


def unanswered(questions: tuple[str, ...], *, hint: str = "") -> Parked:
    """The wait for people to answer; the reason has the questions."""
    asked = " ".join(f"({number}) {question}" for number, question in enumerate(questions, 1))
    reason = f"The work cannot begin without an answer: {asked}"
    return Parked("needs_input", reason, code=ExitCode.NEEDS_INPUT, hint=hint)


_HINT = (
    "Write the answers into the issue file and give the same command again; or begin without them: --no-plan, or "
    "--plan FILE with a plan of your own."
)
