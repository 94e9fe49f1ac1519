"""Where nothing is kept from one event to the next, the issue is asked: what its last status comment says becomes rows.

A plan that waits may be approved, a question answered, a pause ended, each by beginning again with what people said.
Work that goes on in another workflow's run is known to be there; where that run is over, so is the work.
"""

import asyncio
from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.commands import parse
from app.commission import Commission
from app.errors import AgentFixError
from app.events import Said, Subject, Trigger
from app.forge.errors import ForgeError
from app.forge.facts import CommentFacts, PullRequestFacts
from app.forge.github import wire
from app.forge.github.calls import CANCEL_RUN, GET_RUN
from app.forge.github.connection import RepositoryId
from app.forge.github.line import Missing
from app.gitformat import is_full_id
from app.job import Job
from app.jobs.owner import this_process
from app.jobs.recalled import Recalled
from app.jobs.roster import WORKED_ON
from app.orders import Destination, Order
from app.plan import Plan
from app.plan_text import parse_plan_file
from app.publish.intent import Place as Spot
from app.publish.intent import Receipt, StatusComment
from app.publish.told import Told, read_status
from app.reception.books import Books, Defaults
from app.reception.circumstances import Place
from app.reception.doors import Doors, Readers
from app.reception.drafting import Draft
from app.reception.looking import read_config
from app.reception.material import Material, material
from app.result import Result
from app.task import Origin

AGAIN: Final = "A workflow keeps nothing of the one before: the work begins again, with what was said since."
GONE: Final = "Its workflow run ended without a word."
_RECALLED: Final = frozenset({"awaiting_approval", "answered", "needs_input", "paused", *WORKED_ON})


@dataclass(frozen=True, slots=True)
class Recollection:
    """The last job of an issue, as people were told of it. `elsewhere`: another run works on it at this moment."""

    told: Told
    spot: Spot
    elsewhere: bool

    @property
    def lost(self) -> bool:
        """Nobody works on it any more, and nobody has said so."""
        return self.told.state in WORKED_ON and not self.elsewhere


class Recollecting:
    """Looks at one issue or pull request. `run` is the number of the workflow's run that we are in."""

    def __init__(self, doors: Doors, books: Books, defaults: Defaults, recalled: Recalled, run: int) -> None:
        self._doors = doors
        self._books = books
        self._defaults = defaults
        self._recalled = recalled
        self._run = run

    async def recollect(self, event: Trigger) -> Recollection | None:
        """Write down what is found; None where there is nothing to go on from."""
        named = event.repository
        readers = self._doors.to(event.installation, RepositoryId(named.id, named.owner, named.name))
        place = Place(
            readers, await readers.facts.repository(), event.installation, await self._doors.ourselves(readers)
        )
        found = await self._told(event.subject.number, place)
        if found is None:
            return None
        told, address = found
        elsewhere = told.state in WORKED_ON and told.run != self._run and await is_at_work(readers, told.run)
        drafted = await self._drafted(event, place, told)
        if drafted is None:
            return None
        job, commission = drafted
        await asyncio.to_thread(self._write, told, address, job, commission, elsewhere=elsewhere)
        return Recollection(told, commission.place, elsewhere)

    async def mended(self, readers: Readers, number: int) -> int:
        """How often a pull request was followed up that nobody said a word to: our statuses on it but for those that
        somebody who may asked for."""
        us = (await self._doors.ourselves(readers)).bot.user
        comments = await readers.facts.comments(number, self._books.clock() + timedelta(days=1))
        asking = {each.author for each in comments if each.author != us and parse(each.body) is not None}
        heeded = {author for author in asking if await may_write(readers, author)}
        return rounds_in(comments, us, heeded)

    async def cancel(self, readers: Readers, run: int) -> bool:
        """End another run; False where the token may not."""
        try:
            await readers.door.change(dict, CANCEL_RUN, run)
        except ForgeError:
            return False
        return True

    async def _told(self, number: int, place: Place) -> tuple[Told, str] | None:
        found = await last_told(place.readers, number, place.ours.bot.user, self._books.clock())
        return found if found and found[0].state in _RECALLED else None

    async def _drafted(self, event: Trigger, place: Place, told: Told) -> tuple[Job, Commission] | None:
        facts, subject = place.readers.facts, event.subject
        pull = await facts.pull_request(subject.number) if subject.is_pull_request else None
        base = pull.head if pull else await facts.head(place.repository.default_branch)
        config = await read_config(place.readers)
        if base is None or not is_full_id(base) or isinstance(config, AgentFixError):
            return None
        order = _order(event, subject, pull, place.repository.default_branch, planned=_is_planned(told))
        now = self._books.clock()
        goes_on = told.state in {"paused", "needs_input"}
        asked_at = event.at if isinstance(event, Said) else now
        draft = Draft(
            order=order,
            place=place,
            config=config,
            defaults=self._defaults,
            base=base,
            created_at=now,
            material=await material(order, place, pull, asked_at) if goes_on else Material(),
            pull=pull,
            login=event.actor.login,
        )
        commission = draft.commission()
        notes = (*commission.notes, AGAIN) if goes_on else commission.notes
        return draft.job().model_copy(update={"id": told.job}), commission.model_copy(update={"notes": notes})

    def _write(self, told: Told, address: str, job: Job, commission: Commission, *, elsewhere: bool) -> None:
        state, known, result = told.state, True, None
        if told.state in WORKED_ON and not elsewhere:
            state, known, result = "error", False, Result(exit_status="error", reason=GONE)
        elif _is_planned(told):
            state, result = "answered", Result(exit_status="answered", plan=_plan(told.plan))
        dumped = result.model_dump(mode="json") if result else None
        self._recalled.write(job, commission, state, dumped, reason=result.reason if result else "", told=known)
        intents = self._books.intents
        intents.want(job.id, 0, commission.place, StatusComment(body=told.state))
        claim = intents.claim(f"{this_process()}:recollecting")
        if claim is not None:  # it is the only one there is
            intents.done(claim, Receipt(url=address))


