"""What earlier jobs in a repository found out: a fact each, with the line that bears it out, for a limited time.

facts of a job ─► learning ─► admitting ─► Lessons ─► recalling (ranked, re-checked) ─► the next job's brief
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, Protocol

from app.core.record import Record

LessonKind = Literal["how_to_test", "trap", "failure_and_fix", "told"]

MAX_TEXT: Final = 300
"""Characters of a lesson: one fact."""
LIVES: Final[Mapping[LessonKind, timedelta]] = {
    "how_to_test": timedelta(days=90),
    "trap": timedelta(days=90),
    "failure_and_fix": timedelta(days=90),
    "told": timedelta(days=365),
}
"""After that nobody is told of it any more, unless a job or a person learned the same again."""
MAX_LEARNED: Final = 100
"""Of a repository, besides what people told; then the least used and oldest goes."""
MAX_REMEMBERED: Final = 50
"""Of a repository; more are refused, because nobody but people takes back what people said."""
MAX_PER_JOB: Final = 5

HARNESS: Final = "harness"
AGENT: Final = "agent"
"""Authors that are no people."""


class Citation(Record):
    """The line of a file that bears a lesson out: by its digest, so that no text of a repository is kept here."""

    path: str
    commit: str
    digest: str


class LessonDraft(Record):
    """A lesson about to be kept. A repository has one of a topic, the newest; the text is it without a name."""

    text: str
    kind: LessonKind
    topic: str = ""
    citation: Citation | None = None
    job: str = ""
    author: str

    @property
    def about(self) -> str:
        return self.topic or hashlib.sha256(self.text.casefold().encode()).hexdigest()[:32]


class Lesson(Record):
    """A lesson by its number, which no other lesson of the repository ever gets."""

    number: int
    text: str
    kind: LessonKind
    citation: Citation | None = None
    job: str = ""
    """The job that learned it; empty for what people told."""
    author: str
    """`harness`, `agent`, or who told it."""
    created: datetime
    expires: datetime
    uses: int = 0
    """Jobs that were shown it."""


class LessonStore(Protocol):
    """The lessons of one repository; through it no other can be asked. Blocking, each call one short transaction."""

    def all(self) -> tuple[Lesson, ...]:
        """Those that hold now, by number."""
        ...

    def learn(self, drafts: Sequence[LessonDraft]) -> tuple[Lesson, ...]:
        """Keep what a job found out; returns what is new by it, also when said again.

        What people told or made us forget stands: a draft of the same topic changes nothing.
        """
        ...

    def remember(self, draft: LessonDraft, key: str) -> Lesson | None:
        """Keep what a person said; None where there is no room for it. `key` is the same when said again."""
        ...

    def forget(self, number: int, key: str) -> bool:
        """Whether there was such a lesson. The same key is told the same again."""
        ...

    def remove_outdated(self, numbers: Sequence[int]) -> None:
        """Drop lessons that are not borne out any more; they may be learned anew."""
        ...

    def source_jobs(self) -> tuple[str, ...]:
        """The jobs that taught what is known."""
        ...

    def forget_job(self, job: str) -> int:
        """Drop what a job taught, because its change was not wanted after all; returns how many lessons."""
        ...

    def recovered_jobs(self, job: str) -> tuple[Lesson, ...] | None:
        """What a job was shown; None where it was not asked yet."""
        ...

    def recall(self, job: str, shown: Sequence[Lesson]) -> tuple[Lesson, ...]:
        """Write down what a job is shown, once for all: whoever says it later gets what stands there."""
        ...


class LessonRanking(Protocol):
    """Tells which lessons are like a question."""

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        """Those that have anything to do with it, the most similar first. Never raises for want of a similarity."""
        ...


def github_repository_key(repository: int) -> str:
    """The key of a forge's repository: its number, because a name may become another's."""
    return f"r{int(repository)}"


def local_repository_key(repository: Path) -> str:
    """The key of a repository of this machine."""
    return f"p{hashlib.sha256(str(repository).encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"


def with_age(draft: LessonDraft, now: datetime) -> datetime:
    """When a lesson that is learned now ends."""
    return now + LIVES[draft.kind]
