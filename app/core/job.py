"""A job, and the interfaces through which it is stored, observed and guided."""

import re
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

from pydantic import ValidationError

from app.core.errors import AgentFixError, ExitCode
from app.core.examples import Example, FrozenExamples, OutdatedTest, PlanExamples
from app.core.model_usage import MicroUSD, ModelNames, Reasoning, Totals, WorkKind
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.record import Record
from app.core.task import Task, TaskKind
from app.core.verification import RestOfSuite, RestState, Verdict, Verification

FinalState = Literal[
    "pr_opened",
    "pr_updated",
    "answered",
    "already_works",
    "reproduced",
    "not_reproduced",
    "verified",
    "no_change",
    "needs_input",
    "verification_failed",
    "limit_reached",
    "stopped",
    "no_access",
    "error",
]
JobState = Literal[
    "queued", "planning", "awaiting_approval", "working", "verifying", "publishing", "paused", FinalState
]
MAX_ATTEMPTS = 5
HIGHEST_BUDGET: Final = 10_000
"""US dollars that one job may be given at most."""
WAITING: frozenset[JobState] = frozenset({"awaiting_approval", "needs_input", "paused"})
"""States in which a job waits for people."""
PUBLISHED: frozenset[JobState] = frozenset({"pr_opened", "pr_updated"})
FINAL: frozenset[JobState] = frozenset(get_args(FinalState))
"""States in which nothing works on a job, and its issue is free for a new one. In `needs_input` it can be resumed."""


class WaitingForUser(AgentFixError):  # noqa: N818  # a wait, not a fault
    """The job needs a person: an approval, an answer or a higher limit. It stays in its current state until then."""

    repeatable = True

    def __init__(self, state: JobState, reason: str, *, code: ExitCode, hint: str = "") -> None:
        super().__init__(reason, code=code, hint=hint)
        self.state: JobState = state


DEFAULT_SUITE_MINUTES = 5.0
DEFAULT_REST_MINUTES = 30.0