async def last_told(readers: Readers, number: int, us: int, now: datetime) -> tuple[Told, str] | None:
    """What the newest status comment that is our own says, with its address."""
    comments = await readers.facts.comments(number, now + timedelta(days=1))
    told = [(found, each.url) for each in comments if each.author == us and (found := read_status(each.body))]
    return told[-1] if told else None


def rounds_in(comments: Iterable[CommentFacts], us: int, heeded: Set[int]) -> int:
    """Statuses of ours that follow no words to us by one of those."""
    rounds, asked = 0, False
    for each in comments:
        if each.author == us and read_status(each.body):
            rounds, asked = rounds + (not asked), False
        elif each.author in heeded:
            asked = asked or parse(each.body) is not None
    return rounds


async def may_write(readers: Readers, account: int) -> bool:
    try:
        return (await readers.facts.actor(account)).may_write
    except Missing:
        return False


async def is_at_work(readers: Readers, run: int) -> bool:
    """Whether a workflow's run has not ended yet."""
    found = await readers.door.find(wire.WorkflowRun, GET_RUN, run) if run else None
    return found is not None and found.status != "completed"


def _is_planned(told: Told) -> bool:
    return bool(told.plan) and told.state in {"awaiting_approval", "answered"}


def _plan(text: str) -> Plan:
    """As people left it. One that cannot be read is not approved; who approves it is told why."""
    try:
        return parse_plan_file(text)
    except AgentFixError:
        return Plan(summary="")


def _order(
    event: Trigger, subject: Subject, pull: PullRequestFacts | None, default_branch: str, *, planned: bool
) -> Order:
    """Who speaks now takes it on: it is them whose permission counts."""
    destination: Destination = "new_branch"
    if pull is not None:
        ours = pull.head_repository == event.repository.id and pull.head_branch not in {
            default_branch,
            pull.base_branch,
        }
        destination = "same_branch" if ours else "sibling"
    return Order(
        aim="plan" if planned else "fix",
        origin=Origin(
            installation=event.installation,
            repository=event.repository.id,
            number=subject.number,
            is_pull_request=subject.is_pull_request,
            actor=event.actor.id,
        ),
        subject=subject,
        trigger="" if subject.is_pull_request else "issue",
        destination=destination,
    )
