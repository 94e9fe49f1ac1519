"""Stores a job's progress, so that `jobs logs -f` can follow it from another terminal."""

from time import monotonic
from typing import cast, get_args

from app.core.failpoints import failpoint
from app.core.job import FINAL, STREAMED, JobState, Progress, ProgressKind
from app.jobs.store import JobStore

STATES: frozenset[str] = frozenset(get_args(JobState)) - FINAL
"""What a job that is worked on says of itself; how it ended is decided elsewhere."""

PART_SECONDS = 0.5
MAX_PART = 4_000
"""A model's text is stored in parts: one for so many seconds, or of so many characters."""


class StoredProgress:
    """Passes progress on to another Progress and stores it in the job's log, without fragments.

    A reported state becomes the job's state. With `streams`, what a model writes is stored too, in parts.
    """

    def __init__(self, store: JobStore, job_id: str, watcher: Progress, *, streams: bool = False) -> None:
        self._store = store
        self._job = job_id
        self._watcher = watcher
        self._streams = streams
        self._text = ""
        self._stored_at = 0.0

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind == "text" and self._streams:
            self._add_text(text)
        elif kind not in STREAMED:
            self._store_text()
            self._store.add_progress(self._job, kind, text)
        if kind == "state" and text in STATES:
            self._store.enter(self._job, cast("JobState", text))
        self._watcher.report(kind, text)
        failpoint(f"said.{kind}")

    def _add_text(self, text: str) -> None:
        self._text += text
        if monotonic() - self._stored_at >= PART_SECONDS or len(self._text) >= MAX_PART:
            self._store_text()

    def _store_text(self) -> None:
        if self._text:
            self._store.add_progress(self._job, "text", self._text)
        self._text, self._stored_at = "", monotonic()
