"""One durable attempt at a task, and the ports through which it is kept, watched and spoken to."""

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeVar

from app.core.errors import AgentFixError, ExitCode
from app.core.model_names import ModelNames, Reasoning
from app.core.money import MicroUSD
from app.core.record import Record
from app.core.task import Task, TaskKind

JobState = Literal[
    "queued",
    "planning",
    "awaiting_approval",
    "working",
    "verifying",
    "publishing",
    "paused",
    "pr_opened",
    "pr_updated",
    "answered",
    "no_change",
    "needs_input",
    "verification_failed",
    "limit_reached",
    "stopped",
    "no_access",
    "error",
]
MAX_ATTEMPTS = 5
FINAL: frozenset[JobState] = frozenset(
    {
        "pr_opened",
        "pr_updated",
        "answered",
        "no_change",
        "needs_input",
        "verification_failed",
        "limit_reached",
        "stopped",
        "no_access",
        "error",
    }
)


class WaitingForUser(AgentFixError):  # noqa: N818  # a wait, not a fault
    """The job cannot go on without a person: an approval, an answer, a higher limit. It stays as it stands."""

    def __init__(self, state: JobState, reason: str, *, code: ExitCode, hint: str = "") -> None:
        super().__init__(reason, code=code, hint=hint)
        self.state: JobState = state

    @property
    def final(self) -> bool:
        return False


class Budget(Record):
    """Caps of one job: money (micro-dollars), working minutes (waiting for people not counted), model turns."""

    usd: MicroUSD = 5_000_000
    minutes: float = 60.0
    steps: int = 100

    def for_a_question(self) -> "Budget":
        """A fifth of everything: an answer is looked up, not worked out."""
        return Budget(usd=self.usd // 5, minutes=self.minutes / 5, steps=max(self.steps // 5, 1))


class Job(Record):
    """Everything that is decided before the first step and never changes afterwards.

    `created_at` is also the commit's date, so that a job resumed after a crash makes the same commit.
    """

    id: str
    task: Task
    branch: str
    budget: Budget
    model: str
    """For the code, and for everything that `models` names no other for."""
    models: ModelNames = ModelNames()
    reasoning: Reasoning = ""
    runner: str = "native"
    sandbox: str = "bubblewrap"
    plan_mode: Literal["auto", "approve", "only", "none"] = "auto"
    plan_file: str = ""
    """An edited plan's text; empty where the model makes one."""
    aim: Literal["fix", "ask"] = "fix"
    """`ask`: the request is a question, and nothing is ever published (`app.pipeline.answer`)."""
    conflicts: tuple[str, ...] = ()
    """Paths of the base that have conflict markers in them: to resolve these is what the job is about."""
    attempts: int = 1
    """How many are made at most, independently, until one is proved (`app.pipeline.attempts`)."""
    created_at: datetime

    @property
    def kind(self) -> TaskKind:
        return "conflict" if self.conflicts else self.task.kind

    @property
    def expects_red(self) -> bool:
        return not self.conflicts and self.task.expects_red

    @property
    def chosen(self) -> ModelNames:
        """The models by the kind of work, with the code model in its place."""
        return self.models.model_copy(update={"code": self.model})

    @property
    def main_model(self) -> str:
        """The one that does what the job is about."""
        return self.chosen.of("answer" if self.aim == "ask" else "code")


def new_job_id() -> str:
    """Sorts by time, easy to type: seconds in base 36 and four random characters."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    seconds, text = int(datetime.now(UTC).timestamp()), ""
    while seconds:
        seconds, digit = divmod(seconds, 36)
        text = digits[digit] + text
    return text + "".join(secrets.choice(digits) for _ in range(4))


N = TypeVar("N", bound=Record)


class Journal(Protocol):
    """Durable memory of a job's steps. A step that once finished is never executed again, after any crash.

    Steps are at-least-once: one that was interrupted is executed again, so its work looks before it acts.
    """

    @property
    def recovering(self) -> bool:
        """True while the step at hand may have been begun by a process that died."""
        ...

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        """Before the first step that is executed while recovering, have this done, as the steps before it left things.

        Whatever outside the journal a step relies on may be gone: the process may be on another machine by now.
        """
        ...

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        """Execute `work` once and keep its result, or return the kept result. Names are unique in a job."""
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
]


class Progress(Protocol):
    """Where a job tells what it does: the terminal, the log that `jobs logs -f` follows, a status comment."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """One line or block of plain text; `text` and `output` are streamed fragments and may be dropped."""
        ...


class Blobs(Protocol):
    """Content-addressed bytes of a job, kept as long as its journal."""

    def put(self, content: bytes) -> str:
        """Keep bytes; returns their SHA-256 in hex. Safe to say twice."""
        ...

    def get(self, digest: str) -> bytes:
        """Bytes by digest; KeyError where there are none."""
        ...


class UserMessage(Record):
    """Words of a person who may ask, said to a living job. Later words have higher numbers."""

    seq: int
    who: str
    text: str


class QuestionAnswers(Record):
    """What people said when they were asked the questions of a plan."""

    questions: tuple[str, ...]
    last_message_seq: tuple[UserMessage, ...]


class UserMessages(Protocol):
    """Where people speak to the agent while it works. Nothing is ever marked as read: the job keeps what it heard."""

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        """All words with a higher number, in order."""
        ...


class NoUserMessages:
    """Nobody speaks."""

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        return ()
