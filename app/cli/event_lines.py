"""Writes a job's progress as lines of JSON, for the program that started it (`app.cli.embedding`)."""

import json
import os
import sys

from app.core.job import ProgressKind
from app.server.terminal import TerminalProgress


class EventLines(TerminalProgress):
    """Reports to a file descriptor instead of the terminal. A reader that has gone is no error."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(sys.stderr, colours=False)
        self._events = os.fdopen(descriptor, "w", encoding="utf-8")

    def report(self, kind: ProgressKind, text: str) -> None:
        with self._lock:
            try:
                self._events.write(json.dumps({"kind": kind, "text": text}) + "\n")
                self._events.flush()
            except BrokenPipeError:
                self.closed = True
