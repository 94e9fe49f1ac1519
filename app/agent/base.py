"""The port to a coding agent: an assignment and a sandbox go in, a submission that passed review comes out."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Literal, Protocol

from app.core.plan import Plan
from app.core.record import Record

AssignmentAim = Literal["change", "merge", "upkeep", "answer"]
"""`merge`: conflicts are resolved, which no reproduction can show; no more can it `upkeep`, which keeps behaviour as it
is. `answer`: the submission's summary is the answer."""


class Submission(Record):
    """What an agent says of its work; `reproduction` is a command that fails before and passes after, or empty.

    `asked`: the harness had to ask for a reproduction first.
    """

    summary: str
    reproduction: str = ""
    asked: bool = False
    objection: str = ""
    """Why a failing independent test contradicts the issue; heard once."""
    lessons: tuple[str, ...] = ()
    """What it would tell who works here next, each as `path: fact`; believed only as `app.pipeline.lessons` sees
    fit."""


class ReviewResult(Record):
    """The harness's answer to a submission: accepted, or the facts that speak against it.

    Where it is not accepted and not `broken`, the same may be submitted again, and is then taken as it is.
    """

    accepted: bool
    broken: bool = True
    text: str = ""


class Assignment(Record):
    """What the agent is to do. `brief` is the rendered first user message: issue, plan, map, known failures."""

    brief: str
    plan: Plan | None = None
    aim: AssignmentAim = "change"


class RunnerEnding(Record):
    """How the agent's work ended. `reason` is one clear sentence for people, `claim` what the agent says of it."""

    exit_status: Literal["submitted", "no_change", "limit_reached", "error"]
    submission: Submission | None = None
    turns: int = 0
    reason: str = ""
    claim: str = ""


Reviewer = Callable[[Submission], Awaitable[ReviewResult]]
"""Verifies the work tree as it stands; called for each submission, within the budget."""


class Runner(Protocol):
    """A coding agent. It sees the sandbox and the model; it cannot reach git, the forge or the publisher."""

    @property
    def name(self) -> str: ...

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding: ...

    def trajectory(self) -> Iterator[str]:
        """JSON lines, one for each step so far, those of earlier processes included."""
        ...
