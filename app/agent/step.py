"""A step of the trajectory as stored: the answer, the results of its calls, and the tree."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from app.agent.base import Submission
from app.core.job import Blobs, UserMessage, UserMessages
from app.core.patch import FileChange, Mode, Patch, RefusedFile
from app.core.record import Record
from app.core.text import beginning_of, one_line
from app.llm.base import ModelAnswer, ToolCall
from app.sandbox.base import Sandbox
from app.sandbox.changes import Baseline, export, restore

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


MAX_MESSAGES = 5
"""Messages of one turn; later ones come with the next turn."""
MAX_MESSAGE_CHARACTERS = 4_000
"""Characters of one message; the model is told how many are left out."""


async def unread(user_messages: UserMessages, steps: Sequence[Step]) -> tuple[UserMessage, ...]:
    """The oldest messages that none of these steps has. Nothing is marked as read: the steps record it."""
    return (await user_messages.since(last_seen_message(steps)))[:MAX_MESSAGES]


def last_seen_message(steps: Sequence[Step]) -> int:
    return next((step.turn.user_messages[-1].seq for step in reversed(steps) if step.turn.user_messages), 0)


def format_messages(messages: Iterable[UserMessage]) -> str:
    """The messages in order, as the model reads them."""
    return "\n\n".join(
        f"From {one_line(message.author)}, who may ask: {beginning_of(message.text.strip(), MAX_MESSAGE_CHARACTERS)}"
        for message in messages
    )


def remembered_messages(steps: Sequence[Step], space: int) -> str:
    """All messages of these steps, for a digest; if they do not fit, the newest, and the number of missing ones."""
    kept: list[str] = []
    words = [message for step in steps for message in step.turn.user_messages]
    for message in reversed(words):
        text = format_messages([message])
        space -= len(text) + 2
        if space < 0:
            break
        kept.append(text)
    if len(kept) < len(words):
        kept.append(f"(… {len(words) - len(kept):,} earlier words of people are left out)")
    return "\n\n".join(reversed(kept))


def last_checkpoint(steps: Sequence[Step]) -> Checkpoint | None:
    return next((step.turn.checkpoint for step in reversed(steps) if step.turn.checkpoint is not None), None)


class WorkTreePort(Protocol):
    """The agent's work tree, as a difference to its base."""

    async def export(self) -> Patch: ...

    async def restore(self, patch: Patch) -> None: ...


class SandboxTree:
    """The tree of one sandbox."""

    def __init__(self, sandbox: Sandbox, baseline: Baseline) -> None:
        self._sandbox = sandbox
        self._baseline = baseline

    async def export(self) -> Patch:
        return await export(self._sandbox, self._baseline)

    async def restore(self, patch: Patch) -> None:
        await restore(self._sandbox, self._baseline, patch)


class Checkpoints:
    """Takes and restores checkpoints; file contents are stored among the job's blobs."""

    def __init__(self, tree: WorkTreePort, blobs: Blobs, base: str) -> None:
        self._tree = tree
        self._blobs = blobs
        self.clean = Checkpoint(base=base)

    async def take(self) -> Checkpoint:
        patch = await self._tree.export()
        files = await asyncio.to_thread(lambda: tuple(map(self._keep, patch.changes)))
        return Checkpoint(base=patch.base, files=files, refusals=patch.refusals)

    async def restore(self, checkpoint: Checkpoint) -> None:
        await self._tree.restore(await asyncio.to_thread(self.change_at, checkpoint))

    def change_at(self, checkpoint: Checkpoint) -> Patch:
        """The change in it, without files that may not be part of a patch. Blocking."""
        return Patch(base=checkpoint.base, changes=tuple(map(self._recall, checkpoint.files)))

    def _keep(self, change: FileChange) -> FileState:
        digest = None if change.content is None else self._blobs.put(change.content)
        return FileState(path=change.path, mode=change.mode, digest=digest)

    def _recall(self, state: FileState) -> FileChange:
        content = None if state.digest is None else self._blobs.get(state.digest)
        return FileChange(path=state.path, mode=state.mode, content=content)
