"""A whole server for tests: its roles as real processes, each with the environment that it may hold and no more."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from app.config.roles import Role
from app.config.settings import Settings, settings_from
from app.server.context import ServerContext

T = TypeVar("T")
SECRET = "it is a secret to everybody"
TIMEOUT = 180.0


class Server:
    """Three roles over one state directory. A role is started again by whoever ended it: nobody supervises here."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.log = place / "server.log"
        own = {
            "AGENT_FIX_WEBHOOK_SECRET": SECRET,
            "AGENT_FIX_HOST": "127.0.0.1",
            "AGENT_FIX_STATE_DIR": str(place / "state"),
        }
        self.settings: Settings = settings_from({**inherited, **own, **environment}, place / "state")
        self.server_context = ServerContext(self.settings)
        self.server_context.prepare()
        self.processes: dict[Role, subprocess.Popen[bytes]] = {}
        self._log_began: dict[Role, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    @property
    def webhook(self) -> str:
        return f"{self.url}/webhook"

    def start(self, role: Role, *, failpoint: str = "", **changes: str) -> "subprocess.Popen[bytes]":
        """Start it, with other values of some variables."""
        environment = {**self.settings.for_role(role), "AGENT_FIX_FAILPOINT": failpoint, **changes}
        words = [sys.executable, "-I", "-m", "app", "serve", "--role", role]
        files = (self.listener.fileno(),) if role == "receiver" else ()
        words += ["--listening", str(self.listener.fileno())] if files else []
        with self.log.open("ab") as log:
            self._log_began[role] = log.tell()
            process = subprocess.Popen(
                words, env=environment, cwd="/", pass_fds=files, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.processes[role] = process
        return process

    def start_all(self) -> None:
        for role in ("receiver", "publisher", "worker"):
            self.start(role)

    def end(self, role: Role, *, kill: bool = False) -> int:
        process = self.processes.pop(role)
        if kill:
            process.kill()
        else:
            process.terminate()
        return process.wait(60)

    def close(self) -> None:
        for role in list(self.processes):
            self.end(role, kill=False)
        self.listener.close()
        self.server_context.engine.dispose()

    def wait(self, until: Callable[[], T | None], what: str, *, timeout: float = TIMEOUT) -> T:
        """The first thing that is something. A role that has ended by itself fails the test at once."""
        end = time.monotonic() + timeout
        while True:
            if found := until():
                return found
            gone = {role: process.poll() for role, process in self.processes.items() if process.poll() is not None}
            assert not gone, f"{gone} ended:\n{self.tail()}"
            assert time.monotonic() < end, f"{what} did not come within {timeout:.0f} seconds:\n{self.tail()}"
            time.sleep(0.05)

    def is_ready(self, role: Role) -> bool:
        """Whether the role has said so since it was started."""
        return f"{role} ready".encode() in self.log.read_bytes()[self._log_began[role] :]

    def tail(self) -> str:
        """The end of what the roles said."""
        return self.log.read_text(errors="replace")[-6_000:] if self.log.exists() else ""


@contextmanager
def running_server(place: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    server = Server(place, environment)
    try:
        yield server
    finally:
        server.close()
