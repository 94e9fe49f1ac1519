"""Builds the publisher: everything that talks to GitHub, without any model library."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from app.agent.external.recipe import recipes
from app.config.settings import Settings
from app.core.job import Budget
from app.core.redaction import Redactor
from app.core.task import IssueRef
from app.github.auth import AppRegistration
from app.github.connection import AppConnection, AppCredentials, Connection, GitHubHost, RepositoryId
from app.github.effects import GitHubForge, open_forge
from app.jobs.audit import prune_audit_log
from app.jobs.commit_transfer import WantedCommit
from app.jobs.lessons import prune_lessons
from app.jobs.operations import GitHubLimit
from app.jobs.process_owner import this_process
from app.jobs.store import JobBlobs, prune_streamed
from app.llm.sql_ledger import SqlLedger
from app.publish.early_draft import EarlyDrafts
from app.publish.effects import Channel
from app.publish.job_finalizer import JobFinalizer
from app.publish.notifications import Notifier
from app.publish.policy import PublishPolicy
from app.publish.publisher import Publisher
from app.publish.secret_scan import SecretScan
from app.publish.status_text import KEPT_ON_SERVER
from app.publish.status_updater import StatusUpdater
from app.repo.index.commit_history import MAX_COMMITS
from app.server.wiring.context import ServerContext
from app.triggers.stores import ServerDefaults
from app.triggers.triggers import TriggerLoops

TRANSFER_LIFETIME = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class PublisherContext:
    """What the publisher's process works with."""

    server_context: ServerContext
    connection: Connection
    login: str
    trigger_loops: TriggerLoops
    publisher: Publisher[GitHubForge]
    finalizer: JobFinalizer
    status_updater: StatusUpdater

    async def fill_commit_transfers(self) -> int:
        """Pack base commits for workers on other machines; returns how many."""
        wanted = await asyncio.to_thread(self.server_context.transfers.requested)
        return sum([await asyncio.to_thread(self._fill, each) for each in wanted])

    async def store_limits(self) -> int:
        """Store what GitHub's newest answers said of its limits, for the operators' page."""
        found = [
            GitHubLimit(installation, each.resource, each.remaining, each.limit, each.resets_at, each.at)
            for installation, each in self.connection.limits()
        ]
        await asyncio.to_thread(self.server_context.operations.store_limits, found)
        return 0

    async def prune(self) -> int:
        """Delete what nobody requests any more."""
        await asyncio.to_thread(self.server_context.inbox.prune)
        await asyncio.to_thread(self.server_context.transfers.prune, TRANSFER_LIFETIME)
        for prune in (prune_streamed, prune_lessons, prune_audit_log):
            await asyncio.to_thread(prune, self.server_context.engine, self.server_context.clock())
        return 0

    def _fill(self, wanted: WantedCommit) -> bool:
        """Pack one commit; False if it still has to be fetched."""
        mirror = self.server_context.mirror(wanted.repository)
        mirror.ensure()
        if not mirror.keeps(wanted.commit):
            return False
        past = mirror.log(wanted.commit, MAX_COMMITS)
        self.server_context.transfers.fill(wanted.repository, wanted.commit, mirror.pack(wanted.commit), log=past)
        return True


@asynccontextmanager
async def open_publishing(settings: Settings) -> AsyncIterator[PublisherContext]:
    """Open the publisher. Raises AgentFixError if GitHub refuses the App's key: nothing could be done with it."""
    server_context = ServerContext(settings)
    server_context.prepare()
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
    async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
        identity = await AppRegistration(app).identity()
        yield build_publisher(server_context, app, f"{identity.slug}[bot]")


def build_publisher(
    server_context: ServerContext, connection: Connection, login: str, *, page: str = "", kept: str = KEPT_ON_SERVER
) -> PublisherContext:
    """Build all parts for one kind of access.

    `page` is where people follow the work, if not on the dashboard; `kept` says where an unpublished change is.
    """
    settings, clock = server_context.settings, server_context.clock

    async def forge_at(place: IssueRef) -> GitHubForge:
        repository = RepositoryId(place.repository, place.owner, place.name)
        mirror = server_context.mirror(place.repository)
        return await open_forge(connection, place.installation, repository, mirror, place.number)

    secret_scan = SecretScan(Redactor(settings.secrets))
    channels: tuple[Channel, ...] = ()
    notifier = None
    if not page:  # a workflow's own notifications are GitHub's
        wanted: tuple[tuple[Channel, bool], ...] = (
            ("webhook", bool(settings.webhook_url)),
            ("apprise", bool(settings.notify)),
        )
        channels = tuple(channel for channel, is_set in wanted if is_set)
        key, urls = settings.webhook_signing_key, settings.notify
        notifier = Notifier(secret_scan, clock, webhook_url=settings.webhook_url, key=key, urls=urls)
    policy = PublishPolicy(
        server_context.job_queries,
        partial(JobBlobs, server_context.engine),
        secret_scan,
        clock,
        EarlyDrafts(server_context.job_queries, server_context.outbox),
        allowed_apps=settings.allowed_apps,
        operator=settings.defaults,
    )
    return PublisherContext(
        server_context=server_context,
        connection=connection,
        login=login,
        trigger_loops=TriggerLoops(
            connection,
            server_context,
            server_context.mirror,
            replace(defaults_of(settings), waits=not page),
        ),
        publisher=Publisher(server_context.outbox, forge_at, policy.check, this_process(), notifier),
        finalizer=JobFinalizer(
            server_context.job_store(),
            server_context.job_queries,
            server_context.outbox,
            server_context.mirror,
            forget_lessons=lambda repository, job: server_context.lessons(repository).forget_job(job),
            stop_reason=server_context.queue.stop_reason,
        ),
        status_updater=StatusUpdater(
            server_context.job_store(),
            server_context.job_queries,
            server_context.outbox,
            lambda job: SqlLedger(server_context.engine, job, 0),
            clock,
            public_url=settings.public_url,
            page=page,
            early=not page,
            kept=kept,
            channels=channels,
        ),
    )


def defaults_of(settings: Settings) -> ServerDefaults:
    return ServerDefaults(
        model=settings.model,
        models=settings.models,
        sandbox=settings.sandbox,
        runners=frozenset({"native", *recipes(settings.runners)}),
        lessons=settings.lessons != "off",
        budget=Budget(usd=settings.budget),
        allowed_apps=settings.allowed_apps,
        operator=settings.defaults,
    )
