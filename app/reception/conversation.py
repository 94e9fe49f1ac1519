"""What was said before a trigger, as the model is shown it: whose words come first where not all of them fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from app.forge.facts import CommentFacts, ReviewFacts
from app.text import one_line

Rank = Literal["asked", "maintainer", "opened", "other"]
TITLES: dict[Rank, str] = {
    "asked": "What the person who asked said before",
    "maintainer": "What people with write access said before",
    "opened": "What the person who opened this said before",
    "other": "What others said before",
}
"""In the order in which words are shown, and given room."""


@dataclass(frozen=True, slots=True)
class Speakers:
    """By account number: who asked, who opened the issue or pull request, and who may write to the repository."""

    asked: int = 0
    opened: int = 0
    maintainers: frozenset[int] = frozenset()

    def rank(self, author: int) -> Rank:
        if author == 0:
            return "other"
        if author == self.asked:
            return "asked"
        if author in self.maintainers:
            return "maintainer"
        return "opened" if author == self.opened else "other"


NOBODY_KNOWN = Speakers()


class Said(NamedTuple):
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


class Group(NamedTuple):
    """What one kind of people said, the oldest first, and how many older ones of theirs are left out."""

    rank: Rank
    shown: tuple[str, ...]
    left_out: int


def spoken(comments: Iterable[CommentFacts], reviews: Iterable[ReviewFacts] = ()) -> list[Said]:
    """Everything that has words, in order."""
    said = [Said(each.created_at, each.author, each.author_name, each.body) for each in comments]
    said += [Said(each.submitted_at, each.author, each.author_name, each.body, each.state) for each in reviews]
    return sorted((each for each in said if each.body.strip()), key=lambda each: each.at)


def grouped(said: Sequence[tuple[Said, str]], speakers: Speakers, *, most: int, room: int) -> list[Group]:
    """`said` with the texts to show, in order. Each rank has its newest words shown before a lower one gets room."""
    groups = []
    for rank in TITLES:
        theirs = [text for each, text in said if speakers.rank(each.author) == rank]
        shown: list[str] = []
        for text in reversed(theirs):
            if most == 0 or len(text) > room:
                break
            shown.append(text)
            most, room = most - 1, room - len(text)
        if theirs:
            groups.append(Group(rank, tuple(reversed(shown)), len(theirs) - len(shown)))
    return groups
