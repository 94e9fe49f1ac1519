"""The publisher's rooms: everything that talks to the forge, over a server's premises; no model is known here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.bootstrap.premises import Premises
from app.context.history import MAX_COMMITS
from app.forge.github.connection import App, Connection, Credentials, Host, RepositoryId
from app.forge.github.forge import GitHubForge, open_forge
from app.forge.github.registration import Registration
from app.job import Budget
from app.jobs.lessons import prune_lessons
from app.jobs.looks import Looks
from app.jobs.owner import this_process
from app.jobs.parcels import Wanted
from app.jobs.store import JobBlobs
from app.model.sql_ledger import SqlLedger
from app.publish.drafts import Drafts
from app.publish.granting import Granting
from app.publish.herald import Herald
from app.publish.intent import Place
from app.publish.publisher import Publisher
from app.publish.quarantine import Quarantine
from app.publish.settling import Settling
from app.publish.status import KEPT_ON_SERVER
from app.reception.books import Books, Defaults
from app.reception.reception import Reception
from app.redact import Redactor
from app.runners.recipe import recipes
from app.settings import Settings

PARCELS_LIVE = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Publishing:
    """What the publisher's process looks after."""

    premises: Premises
    login: str
    reception: Reception
    publisher: Publisher[GitHubForge]
    settling: Settling
    herald: Herald

    async def fill_parcels(self) -> int:
        """Pack base commits for workers on other machines; returns how many."""
        wanted = await asyncio.to_thread(self.premises.parcels.wanted)
        return sum([await asyncio.to_thread(self._fill, each) for each in wanted])

    async def prune(self) -> int:
        """Forget what nobody asks for any more."""
        await asyncio.to_thread(self.premises.inbox.prune)
        await asyncio.to_thread(self.premises.parcels.prune, PARCELS_LIVE)
        await asyncio.to_thread(prune_lessons, self.premises.engine, self.premises.clock())
        return 0

    def _fill(self, wanted: Wanted) -> bool:
        """One that is not here yet is brought by the stock."""
        mirror = self.premises.mirror(wanted.repository)
        mirror.ensure()
        if not mirror.keeps(wanted.commit):
            return False
        past = mirror.log(wanted.commit, MAX_COMMITS)
        self.premises.parcels.fill(wanted.repository, wanted.commit, mirror.pack(wanted.commit), log=past)
        return True


@asynccontextmanager
async def open_publishing(settings: Settings) -> AsyncIterator[Publishing]:
    """Raises AgentFixError where the App's key is refused: nothing could be done with it."""
    premises = Premises(settings)
    premises.prepare()
    host = Host(settings.github_api_url, settings.github_url, settings.proxy)
    async with App(host, Credentials(settings.app_id, settings.private_key)) as app:
        identity = await Registration(app).identity()
        yield furnished(premises, app, f"{identity.slug}[bot]")


def furnished(
    premises: Premises, connection: Connection, login: str, *, page: str = "", kept: str = KEPT_ON_SERVER
) -> Publishing:
    """Every room, by one way in. `page` is where people follow the work, if not at the dashboard; `kept` says where a
    change is that was not published."""
    settings, clock = premises.settings, premises.clock

    async def forge_at(place: Place) -> GitHubForge:
        repository = RepositoryId(place.repository, place.owner, place.name)
        mirror = premises.mirror(place.repository)
        return await open_forge(connection, place.installation, repository, mirror, place.number)

    granting = Granting(
        premises.roster,
        partial(JobBlobs, premises.engine),
        Quarantine(Redactor(settings.secrets)),
        clock,
        Drafts(premises.roster, premises.intents),
        allowed_apps=settings.allowed_apps,
    )
    return Publishing(
        premises=premises,
        login=login,
        reception=Reception(connection, books_of(premises), premises.mirror, defaults_of(settings)),
        publisher=Publisher(premises.intents, forge_at, granting.grant, this_process()),
        settling=Settling(
            premises.store(),
            premises.roster,
            premises.intents,
            premises.mirror,
            unlearn=lambda repository, job: premises.lessons(repository).unlearn(job),
        ),
        herald=Herald(
            premises.store(),
            premises.roster,
            premises.intents,
            lambda job: SqlLedger(premises.engine, job, 0),
            clock,
            public_url=settings.public_url,
            page=page,
            early=not page,
            kept=kept,
        ),
    )


def books_of(premises: Premises) -> Books:
    return Books(
        inbox=premises.inbox,
        queue=premises.queue,
        roster=premises.roster,
        messages=premises.messages,
        triggers=premises.triggers,
        intents=premises.intents,
        store=premises.store(),
        looks=Looks(premises.engine),
        clock=premises.clock,
    )


def defaults_of(settings: Settings) -> Defaults:
    return Defaults(
        model=settings.model,
        models=settings.models,
        sandbox=settings.sandbox,
        runners=frozenset({"native", *recipes(settings.runners)}),
        lessons=settings.lessons != "off",
        budget=Budget(usd=settings.budget),
        allowed_apps=settings.allowed_apps,
    )
