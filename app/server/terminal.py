"""Shows a job's progress at the terminal, one labelled line per fact, and ends its process when it is interrupted."""

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import indent
from typing import NoReturn, TextIO

from app.config.settings import process_environment
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Job, ProgressKind
from app.core.model_usage import Totals
from app.core.text import plain

_LABEL: dict[ProgressKind, str] = {
    "state": "",
    "plan": "plan",
    "step": "step",
    "command": "",
    "observation": "",
    "verification": "verify",
    "note": "note",
    "warning": "warning",
    "cost": "cost",
}
_COLOUR: dict[ProgressKind, str] = {
    "state": "1",
    "plan": "36",
    "step": "1",
    "observation": "2",
    "text": "2",
    "output": "2",
    "verification": "32",
    "warning": "33",
    "cost": "2",
}
WIDTH = 9
_ONE_LINERS: frozenset[ProgressKind] = frozenset({"command", "observation"})


def print_error(error: AgentFixError) -> ExitCode:
    """Print one line and, below it, what to do about it; returns the exit code."""
    print(f"agent-fix: {plain(error.message)}", file=sys.stderr)
    if error.hint:
        print(indent(plain(error.hint), " " * 11), file=sys.stderr)
    return error.code


def is_screen(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """True for a terminal that can move its cursor."""
    return stream.isatty() and environment.get("TERM", "") not in ("", "dumb")


def may_colour(environment: Mapping[str, str]) -> bool:
    """False if the user wants no colours (https://no-color.org)."""
    return not environment.get("NO_COLOR")


class TerminalProgress:
    """Prints progress to a stream. Safe from several threads; colours only on a terminal."""

    def __init__(self, stream: TextIO | None = None, *, colours: bool | None = None) -> None:
        self._stream = stream or sys.stderr
        environment = process_environment()
        wanted = is_screen(self._stream, environment) and may_colour(environment)
        self._colours = wanted if colours is None else colours
        self._lock = threading.Lock()
        self._in_text = False
        self.closed = False
        self.stamp = ""
        """Printed in front of each line, such as the time of a stored one."""

    def report(self, kind: ProgressKind, text: str) -> None:
        fragment = kind in {"text", "output"}
        if kind in {"started", "finished"} or (fragment and not self._colours):  # for those who watch
            return
        text = plain(text)  # text from models, commands and repositories must not control this terminal
        if not text:
            return
        with self._lock:
            if fragment:
                self._write(self._paint(kind, text))
                self._in_text = not text.endswith("\n")
                return
            if self._in_text:
                self._write("\n")
                self._in_text = False
            self._write("".join(f"{self.stamp}{line}\n" for line in self._lines(kind, text)))

    def watch(self, job: Job, totals: Callable[[], Totals]) -> None:
        """The job is known; `totals` reads what its model calls have cost so far."""

    def show(self, text: str, style: str = "") -> None:
        """Print one line as it is; `style` is an SGR code such as `1;32`."""
        text = plain(text)
        with self._lock:
            self._write(f"\x1b[{style}m{text}\x1b[0m\n" if style and self._colours else f"{text}\n")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked something, only the question is on the screen."""
        yield

    def finish(self) -> None:
        """Leave the terminal as other programs expect it."""

    def _lines(self, kind: ProgressKind, text: str) -> list[str]:
        """The label, then the text; text that a model wrote is cut to the terminal's width."""
        first, *rest = text.splitlines() or [""]
        if kind == "state":
            lines = [first, *rest]
        else:
            head = _LABEL[kind].ljust(WIDTH) + ("→ " if kind == "observation" else "")
            lines = [head + first, *(" " * WIDTH + line for line in rest)]
        if kind in _ONE_LINERS:
            width = shutil.get_terminal_size((120, 24)).columns - len(self.stamp)
            lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
        return [self._paint(kind, line.rstrip()) for line in lines]

    def _paint(self, kind: ProgressKind, text: str) -> str:
        colour = _COLOUR.get(kind)
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour else text

    def _write(self, text: str) -> None:
        """Ignore a closed reader (`| head`, a lost terminal): it must not end a job, and `jobs logs` has it all."""
        if self.closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self.closed = True


CANCELLED = "cancelled with `agent-fix jobs cancel`"


class InterruptHandler:
    """Handles Ctrl-C and SIGTERM: prints how to continue and exits. `job` is set once it is known.

    If `instead` is set, only that event is set, once: the job is done but for what may be left out.
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
