"""Where a job runs: the port through which the worker starts the process of a job, and what is behind it.

A job runs as a child process of the worker, or in a cluster, which schedules and isolates it. There its process keeps
its own lease and reads stop requests from the database, so it needs no worker. The worker extends the lease only until
the process has started, and removes what does not stop.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Protocol

import yaml

from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode
from app.core.processes import this_process
from app.core.text import one_line
from app.jobs.queue import JobClaim

HEARTBEAT_SECONDS = 15.0
"""Between two heartbeats of a job's lease, which lasts four times as long."""
DRAIN_SECONDS = 25.0
"""What a job has for its current step when its worker or its machine is taken away."""


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
        try:
            return await asyncio.create_subprocess_exec(
                *words, env=self._environment, cwd="/", stdin=asyncio.subprocess.DEVNULL
            )
        except OSError as error:  # too many processes or open files, or no memory
            raise LaunchError(f"Its process cannot be started: {error.strerror}.") from error

    async def running(self) -> Sequence[tuple[JobClaim, JobHandle]]:
        return ()

    def needs_heartbeat(self, _claim: JobClaim) -> bool:
        return True


def read_template(path: Path) -> dict[str, Any]:
    """The template as plain values. Raises AgentFixError if it is not one mapping."""
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise invalid(path, str(error).replace("\n", " ")) from error
    if not isinstance(value, dict):
        raise invalid(path, "it is not a mapping.")
    return value


def invalid(path: Path, problem: str) -> AgentFixError:
    return AgentFixError(
        f"The template {path} cannot be used: {problem}",
        code=ExitCode.CONFIG,
        hint="AGENT_FIX_JOBS_TEMPLATE names it; deploy/ has an example for each kind of cluster.",
    )


CRASHED = -9
"""The exit code of a process of which nothing else is known."""
LIST_SECONDS = 2.0
MISSING_LISTS = 3
"""How often a job must be missing from the list before it counts as lost: a list may be older than the job."""
PENDING_SECONDS = 900.0
"""A job that has not started by then is removed and tried again: its image or its machine does not come."""

MAX_MESSAGE = 500
"""Characters of a cluster's own words: a proxy before it answers with whole pages."""

logger = logging.getLogger(__name__)


class LaunchError(AgentFixError):
    """This machine or the cluster does not start or list jobs now; the message says why."""

    exit_code = ExitCode.OUTPUT
    repeatable = True

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message)[:MAX_MESSAGE])


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job as the cluster reports it.

    `displaced`: the cluster took its machine away, so it did not crash. `reason`: why it is pending or has ended.
    """

    claim: JobClaim
    phase: Literal["pending", "running", "ended"]
    exit_code: int | None = None
    displaced: bool = False
    reason: str = ""

    @property
    def returncode(self) -> int | None:
        """As a child process would report it; None while it has not ended."""
        if self.phase != "ended":
            return None
        if self.displaced and self.exit_code != ExitCode.OK:
            return ExitCode.INTERRUPTED
        return CRASHED if self.exit_code is None else self.exit_code


class Cluster(Protocol):
    """A cluster's API. All methods block, and raise LaunchError if the cluster refuses or does not answer."""

    owner: str

    def check(self) -> None:
        """Refuse a template with which no job could start."""

    def create(self, claim: JobClaim) -> None:
        """Start the job's process, once per claim however often it is called."""

    def jobs(self) -> list[ClusterJob]:
        """All jobs that were started by agent-fix and are still listed."""

    def remove(self, claim: JobClaim, *, grace: int) -> None:
        """End the job's process after `grace` seconds."""


def job_arguments(claim: JobClaim) -> list[str]:
    """What `agent-fix` is called with in the container."""
    return ["serve", "--role", "worker", "--job", f"{claim.job}:{claim.epoch}:{claim.owner}"]


def claim_of(labels: Mapping[str, str], owner: str) -> JobClaim | None:
    """The claim that a job was started for, from its labels or tags."""
    job, epoch = labels.get("agent-fix/job", ""), labels.get("agent-fix/epoch", "")
    return JobClaim(job, int(epoch), owner, resumed=int(epoch) > 1) if job and epoch.isdecimal() else None


