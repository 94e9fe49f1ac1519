"""A publisher that speaks HTTP and git to a GitHub on this machine, to be killed: `publisher_child SPEC FAILPOINT`."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app import failpoints
from app.forge.github.connection import App, Credentials, Host, RepositoryId
from app.forge.github.forge import GitHubForge, open_forge
from app.gitstore import GitStore
from app.jobs.roster import Roster
from app.jobs.store import JobBlobs, JobStore
from app.jobs.tables import sqlite_engine
from app.model.sql_ledger import SqlLedger
from app.publish.drafts import Drafts
from app.publish.granting import Granting
from app.publish.herald import Herald
from app.publish.intent import EDITS_APART, LEASE, Place
from app.publish.intents import Intents
from app.publish.publisher import Publisher
from app.publish.quarantine import Quarantine
from app.publish.settling import Settling
from app.redact import Redactor


class Clock:
    """The real time, set forward by every sleep that would have been."""

    def __init__(self) -> None:
        self.slept = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.slept

    async def sleep(self, seconds: float) -> None:
        self.slept += timedelta(seconds=seconds)


async def main(spec: dict[str, Any]) -> None:
    clock = Clock()
    host = Host(spec["address"], spec["address"])
    credentials = Credentials(spec["app_id"], spec["key"])
    late = (LEASE + timedelta(minutes=1)) * spec["late"]
    engine = sqlite_engine(Path(spec["database"]))
    intents = Intents(engine, lambda: clock.now() + late)
    store = GitStore(Path(spec["store"]))
    async with App(host, credentials, now=clock.now, sleep=clock.sleep) as app:

        async def forge_of(place: Place) -> GitHubForge:
            repository = RepositoryId(place.repository, place.owner, place.name)
            return await open_forge(app, place.installation, repository, store, place.number)

        roster, nothing = Roster(engine, clock.now), Quarantine(Redactor())
        granting = Granting(roster, lambda job: JobBlobs(engine, job), nothing, clock.now, Drafts(roster, intents))
        publisher = Publisher(intents, forge_of, granting.grant, f"publisher {spec['late']}")
        kept = JobStore(engine, clock.now)
        settling = Settling(kept, roster, intents, lambda _: GitStore(Path(spec["store"])))
        herald = Herald(kept, roster, intents, lambda job: SqlLedger(engine, job, 0), clock.now)
        while await herald.tell() + bool(await publisher.publish_next()) + await settling.settle():
            pass
        clock.slept += EDITS_APART
        await herald.tell()
        while await publisher.publish_next():
            pass


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
