"""The solve step: run the job in a child process, as a server does. There is no token in this step."""

import asyncio
import signal
import sys

from app.action.context import CANCELLED
from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.job import WAITING
from app.jobs.store import JobWithContext
from app.server.context import ServerContext
from app.server.launch.base import ChildProcesses
from app.server.terminal import TerminalProgress
from app.server.worker import Intervals, Worker

INTERVALS = Intervals(stop=2.0, drain=3.0)
"""A runner kills everything that has not ended seven seconds after a cancellation."""
POLL_INTERVAL = 0.5
MAX_POSTPONED = 6
"""How often a temporary failure is waited out."""


class SolveStep:
    """Follows the job, prints its progress to the workflow's log, and ends when the job waits or is done."""

    def __init__(self, server_context: ServerContext, job: str) -> None:
        self._server_context = server_context
        self._job = job
        self._terminal = TerminalProgress(sys.stdout, colours=False)
        self._last_seq = 0
        self._postponed: set[float] = set()
        self.cancelled = False

    async def follow(self, worker: Worker) -> None:
        while not worker.draining.is_set():
            if await asyncio.to_thread(self._is_over):
                worker.draining.set()
                return
            await asyncio.sleep(POLL_INTERVAL)

    def report(self) -> None:
        for line in self._server_context.job_store().progress_since(self._job, after=self._last_seq):
            self._terminal.report(line.kind, line.text)
            self._last_seq = line.seq

    def _is_over(self) -> bool:
        """The state is read before the log, so that no line is missed."""
        found = self._server_context.job_queries.get(self._job)
        self.report()
        if found is not None and found.waiting_for == "rest":
            return False
        return found is None or found.row.final or found.handed_over or self._waits(found)

    def _waits(self, found: JobWithContext) -> bool:
        if found.row.state in WAITING:
            return True
        if found.row.state == "queued" and found.row.reason and found.row.owner is None:
            self._postponed.add(found.row.updated_at.timestamp())
        return len(self._postponed) > MAX_POSTPONED


async def solve(workflow: Workflow) -> int:
    server_context = ServerContext(workflow.settings)
    server_context.prepare()
    newest = server_context.job_store().newest(1)
    if not newest:
        raise AgentFixError("There is no job to run.", code=ExitCode.USAGE)
    job = newest[0].job.id
    launcher = ChildProcesses(workflow.settings)
    worker, solving = Worker(server_context, launcher, intervals=INTERVALS), SolveStep(server_context, job)

    def cancel() -> None:
        solving.cancelled = True
        worker.draining.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, cancel)
    following = asyncio.create_task(solving.follow(worker))
    await worker.work()
    await following
    solving.report()
    if solving.cancelled:
        server_context.queue.stop(job, CANCELLED)
        return ExitCode.STOPPED
    return ExitCode.OK
