"""Starts, finds and dismisses a spare process, which imports everything before there is a job."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

SOCKET: Final = "spare.sock"
LOG: Final = "spare.log"
READY: Final = "spare.ready"
PID: Final = "spare.pid"
_PATIENCE = 5.0


def start_spare(state: Path, environment: Mapping[str, str]) -> int:
    """Start a spare that outlives this process; returns its pid. It exits by itself if no job comes."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = (sys.executable, "-I", "-m", "app.server.standby_process")
    own = {**environment, "AGENT_FIX_STATE_DIR": str(state)}
    with _listening(state / SOCKET) as listener, (state / LOG).open("wb") as log:
        started = subprocess.Popen(
            words, env=own, cwd="/", stdin=listener.fileno(), stdout=log, stderr=log, start_new_session=True
        )
    (state / PID).write_text(str(started.pid), "ascii")
    started.returncode = 0  # nobody here waits for it
    return started.pid


def dismiss_spare(state: Path) -> None:
    """Tell a waiting spare that there is no job, so that it exits."""
    with suppress(OSError), reached(state / SOCKET):
        pass  # connecting without a job is the message


async def spare_is_ready(state: Path, patience: float = 120.0) -> bool:
    """Wait until it has imported everything, and so writes no compiled files any more. False if there is none."""
    until = monotonic() + patience
    while not (state / READY).exists():
        if not (state / SOCKET).exists() or monotonic() > until:
            return False
        await asyncio.sleep(0.05)
    return True


def peer(connection: socket.socket) -> int:
    """The id of the process that connected, as the kernel says. (Of the other it would tell who began to listen.)"""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


@contextmanager
def reached(path: Path) -> Iterator[socket.socket]:
    """Connect to the process that listens there. Raises OSError if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short(path) as short:
        connection.settimeout(_PATIENCE)
        connection.connect(short)
        yield connection


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Listen in the state directory, which only its owner can access."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, _short(path) as short:
        listener.bind(short)
        listener.listen(4)
        yield listener


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A short name for a socket whose path may be too long."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
