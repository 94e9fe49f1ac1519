"""The worker: a process for each job, leases kept, the dead counted, and nothing left behind when it is drained."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from app.config.settings import Settings
from app.core.errors import ExitCode
from app.jobs.queue import LEASE, JobClaim
from app.jobs.store import JobRow, JobStore
from app.sandbox.trials import TRIAL
from app.server.context import ServerContext
from app.server.launch.base import ChildProcesses, JobHandle, LaunchError
from app.server.worker import Intervals, Worker
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


class BackgroundWorker:
    """A worker at work in the background of a test, and the launcher of its processes."""

    owner = "here:1:1"
    survives_worker = False

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
        row = self.server_context.job_store().get(name)
        assert row is not None
        return row

    async def start(self, claim: JobClaim) -> JobHandle:
        self.processes.append(FakeProcess(claim, deaf=self.deaf))
        return self.processes[-1]

    async def running(self) -> Sequence[tuple[JobClaim, JobHandle]]:
        return ()

    def needs_heartbeat(self, _claim: JobClaim) -> bool:
        return True

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        worker = Worker(self.server_context, self, intervals=QUICK)
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
def background(tmp_path: Path) -> BackgroundWorker:
    return BackgroundWorker(tmp_path)


async def test_a_job_gets_a_process_and_is_given_back_when_that_ends(background: BackgroundWorker) -> None:
    for number in range(3):
        background.admit(f"j{number}", number)
    async with background.working():
        await background.until(lambda: len(background.processes) == 2)
        assert background.row("j2").owner is None, "there is room for two"
        background.server_context.job_store().enter("j0", "answered")
        background.processes[0].end(ExitCode.OK)
        await background.until(lambda: len(background.processes) == 3)
    assert [process.claim.job for process in background.processes] == ["j0", "j1", "j2"]


async def test_a_dead_process_is_replaced_until_the_job_is_given_up(background: BackgroundWorker) -> None:
    background.admit("poison", 1)
    async with background.working():
        for number in range(3):
            await background.until(lambda number=number: len(background.processes) == number + 1)  # type: ignore[misc]
            background.processes[number].end(-9)
        await background.until(lambda: background.row("poison").final)
    assert [process.claim.epoch for process in background.processes] == [1, 2, 3]
    assert background.row("poison").state == "error"


async def test_a_waiting_job_does_not_count_as_a_crash(background: BackgroundWorker) -> None:
    background.admit("a", 1)
    async with background.working():
        await background.until(lambda: len(background.processes) == 1)
        background.server_context.job_store().enter("a", "paused", "no money")
        background.processes[0].end(ExitCode.LIMIT_REACHED)
        await background.until(lambda: background.row("a").owner is None)
    found = background.server_context.job_queries.get("a")
    assert found is not None
    assert (found.crashes, found.row.state, len(background.processes)) == (0, "paused", 1)


async def test_a_job_that_is_stopped_and_does_not_end_is_killed(background: BackgroundWorker) -> None:
    background.admit("a", 1)
    async with background.working():
        await background.until(lambda: len(background.processes) == 1)
        assert not background.server_context.queue.stop("a", "asked")
        await background.until(lambda: background.row("a").final)
    assert (background.processes[0].signals, background.row("a").state) == (["kill"], "stopped")


async def test_a_lease_is_kept_and_a_lost_one_ends_the_process(background: BackgroundWorker) -> None:
    background.admit("a", 1)
    async with background.working():
        await background.until(lambda: len(background.processes) == 1)
        for _ in range(3):  # time passes, and the lease with it, but not for who keeps beating
            before = background.now
            background.now = before + LEASE - timedelta(seconds=1)
            await asyncio.sleep(0.05)
        assert background.server_context.queue.claim("there:2:2", background.server_context.limits) is None
        with background.server_context.engine.begin() as db:
            db.exec_driver_sql("UPDATE jobs SET epoch = 7, owner = 'there:2:2'")
        await background.until(lambda: background.processes[0].signals == ["kill"])
    assert background.row("a").owner == "there:2:2", "it is not given back by who lost it"


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_drained_worker_gives_everything_back(background: BackgroundWorker, deaf: bool) -> None:
    background.deaf = deaf
    background.admit("a", 1)
    async with background.working():
        await background.until(lambda: len(background.processes) == 1)
    assert background.processes[0].signals == (["terminate", "kill"] if deaf else ["terminate"])
    found = background.server_context.job_queries.get("a")
    assert found is not None
    assert (found.row.owner, found.row.state, found.crashes) == (None, "queued", 0)
    async with background.working():
        await background.until(lambda: len(background.processes) == 2)
    assert background.processes[1].claim.resumed


async def test_an_unreachable_database_is_retried(background: BackgroundWorker) -> None:
    background.admit("a", 1)
    away = [True, True, True]

    class UnreliableQueue:
        """The queue behind a connection that breaks."""

        def __getattr__(self, name: str) -> object:
            if name == "claim_several" and away:
                away.pop()
                raise OperationalError("SELECT 1", {}, OSError("server closed the connection"))
            return getattr(queue, name)

    queue = background.server_context.queue
    background.server_context.__dict__["queue"] = UnreliableQueue()
    async with background.working():
        await background.until(lambda: len(background.processes) == 1)
    assert not away


async def test_a_process_that_cannot_be_started_is_a_launch_error(tmp_path: Path) -> None:
    too_long = {"NAME": "x" * (1 << 22)}  # the kernel refuses it: E2BIG
    launcher = ChildProcesses(Settings(state=tmp_path, environment=too_long))
    with pytest.raises(LaunchError, match="cannot be started: Argument list too long"):
        await launcher.start(JobClaim("a", 1, launcher.owner, resumed=False))


def test_a_worker_whose_sandbox_cannot_open_ends_before_it_claims_a_job(tmp_path: Path) -> None:
    """It removes what earlier such starts left."""
    state = tmp_path / "state"
    left, other = (state / "sandboxes" / f"{name}1-0a.elsewhere:7:1-00000000" for name in (TRIAL, "job"))
    for directory in (left, other):
        directory.mkdir(parents=True)
    own = {"PATH": str(tmp_path), "HOME": str(tmp_path), "AGENT_FIX_SANDBOX": "docker"}
    own["AGENT_FIX_STATE_DIR"] = str(state)
    words = [sys.executable, "-I", "-m", "app", "serve", "--role", "worker"]
    ended = subprocess.run(words, env=own, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == ExitCode.SANDBOX, ended.stderr
    assert "Jobs cannot run in docker on this machine: " in ended.stderr
    assert "or use another sandbox" in ended.stderr
    assert (left.exists(), other.exists()) == (False, True)


async def test_a_failed_sweep_is_logged_and_the_worker_goes_on(
    background: BackgroundWorker, caplog: pytest.LogCaptureFixture
) -> None:
    class Incomplete(JobStore):
        """A store whose library is gone."""

        def get(self, job_id: str) -> JobRow | None:
            raise ModuleNotFoundError(f"No module named {job_id!r}")

    context = background.server_context
    (context.settings.state / "sandboxes" / "left").mkdir(parents=True)
    context.__dict__["job_store"] = lambda: Incomplete(context.engine, context.clock)
    async with background.working():
        await background.until(lambda: "the sweep failed: No module named 'left'" in caplog.messages)
        background.admit("a", 1)
        await background.until(lambda: len(background.processes) == 1)
