"""The durable engine: a job is a DBOS workflow whose steps are each stored once. Only this module uses DBOS.

    carry_out(job) ─► workflow ─► solve(job, journal) ─► returned | WaitingForUser | crashed
                                      └► journal.step(name) … stored before the next begins

The workflow ends only when `solve` returns. If the job pauses (waiting for people or money) or an unexpected error is
raised, the workflow keeps its state and the process exits; the next process continues from there.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Generic, NoReturn

from dbos import DBOS, DBOSConfig, Serializer, SetWorkflowID, WorkflowStatus

from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.core.job import Journal, N
from app.core.processes import this_process
from app.core.tracing import span

# Change this only if the order of steps changes in a way that stored jobs cannot follow: they start over. DBOS's own
# default hashes the source, so every deployment would do that to the jobs in flight.
WORKFLOW_VERSION = "5"

POOL = 3
"""Connections of one process to the journal; a server has a process for each job."""

Restore = Callable[[], Awaitable[None]]
Solve = Callable[[str, Journal], Awaitable[N]]


class JsonSerializer(Serializer):
    """Writes plain JSON to DBOS's tables, never pickle: it is readable, and reading it executes nothing."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=str)

    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805  # the base class names it so
        return json.loads(serialized_data)

    def name(self) -> str:
        return "json"


class DurableJournal:
    """The Journal on top of DBOS.

    A step's result is stored, and so is an error that ends it for good. Any other error (no budget, a provider that is
    down, a full disk, a bug) goes to `fail`, and the step neither returns nor is recorded: the process that continues
    the job starts with this step.
    """

    def __init__(self, *, resumed: bool, fail: Callable[[BaseException], None]) -> None:
        self._resumed = resumed
        self._fail = fail
        self._restore: Restore | None = None

    def on_resume(self, restore: Restore) -> None:
        self._restore = restore if self._resumed else None

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        registered = self._restore

        async def once() -> dict[str, Any]:
            failpoint(f"{name}.before")
            with span(f"step {name}", {"agent_fix.step": name}) as traced:
                value, error = await _outcome_of(self._restored(registered, work))
                if error is not None:
                    traced.failed(type(error).__name__)
            if isinstance(error, AgentFixError) and error.final:
                kept = {"error": error.to_json()}
            elif value is not None:
                kept = {"result": value.model_dump(mode="json")}
            else:
                self._fail(error or RuntimeError(f"step {name} returned nothing"))
                await _until_the_process_ends()
            failpoint(f"{name}.done")
            return kept

        kept = await DBOS.run_step_async({"name": name}, once)
        failpoint(f"{name}.stored")
        if "error" in kept:
            raise AgentFixError.from_json(kept["error"])
        return kind.model_validate(kept["result"])

    async def _restored(self, registered: Restore | None, work: Callable[[], Awaitable[N]]) -> N:
        """The work, after the restoration that was registered when the step was requested, unless it was done."""
        if registered is not None and registered is self._restore:
            self._restore = None
            await registered()
        return await work()


async def _until_the_process_ends() -> NoReturn:
    """Neither return nor raise, so that DBOS records nothing and the next process repeats this step."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("that future is never completed")


async def _outcome_of(work: Awaitable[N]) -> tuple[N | None, BaseException | None]:
    """Return the result or the error of `work` as a value: hides an error from DBOS without a broad `except`."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    error = task.exception()
    return (None, error) if error else (task.result(), None)


