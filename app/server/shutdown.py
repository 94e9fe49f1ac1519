"""Ends a process at once, with its output flushed and its child processes killed."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from app.core.errors import ExitCode
from app.server.terminal import TerminalProgress

CANCELLED = "cancelled with `agent-fix jobs cancel`"


class InterruptHandler:
    """Handles Ctrl-C and SIGTERM: prints how to continue and exits. `job` is set once it is known.

    Where `instead` is set, only that event is set, once: the job is done but for what may be left out.
    """

    def __init__(self, terminal: TerminalProgress) -> None:
        self.job = ""
        self.instead: asyncio.Event | None = None
        self._terminal = terminal

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._leave)

    def _leave(self) -> None:
        if self.instead is not None and not self.instead.is_set():
            self.instead.set()
            return
        text = "interrupted; run the same command to continue"
        if self.job:
            text += f" with job {self.job}, or end it with `agent-fix jobs cancel {self.job}`"
        self._terminal.finish()
        self._terminal.report("warning", text)
        end_process(ExitCode.INTERRUPTED)


def end_process(code: int) -> NoReturn:
    """Exit without cleaning up: unfinished work does not complete, so nothing false is stored."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the reader of our output is gone
            stream.flush()
    try:
        _end_commands()
    finally:
        os._exit(code)


def _end_commands() -> None:
    """Kill running commands, which have sessions of their own. Sandboxed ones die with us anyway."""
    for thread in Path("/proc/self/task").glob("*/children"):
        children = ""
        with suppress(OSError):  # the thread has ended since it was listed
            children = thread.read_text()
        for child in map(int, children.split()):
            with suppress(OSError):  # it has ended by itself
                if os.getsid(child) == child:
                    os.killpg(child, signal.SIGKILL)