def labels_of(claim: JobClaim) -> dict[str, str]:
    return {"agent-fix/job": claim.job, "agent-fix/epoch": str(claim.epoch)}


class ClusterJobHandle:
    """One job in the cluster, as of the latest list."""

    def __init__(self, cluster: Cluster, claim: JobClaim) -> None:
        self._cluster = cluster
        self._claim = claim
        self._since = monotonic()
        self._missing = 0
        self._removing: asyncio.Task[None] | None = None
        self._removed = False
        self._ended = asyncio.Event()
        self.returncode: int | None = None
        self.pending = True

    def terminate(self) -> None:
        self._remove(grace=30)

    def kill(self) -> None:
        self._remove(grace=0)

    async def wait(self) -> int:
        await self._ended.wait()
        return CRASHED if self.returncode is None else self.returncode

    def update(self, job: ClusterJob | None) -> None:
        """Take over what the cluster lists, or that the job is missing there."""
        self._missing = 0 if job is not None else self._missing + 1
        if job is not None:
            self.pending = job.phase == "pending"
            self.returncode = job.returncode
        elif self._missing >= (1 if self._removed else MISSING_LISTS):
            self.returncode = CRASHED
        if self.returncode is not None:
            self._ended.set()
            if job is not None and job.reason:
                logger.info("job %s ended in the cluster: %s", self._claim.job, job.reason)
        elif self.pending and monotonic() - self._since >= PENDING_SECONDS:
            logger.warning("job %s has not started: %s", self._claim.job, job.reason if job else "it is not listed")
            self.kill()

    def _remove(self, *, grace: int) -> None:
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_now(grace))

    async def _remove_now(self, grace: int) -> None:
        try:
            await asyncio.to_thread(self._cluster.remove, self._claim, grace=grace)
            self._removed = True
        except LaunchError as error:  # the worker asks again
            logger.warning("job %s cannot be removed: %s", self._claim.job, error.message)


class ClusterLauncher:
    """Starts jobs in a cluster and keeps their handles up to date."""

    survives_worker = True

    def __init__(self, cluster: Cluster, *, list_seconds: float = LIST_SECONDS) -> None:
        self.owner = cluster.owner
        self._cluster = cluster
        self._list_seconds = list_seconds
        self._handles: dict[JobClaim, ClusterJobHandle] = {}
        self._following: asyncio.Task[None] | None = None

    async def start(self, claim: JobClaim) -> ClusterJobHandle:
        await asyncio.to_thread(self._cluster.create, claim)
        return self._followed(claim)

    async def running(self) -> Sequence[tuple[JobClaim, ClusterJobHandle]]:
        await asyncio.to_thread(self._cluster.check)
        found = [job for job in await asyncio.to_thread(self._cluster.jobs) if job.phase != "ended"]
        handles = [(job.claim, self._followed(job.claim)) for job in found]
        for job, (_, handle) in zip(found, handles, strict=True):
            handle.update(job)
        return handles

    def needs_heartbeat(self, claim: JobClaim) -> bool:
        handle = self._handles.get(claim)
        return handle is not None and handle.pending

    def _followed(self, claim: JobClaim) -> ClusterJobHandle:
        handle = self._handles[claim] = ClusterJobHandle(self._cluster, claim)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        return handle

    async def _follow(self) -> None:
        """List the jobs for as long as there are any; the more there are, the less often."""
        took = 0.0
        while self._handles:
            await asyncio.sleep(max(self._list_seconds, 5 * took))
            began, known = monotonic(), dict(self._handles)
            try:
                listed = {job.claim: job for job in await asyncio.to_thread(self._cluster.jobs)}
            except LaunchError as error:
                logger.warning("jobs cannot be listed: %s", error.message)
                continue
            took = monotonic() - began
            for claim, handle in known.items():
                handle.update(listed.get(claim))
                if handle.returncode is not None:
                    del self._handles[claim]
