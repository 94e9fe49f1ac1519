"""Gives a job to the spare process, which the worker then treats as the job's process."""

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
    """Start jobs in the spare process if there is one; otherwise as in `otherwise`."""

    async def start(claim: JobClaim) -> JobProcessHandle:
        try:
            pid = int((settings.state / PID).read_text("ascii"))
            connection = await asyncio.to_thread(_hand_over, settings.state / SOCKET, claim)
        except (OSError, ValueError):
            return await otherwise(claim)
        return SpareProcess(pid, connection)

    return start


class SpareProcess:
    """A spare that was given a job.

    It is not our child: it sends its exit code, and a closed connection means that it died.
    """

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
    """Give the job to the spare, with our own output to write to. It accepts only one job."""
    with reached(path) as connection:
        path.unlink(missing_ok=True)
        words = json.dumps([claim.job, claim.epoch, claim.owner]).encode()
        socket.send_fds(connection, [words], [sys.stdout.fileno(), sys.stderr.fileno()])
        return connection.dup()
