"""The port to a coding agent: it gets an assignment and a sandbox, and returns a submission that passed review."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.core.job import Blobs, Budget, Journal, NoUserMessages, Progress, UserMessages
from app.core.patch import Patch
from app.core.record import Record
from app.llm.base import Message, ModelAnswer, ModelInfo, ModelRequest
from app.sandbox.base import Sandbox
from app.sandbox.changes import Baseline


class ModelPort(Protocol):
    """Implemented by `app.llm.budgeted_model.BudgetedModel`. Raises ModelError and BudgetError."""

    @property
    def info(self) -> ModelInfo: ...

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer; `key` is the same for the same call in a resumed job."""
        ...


AssignmentAim = Literal["change", "merge", "upkeep", "answer"]
"""`merge` (resolve conflicts) and `upkeep` (keep behaviour) have no reproduction. For `answer`, the submission's
summary is the answer."""


class Objection(Record):
    """Why the issue does not ask for what a failing example prints; people decide."""

    example: str
    reason: str


class Submission(Record):
    """An agent's description of its work; `reproduction` is a command that fails before and passes after, or empty.

    `reproduction_was_requested`: the harness had to request a reproduction first.
    """

    summary: str
    reproduction: str = ""
    reproduction_was_requested: bool = False
    objections: tuple[Objection, ...] = ()
    lessons: tuple[str, ...] = ()
    """Facts for later agents, each as `path: fact`; `app.pipeline.lessons` checks them."""


class ReviewResult(Record):
    """The harness's answer to a submission: accepted, or the facts that contradict it.

    If neither accepted nor `broken`, the same submission is accepted when it is repeated.
    """

    accepted: bool
    broken: bool = True
    text: str = ""


class Assignment(Record):
    """The agent's task. `brief` is all of it as one text: issue, plan, map, known failures.

    If the model made the plan in the same conversation, that goes on: `opening` has the brief, its looks, and the plan.
    """

    brief: str
    aim: AssignmentAim = "change"
    opening: tuple[Message, ...] = ()
    has_examples: bool = False
    """Whether examples show the change, so that a reproduction is not asked for."""


RunnerStatus = Literal["submitted", "no_change", "limit_reached", "error"]


class RunnerEnding(Record):
    """How the agent's work ended. `reason` is one sentence for people, `claim` the agent's own statement."""

    exit_status: RunnerStatus
    submission: Submission | None = None
    turns: int = 0
    reason: str = ""
    claim: str = ""


Reviewer = Callable[[Submission], Awaitable[ReviewResult]]
"""Verifies the current work tree; called for each submission, within the budget."""


class Runner(Protocol):
    """A coding agent. It has a sandbox and a model, but no access to git, GitHub or the publisher."""

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding: ...

    def last_change(self) -> Patch:
        """What it had changed at the end of its last stored step. Blocking."""
        ...

    def trajectory(self) -> Iterator[str]:
        """JSON lines, one for each step so far, including those of earlier processes."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """All that a runner may use: a budgeted model, a sandbox, the job's storage; no git, GitHub or host files."""

    budgeted_model: ModelPort
    sandbox: Sandbox
    baseline: Baseline
    journal: Journal
    blobs: Blobs
    progress: Progress
    budget: Budget
    user_messages: UserMessages = field(default_factory=NoUserMessages)
    base_suite: Callable[[], str] = str
    """What the agent is told about the suite on the base; empty until that is known."""
