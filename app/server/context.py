"""What all roles of a server share: one database, one state directory, and where the settings have jobs run."""

import os
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import app
from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.errors import AgentFixError, ExitCode, OutputError
from app.core.redaction import Redactor
from app.jobs.operations import OperationsOverview
from app.jobs.queries import JobOverview
from app.jobs.queue import DayCaps, JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.tables import open_database
from app.server.launch.base import ChildProcesses, ClusterLauncher, JobLauncher
from app.triggers.stores import Stores

if TYPE_CHECKING:
    from app.jobs.commit_transfer import CommitTransfer
    from app.repo.git_store import GitStore


def redactor_of(settings: Settings) -> Redactor:
    """For what people read: without this server's secrets, and without its directories, as tracebacks name them."""
    return Redactor(settings.secrets, directories=(settings.state, Path(app.__file__).parent.parent))


class ServerContext(Stores):
    """The stores of a server, with what its settings limit and its state directory holds."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        super().__init__(open_database(settings.database_url, settings.state), clock, redactor_of(settings))
        self.settings = settings
        self.queue = JobQueue(self.engine, clock, caps=self.caps, redactor=self.redactor)

    def prepare(self) -> None:
        """Create what is missing. Raises OutputError if the state directory or the database cannot be used."""
        try:
            self.settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"The state directory {self.settings.state} cannot be created: {error.strerror}."
            raise OutputError(message, hint="Set AGENT_FIX_STATE_DIR to another directory.") from error
        prepare_tables(self.engine)

    @property
    def caps(self) -> DayCaps:
        return DayCaps(server=self.settings.usd_per_day, actor=self.settings.usd_per_day_actor)

    @cached_property
    def transfers(self) -> "CommitTransfer":
        from app.jobs.commit_transfer import CommitTransfer  # noqa: PLC0415  # the receiver loads no git

        return CommitTransfer(self.engine, self.clock)

    @property
    def limits(self) -> QueueLimits:
        return QueueLimits(jobs=self.settings.jobs, per_repository=self.settings.jobs_per_repository)

    @cached_property
    def operations(self) -> OperationsOverview:
        return OperationsOverview(self.engine, self.clock, self.limits)

    @cached_property
    def overview(self) -> JobOverview:
        return JobOverview(self.engine, self.clock)

    def mirror(self, repository: int) -> "GitStore":
        """The trusted bare repository of a GitHub repository, by its id, which survives renames."""
        from app.repo.git_store import GitStore  # noqa: PLC0415  # as above

        return GitStore(self.settings.state / "mirrors" / f"r{int(repository)}.git")


def existing_server_context(settings: Settings) -> ServerContext:
    """The context of a server that has run, for a command for which a new database is no use.

    Raises AgentFixError if there is no database; of SQLite only: another database that is empty gets its tables here.
    """
    server_context = ServerContext(settings)
    url = server_context.engine.url
    if url.get_backend_name() == "sqlite" and not os.access(url.database or "", os.R_OK | os.W_OK):
        raise AgentFixError(
            f"There is no database {url.database} that you can open.",
            code=ExitCode.USAGE,
            hint="Name the server's directory with --state DIR, or its database with AGENT_FIX_DATABASE_URL, and run "
            "the command as the server's user.",
        )
    server_context.prepare()
    return server_context


def make_launcher(settings: Settings) -> JobLauncher:
    """The launcher of `AGENT_FIX_JOBS_RUN_ON`. Raises AgentFixError if its template or its client cannot be used."""
    if settings.jobs_run_on == "process" or settings.jobs_template is None:
        return ChildProcesses(settings)
    if settings.jobs_run_on == "kubernetes":
        from app.server.launch.kubernetes_jobs import KubernetesJobs  # noqa: PLC0415  # imported if used

        return ClusterLauncher(KubernetesJobs(settings.jobs_template, settings.environment.get("KUBECONFIG", "")))
    from app.server.launch.ecs_tasks import EcsTasks  # noqa: PLC0415

    return ClusterLauncher(EcsTasks(settings.jobs_template))
