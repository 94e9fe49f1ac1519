"""The parts of the command line: one process that plays all roles, with one state directory."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.repository import RepoConfig
from app.config.settings import Settings
from app.config.signing import SigningKey
from app.core.clock import utc_now
from app.core.errors import OutputError
from app.core.failpoints import failpoint
from app.core.job import Job, JobResult, Journal, Progress
from app.core.lessons import local_repository_key
from app.core.model_usage import Totals
from app.core.patch import Patch, Tree
from app.core.plan import Plan
from app.core.redaction import Redactor
from app.core.task import Person
from app.jobs.lessons import SqlLessonStore
from app.jobs.schema import prepare_local_tables
from app.jobs.store import JobBlobs, JobStore
from app.jobs.tables import sqlite_engine
from app.llm.sql_ledger import SqlLedger
from app.pipeline.pipeline import PublishedChange
from app.pipeline.wiring.job_runner import Approver, ChangePublisher, JobRunner, make_budgeted_models
from app.pipeline.wiring.prompts import JobInputs
from app.pipeline.wiring.sandboxes import sweep_everywhere
from app.publish.local_forge import LocalForge, OutputFolder
from app.publish.pull_request_text import commit_message
from app.repo.git_store import GitStore
from app.repo.index.ranking import MAX_COMMITS
from app.repo.inspection import recent_log

if TYPE_CHECKING:
    from app.jobs.engine import DurableEngine

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.invalid")

AskApproval = Callable[[Plan], Awaitable[Plan]]


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job to work on, with what its process knows about it."""

    job: Job
    config: RepoConfig
    tree: Tree
    out: Path
    resumed: bool
    notes: tuple[str, ...] = ()
    """Notes for everybody who reads the result."""
    local_notes: tuple[str, ...] = ()
    """Notes for the person at this machine only, because they contain their paths."""
    record: Path | None = None


def open_store(settings: Settings) -> JobStore:
    """The jobs table in the state directory. Raises OutputError if it cannot be written."""
    try:
        settings.state.mkdir(parents=True, exist_ok=True)
        (settings.state / ".writable").touch()
    except OSError as error:
        message = f"The state directory {settings.state} cannot be written: {error.strerror}."
        raise OutputError(message, hint="Choose another one with --state DIR.") from error
    database = settings.state / "agent-fix.db"
    log = sqlite_engine(database, synced=False)
    store = JobStore(sqlite_engine(database), utc_now, log=log, redactor=Redactor(settings.secrets))
    prepare_local_tables(store.engine)
    return store


class LocalContext:
    """The paths of a state directory and the stores in it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def store(self) -> JobStore:
        return open_store(self.settings)

    def prepare(self) -> None:
        """Check, before anything costs money, that jobs can be stored. Raises OutputError if not."""
        OutputFolder(self.settings.state, "--state").prepare()

    def warm(self) -> None:
        """Import what a job needs while its repository is inspected."""
        threading.Thread(target=import_module, args=("app.jobs.engine",), daemon=True).start()

    def mirror(self, repository: Path) -> GitStore:
        path = repository.expanduser().resolve()
        digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return GitStore(self.settings.state / "mirrors" / f"{digest}.git")

    def lessons(self, repository: Path) -> SqlLessonStore:
        return SqlLessonStore(self.store.engine, utc_now, local_repository_key(repository))

    def folder(self, out: Path) -> OutputFolder:
        return OutputFolder(out)

    def forge(self, order: LocalJob) -> LocalForge:
        repository = Path(order.job.task.repository)
        return LocalForge(repository, self.mirror(repository), self.folder(order.out))

    def engine(self, job_id: str, work: Callable[[str, Journal], Awaitable[JobResult]]) -> "DurableEngine[JobResult]":
        """The engine of one job: its own scope keeps other processes with this state directory from resuming it."""
        from app.jobs.engine import DurableEngine  # noqa: PLC0415  # 0.3 s of imports, off the critical path (see warm)

        return DurableEngine(self.settings.state, JobResult, work, scope=job_id)

    def runner(self, order: LocalJob, progress: Progress, approve: AskApproval) -> JobRunner:
        inputs = JobInputs(
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
        job_models = make_budgeted_models(
            job, self.settings, ledger, progress, fallbacks=fallbacks, record=order.record
        )
        publisher = BranchPublisher(inputs, self.forge(order))
        return JobRunner(inputs, progress, job_models, TerminalApprover(approve), publisher)

    def blob(self, job_id: str, digest: str) -> bytes:
        return JobBlobs(self.store.engine, job_id).get(digest)

    def totals(self, job_id: str) -> Totals:
        """The totals of a job's model calls so far."""
        return SqlLedger(self.store.engine, job_id, 0).totals()

    def sweep(self) -> None:
        """Remove what jobs that have ended left behind."""
        sweep_everywhere(self.settings, self.store, lambda row: row.unattended)


class TerminalApprover(Approver):
    """One person decides, at the terminal."""

    forget = "agent-fix lessons forget"

    def __init__(self, ask: AskApproval) -> None:
        self._ask = ask

    async def keep_plan(self, plan: Plan) -> None:
        """Do nothing: the terminal shows it, and the result has it."""

    async def approve(self, plan: Plan) -> Plan:
        return await self._ask(plan)


class BranchPublisher(ChangePublisher):
    """The change becomes a branch in the user's repository."""

    def __init__(self, inputs: JobInputs, forge: LocalForge) -> None:
        super().__init__(inputs)
        self._forge = forge

    async def publish(self, patch: Patch, summary: str) -> PublishedChange:
        """One commit by plumbing and a new branch that holds it."""
        job, mirror = self.inputs.job, self.inputs.mirror
        signed_off_by = BOT if self.inputs.config.signoff else None
        message = commit_message(job.task, self.publishable_summary(patch, summary), signed_off_by=signed_off_by)
        commit = await asyncio.to_thread(mirror.commit, patch, message=message, author=BOT, date=job.created_at)
        if (key := SigningKey.of(self.inputs.settings.environment)) is not None:
            commit = await asyncio.to_thread(mirror.sign, commit, key)
        failpoint("publish.committed")
        branch = await self._forge.ensure_branch(job.branch, commit)
        failpoint("publish.delivered")
        changes = await asyncio.to_thread(mirror.diff_stat, job.task.base, commit)
        return PublishedChange(branch=branch, commit=commit, changes=changes)

    def commit_history(self) -> bytes:
        """The user's repository has its whole history; the mirror has none."""
        return recent_log(Path(self.inputs.job.task.repository), self.inputs.job.task.base, MAX_COMMITS)

    def finish(self, result: JobResult) -> None:
        self.inputs.store.finish(self.inputs.job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
