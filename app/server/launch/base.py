"""Where a job runs: the port through which the worker starts the process of a job, and learns how it ended."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Protocol

from app.config.settings import Settings
from app.jobs.process_owner import this_process
from app.jobs.queue import JobClaim


class JobHandle(Protocol):
    """The process that works on a job, wherever it runs."""

    @property
    def returncode(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class JobLauncher(Protocol):
    """Starts jobs in one kind of place.

    `owner` owns the claims. `survives_worker`: a job continues without its worker, and the next worker finds it.
    """

    @property
    def owner(self) -> str: ...

    @property
    def survives_worker(self) -> bool: ...

    async def start(self, claim: JobClaim) -> JobHandle:
        """Start the job's process. Raises LaunchError if it cannot be started now."""

    async def running(self) -> Sequence[tuple[JobClaim, JobHandle]]:
        """Jobs that an earlier worker started and that have not ended. Raises LaunchError."""

    def needs_heartbeat(self, claim: JobClaim) -> bool:
        """True if the worker has to extend the job's lease; False once the job's process does it."""


class ChildProcesses:
    """Isolated from the directory that they are started in, with the worker's environment."""

    survives_worker = False

    def __init__(self, settings: Settings, owner: str = "") -> None:
        self.owner = owner or this_process()
        self._environment = {**settings.environment, "AGENT_FIX_STATE_DIR": str(settings.state)}

    async def start(self, claim: JobClaim) -> JobHandle:
        words = (sys.executable, "-I", "-m", "app.server.job_process", claim.job, str(claim.epoch), claim.owner)
        return await asyncio.create_subprocess_exec(
            *words, env=self._environment, cwd="/", stdin=asyncio.subprocess.DEVNULL
        )

    async def running(self) -> Sequence[tuple[JobClaim, JobHandle]]:
        return ()

    def needs_heartbeat(self, _claim: JobClaim) -> bool:
        return True
