"""Starts each job as a child process of the worker, which dies with it."""

import asyncio
import sys
from collections.abc import Sequence

from app.config.settings import Settings
from app.jobs.process_owner import this_process
from app.jobs.queue import JobClaim
from app.server.launch.base import JobHandle


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
