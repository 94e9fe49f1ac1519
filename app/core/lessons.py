"""Lessons that earlier jobs learned about a repository: facts with a supporting line of code and an expiry date.

an agent's facts ─► those that a line supports ─► lessons ─► the most similar, checked again ─► the next job's brief
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, Protocol

from app.core.record import Record

LessonKind = Literal["how_to_test", "trap", "failure_and_fix", "remembered"]

MAX_TEXT: Final = 300
"""Characters of a lesson, which is one fact."""
LIVES: Final[Mapping[LessonKind, timedelta]] = {
    "how_to_test": timedelta(days=90),
    "trap": timedelta(days=90),
    "failure_and_fix": timedelta(days=90),
    "remembered": timedelta(days=365),
}
"""How long a lesson of each kind is shown, unless a job or a person adds the same again."""
MAX_LEARNED: Final = 100
"""Lessons that jobs learned, per repository; beyond that the least used and oldest is deleted."""
MAX_REMEMBERED: Final = 50
"""Lessons that people wrote, per repository; more are refused, because only people delete them."""

AGENT: Final = "agent"
"""The author that is not a person; `harness` in rows of 0.1."""


class Citation(Record):
    """The line of a file that supports a lesson, stored as a digest so that no repository text is kept here."""

    path: str
    commit: str
    digest: str


class LessonDraft(Record):
    """A lesson before it is stored.

    A repository has one lesson per topic, the newest. The topic is the text if no topic is named.
    """

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
    """A stored lesson. Its number is never used for another lesson of the repository."""

    number: int
    text: str
    kind: LessonKind
    citation: Citation | None = None
    job: str = ""
    """The job that learned it; empty for lessons written by people."""
    author: str
    """`agent`, or the login of the person who wrote it."""
    created: datetime
    expires: datetime
    uses: int = 0
    """How many jobs were shown it."""


class LessonRanking(Protocol):
    """Ranks lessons by similarity to a question."""

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        """The related lessons, most similar first. Never raises, even if similarity cannot be computed."""
        ...


def github_repository_key(repository: int) -> str:
    """The key of a GitHub repository: its number, because names can be reused."""
    return f"r{int(repository)}"


def local_repository_key(repository: Path) -> str:
    """The key of a repository on this machine."""
    return f"p{hashlib.sha256(str(repository).encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"
