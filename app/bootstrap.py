"""The composition root: the only file that names implementations and puts a job's rooms together."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app.agent.prompts import render_brief
from app.config import RepoConfig
from app.context.instructions import instructions
from app.context.map import describe_repository
from app.errors import AgentFixError, ExitCode, OutputError
from app.failpoints import failpoint
from app.forge.local import Folder, LocalForge
from app.gitstore import GitStore
from app.job import Job, Journal, Progress
from app.jobs.progress import KeptProgress
from app.jobs.store import JobBlobs, JobStore
from app.jobs.tables import sqlite_engine
from app.model.budget import Totals
from app.model.meter import Meter
from app.model.registry import make_model
from app.model.sql_ledger import SqlLedger
from app.model.sql_ledger import metadata as ledger_tables
from app.patch import Patch
from app.pipeline import Bench, Published, solve
from app.plan import Plan
from app.plan_text import parse_plan_file
from app.planner import make_plan
from app.publish.comments import commit_message
from app.result import Result
from app.runners.base import Runner
from app.runners.native import Surroundings
from app.runners.registry import find_runner
from app.sandbox.base import Sandbox, SandboxProvider, Setup, Spec
from app.sandbox.bubblewrap import BubblewrapProvider
from app.sandbox.hosts import asked_once
from app.sandbox.setup import plan_setup
from app.sandbox.unsandboxed import UnsandboxedProvider
from app.sandbox.workplace import remove_tree
from app.settings import Settings, python_interpreter
from app.task import Person
from app.text import one_line
from app.tree import Tree
from app.verify.facts import Known
from app.verify.verifier import TimeLimits, Verifier
from app.workspaces import Workspaces

if TYPE_CHECKING:
    from app.jobs.engine import Engine

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.invalid")
MAP_TOKENS = 2_500
INSTRUCTION_TOKENS = 3_000

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
    return store


def make_provider(name: str, settings: Settings) -> SandboxProvider:
    """A sandbox provider by its name. There is no fall-back from one to another."""
    root = settings.state / "sandboxes"
    match name:
        case "bubblewrap":
            return BubblewrapProvider(root, caches=settings.state / "caches", environment=settings.environment)
        case "none":
            return UnsandboxedProvider(root)
        case _:
            raise AgentFixError(
                f"There is no sandbox {name!r}.", code=ExitCode.SANDBOX, hint="Sandboxes are: bubblewrap, none."
            )


class House:
    """One process on the command line: it plays all roles, over one state directory."""

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

    def folder(self, out: Path) -> Folder:
        return Folder(out)

    def engine(self, job_id: str, work: Callable[[str, Journal], Awaitable[Result]]) -> "Engine[Result]":
        """The engine of one job: its scope keeps the other processes of this state directory from taking it up."""
        from app.jobs.engine import Engine  # noqa: PLC0415  # 0.3 s of imports, off the critical path (see warm)

        return Engine(self.settings.state, Result, work, scope=job_id)

    def meter(self, order: Order, progress: Progress) -> Meter:
        job, settings = order.job, self.settings
        make = partial(make_model, environment=settings.model_environment)
        ledger = SqlLedger(self.store.engine, job.id, job.budget.usd)
        fallbacks = [make(name) for name in order.config.fallbacks]
        return Meter(make(job.model, record=order.record), ledger, progress, fallbacks=fallbacks)

    def progress(self, order: Order, watcher: Progress) -> Progress:
        return KeptProgress(self.store, order.job.id, watcher)

    def blob(self, job_id: str, digest: str) -> bytes:
        return JobBlobs(self.store.engine, job_id).get(digest)

    def totals(self, job_id: str) -> Totals:
        """What a job's model calls came to, wherever it stands."""
        return SqlLedger(self.store.engine, job_id, 0).totals()

    def sweep(self) -> None:
        """Remove the sandboxes of jobs that have ended and in which nobody works, and what a removal left half done."""
        for left in (self.settings.state / "sandboxes").glob("*"):
            row = self.store.get(left.name.partition(".")[0])
            if left.name.startswith(".gone-") or (row is not None and row.final and row.unattended):
                remove_tree(left)

    async def work(self, desk: "Desk", journal: Journal) -> Result:
        """The whole job on its bench; its final state is kept before the workflow ends."""
        job = desk.order.job
        try:
            result = await solve(job, desk.bench(), journal)
        except AgentFixError as error:
            if not error.final:
                raise
            result = Result(
                exit_status="error",
                reason=error.message,
                hint=error.hint,
                error_code=error.code,
                plan=desk.plan,
                usage=desk.meter.totals(),
                model=job.model,
            )
        result = result.model_copy(update={"trajectory": desk.keep_trajectory()})
        self.store.finish(job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
        failpoint("finished")
        return result


class Desk:
    """The rooms of one job in one process."""

    def __init__(self, house: House, order: Order, progress: Progress, meter: Meter, approve: Approver) -> None:
        self.house = house
        self.order = order
        self.progress = progress
        self.meter = meter
        self.approve = approve
        self.mirror = house.mirror(Path(order.job.task.repository))
        self.blobs = JobBlobs(house.store.engine, order.job.id)
        self.forge = LocalForge(Path(order.job.task.repository), self.mirror, house.folder(order.out))
        self.provider = make_provider(order.job.sandbox, house.settings)
        self.workspaces = self._workspaces()
        self.runner: Runner | None = None
        self.plan: Plan | None = None

    def keep_trajectory(self) -> str:
        """The digest of the steps so far, kept among the job's blobs; empty where there are none."""
        lines = list(self.runner.trajectory()) if self.runner else []
        return self.blobs.put("".join(f"{line}\n" for line in lines).encode("utf-8", "replace")) if lines else ""

    async def prove_sandbox(self) -> None:
        """Open one that holds nothing, before anything costs: raises SandboxError where a property does not hold."""
        proof = await self.provider.open(Spec(key=f"{self.order.job.id}.proof", fill=lambda _: None))
        await proof.destroy()

    def bench(self) -> Bench:
        job, config = self.order.job, self.order.config
        verifier = Verifier(
            self.workspaces,
            tree=self.order.tree,
            test=config.test,
            lint=config.lint,
            protected_paths=config.protected_paths,
            progress=self.progress,
            limits=TimeLimits.within(job.budget.minutes),
        )
        warnings = []
        if job.sandbox == "none":
            warnings.append("The work was done without a sandbox (--sandbox none).")
        return Bench(
            progress=self.progress,
            plan=self._plan,
            approve=self.approve,
            brief=self._brief,
            open_work=self.workspaces.work,
            export=self.workspaces.export,
            runner=self._runner,
            verifier=verifier,
            publish=self._publish,
            totals=self.meter.totals,
            notes=self.order.notes,
            warnings=warnings,
        )

    def _workspaces(self) -> Workspaces:
        job = self.order.job
        return Workspaces(
            self.provider,
            job=job.id,
            fill=partial(self.mirror.checkout, job.task.base),
            tree=self.order.tree,
            setup=self._setup,
            on_output=lambda output: self.progress.say("output", output.decode(errors="replace")),
        )

    async def _setup(self) -> Setup:
        settings, config = self.house.settings, self.order.config
        python = python_interpreter()
        clients = asked_once(settings.environment, python)
        setup = await plan_setup(
            self.order.tree,
            commands=config.setup,
            extra_hosts=config.network,
            clients=clients,
            python=python,
            scope=self.order.job.task.repository,
        )
        for command in setup.commands:
            self.progress.say("note", f"set-up: {one_line(command)[:160]}")
        for note in setup.notes:
            self.progress.say("note", f"set-up: {note}")
        return setup

    async def _plan(self, journal: Journal) -> Plan:
        job = self.order.job
        if job.plan_file:
            self.plan = parse_plan_file(job.plan_file)
            return self.plan
        # Not in a thread: the steps of a job are numbered in the order in which they begin.
        repository_map, rules = self._repository
        self.plan = await make_plan(
            self.meter, journal, job=job.id, issue=job.task.issue, repository_map=repository_map, instructions=rules
        )
        return self.plan

    @cached_property
    def _repository(self) -> tuple[str, list[tuple[str, str]]]:
        """The map and the rules of the repository, as the model is shown them; the same for the same base."""
        issue = self.order.job.task.issue
        text = f"{issue.title}\n\n{issue.body}"
        described = describe_repository(
            self.order.tree, text, cache=self.house.settings.state / "caches" / "index", budget_tokens=MAP_TOKENS
        )
        rules = [(rule.path, rule.text) for rule in instructions(self.order.tree, INSTRUCTION_TOKENS)]
        if self.order.config.instructions:
            rules.insert(0, (".github/agent-fix.yml", self.order.config.instructions))
        return described, rules

    def _brief(self, plan: Plan | None, known: Known) -> str:
        job = self.order.job
        repository_map, rules = self._repository
        return render_brief(
            job=job.id,
            issue=job.task.issue,
            plan=plan,
            repository_map=repository_map,
            instructions=rules,
            suite=known.brief,
        )

    def _runner(self, sandbox: Sandbox, journal: Journal) -> Runner:
        job = self.order.job
        around = Surroundings(
            meter=self.meter,
            sandbox=sandbox,
            baseline=self.workspaces.baseline,
            journal=journal,
            blobs=self.blobs,
            progress=self.progress,
            budget=job.budget,
        )
        self.runner = find_runner(job.runner)(around)
        return self.runner

    async def _publish(self, patch: Patch, summary: str) -> Published:
        """One commit by plumbing and a new branch that holds it; twice is the same as once."""
        job = self.order.job
        message = commit_message(job.task, summary)
        make = partial(self.mirror.commit, patch, message=message, author=BOT, date=job.created_at)
        commit = await asyncio.to_thread(make)
        failpoint("publish.committed")
        branch = await self.forge.ensure_branch(job.branch, commit)
        failpoint("publish.delivered")
        changes = await asyncio.to_thread(self.mirror.diff_stat, job.task.base, commit)
        return Published(branch=branch, commit=commit, changes=changes)