class Budget(Record):
    """A job's limits: money (micro-dollars), working minutes (waiting for people is not counted), model turns.

    `suite_minutes` is the time for one run of the whole test suite; None for the default. Of a longer suite, what the
    verdict leaves out is run afterwards, for `rest_of_suite_minutes`.
    """

    usd: MicroUSD = 5_000_000
    minutes: float = 60.0
    steps: int = 100
    suite_minutes: float | None = None
    rest_of_suite_minutes: float | None = None

    @property
    def suite_seconds(self) -> float:
        """Five minutes unless chosen, and at most a quarter of a job's minutes; a choice may take all of them."""
        if self.suite_minutes is None:
            return 60 * min(DEFAULT_SUITE_MINUTES, self.minutes / 4)
        return 60 * min(self.suite_minutes, self.minutes)

    @property
    def rest_minutes(self) -> float:
        """Thirty minutes unless chosen, and at most half of a job's minutes, which these do not count towards."""
        if self.rest_of_suite_minutes is None:
            return min(DEFAULT_REST_MINUTES, self.minutes / 2)
        return self.rest_of_suite_minutes

    def for_a_look(self) -> "Budget":
        """A fifth of every limit: for a question, or to reproduce an issue, the model only has to look."""
        share = {"usd": self.usd // 5, "minutes": self.minutes / 5, "steps": max(self.steps // 5, 1)}
        return self.model_copy(update=share)

    def for_a_verdict(self) -> "Budget":
        """A fifth of the money: a verification has no work to pay for, but all the tests to run."""
        return self.model_copy(update={"usd": self.usd // 5})


class Job(Record):
    """All that is decided about a job before its first step; it never changes afterwards.

    `created_at` is also the commit's date, so that a job resumed after a crash makes the same commit.
    """

    id: str
    task: Task
    branch: str
    budget: Budget
    model: str
    """The model that writes code, and does every kind of work for which `models` names no other."""
    models: ModelNames = ModelNames()
    reasoning: Reasoning = ""
    runner: str = "native"
    sandbox: str = "bubblewrap"
    """On a server, the worker that begins the job puts its own sandbox here."""
    plan_mode: Literal["auto", "approve", "only", "none"] = "auto"
    plan_file: str = ""
    """The text of an edited plan; empty if the model makes the plan."""
    examples: tuple[Example, ...] = ()
    """The examples in `plan_file` that a model wrote; all others in it are a person's."""
    outdated: tuple[OutdatedTest, ...] = ()
    """The tests that the model of `plan_file` named."""
    aim: Literal["fix", "ask", "reproduce", "verify"] = "fix"
    """`ask`: the request is a question (`app.pipeline.answer`); `reproduce`: only the plan's examples are wanted;
    `verify`: a change that is there already is judged (`app.pipeline.change_verification`). None of these publishes a
    commit."""
    change: str = ""
    """For `verify`: the full id of the commit that is judged. The task's base is where it began."""
    frozen: FrozenExamples | None = None
    """For `verify`: an earlier commit of the same change was judged by these, and no model is asked."""
    conflicts: tuple[str, ...] = ()
    """Paths with conflict markers in the base; the job is to resolve them."""
    attempts: int = 1
    """Maximum number of independent attempts until one is proved (`app.pipeline.attempts`)."""
    created_at: datetime

    @property
    def kind(self) -> TaskKind:
        return "conflict" if self.conflicts else self.task.kind

    @property
    def expects_red(self) -> bool:
        return self.aim == "reproduce" or (not self.conflicts and self.task.expects_red)

    @property
    def chosen(self) -> ModelNames:
        """The model for each kind of work, with the code model filled in for empty names."""
        return self.models.model_copy(update={"code": self.model})

    @property
    def model_text(self) -> str:
        """All its models for people: the main one, then those of other kinds of work."""
        names = self.chosen
        others = [(kind, getattr(names, kind)) for kind in ("plan", "review", "answer", "cheap")]
        more = [f"{kind}: {name}" for kind, name in others if name and name != self.main_model]
        return f"{self.main_model} ({', '.join(more)})" if more else self.main_model

    @property
    def main_model(self) -> str:
        """The model for the job's main kind of work."""
        kinds: dict[str, WorkKind] = {"ask": "answer", "reproduce": "plan", "verify": "plan"}
        return self.chosen.of(kinds.get(self.aim, "code"))


JOB_ID: Final = re.compile(r"[a-z0-9]{6,40}")


def new_job_id() -> str:
    """A new id that sorts by time and is easy to type: seconds in base 36 and four random characters."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    seconds, text = int(datetime.now(UTC).timestamp()), ""
    while seconds:
        seconds, digit = divmod(seconds, 36)
        text = digits[digit] + text
    return text + "".join(secrets.choice(digits) for _ in range(4))


N = TypeVar("N", bound=Record)


class Journal(Protocol):
    """Durable memory of a job's steps; a finished step is never executed again, even after a crash.

    Steps are at-least-once: an interrupted step is executed again, so its work must check before it acts.
    """

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        """Register `restore` to run before the first step that a resumed job executes from now on.

        It recreates the state that earlier steps left outside the journal, which may be gone: the process may now run
        on another machine. A step that was requested before this call does not wait for it.
        """
        ...

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        """Execute `work` once and store its result, or return the stored result. Names are unique within a job."""
        ...


ProgressKind = Literal[
    "state",
    "plan",
    "text",
    "step",
    "command",
    "observation",
    "verification",
    "note",
    "warning",
    "cost",
    "output",
    "started",
    "finished",
]
STREAMED: Final[frozenset[ProgressKind]] = frozenset({"text", "output", "started", "finished"})
"""What only those who watch need: fragments of a text that appears elsewhere as a whole, begins and ends."""


BASE_SUITE: Final = "the suite on the base"
BASE_TESTS: Final = "the independent tests on the base"
"""Of what a job waits for, the two by which a display knows that a part of the preparation is done."""


class Progress(Protocol):
    """Receives a job's progress: the terminal, the log behind `jobs logs -f`, or a status comment."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """Report one line or block of plain text.

        Whoever does not show progress live may drop `text` and `output`, which are streamed fragments, and `started`
        and `finished`, between which the job waits for what the text names.
        """
        ...


class NoProgress:
    """Discards progress, where nobody watches."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """Do nothing."""


@contextmanager
def waiting_for(progress: Progress, what: str) -> Iterator[None]:
    """Report that the job waits for `what` until the block ends."""
    progress.report("started", what)
    try:
        yield
    finally:
        progress.report("finished", what)


class Blobs(Protocol):
    """Content-addressed storage for a job's bytes, kept as long as its journal."""

    def put(self, content: bytes) -> str:
        """Store bytes and return their SHA-256 in hex. Idempotent."""
        ...

    def get(self, digest: str) -> bytes:
        """Bytes by digest. Raises KeyError if there are none."""
        ...


class UserMessage(Record):
    """A message from an authorised person to a running job. Later messages have higher numbers."""

    seq: int
    author: str
    text: str


class QuestionAnswers(Record):
    """People's answers to the questions of a plan."""

    questions: tuple[str, ...]
    messages: tuple[UserMessage, ...]


class UserMessages(Protocol):
    """Messages that people send to the agent while it works.

    Nothing is marked as read: the job itself stores which messages it has received.
    """

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        """All messages with a higher number, in order."""
        ...


class NoUserMessages:
    """An empty UserMessages, for jobs without a channel for messages."""

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        return ()


class AttemptSummary(Record):
    """The summary of one of several attempts, for people."""

    number: int
    exit_status: JobState
    verdict: Verdict | None = None
    reason: str = ""
    changed_lines: int = 0
    turns: int = 0
    cost: MicroUSD = 0
    taken: bool = False


class JobResult(Record):
    """The outcome of a job, stored with it so that it can be reported again after a crash."""

    exit_status: JobState
    reason: str = ""
    hint: str = ""
    """What a person can do about the reason, if anything."""
    plan: Plan | None = None
    examples: PlanExamples | None = None
    """The plan's examples as they ran on the base."""
    verification: Verification | None = None
    summary: str = ""
    branch: str = ""
    commit: str = ""
    url: str = ""
    """The URL of the pull request."""
    changes: tuple[FileStat, ...] = ()
    patch: str = ""
    """Digest of the patch; its bytes are in the job's blobs."""
    rest_order: str = ""
    """Digest of a RestOrder in the job's blobs, if the rest of a long suite is run after publication."""
    diff: str = ""
    """Digest of the change as a diff for `git apply`, in the job's blobs; set whatever the outcome."""
    unpublished: bool = False
    """True if the change passed verification and only its publication is missing, which can be repeated for nothing."""
    compare: str = ""
    """Where a person can open a pull request from the pushed branch, if we could not."""
    usage: Totals = Totals()
    model: str = ""
    turns: int = 0
    seconds: float = 0.0
    error_code: ExitCode | None = None
    trajectory: str = ""
    """Digest of the trajectory, in the job's blobs."""
    attempts: tuple[AttemptSummary, ...] = ()
    """All attempts, if more than one was requested."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: dict[str, Any] | None) -> "JobResult | None":
        """A stored result; None if there is none, or if an older version stored it in another shape."""
        try:
            return cls.model_validate(stored) if stored else None
        except ValidationError:
            return None

    @property
    def rest(self) -> RestOfSuite | None:
        """The rest of a long suite, as far as it was run after publication."""
        return self.verification.rest if self.verification else None

    @property
    def rest_pending(self) -> bool:
        """True while the rest of a long suite is still to be run."""
        return self.rest is not None and self.rest.state == "pending"

    def with_rest_state(self, state: RestState, reason: str) -> "JobResult":
        """The result with the rest of the suite in this state, if it had not ended."""
        if not self.rest_pending or self.verification is None or self.rest is None:
            return self
        rest = self.rest.model_copy(update={"state": state, "reason": reason})
        return self.model_copy(update={"verification": self.verification.model_copy(update={"rest": rest})})

    @property
    def exit_code(self) -> ExitCode:
        """0 only if the verdict is `proved` or `tested`, or if only a plan or a reproduction was requested and made."""
        match self.exit_status:
            case "pr_opened" | "pr_updated" | "verified":
                if self.verification is not None and self.verification.verdict == "broken":
                    return ExitCode.BROKEN  # a draft by the rest of a long suite
                proved = self.verification is not None and self.verification.verdict in {"proved", "tested"}
                return ExitCode.OK if proved else ExitCode.UNPROVED
            case "answered" | "reproduced":
                return ExitCode.OK
            case _:
                return self.error_code or _CODES.get(self.exit_status, ExitCode.INTERNAL)


_CODES: dict[JobState, ExitCode] = {
    "verification_failed": ExitCode.BROKEN,
    "limit_reached": ExitCode.LIMIT_REACHED,
    "paused": ExitCode.LIMIT_REACHED,
    "no_change": ExitCode.NO_CHANGE,
    "already_works": ExitCode.ALREADY_WORKS,
    "not_reproduced": ExitCode.NOT_REPRODUCED,
    "awaiting_approval": ExitCode.AWAITING_APPROVAL,
    "needs_input": ExitCode.NEEDS_INPUT,
    "stopped": ExitCode.STOPPED,
}