class DurableEngine(Generic[N]):
    """One process's DBOS instance; call `launch` before the first job. `kind` is the type that `solve` returns.

    Engines with the same `scope` share their jobs: a resumed job may start in any of their processes. A process that
    works only on certain jobs needs its own scope. The journal is in the Postgres at `database_url`, or in a file in
    `directory` if that is empty.

    A job that another version began, whose steps are not those of this one, starts over with a journal of its own; the
    old one is left as it is.
    """

    def __init__(
        self,
        directory: Path,
        kind: type[N],
        solve: Solve[N],
        *,
        scope: str = "",
        database_url: str = "",
        version: str = WORKFLOW_VERSION,
    ) -> None:
        self._kind = kind
        self._solve = solve
        self._plain_version = version
        self._version = f"{version}.{scope}" if scope else version
        self._loop: asyncio.AbstractEventLoop
        self._outcomes: dict[str, Future[N]] = {}
        self._journals: dict[str, DurableJournal] = {}
        config = DBOSConfig(
            name="agent-fix",
            system_database_url=database_url or _journal_file(directory),
            sys_db_pool_size=POOL,
            executor_id=this_process(),
            application_version=self._version,
            serializer=JsonSerializer(),
            log_level="ERROR",
            enable_otlp=False,
        )
        logging.getLogger("dbos").setLevel(logging.ERROR)
        DBOS(config=config)

        async def solve_workflow(job_id: str) -> dict[str, Any]:
            if asyncio.get_running_loop() is self._loop:
                return await self._follow(job_id)
            # DBOS starts a resumed workflow on its own event loop, but a job's resources belong to the loop that
            # created them.
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._follow(job_id), self._loop))

        self._workflow = DBOS.workflow(name="solve", max_recovery_attempts=3)(solve_workflow)

    def launch(self) -> None:
        """Open the journal; blocks for about 30 ms."""
        DBOS.launch()

    async def has_begun(self, job_id: str) -> bool:
        """True if steps of the job may be stored."""
        return (await self._workflow_of(job_id))[1] is not None

    async def has_succeeded(self, job_id: str) -> bool:
        """True if the job's result is stored, so that nothing of it runs again."""
        status = (await self._workflow_of(job_id))[1]
        return status is not None and status.status == "SUCCESS"

    async def starts_over(self, job_id: str) -> bool:
        """True if another version has begun the job, and this one has not."""
        workflow, status = await self._workflow_of(job_id)
        return workflow != job_id and status is None

    async def carry_out(self, job_id: str, *, resumed: bool) -> N:
        """Work on a job until it ends, pauses (raises WaitingForUser) or fails (raises the original error)."""
        workflow, status = await self._workflow_of(job_id)
        status = status if resumed else None
        if status is not None and status.status == "SUCCESS":
            return self._kind.model_validate(status.output)
        if status is not None and status.status == "ERROR":
            raise _cannot_go_on(job_id, "its journal ended with an error")
        self._loop = asyncio.get_running_loop()
        outcome: Future[N] = Future()
        self._outcomes[job_id] = outcome
        self._journals[job_id] = DurableJournal(resumed=resumed, fail=partial(_fail, outcome))
        if status is not None:
            await DBOS.resume_workflow_async(workflow)
        else:
            with SetWorkflowID(workflow):
                await DBOS.start_workflow_async(self._workflow, job_id)
        return await asyncio.wrap_future(outcome)

    async def _workflow_of(self, job_id: str) -> tuple[str, WorkflowStatus | None]:
        """The id and status of a job's workflow; without a status it has to be started.

        DBOS would silently never go on with one of another version.
        """
        status = await DBOS.get_workflow_status_async(job_id)
        if status is None or status.status in ("SUCCESS", "ERROR") or status.app_version == self._version:
            return job_id, status
        again = f"{job_id}@{self._plain_version}"
        return again, await DBOS.get_workflow_status_async(again)

    async def _follow(self, job_id: str) -> dict[str, Any]:
        outcome = self._outcomes[job_id]
        result, error = await _outcome_of(self._solve(job_id, self._journals[job_id]))
        if result is None or outcome.done():
            _fail(outcome, error or RuntimeError("the job returned nothing"))
            await _until_the_process_ends()
        outcome.set_result(result)
        return result.model_dump(mode="json")


def _fail(outcome: "Future[N]", error: BaseException) -> None:
    """The first failure ends the process. Later failures of parallel steps are ignored and not recorded."""
    if not outcome.done():
        outcome.set_exception(error)


def _cannot_go_on(job_id: str, why: str) -> AgentFixError:
    hint = "Start over with `/agent retry`, or with --restart on the command line."
    return AgentFixError(f"Job {job_id} cannot continue: {why}.", code=ExitCode.INTERNAL, hint=hint)


def _journal_file(directory: Path) -> str:
    """The journal's URL.

    Switches the file to write-ahead mode before DBOS opens it: SQLite's default is 25 times slower.
    """
    database = directory / "journal.db"
    try:
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
    except sqlite3.Error as error:
        message = f"The state directory cannot be used: {database.parent} ({error})."
        raise AgentFixError(message, code=ExitCode.OUTPUT, hint="Pass another one with --state DIR.") from error
    return f"sqlite:///{database}"
