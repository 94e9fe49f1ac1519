"""A step of the trajectory as stored: the answer, the results of its calls, and the tree."""

from typing import Literal, NamedTuple

from app.agent.base import Submission
from app.core.job import UserMessage
from app.core.patch import Mode, RefusedFile
from app.core.record import Record
from app.llm.base import ModelAnswer, ToolCall

Outcome = Literal["ok", "failed", "refused", "not_executed"]
"""`ok`: carried out. `failed`: tried, without effect. `refused`: malformed or unknown. `not_executed`: never tried."""

SubmissionFate = Literal[
    "accepted", "rejected", "returned", "asked_for_reproduction", "nothing_changed", "messages_first"
]
"""`rejected`: something is broken. `returned`: unproved; accepted if repeated. `messages_first`: not taken, because the
agent had not read all messages."""


class Observation(Record):
    """The result of one call. `summary` is one line for people and digests.

    `fingerprint` is equal for equal results, regardless of seconds and file numbers. Empty: never compared.
    """

    call_id: str
    tool: str
    outcome: Outcome
    text: str
    summary: str = ""
    fingerprint: str = ""

    @property
    def executed(self) -> bool:
        return self.outcome in {"ok", "failed"}


class FileState(Record):
    """A changed path; `digest` is the key of its bytes among the job's blobs, None if it is deleted."""

    path: str
    mode: Mode
    digest: str | None


class Checkpoint(Record):
    """The work tree after a turn, as the difference to the commit `base`."""

    base: str
    files: tuple[FileState, ...] = ()
    refusals: tuple[RefusedFile, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.files and not self.refusals


class StoredAnswer(Record):
    """A model answer and the seconds it took, including retries.

    `unread_messages`: there were messages that the model had not read when it answered.
    """

    answer: ModelAnswer
    seconds: float = 0.0
    unread_messages: bool = False


class StoredTurn(Record):
    """The result of an answer: its calls as in the history, and one observation for each.

    `notes` are messages of the harness, `user_messages` those of people, up to the end of this turn; `base_suite` is
    the suite's result before any change, in the first turn that has it. `checkpoint` is None if the tree cannot have
    changed.
    """

    number: int
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    notes: tuple[str, ...] = ()
    base_suite: str = ""
    user_messages: tuple[UserMessage, ...] = ()
    checkpoint: Checkpoint | None = None
    submission: Submission | None = None
    fate: SubmissionFate | None = None
    seconds: float = 0.0


class Step(NamedTuple):
    """One model turn: the answer and its results."""

    stored_answer: StoredAnswer
    turn: StoredTurn

    @property
    def answer(self) -> ModelAnswer:
        return self.stored_answer.answer

    @property
    def executed(self) -> bool:
        return any(observation.executed for observation in self.turn.observations)
