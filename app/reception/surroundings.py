"""What changed around living jobs: access lost, work called off, a description edited, a branch moved."""

import asyncio
from collections.abc import Iterable

from app.config import RepoConfig
from app.events import Subject, Words
from app.forge.facts import PullRequestFacts
from app.job import JobState
from app.jobs.roster import Commissioned
from app.orders import Order, Signal, State
from app.reception.admission import Admission, NotYet, StateChanged
from app.reception.books import Books
from app.reception.circumstances import Circumstances, Identity, Matter, Place, pull_of
from app.reception.keys import conflict_key
from app.reception.looking import read_config
from app.task import Origin

CALLED_OFF = {
    "unlabelled": "Its label was taken off.",
    "issue_closed": "The issue was closed.",
    "issue_deleted": "The issue was deleted.",
    "issue_transferred": "The issue was moved to another repository.",
    "pull_request_closed": "The pull request was closed.",
}
EDITED = "The description was edited; the job keeps to the text that was there when it was asked."
MOVED = "The repository has another name or owner now; the job goes on by its number."
PUSHED = "Somebody pushed to the branch; their commits are kept."


class Surroundings:
    """Follows signals. Everything may be followed twice."""

    def __init__(self, books: Books, admission: Admission) -> None:
        self._books = books
        self._admission = admission

    async def follow(self, signal: Signal, place: Place | None) -> str:
        """`place` where the repository is open to us."""
        if signal.aim == "head_moved":
            return await self._head_moved(signal, place)
        if signal.aim == "base_moved":
            return await self._base_moved(signal, place)
        return await asyncio.to_thread(self._tell, signal, open_to_us=place is not None)

    def _tell(self, signal: Signal, *, open_to_us: bool) -> str:
        match signal.aim:
            case "stop":
                return self._call_off(signal)
            case "edited":
                return self._note(signal, EDITED)
            case "moved" if open_to_us:
                return self._note(signal, MOVED)
            case "no_access" | "moved":
                return self._end(signal)
        return signal.aim

    def _call_off(self, signal: Signal) -> str:
        reason = CALLED_OFF.get(signal.rule, "It was called off.")
        ended = [self._books.queue.stop(each.job.id, reason) for each in self._meant(signal)]
        return f"stopped {len(ended)}"

    def _end(self, signal: Signal) -> str:
        """Nothing can be done or said there any more: not even the process at work is waited for."""
        state: JobState = "no_access"
        reason = "The App has no access to this repository any more."
        ended = [self._books.queue.end(each.job.id, state, reason) for each in self._meant(signal)]
        return f"no access {sum(ended)}"

    def _note(self, signal: Signal, text: str) -> str:
        jobs = self._meant(signal)
        for each in jobs:
            if all(row.text != text for row in self._books.store.said(each.job.id) if row.kind == "note"):
                self._books.store.say(each.job.id, "note", text)
        return f"noted {len(jobs)}"

    def _meant(self, signal: Signal) -> list[Commissioned]:
        living: Iterable[Commissioned] = self._books.roster.of(installation=signal.installation)
        if signal.repositories:
            living = (each for each in living if each.commission.place.repository in signal.repositories)
        return [
            each
            for each in living
            if signal.number in {None, each.commission.place.number} or each.job.id == signal.job
        ]

    async def _head_moved(self, signal: Signal, place: Place | None) -> str:
        noted = await asyncio.to_thread(self._note, signal, PUSHED) if signal.job else "noted 0"
        if place is None or signal.number is None:
            return noted
        pull = await place.readers.facts.pull_request(signal.number)
        return f"{noted}; {await self._resolve([pull] if pull else [], place)}"

    async def _base_moved(self, signal: Signal, place: Place | None) -> str:
        """A push to a branch that none of our pull requests is against costs nothing but a look into the books."""
        if place is None or not await asyncio.to_thread(self._books.roster.knows, place.repository.id):
            return "no job"
        return await self._resolve(await place.readers.pulls.open(base=signal.branch), place)

    async def _resolve(self, pulls: Iterable[PullRequestFacts], place: Place) -> str:
        """Begin to resolve the conflicts of our own pull requests, where the repository lets us."""
        ours = [each for each in pulls if each.author == place.ours.bot.user and each.open]
        if not ours:
            return "no pull request of ours"
        config = await read_config(place.readers)
        if not isinstance(config, RepoConfig) or not config.iterate.conflicts:
            return "conflicts are people's"
        begun = [await self._resolve_one(each.number, config, place) for each in ours]
        return f"conflicts: {', '.join(begun)}"

    async def _resolve_one(self, number: int, config: RepoConfig, place: Place) -> str:
        pull = await place.readers.facts.pull_request(number)  # only asked alone it says whether it can be merged
        repository = place.repository.id
        if pull is None or not pull.open or pull.head_repository != repository:
            return "none"
        if pull.mergeable is None:
            raise NotYet(f"Whether #{number} can be merged is not known yet.")
        if pull.mergeable:
            return "none"
        roster = self._books.roster
        busy = await asyncio.to_thread(roster.living, repository, number)
        if busy is not None or await asyncio.to_thread(roster.rounds, repository, number) >= config.iterate.max:
            return "not now"
        tip = await place.readers.facts.head(pull.base_branch)
        key = conflict_key(repository, number, pull.head, tip or pull.base)
        found = Circumstances(State(installation=place.installation), config, pull=pull)
        identity = Identity(key, self._books.clock())
        matter = Matter(place, identity, found, number, "rebase", place.ours.bot.user)
        if await asyncio.to_thread(self._books.triggers.decided, matter.identity.key):
            return "known"
        try:
            return await self._admission.move(_order(pull, place), matter)
        except StateChanged:
            return "not now"


def _subject(pull: PullRequestFacts) -> Subject:
    return Subject(
        number=pull.number,
        is_pull_request=True,
        title=pull.title,
        body=Words.of(pull.body),
        author=pull.author or None,
        labels=(),
        head=pull_of(pull).head,
    )


def _order(pull: PullRequestFacts, place: Place) -> Order:
    origin = Origin(
        installation=place.installation,
        repository=place.repository.id,
        number=pull.number,
        is_pull_request=True,
        actor=place.ours.bot.user,
    )
    return Order(
        aim="rebase",
        origin=origin,
        subject=_subject(pull),
        trigger=f"conflicts:{pull.head[:20]}",
        destination="same_branch",
        head=pull_of(pull).head,
    )
