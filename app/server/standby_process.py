"""The spare process itself: imports, waits for a job, and works on it; exits if none comes."""

import json
import os
import signal
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from app.config.settings import read_settings
from app.core import failpoints, log
from app.core.errors import ExitCode
from app.core.redaction import Redactor
from app.jobs.queue import JobClaim
from app.server.job_process import run_claimed_job
from app.server.shutdown import end_process
from app.server.standby import READY, SOCKET, peer
from app.server.wiring.preload import preload

WAITING = 900.0
"""Seconds until nobody comes any more: what brings the job has its own, shorter patience."""
_HEARING = 30.0
"""Seconds in which whoever came says what brings it: the words follow at once, or it is nobody with a job."""
_LONGEST = 4_096


def main() -> None:
    """`python -I -m app.server.standby_process`, with the socket at which it is reached as its standard input."""
    settings = read_settings()
    log.configure(form=settings.log, redactor=Redactor(settings.secrets))
    failpoints.arm(settings.failpoint)
    try:
        preload(settings)
    finally:
        (settings.state / READY).touch()
    listener = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    given = wait_for_job(listener)
    (settings.state / SOCKET).unlink(missing_ok=True)
    if given is None:
        return
    connection, claim = given
    leaving = threading.Event()
    threading.Thread(target=_die_with, args=(connection, leaving), daemon=True).start()
    run_claimed_job(settings, claim, partial(_leave, connection, leaving))


def wait_for_job(listener: socket.socket, hearing: float = _HEARING) -> tuple[socket.socket, JobClaim] | None:
    """Wait for the first connection, which brings the job or the news that there is none."""
    with listener:
        listener.settimeout(WAITING)
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return None
    connection.settimeout(hearing)
    try:
        words, streams, _, _ = socket.recv_fds(connection, _LONGEST, 2)
    except TimeoutError:
        return None
    connection.settimeout(None)
    if not words:
        return None
    for number, stream in zip((1, 2), streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    job, epoch, owner = json.loads(words)
    if f":{peer(connection)}:" not in owner:
        return None
    return connection, JobClaim(job, epoch, owner, resumed=epoch > 1)


def _die_with(connection: socket.socket, leaving: threading.Event) -> None:
    """Die at once if the worker's connection closes, as a child would, unless this process is exiting by itself."""
    with suppress(OSError):
        connection.recv(1)
    if not leaving.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


def _leave(connection: socket.socket, leaving: threading.Event, code: int) -> NoReturn:
    leaving.set()  # who hears the code hangs up, and that ends nothing any more
    with suppress(OSError):
        connection.send(bytes([code if 0 <= code < 256 else ExitCode.INTERNAL]))
    end_process(code)


if __name__ == "__main__":
    main()
