"""The supervisor: runs each role in its own process, restarts it when it dies, and shuts all down in order."""

import asyncio
import ctypes
import errno
import fcntl
import logging
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from app import __version__
from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode, OutputError

NOT_AGAIN = frozenset({ExitCode.USAGE, ExitCode.CONFIG, ExitCode.MODEL})
"""The exit codes of a role that would fail again at once: a person has to fix something first.

A sandbox that does not open is not one of them: a full disk or a busy machine passes, and receiver and publisher go on.
"""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """How one role's process is started, and the only environment and open files that it gets."""

    role: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Restart delays in seconds; they start over after a process has lived for `steady` seconds."""

    first_pause: float = 1.0
    longest_pause: float = 30.0
    steady: float = 60.0
    grace: float = 30.0

    def pause_after(self, last: float, uptime: float) -> float:
        return self.first_pause if uptime >= self.steady or not last else min(2 * last, self.longest_pause)


class Supervisor:
    """Keeps every role running until it is told to end, or until a role cannot run at all."""

    def __init__(self, roles: Sequence[RoleSpec], directory: Path, backoff: Backoff | None = None) -> None:
        self._roles = roles
        self._directory = directory
        self._backoff = backoff or Backoff()
        self._processes: dict[str, Process] = {}
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()

    async def supervise(self) -> int:
        """Run until SIGTERM, SIGINT or SIGHUP; a second signal ends everything at once. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.end)
        keeping = [asyncio.create_task(self._keep(spec)) for spec in self._roles]
        reporting = asyncio.create_task(self._report())
        try:
            done, _ = await asyncio.wait([*keeping, reporting], return_when=asyncio.FIRST_COMPLETED)
            self._ending.set()
            await self._end_all()
            return max(task.result() for task in done)
        finally:
            await _cancelled([*keeping, reporting])
            self._kill()

    def end(self) -> None:
        """End all roles; a second call does not wait for them."""
        (self._hurry if self._ending.is_set() else self._ending).set()

    async def _report(self) -> int:
        await self._ending.wait()
        return ExitCode.OK

    async def _keep(self, spec: RoleSpec) -> int:
        """Restart the role as needed; returns only with an exit code that a restart cannot change."""
        pause = 0.0
        while True:
            began = monotonic()
            code = await (await self._start(spec)).wait()
            if self._ending.is_set():
                return ExitCode.OK
            if code in NOT_AGAIN:
                log.error("the %s cannot run with this configuration (exit code %s); agent-fix stops", spec.role, code)
                return code
            pause = self._backoff.pause_after(pause, monotonic() - began)
            log.error("the %s %s; restarting it in %g s", spec.role, _ended_by(code), pause)
            await _until(self._ending, pause)
            if self._ending.is_set():
                return ExitCode.OK

    async def _start(self, spec: RoleSpec) -> Process:
        """Start in a new session, so that Ctrl-C reaches the roles only through us, in our order."""
        process = await asyncio.create_subprocess_exec(
            *spec.command,
            env=dict(spec.environment),
            cwd=self._directory,
            stdin=DEVNULL,
            pass_fds=spec.files,
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )
        self._processes[spec.role] = process
        return process

    async def _end_all(self) -> None:
        alive = [(spec.role, process) for spec in self._roles if (process := self._alive(spec.role))]
        for _, process in alive:
            process.terminate()
        ended = asyncio.gather(*(process.wait() for _, process in alive))
        stop_now = asyncio.ensure_future(self._hurry.wait())
        until: list[asyncio.Future[Any]] = [ended, stop_now]
        await asyncio.wait(until, timeout=self._backoff.grace, return_when=asyncio.FIRST_COMPLETED)
        stop_now.cancel()
        for role, process in alive:
            if process.returncode is None:
                log.warning("the %s did not stop in time and is killed", role)
        self._kill()
        await ended

    def _alive(self, role: str) -> Process | None:
        process = self._processes.get(role)
        return process if process is not None and process.returncode is None else None

    def _kill(self) -> None:
        """Kill the remaining processes, with everything in their sessions."""
        for process in self._processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _dies_with(parent: int) -> Callable[[], None]:
    """Code for the child before it executes its program: it dies when this process ends, in whatever way."""

    def bind() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before that took effect
            os._exit(ExitCode.INTERNAL)

    return bind


def _ended_by(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _cancelled(tasks: Sequence["asyncio.Task[int]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


LOCK = "serve.lock"
BACKLOG = 2_048


@contextmanager
def only_supervisor(settings: Settings) -> Iterator[None]:
    """Lock the state directory; raises AgentFixError, naming the other supervisor, if there is one.

    With Postgres several are allowed. The kernel releases the lock when the process ends; the file's text is for
    people.
    """
    state = settings.state
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"The state directory {state} cannot be written: {error.strerror}."
        raise OutputError(message, hint="Choose another one with --state DIR.") from error
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not on_sqlite(settings):
                yield
                return
            raise _in_use(state, file.read(200).strip()) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        file.flush()
        yield


def _in_use(state: Path, who: str) -> AgentFixError:
    return AgentFixError(
        f"Another agent-fix server uses {state}: {who or 'unknown process'}.",
        code=ExitCode.BUSY,
        hint="Stop it, give this server its own state directory (--state DIR), or use Postgres for several servers.",
    )


def listen(host: str, port: int) -> socket.socket:
    """Open the port. The supervisor keeps it, so connections only wait while the receiver restarts."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        what = (
            "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        )
        message = f"Port {port} of {host} {what}."
        raise AgentFixError(message, hint="Set AGENT_FIX_PORT (and AGENT_FIX_HOST) to another address.") from error


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def on_sqlite(settings: Settings) -> bool:
    return not settings.database_url or settings.database_url.startswith("sqlite")


def database_name(settings: Settings) -> str:
    """The database's name, without credentials."""
    if not settings.database_url:
        return f"SQLite, {settings.state / 'agent-fix.db'}"
    found = urlsplit(settings.database_url)
    if on_sqlite(settings):
        return f"SQLite, {found.path.removeprefix('/')}"
    return f"Postgres, {found.path.removeprefix('/')} on {found.hostname or 'this machine'}"


DASHBOARD_OFF: Final = "off (set AGENT_FIX_CLIENT_ID and AGENT_FIX_CLIENT_SECRET to turn it on)"


def summary(settings: Settings, address: str, roles: tuple[str, ...]) -> dict[str, str]:
    """What is served, where, and from what, by name; contains no secret."""
    reached = settings.public_url or address
    return {
        "agent-fix": __version__,
        "webhooks": f"{reached}/webhook",
        "dashboard": f"{reached}/" if settings.web_token or settings.client_id else DASHBOARD_OFF,
        "GitHub": f"{settings.github_url}, App {settings.app_id}",
        "database": database_name(settings),
        "state": str(settings.state),
        "model": settings.model,
        "sandbox": settings.sandbox,
        "jobs": f"{settings.jobs} at once, {settings.jobs_per_repository} in one repository",
        "roles": ", ".join(roles),
    }


def as_text(facts: dict[str, str]) -> str:
    width = max(map(len, facts)) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in facts.items())
