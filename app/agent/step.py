"""A step of the trajectory as it is stored: the paid answer, what its calls brought, and the tree they left."""

from typing import Literal, NamedTuple

from app.agent.base import Submission
from app.core.job import UserMessage
from app.core.patch import Mode, RefusedFile
from app.core.record import Record
from app.llm.base import ModelAnswer, ToolCall

Outcome = Literal["ok", "failed", "refused", "not_executed"]
"""`ok`: carried out. `failed`: tried, had no effect. `refused`: malformed or unknown. `not_executed`: never tried."""

SubmissionFate = Literal["accepted", "rejected", "returned", "asked_for_reproduction", "nothing_changed", "words_first"]
"""`rejected`: something is broken. `returned`: nothing is, but it is not proved; the same again is accepted.
`words_first`: not taken, because people said something that the agent had not read.
"""


class Observation(Record):
    """What one call brought back. `summary` is its one line for people and digests.

    `fingerprint` is equal for equal results: seconds and file numbers are not in it. Empty: never compared.
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
    """A changed path; `digest` finds its bytes among the job's blobs, None where it is deleted."""

    path: str
    mode: Mode
    digest: str | None


class Checkpoint(Record):
    """The work tree after a turn, as the difference to commit `base`."""

    base: str
    files: tuple[FileState, ...] = ()
    refusals: tuple[RefusedFile, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.files and not self.refusals


class StoredAnswer(Record):
    """A model answer and the seconds it took, retries included.

    `words_waiting`: people had said something by then that the model did not know when it answered.
    """

    answer: ModelAnswer
    seconds: float = 0.0
    words_waiting: bool = False


class StoredTurn(Record):
    """What became of an answer: its calls as the history shows them, and one observation for each.

    `notes` are what the harness said of its own accord, `words` what people said, until the end of this turn.
    `checkpoint` is None where the tree cannot have changed.
    """

    number: int
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    notes: tuple[str, ...] = ()
    words: tuple[UserMessage, ...] = ()
    checkpoint: Checkpoint | None = None
    submission: Submission | None = None
    fate: SubmissionFate | None = None
    seconds: float = 0.0


class Step(NamedTuple):
    """One model turn: what was answered and what was done."""

    asked: StoredAnswer
    turn: StoredTurn

    @property
    def answer(self) -> ModelAnswer:
        return self.asked.answer

    @property
    def executed(self) -> bool:
        return any(observation.executed for observation in self.turn.observations)
