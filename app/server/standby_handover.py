"""A job is given to the spare process, which then is the job's process to the worker, though it is no child of it."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.config.settings import Settings
from app.jobs.queue import JobClaim
from app.server.standby import PID, SOCKET, reached
from app.server.worker import JobProcessHandle, Start

_DIED: Final = -signal.SIGKILL


def start_in_spare(settings: Settings, otherwise: Start) -> Start:
    """How a job's process is started where one may be there already; `otherwise` where none is."""

    async def start(claim: JobClaim) -> JobProcessHandle:
        try:
            pid = int((settings.state / PID).read_text("ascii"))
            connection = await asyncio.to_thread(_hand_over, settings.state / SOCKET, claim)
        except (OSError, ValueError):
            return await otherwise(claim)
        return SpareProcess(pid, connection)

    return start


class SpareProcess:
    """One that was given a job. Not our child: it says its exit code, and its silence is its death."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._pid = pid
        self._ending = asyncio.create_task(self._end_of(connection))

    @property
    def returncode(self) -> int | None:
        return self._ending.result() if self._ending.done() else None

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ending.done():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    async def _end_of(self, connection: socket.socket) -> int:
        with connection:
            connection.setblocking(False)
            try:
                code = await asyncio.get_running_loop().sock_recv(connection, 1)
            except ConnectionError:
                return _DIED
        return code[0] if code else _DIED


def _hand_over(path: Path, claim: JobClaim) -> socket.socket:
    """Give the job away, with our own output to write to. Nobody else is given one after that."""
    with reached(path) as connection:
        path.unlink(missing_ok=True)
        words = json.dumps([claim.job, claim.epoch, claim.owner]).encode()
        socket.send_fds(connection, [words], [sys.stdout.fileno(), sys.stderr.fileno()])
        return connection.dup()
