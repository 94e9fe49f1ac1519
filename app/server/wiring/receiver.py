"""Builds the receiver: the database, but no repository, no GitHub client and no model."""

from collections.abc import Callable
from datetime import datetime

from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.money import Totals
from app.jobs.database import open_database
from app.jobs.health import HealthMetrics
from app.jobs.inbox import Inbox
from app.jobs.job_page import JobPages
from app.jobs.job_queries import JobQueries
from app.jobs.messages import JobMessages
from app.jobs.queries import JobOverview
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.llm.sql_ledger import SqlLedger
from app.server.web.sign_in import SignInClient


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
