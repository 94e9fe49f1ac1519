"""Selects the earlier comments that the model is shown, by their authors' rank if not all fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from app.core.text import one_line
from app.github.models import IssueComment, PullRequestReview

Rank = Literal["asked", "maintainer", "opened", "other"]
TITLES: dict[Rank, str] = {
    "asked": "What the person who asked said before",
    "maintainer": "What people with write access said before",
    "opened": "What the person who opened this said before",
    "other": "What others said before",
}
"""In the order in which words are shown, and given room."""


@dataclass(frozen=True, slots=True)
class CommentAuthors:
    """Account ids: who asked, who opened the issue or pull request, and who has write access."""

    requester: int = 0
    opened: int = 0
    maintainers: frozenset[int] = frozenset()

    def rank(self, author: int) -> Rank:
        if author == 0:
            return "other"
        if author == self.requester:
            return "asked"
        if author in self.maintainers:
            return "maintainer"
        return "opened" if author == self.opened else "other"


UNKNOWN_AUTHORS = CommentAuthors()


class QuotedComment(NamedTuple):
    """One comment or review, and when it was written; `about` is a review's state."""

    at: datetime
    author: int
    name: str
    body: str
    about: str = ""

    @property
    def heading(self) -> str:
        about = f" ({self.about})" if self.about else ""
        return f"{one_line(self.name)}{about}, {self.at:%Y-%m-%d %H:%M} UTC:"


class CommentGroup(NamedTuple):
    """The comments of one kind of author, oldest first, and how many older ones are left out."""

    rank: Rank
    shown: tuple[str, ...]
    left_out: int


def quoted_comments(comments: Iterable[IssueComment], reviews: Iterable[PullRequestReview] = ()) -> list[QuotedComment]:
    """All comments and reviews that contain text, in order."""
    quoted = [QuotedComment(each.created_at, each.author, each.author_name, each.body) for each in comments]
    quoted += [
        QuotedComment(each.submitted_at, each.author, each.author_name, each.body, each.state) for each in reviews
    ]
    return sorted((each for each in quoted if each.body.strip()), key=lambda each: each.at)


def grouped(
    comments: Sequence[tuple[QuotedComment, str]], authors: CommentAuthors, *, most: int, limit: int
) -> list[CommentGroup]:
    """Group comments by their authors' rank.

    `said` holds the comments with the texts to show, in order. Each rank's newest comments take room before a lower
    rank's.
    """
    groups = []
    for rank in TITLES:
        texts = [text for each, text in comments if authors.rank(each.author) == rank]
        shown: list[str] = []
        for text in reversed(texts):
            if most == 0 or len(text) > limit:
                break
            shown.append(text)
            most, limit = most - 1, limit - len(text)
        if texts:
            groups.append(CommentGroup(rank, tuple(reversed(shown)), len(texts) - len(shown)))
    return groups
