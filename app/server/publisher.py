"""The publisher: the only process that writes to the forge. It holds the App's key and the database.

Each of its tasks is level-triggered: it looks at rows, does what is due and may die at any point. No model library
is imported here.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from app.agent.external.recipe import recipes
from app.config.settings import Settings
from app.config.signing import SigningKey
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget
from app.core.processes import this_process
from app.core.redaction import Redactor
from app.core.task import IssueRef
from app.github.auth import AppRegistration
from app.github.connection import AppConnection, AppCredentials, Connection, GitHubHost, RepositoryId
from app.github.effects import GitHubForge, open_forge
from app.jobs.commit_transfer import WantedCommit
from app.jobs.lessons import prune_lessons
from app.jobs.operations import GitHubLimit
from app.jobs.store import JobBlobs, prune_streamed
from app.jobs.trigger_log import prune_audit_log
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import Channel
from app.publish.notifications import Notifier
from app.publish.policy import PublishPolicy
from app.publish.publisher import JobFinalizer, Publisher
from app.publish.secret_scan import SecretScan
from app.publish.status_text import KEPT_ON_SERVER
from app.publish.status_updater import StatusUpdater
from app.repo.git_store import GitError
from app.repo.index.ranking import MAX_COMMITS
from app.server.context import ServerContext
from app.triggers.loops import TriggerLoops
from app.triggers.stores import ServerDefaults

logger = logging.getLogger(__name__)

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
        """Pack base commits for workers on other machines; returns how many. One that fails does not stop the rest."""
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
        """Pack one commit; False if it still has to be fetched, or cannot be sent."""
        mirror, transfers = self.server_context.mirror(wanted.repository), self.server_context.transfers
        try:
            mirror.ensure()
            if not mirror.keeps(wanted.commit):
                return False
            past = mirror.log(wanted.commit, MAX_COMMITS)
            transfers.fill(wanted.repository, wanted.commit, mirror.pack(wanted.commit), log=past)
        except AgentFixError as error:
            logger.warning("commit %s of repository %s: %s", wanted.commit[:12], wanted.repository, error.message)
            return False
        except GitError as error:
            logger.warning("commit %s of repository %s: %s", wanted.commit[:12], wanted.repository, error)
            reason = f"Commit {wanted.commit[:12]} cannot be packed: {error}."
            transfers.pack_failed(wanted.repository, wanted.commit, reason)
            return False
        return True


@asynccontextmanager
async def open_publishing(settings: Settings) -> AsyncIterator[PublisherContext]:
    """Open the publisher. Raises AgentFixError if GitHub refuses the App's key: nothing could be done with it."""
    server_context = ServerContext(settings)
    server_context.prepare()
    host = GitHubHost.of(settings)
    async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
        identity = await AppRegistration(app).identity()
        yield build_publisher(server_context, app, f"{identity.slug}[bot]")


def build_publisher(
    server_context: ServerContext,
    connection: Connection,
    login: str,
    *,
    page: str = "",
    run: int = 0,
    kept: str = KEPT_ON_SERVER,
) -> PublisherContext:
    """Build all parts for one kind of access.

    `page` and `run` are of the workflow run that does the work, if one does; `kept` says where an unpublished change
    is.
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
        server_context.outbox,
        allowed_apps=settings.allowed_apps,
        operator=settings.defaults,
        signing_key=SigningKey.of(settings.environment),
    )
    return PublisherContext(
        server_context=server_context,
        connection=connection,
        login=login,
        trigger_loops=TriggerLoops(
            connection,
            server_context,
            server_context.mirror,
            replace(defaults_of(settings), can_wait=not page),
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
            run=run,
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


PARALLEL_INSTALLATIONS = 3
"""Each is served one effect at a time, a slow one does not keep the others."""
MAX_PAUSE_LENGTH = 60.0
"""Seconds between two attempts of a task that fails."""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that is repeated; `due` returns how much there was to do."""

    name: str
    due: Callable[[], Awaitable[int]]
    every: float
    """Seconds to wait if there was nothing to do."""


def periodic_tasks(publisher_context: PublisherContext) -> tuple[PeriodicTask, ...]:
    trigger_loops = publisher_context.trigger_loops

    async def reconcile() -> int:
        await trigger_loops.reconcile_when_due()
        return 0

    async def publish() -> int:
        return int(await publisher_context.publisher.publish_next() is not None)

    return (
        PeriodicTask("deliveries", trigger_loops.next_delivery, 0.1),
        PeriodicTask("base commits", trigger_loops.fetch_base_commits, 0.5),
        *(PeriodicTask(f"publishing {number}", publish, 0.2) for number in range(1, PARALLEL_INSTALLATIONS + 1)),
        PeriodicTask("waiting jobs", trigger_loops.release_waiting_jobs, 1.0),
        PeriodicTask("outcomes", trigger_loops.record_outcomes, 15.0),
        PeriodicTask("commit transfers", publisher_context.fill_commit_transfers, 2.0),
        PeriodicTask("finishing jobs", publisher_context.finalizer.finalize, 0.5),
        PeriodicTask("status comments", publisher_context.status_updater.post_due, 0.5),
        PeriodicTask("polling", reconcile, 10.0),
        PeriodicTask("GitHub's limits", publisher_context.store_limits, 15.0),
        PeriodicTask("pruning", publisher_context.prune, 3_600.0),
    )


async def run_forever(task: PeriodicTask, draining: asyncio.Event) -> None:
    """Repeat the task until draining. A failure is logged and retried with growing delays; other tasks continue."""
    failures = 0
    while not draining.is_set():
        (outcome,) = await asyncio.gather(task.due(), return_exceptions=True)
        if isinstance(outcome, BaseException):
            failures += 1
            _log_failure(task.name, outcome)
        else:
            failures = 0
            if outcome:
                continue
        pause = min(task.every + 2.0**failures - 1.0, max(MAX_PAUSE_LENGTH, task.every))
        with suppress(TimeoutError):
            await asyncio.wait_for(draining.wait(), pause)


def _log_failure(name: str, error: BaseException) -> None:
    if isinstance(error, AgentFixError):
        logger.warning("%s: %s", name, error.message)
    elif isinstance(error, SQLAlchemyError):
        logger.warning("%s: the database did not answer (%s)", name, type(error).__name__)
    else:
        logger.error("%s failed", name, exc_info=error)


def run_publisher(settings: Settings) -> int:
    """Run the publisher's process until SIGTERM or SIGINT."""
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    draining = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, draining.set)
    logger.info("publisher: asking GitHub at %s who we are", settings.github_url)
    async with open_publishing(settings) as publisher_context:
        logger.info("publisher ready, as %s at %s", publisher_context.login, settings.github_url)
        await asyncio.gather(*(run_forever(task, draining) for task in periodic_tasks(publisher_context)))
    return ExitCode.OK
