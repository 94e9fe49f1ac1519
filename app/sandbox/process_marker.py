"""Finds processes by one of their variables, to end the commands of sandboxes without namespaces."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
SWEEPS = 40
MAX_RECHECKS = 8
"""How often processes without an environment are checked again, because they are just starting a program."""
PAUSE_SECONDS = 0.002
LISTED = ("/bin/ps", "-axwwE", "-o", "pid=,command=")
"""On a Mac: each process with its command and environment, except those of Apple's own programs."""


def end_marked(variable: str, value: str) -> None:
    """Kill every process of this user with the variable in its environment, and what those start meanwhile. Blocking.

    macOS hides the environment of Apple's own programs, so they are missed there.
    """
    if sys.platform == "linux":
        _end_by_environment(os.fsencode(f"{variable}={value}"))
    elif sys.platform == "darwin":
        _end_listed(variable, value)


def _end_by_environment(word: bytes) -> None:
    doubts = 0
    for _ in range(SWEEPS):
        killed, unclear = _sweep(word)
        if not killed:
            doubts += 1
        if not killed and (not unclear or doubts > MAX_RECHECKS):
            return
        time.sleep(PAUSE_SECONDS)


def _sweep(word: bytes) -> tuple[int, int]:
    """How many were killed, and for how many nothing could be determined."""
    killed = unclear = 0
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is another user's
            environment = (entry / "environ").read_bytes()
            if word in environment.split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
            elif not environment and entry.stat().st_uid == os.geteuid() and (entry / "exe").readlink():
                unclear += 1
    return killed, unclear


def _end_listed(variable: str, value: str) -> None:
    for _ in range(SWEEPS):
        listed = subprocess.run(LISTED, env={}, capture_output=True, text=True, errors="replace", check=False)
        found = [number for number in marked_in(listed.stdout, variable, value) if number != os.getpid()]
        for number in found:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return
        time.sleep(PAUSE_SECONDS)


def marked_in(listing: str, variable: str, value: str) -> list[int]:
    """The processes of a listing, a number and a line of words each, that have the variable among their words."""
    word = re.compile(rf"(?<!\S){re.escape(variable)}={re.escape(value)}(?!\S)")
    lines = (line.split(None, 1) for line in listing.splitlines())
    return [int(words[0]) for words in lines if len(words) == 2 and words[0].isdigit() and word.search(words[1])]
