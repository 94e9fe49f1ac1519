"""Shows a job's progress at the terminal: one labelled line per fact, streamed text dimmed."""

import shutil
import sys
import threading
from typing import TextIO

from app.core.job import ProgressKind
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


class TerminalProgress:
    """Prints progress to a stream. Safe from several threads; colours only on a terminal."""

    def __init__(self, stream: TextIO | None = None, *, colours: bool | None = None) -> None:
        self._stream = stream or sys.stderr
        self._colours = self._stream.isatty() if colours is None else colours
        self._lock = threading.Lock()
        self._in_text = False
        self.closed = False

    def report(self, kind: ProgressKind, text: str) -> None:
        fragment = kind in {"text", "output"}
        if fragment and not self._colours:  # they make sense only where somebody watches
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
            self._write("".join(f"{line}\n" for line in self._lines(kind, text)))

    def _lines(self, kind: ProgressKind, text: str) -> list[str]:
        """The label, then the text; text that a model wrote is cut to the terminal's width."""
        first, *rest = text.splitlines() or [""]
        if kind == "state":
            lines = [first, *rest]
        else:
            head = _LABEL[kind].ljust(WIDTH) + ("→ " if kind == "observation" else "")
            lines = [head + first, *(" " * WIDTH + line for line in rest)]
        if kind in _ONE_LINERS:
            width = shutil.get_terminal_size((120, 24)).columns
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
