"""Prepares the start: one supervisor per state directory, the listening port, and a summary of what is served."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app import __version__
from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode, OutputError

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
