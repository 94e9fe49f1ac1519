"""Answers that belong to no job: one comment for each trigger, wished for before the trigger counts as decided."""

import hashlib

from app.forge.base import Reaction
from app.publish.intent import Intent, Label, React, StatusComment
from app.publish.intents import name_without_job
from app.reception.books import Books
from app.reception.circumstances import Matter

NEEDS_HUMAN = "agent-needs-human"


class Replying:
    """Says something, and writes down what became of the trigger. Blocking; everything may be said twice."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def answer(self, matter: Matter, outcome: str, words: str, *, once_for: str = "") -> str:
        """Answer and have it decided. With `once_for` the same is said once on an issue, however often it is asked."""
        key = matter.identity.key
        if once_for:
            told = hashlib.sha256(once_for.encode()).hexdigest()[:16]
            key = f"r{matter.place.repository.id}#{matter.number}/told:{told}"
        self._want(key, matter, StatusComment(body=words))
        return self.decide(matter, outcome)

    def acknowledge(self, matter: Matter, content: Reaction = "eyes") -> None:
        """An emoji on what was written; a review has no place for one."""
        if matter.target is not None:
            self._want(matter.identity.key, matter, React(target=matter.target, content=content))

    def call_people(self, matter: Matter) -> None:
        """Mark that the bot does not get any further by itself."""
        self._want(matter.identity.key, matter, Label(add=(NEEDS_HUMAN,)))

    def decide(self, matter: Matter, outcome: str, job: str = "") -> str:
        self._books.triggers.record(matter.asked, outcome, job)
        return outcome

    def _want(self, key: str, matter: Matter, intent: Intent) -> None:
        self._books.intents.want(name_without_job(key), 0, matter.spot, intent)
