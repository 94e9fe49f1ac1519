"""The receiver: accepts webhooks and serves the pages, with the webhook secret and the database, but without GitHub."""

import logging
import socket
from collections.abc import Callable
from datetime import datetime, timedelta

import uvicorn
from fastapi import FastAPI

from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.errors import ExitCode
from app.core.money import Totals
from app.jobs.health import HealthMetrics
from app.jobs.inbox import Inbox
from app.jobs.job_page import JobPages
from app.jobs.job_queries import JobQueries
from app.jobs.messages import JobMessages
from app.jobs.queries import JobOverview
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.jobs.tables import open_database
from app.llm.sql_ledger import SqlLedger
from app.server.http_limits import bounded_server
from app.server.startup import address_of, listen
from app.server.web.sign_in import SignInClient
from app.server.web.site import SiteParts, site
from app.server.webhook import receiver


class ReceiverContext:
    """What the receiver's process works with."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        self.clock = clock
        self.engine = open_database(settings.database_url, settings.state)
        self.inbox = Inbox(self.engine, clock)
        self.queue = JobQueue(self.engine, clock)
        self.health = HealthMetrics(
            self.engine, clock, QueueLimits(jobs=settings.jobs, per_repository=settings.jobs_per_repository)
        )
        self.files = JobPages(
            overview=JobOverview(self.engine, clock),
            store=JobStore(self.engine, clock),
            job_queries=JobQueries(self.engine, clock),
            messages=JobMessages(self.engine, clock),
            totals=self._totals,
        )

    def sign_in(self, settings: Settings) -> SignInClient | None:
        """GitHub's part of the sign-in; None if no client is set."""
        if not settings.client_id:
            return None
        # 18 MB of GitHub's library, which no other part of the receiver needs
        from app.github.connection import GitHubHost  # noqa: PLC0415
        from app.github.user_sign_in import GitHubSignIn  # noqa: PLC0415

        host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
        return GitHubSignIn(host, settings.client_id, settings.client_secret, now=self.clock)

    def prepare(self) -> None:
        prepare_tables(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def _totals(self, job_id: str) -> Totals:
        return SqlLedger(self.engine, job_id, 0).totals()


logger = logging.getLogger(__name__)


def run_receiver(settings: Settings, listening: int | None = None) -> int:
    """Run until SIGTERM or SIGINT. `listening` is a socket that the supervisor opened and keeps."""
    receiver_context = ReceiverContext(settings)
    receiver_context.prepare()
    listener = socket.socket(fileno=listening) if listening is not None else listen(settings.host, settings.port)
    try:
        with listener:
            serve(receiver_context, settings, listener)
    finally:
        receiver_context.close()
    return ExitCode.OK


def serve(receiver_context: ReceiverContext, settings: Settings, listener: socket.socket) -> None:
    servers: list[uvicorn.Server] = []
    app = application(receiver_context, settings, ending=lambda: any(server.should_exit for server in servers))
    servers.append(bounded_server(app, settings.trusted_proxies))
    logger.info("receiver ready at %s", address_of(listener))
    servers[0].run([listener])


def application(
    receiver_context: ReceiverContext,
    settings: Settings,
    *,
    ending: Callable[[], bool] = lambda: False,
    sign_in: SignInClient | None = None,
) -> FastAPI:
    """Webhooks and health for everybody; pages and API if there is a password or a sign-in.

    `sign_in` takes the place of the client that the settings name.
    """

    def stalled() -> timedelta | None:
        found = receiver_context.health.stalled()
        return timedelta(seconds=found.seconds) if found else None

    app = receiver(settings.webhook_secrets, receiver_context.inbox, receiver_context.clock, stalled=stalled)
    client = sign_in or receiver_context.sign_in(settings)
    if settings.web_token or client is not None:
        context, counts = receiver_context, app.state.counts
        parts = SiteParts(context.files, context.health, context.queue, client, counts, ending)
        app.mount("/", site(settings, parts))
    return app
