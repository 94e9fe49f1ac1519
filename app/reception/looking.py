"""From an event to its circumstances: the fewest questions to the forge, in the order in which they may settle it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from app.access import Standing, refusal
from app.commands import Command
from app.config import SOURCE, RepoConfig, parse_config
from app.errors import ConfigError
from app.events import (
    Actor,
    ChecksFailed,
    Commented,
    Event,
    Happening,
    Labelled,
    PullRequestChanged,
    ReviewCommented,
    Said,
    Trigger,
    Turn,
    Unlabelled,
    digest,
)
from app.forge.errors import NoAccess, TryAgain
from app.forge.facts import HappenedFacts, PullRequestFacts, RepositoryFacts
from app.forge.github.connection import RepositoryId
from app.forge.github.line import Missing
from app.intake import LABEL, command_of
from app.jobs.roster import Commissioned
from app.orders import State
from app.reception.books import Books
from app.reception.circumstances import Circumstances, Identity, Place, pull_of, with_issue, with_job
from app.reception.doors import Doors, Readers
from app.reception.drafted import job_behind
from app.reception.keys import key_of
from app.task import Person

STARTS = frozenset({"fix", "plan", "retry", "steer", "approve"})
BEGINS = STARTS | {"continue", "revise"}
"""Verbs by which work is asked for: a stop that was said before one of them does not stop it."""

T = TypeVar("T")


class Looking:
    """Finds out about one event after the other."""

    def __init__(self, doors: Doors, books: Books) -> None:
        self._doors = doors
        self._books = books

    async def open(self, event: Happening) -> Place | None:
        """The event's repository, by the name that it has now; None where it is not open to us.

        The token is made for this number by this installation: who gets in has shown that the two belong together.
        """
        named = event.repository
        readers = self._doors.to(event.installation, RepositoryId(named.id, named.owner, named.name))
        try:
            found = await self._found(readers)
            if (found.owner, found.name) != (named.owner, named.name):
                readers = self._doors.to(event.installation, RepositoryId(found.id, found.owner, found.name))
            return Place(readers, found, event.installation, await self._doors.ourselves(readers))
        except NoAccess:
            return None

    async def _found(self, readers: Readers) -> RepositoryFacts:
        try:
            return await readers.facts.repository()
        except NoAccess:  # renamed, transferred, or the name is another's by now
            return await readers.facts.whereabouts()

    async def identify(self, event: Trigger | ChecksFailed | Unlabelled, place: Place) -> Identity:
        """Raises TryAgain where the forge does not know yet what it told us."""
        if isinstance(event, Said):
            return Identity(key_of(event, event.at), event.at)
        if isinstance(event, ChecksFailed):
            now = self._books.clock()
            return Identity(key_of(event, now), now)
        happened = await place.readers.talk.happened(event.subject.number)
        such = [each for each in happened if _is_such(each, event)]
        theirs = [each for each in such if each.actor.id == event.actor.id]
        if not theirs:
            raise TryAgain("The label is not among the issue's events yet.")
        return Identity(key_of(event, theirs[-1].at), theirs[-1].at, taken_back=theirs[-1] is not such[-1])

    async def about(self, event: Event, place: Place, identity: Identity | None = None) -> Circumstances:
        """Everything that `decide` is to know of an event."""
        state = State(installation=place.installation, archived=place.repository.archived)
        found = Circumstances(state, RepoConfig())
        if isinstance(event, ChecksFailed):
            return await self._checks(event, place, found)
        if isinstance(event, Trigger) and identity is not None:
            command = command_of(event)
            return await self._trigger(event, command, place, identity, found) if command else found
        if isinstance(event, Turn):
            return await self._turn(event, place, identity, found)
        return found

    async def _trigger(
        self, event: Trigger, command: Command, place: Place, identity: Identity, found: Circumstances
    ) -> Circumstances:
        found = await asyncio.to_thread(self._from_books, event, command, identity, found)
        if identity.taken_back:
            return replace(found, state=found.state.model_copy(update={"labels": ()}))
        standing, person = await self._standing(event.actor, place)
        found = replace(found, standing=standing, person=person)
        via = event.app if isinstance(event, Said) else None
        if refusal(event.actor, standing, via=via, allowed_apps=place.ours.bot.allowed_apps):
            return found
        readers, number = place.readers, event.subject.number
        pull = readers.facts.pull_request(number) if event.subject.is_pull_request else _nothing()
        issue, pulled, config, words = await asyncio.gather(
            _present(readers.facts.issue(number)), _present(pull), read_config(readers), _words(event, readers)
        )
        job = await asyncio.to_thread(job_behind, pulled, found.job, place.ours.bot.user, self._books)
        state = with_issue(with_job(found.state, job), issue, pulled)
        if isinstance(event, Said) and issue is not None:
            state = state.model_copy(update={"words_sha256": words, "gone": words is None})
        found = replace(found, config=config, job=job, pull=pulled, state=state)
        return await self._with_pull_requests(event, command, place, found)

    def _from_books(self, event: Trigger, command: Command, identity: Identity, found: Circumstances) -> Circumstances:
        repository, number, triggers = event.repository.id, event.subject.number, self._books.triggers
        job = self._job(repository, number, beside=command.verb in {"stop", "status"})
        known = {
            "labels": (LABEL,),
            "asked_at": identity.asked_at,
            "begun_at": triggers.newest_heeded(repository, number, BEGINS),
            "stopped_at": triggers.newest_heeded(repository, number, {"stop"}),
            "asked_lately": triggers.asked_lately(repository, event.actor.id),
            "rounds": self._books.roster.rounds(repository, number),
        }
        return replace(found, job=job, state=with_job(found.state.model_copy(update=known), job))

    def _job(self, repository: int, number: int, *, beside: bool = False) -> Commissioned | None:
        """The job that lives at a place, else its last one; with `beside` a question that is being answered there."""
        roster = self._books.roster
        if living := roster.living(repository, number):
            return living
        here = (each for each in roster.of(repository=repository) if each.commission.place.number == number)
        question = next(here, None) if beside else None
        return question or roster.newest(repository, number)

    async def _standing(self, actor: Actor, place: Place) -> tuple[Standing | None, Person | None]:
        """None for an account that is gone. Of a bot its App counts, and that only where some App may ask."""
        facts = place.readers.facts
        if not actor.is_person:
            slug = actor.login.removesuffix("[bot]")
            asked = actor.type == "Bot" and place.ours.bot.allowed_apps
            app = await facts.application(slug) if asked else None
            noreply = place.readers.door.app.host.noreply
            person = Person(name=actor.login, email=f"{actor.id}+{actor.login}@{noreply}")
            return Standing(user=actor.id, login=actor.login, permission="none", app=app), person
        try:
            found = await facts.actor(actor.id)
        except Missing:
            return None, None
        return Standing(user=found.id, login=found.login, permission=found.permission), found.person

    async def _with_pull_requests(
        self, event: Trigger, command: Command, place: Place, found: Circumstances
    ) -> Circumstances:
        """Asked for what would begin work: is somebody at it already, and how many of ours are open."""
        state, us = found.state, place.ours.bot.user
        if command.verb not in STARTS or (state.working and command.verb != "retry"):
            return found
        more: dict[str, object] = {}
        if not event.subject.is_pull_request:
            linked = sorted(await place.readers.pulls.linked(event.subject.number), key=lambda each: each.author != us)
            if linked:
                more |= {"linked": linked[0].number, "linked_is_ours": linked[0].author == us}
        if isinstance(found.config, RepoConfig) and found.config.max_open_pull_requests is not None:
            more["open_pull_requests"] = sum(each.author == us for each in await place.readers.pulls.open())
        return replace(found, state=state.model_copy(update=more))

    async def _turn(self, event: Turn, place: Place, identity: Identity | None, found: Circumstances) -> Circumstances:
        """Nothing is asked where no job lives, no label of ours was taken off and the pull request is not ours."""
        repository, number = event.repository.id, event.subject.number
        job = await asyncio.to_thread(self._books.roster.living, repository, number)
        ours = isinstance(event, PullRequestChanged) and event.subject.author == place.ours.bot.user
        if job is None and identity is None and not ours:
            return found
        readers = place.readers
        pull = readers.facts.pull_request(number) if event.subject.is_pull_request else _nothing()
        issue, pulled = await asyncio.gather(_present(readers.facts.issue(number)), _present(pull))
        job = await asyncio.to_thread(job_behind, pulled, job, place.ours.bot.user, self._books)
        state = with_issue(with_job(found.state, job), issue, pulled)
        if identity is not None:
            begun = await asyncio.to_thread(self._books.triggers.newest_heeded, repository, number, BEGINS)
            state = state.model_copy(update={"asked_at": identity.asked_at, "begun_at": begun})
        return replace(found, job=job, pull=pulled, state=state)

    async def _checks(self, event: ChecksFailed, place: Place, found: Circumstances) -> Circumstances:
        """Whose checks fail is asked only where we ever worked."""
        if not await asyncio.to_thread(self._books.roster.knows, event.repository.id):
            return found
        readers = place.readers
        pull = await self._checked(event, readers)
        if pull is None:
            return found
        here = await asyncio.to_thread(self._job, event.repository.id, pull.number)
        job = await asyncio.to_thread(job_behind, pull, here, place.ours.bot.user, self._books)
        rounds = await asyncio.to_thread(self._books.roster.rounds, event.repository.id, pull.number)
        state = with_job(found.state.model_copy(update={"rounds": rounds, "pull": pull_of(pull)}), job)
        if pull.author == place.ours.bot.user:
            issue, config = await asyncio.gather(_present(readers.facts.issue(pull.number)), read_config(readers))
            state = with_issue(state, issue, pull)
            found = replace(found, config=config)
        return replace(found, pull=pull, job=job, state=state)

    async def _checked(self, event: ChecksFailed, readers: Readers) -> PullRequestFacts | None:
        if event.pull_requests:
            return await _present(readers.facts.pull_request(event.pull_requests[0]))
        return await readers.facts.pull_request_of(event.head_ref) if event.head_ref else None


async def read_config(readers: Readers) -> RepoConfig | ConfigError:
    """The default branch's, whatever a pull request brings along."""
    text = await readers.facts.file(SOURCE)
    try:
        return parse_config(text) if text is not None else RepoConfig()
    except ConfigError as error:
        return error


async def _words(event: Trigger, readers: Readers) -> str | None:
    """The digest of what the comment or review says now; None where it was deleted, or dismissed."""
    match event:
        case Commented():
            said = await readers.talk.comment(event.id)
        case ReviewCommented():
            said = await readers.talk.inline(event.id)
        case Labelled():
            return None
        case _:
            reviewed = await readers.talk.review(event.subject.number, event.id)
            return digest(reviewed.body) if reviewed and reviewed.state != "dismissed" else None
    return digest(said.body) if said else None


async def _present(asked: Awaitable[T | None]) -> T | None:
    """None for what was deleted or transferred: the repository itself is open to us."""
    try:
        return await asked
    except NoAccess:
        return None


async def _nothing() -> None:
    return None


def _is_such(happened: HappenedFacts, event: Labelled | Unlabelled) -> bool:
    name = "labeled" if isinstance(event, Labelled) else "unlabeled"
    return happened.event == name and happened.label.casefold() == event.label.casefold()
