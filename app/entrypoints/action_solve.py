"""The solving step: the one job is worked on by a process of its own, as on a server; no token is here."""

import asyncio
import signal
import sys

from app.bootstrap.premises import Premises
from app.entrypoints.handing_over import start_in_spare
from app.entrypoints.papers import CANCELLED
from app.entrypoints.terminal import TerminalProgress
from app.entrypoints.worker import Rhythm, Worker, start_process
from app.errors import AgentFixError, ExitCode
from app.jobs.queue import PARKED
from app.jobs.roster import Commissioned
from app.settings.workflow import Workflow

RHYTHM = Rhythm(stop=2.0, drain=3.0)
"""A runner kills what does not end within seven seconds of being cancelled."""
LOOK = 0.5
MOST_POSTPONED = 6
"""How often what may mend itself is waited for."""


class Solving:
    """Follows the job, tells the workflow's log of it, and knows when there is nothing left to do here."""

    def __init__(self, premises: Premises, job: str) -> None:
        self._premises = premises
        self._job = job
        self._terminal = TerminalProgress(sys.stdout, colours=False)
        self._seen = 0
        self._postponed: set[float] = set()
        self.cancelled = False

    async def follow(self, worker: Worker) -> None:
        while not worker.draining.is_set():
            if await asyncio.to_thread(self._is_over):
                worker.draining.set()
                return
            await asyncio.sleep(LOOK)

    def tell(self) -> None:
        for line in self._premises.store().said(self._job, after=self._seen):
            self._terminal.say(line.kind, line.text)
            self._seen = line.seq

    def _is_over(self) -> bool:
        """The state is read before the log, so that nothing is missed."""
        found = self._premises.roster.get(self._job)
        self.tell()
        return found is None or found.row.final or found.handed_over or self._waits(found)

    def _waits(self, found: Commissioned) -> bool:
        if found.row.state in PARKED:
            return True
        if found.row.state == "queued" and found.row.reason and found.row.owner is None:
            self._postponed.add(found.row.updated_at.timestamp())
        return len(self._postponed) > MOST_POSTPONED


async def solve(workflow: Workflow) -> int:
    premises = Premises(workflow.settings)
    premises.prepare()
    newest = premises.store().newest(1)
    if not newest:
        raise AgentFixError("There is no job to work on.", code=ExitCode.USAGE)
    job = newest[0].job.id
    start = start_in_spare(workflow.settings, start_process(workflow.settings))
    worker, solving = Worker(premises, start, rhythm=RHYTHM), Solving(premises, job)

    def cancel() -> None:
        solving.cancelled = True
        worker.draining.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, cancel)
    following = asyncio.create_task(solving.follow(worker))
    await worker.work()
    await following
    solving.tell()
    if solving.cancelled:
        premises.queue.stop(job, CANCELLED)
        return ExitCode.STOPPED
    return ExitCode.OK
