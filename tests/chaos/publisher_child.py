"""A publisher that speaks HTTP and git to a GitHub on this machine, to be killed: `publisher_child SPEC FAILPOINT`."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.core import failpoints
from app.core.redaction import Redactor
from app.core.task import IssueRef
from app.github.connection import AppConnection, AppCredentials, GitHubHost, RepositoryId
from app.github.effects import GitHubForge, open_forge
from app.jobs.store import JobBlobs, JobQueries, JobStore
from app.jobs.tables import sqlite_engine
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import EDITS_APART, LEASE
from app.publish.outbox import Outbox
from app.publish.policy import PublishPolicy
from app.publish.publisher import JobFinalizer, Publisher
from app.publish.secret_scan import SecretScan
from app.publish.status_updater import StatusUpdater
from app.repo.git_store import GitStore


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
    host = GitHubHost(spec["address"], spec["address"])
    credentials = AppCredentials(spec["app_id"], spec["key"])
    late = (LEASE + timedelta(minutes=1)) * spec["late"]
    engine = sqlite_engine(Path(spec["database"]))
    outbox = Outbox(engine, lambda: clock.now() + late)
    store = GitStore(Path(spec["store"]))
    async with AppConnection(host, credentials, now=clock.now, sleep=clock.sleep) as app:

        async def forge_of(place: IssueRef) -> GitHubForge:
            repository = RepositoryId(place.repository, place.owner, place.name)
            return await open_forge(app, place.installation, repository, store, place.number)

        job_queries, nothing = JobQueries(engine, clock.now), SecretScan(Redactor())
        policy = PublishPolicy(job_queries, lambda job: JobBlobs(engine, job), nothing, clock.now, outbox)
        publisher = Publisher(outbox, forge_of, policy.check, f"publisher {spec['late']}")
        kept = JobStore(engine, clock.now)
        finalizer = JobFinalizer(kept, job_queries, outbox, lambda _: GitStore(Path(spec["store"])))
        status_updater = StatusUpdater(kept, job_queries, outbox, lambda job: SqlLedger(engine, job, 0), clock.now)
        while await status_updater.post_due() + bool(await publisher.publish_next()) + await finalizer.finalize():
            pass
        clock.slept += EDITS_APART
        await status_updater.post_due()
        while await publisher.publish_next():
            pass


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
