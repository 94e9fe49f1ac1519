"""The worker: a process for each job, leases kept, the dead counted, and nothing left behind when it is drained."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from app.config.settings import Settings
from app.core.errors import ExitCode
from app.jobs.queue import LEASE, JobClaim
from app.jobs.store import JobRow
from app.server.wiring.context import ServerContext
from app.server.worker import Intervals, JobProcessHandle, Worker
from tests.support.server_jobs import START, issue_ref, job, job_context, trigger

QUICK = Intervals(poll=0.005, heartbeat=0.0, stop=0.05, drain=0.5)


@dataclass
class FakeProcess:
    """Ends when a test says so, or when it is told to, unless it is deaf."""

    claim: JobClaim
    deaf: bool = False
    returncode: int | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    signals: list[str] = field(default_factory=list)

    def end(self, code: int) -> None:
        self.returncode = code
        self.ended.set()

    def terminate(self) -> None:
        self.signals.append("terminate")
        if not self.deaf:
            self.end(ExitCode.INTERRUPTED)

    def kill(self) -> None:
        self.signals.append("kill")
        self.end(-9)

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class Shift:
    """A worker at work in the background of a test."""

    def __init__(self, state: Path) -> None:
        self.now = START
        self.server_context = ServerContext(Settings(state=state, jobs=2, jobs_per_repository=2), lambda: self.now)
        self.server_context.prepare()
        self.processes: list[FakeProcess] = []
        self.deaf = False

    def admit(self, name: str, number: int) -> None:
        where = issue_ref(number)
        asked = trigger(name, where)
        self.server_context.queue.admit(job(name, where), job_context(where), asked, ready=True)

    def row(self, name: str) -> JobRow:
        row = self.server_context.store().get(name)
        assert row is not None
        return row

    async def start(self, claim: JobClaim) -> JobProcessHandle:
        self.processes.append(FakeProcess(claim, deaf=self.deaf))
        return self.processes[-1]

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        worker = Worker(self.server_context, self.start, owner="here:1:1", intervals=QUICK)
        task = asyncio.create_task(worker.work())
        try:
            yield worker
        finally:
            worker.draining.set()
            await task

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():  # noqa: ASYNC110  # the worker says it through the database only
                await asyncio.sleep(0.005)


@pytest.fixture
def shift(tmp_path: Path) -> Shift:
    return Shift(tmp_path)


async def test_a_job_gets_a_process_and_is_given_back_when_that_ends(shift: Shift) -> None:
    for number in range(3):
        shift.admit(f"j{number}", number)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 2)
        assert shift.row("j2").owner is None, "there is room for two"
        shift.server_context.store().enter("j0", "answered")
        shift.processes[0].end(ExitCode.OK)
        await shift.until(lambda: len(shift.processes) == 3)
    assert [process.claim.job for process in shift.processes] == ["j0", "j1", "j2"]


async def test_a_process_that_dies_is_replaced_and_a_poisonous_job_given_up(shift: Shift) -> None:
    shift.admit("poison", 1)
    async with shift.working():
        for number in range(3):
            await shift.until(lambda number=number: len(shift.processes) == number + 1)  # type: ignore[misc]
            shift.processes[number].end(-9)
        await shift.until(lambda: shift.row("poison").final)
    assert [process.claim.epoch for process in shift.processes] == [1, 2, 3]
    assert shift.row("poison").state == "error"


async def test_a_parked_job_is_not_a_crash(shift: Shift) -> None:
    shift.admit("a", 1)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 1)
        shift.server_context.store().enter("a", "paused", "no money")
        shift.processes[0].end(ExitCode.LIMIT_REACHED)
        await shift.until(lambda: shift.row("a").owner is None)
    found = shift.server_context.job_queries.get("a")
    assert found is not None
    assert (found.crashes, found.row.state, len(shift.processes)) == (0, "paused", 1)


async def test_a_job_that_is_stopped_and_does_not_end_is_killed(shift: Shift) -> None:
    shift.admit("a", 1)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 1)
        assert not shift.server_context.queue.stop("a", "asked")
        await shift.until(lambda: shift.row("a").final)
    assert (shift.processes[0].signals, shift.row("a").state) == (["kill"], "stopped")


async def test_a_lease_is_kept_and_a_lost_one_ends_the_process(shift: Shift) -> None:
    shift.admit("a", 1)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 1)
        for _ in range(3):  # time passes, and the lease with it, but not for who keeps beating
            before = shift.now
            shift.now = before + LEASE - timedelta(seconds=1)
            await asyncio.sleep(0.05)
        assert shift.server_context.queue.claim("there:2:2", shift.server_context.limits) is None
        with shift.server_context.engine.begin() as db:
            db.exec_driver_sql("UPDATE jobs SET epoch = 7, owner = 'there:2:2'")
        await shift.until(lambda: shift.processes[0].signals == ["kill"])
    assert shift.row("a").owner == "there:2:2", "it is not given back by who lost it"


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_drained_worker_gives_everything_back(shift: Shift, deaf: bool) -> None:
    shift.deaf = deaf
    shift.admit("a", 1)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 1)
    assert shift.processes[0].signals == (["terminate", "kill"] if deaf else ["terminate"])
    found = shift.server_context.job_queries.get("a")
    assert found is not None
    assert (found.row.owner, found.row.state, found.crashes) == (None, "queued", 0)
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 2)
    assert shift.processes[1].claim.resumed


async def test_a_database_that_is_away_is_waited_for(shift: Shift) -> None:
    shift.admit("a", 1)
    away = [True, True, True]

    class Moody:
        """The queue behind a connection that breaks."""

        def __getattr__(self, name: str) -> object:
            if name == "claim" and away:
                away.pop()
                raise OperationalError("SELECT 1", {}, OSError("server closed the connection"))
            return getattr(queue, name)

    queue = shift.server_context.queue
    shift.server_context.__dict__["queue"] = Moody()
    async with shift.working():
        await shift.until(lambda: len(shift.processes) == 1)
    assert not away
