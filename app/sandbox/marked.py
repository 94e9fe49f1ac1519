"""Processes found again by a word in their environment: how the commands of `--sandbox none` are ended for good."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
SWEEPS = 40
DOUBTS = 8
"""How often processes are looked at again whose environment is not there yet, because they are becoming a program."""
PAUSE_SECONDS = 0.002


def end_marked(word: bytes) -> None:
    """Kill every process of this user with the word in its environment, also what those start meanwhile. Blocking."""
    if sys.platform != "linux":
        return
    doubts = 0
    for _ in range(SWEEPS):
        killed, unclear = _sweep(word)
        if not killed:
            doubts += 1
        if not killed and (not unclear or doubts > DOUBTS):
            return
        time.sleep(PAUSE_SECONDS)


def _sweep(word: bytes) -> tuple[int, int]:
    """How many were killed, and of how many nothing could be said."""
    killed = unclear = 0
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is somebody else's
            environment = (entry / "environ").read_bytes()
            if word in environment:
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
            elif not environment and entry.stat().st_uid == os.geteuid() and (entry / "exe").readlink():
                unclear += 1
    return killed, unclear
