"""The command line's house: one process that plays all roles, over one state directory."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app.bootstrap.desk import Desk
from app.bootstrap.ground import Ground
from app.bootstrap.metering import make_meters
from app.bootstrap.sweeping import sweep_everywhere
from app.config import RepoConfig
from app.context.history import MAX_COMMITS
from app.errors import OutputError
from app.failpoints import failpoint
from app.forge.local import Folder, LocalForge
from app.gitstore import GitStore
from app.job import Job, Journal, Progress
from app.jobs.lesson_tables import metadata as lesson_tables
from app.jobs.lessons import SqlLessons
from app.jobs.progress import KeptProgress
from app.jobs.schema import complete
from app.jobs.store import JobBlobs, JobStore
from app.jobs.tables import sqlite_engine
from app.lessons.base import of_path
from app.model.budget import Totals
from app.model.meters import Meters
from app.model.sql_ledger import SqlLedger, calls
from app.model.sql_ledger import metadata as ledger_tables
from app.patch import Patch
from app.pipeline import Published
from app.plan import Plan
from app.publish.comments import commit_message
from app.repository import past
from app.result import Result
from app.settings import Settings
from app.task import Person
from app.tree import Tree

if TYPE_CHECKING:
    from app.jobs.engine import Engine

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.invalid")

Approver = Callable[[Plan], Awaitable[Plan]]


@dataclass(frozen=True, slots=True)
class Order:
    """A job about to be worked on, with what its process knows of it."""

    job: Job
    config: RepoConfig
    tree: Tree
    out: Path
    resumed: bool
    notes: tuple[str, ...] = ()
    """For everybody who reads the result."""
    told: tuple[str, ...] = ()
    """For the person at this machine only: it names their directories."""
    record: Path | None = None


def open_store(settings: Settings) -> JobStore:
    """The job table in the state directory. Raises OutputError where that cannot be written."""
    try:
        settings.state.mkdir(parents=True, exist_ok=True)
        (settings.state / ".writable").touch()
    except OSError as error:
        message = f"The state directory {settings.state} cannot be written: {error.strerror}."
        raise OutputError(message, hint="Pass another one with --state DIR.") from error
    database = settings.state / "agent-fix.db"
    log = sqlite_engine(database, synced=False)
    store = JobStore(sqlite_engine(database), lambda: datetime.now(UTC), log=log)
    store.create_tables()
    ledger_tables.create_all(store.engine)
    complete(store.engine, calls)
    lesson_tables.create_all(store.engine)
    return store


class House:
    """The places of a state directory, and what they hold."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def store(self) -> JobStore:
        return open_store(self.settings)

    def prepare(self) -> None:
        """Find out, before anything costs, whether jobs can be kept; raises OutputError where not."""
        Folder(self.settings.state, "--state").prepare()

    def warm(self) -> None:
        """Import what a job needs while its repository is looked at."""
        threading.Thread(target=import_module, args=("app.jobs.engine",), daemon=True).start()

    def mirror(self, repository: Path) -> GitStore:
        path = repository.expanduser().resolve()
        digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return GitStore(self.settings.state / "mirrors" / f"{digest}.git")

    def lessons(self, repository: Path) -> SqlLessons:
        return SqlLessons(self.store.engine, lambda: datetime.now(UTC), of_path(repository))

    def folder(self, out: Path) -> Folder:
        return Folder(out)

    def engine(self, job_id: str, work: Callable[[str, Journal], Awaitable[Result]]) -> "Engine[Result]":
        """The engine of one job: its scope keeps the other processes of this state directory from taking it up."""
        from app.jobs.engine import Engine  # noqa: PLC0415  # 0.3 s of imports, off the critical path (see warm)

        return Engine(self.settings.state, Result, work, scope=job_id)

    def progress(self, order: Order, watcher: Progress) -> Progress:
        return KeptProgress(self.store, order.job.id, watcher)

    def desk(self, order: Order, progress: Progress, approve: Approver) -> "LocalDesk":
        ground = Ground(
            job=order.job,
            config=order.config,
            tree=order.tree,
            mirror=self.mirror(Path(order.job.task.repository)),
            store=self.store,
            settings=self.settings,
            notes=order.notes,
            lessons=None if self.settings.lessons == "off" else self.lessons(Path(order.job.task.repository)),
        )
        job, fallbacks = order.job, order.config.fallbacks
        ledger = SqlLedger(self.store.engine, job.id, job.budget.usd)
        meters = make_meters(job, self.settings, ledger, progress, fallbacks=fallbacks, record=order.record)
        return LocalDesk(ground, progress, meters, self.folder(order.out), approve)

    def keep(self, job_id: str, contents: Iterable[bytes]) -> None:
        """Bytes that a job is to find among its blobs."""
        for content in contents:
            JobBlobs(self.store.engine, job_id).put(content)

    def blob(self, job_id: str, digest: str) -> bytes:
        return JobBlobs(self.store.engine, job_id).get(digest)

    def totals(self, job_id: str) -> Totals:
        """What a job's model calls came to, wherever it stands."""
        return SqlLedger(self.store.engine, job_id, 0).totals()

    def sweep(self) -> None:
        """Remove what jobs that have ended left behind."""
        sweep_everywhere(self.settings, self.store, lambda row: row.unattended)


class LocalDesk(Desk):
    """A job whose change becomes a branch in the user's repository; approval is asked at the terminal."""

    forget = "agent-fix lessons forget"

    def __init__(self, ground: Ground, progress: Progress, meters: Meters, folder: Folder, approve: Approver) -> None:
        super().__init__(ground, progress, meters)
        self.folder = folder
        self.forge = LocalForge(Path(ground.job.task.repository), ground.mirror, folder)
        self._ask = approve

    async def approve(self, plan: Plan) -> Plan:
        return await self._ask(plan)

    async def publish(self, patch: Patch, summary: str) -> Published:
        """One commit by plumbing and a new branch that holds it."""
        job, mirror = self.ground.job, self.ground.mirror
        message = commit_message(job.task, summary)
        commit = await asyncio.to_thread(mirror.commit, patch, message=message, author=BOT, date=job.created_at)
        failpoint("publish.committed")
        branch = await self.forge.ensure_branch(job.branch, commit)
        failpoint("publish.delivered")
        changes = await asyncio.to_thread(mirror.diff_stat, job.task.base, commit)
        return Published(branch=branch, commit=commit, changes=changes)

    def past(self) -> bytes:
        """The user's repository has its whole history; the mirror has none."""
        return past(Path(self.ground.job.task.repository), self.ground.job.task.base, MAX_COMMITS)

    def keep(self, result: Result) -> None:
        self.ground.store.finish(self.ground.job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
