"""Stores a job's progress, so that `jobs logs -f` can follow it from another terminal."""

from typing import cast, get_args

from app.core.failpoints import failpoint
from app.core.job import FINAL, JobState, Progress, ProgressKind
from app.jobs.store import JobStore

STATES: frozenset[str] = frozenset(get_args(JobState)) - FINAL
"""What a job that is worked on says of itself; how it ended is decided elsewhere."""
STREAMED: frozenset[ProgressKind] = frozenset({"text", "output", "started", "finished"})


class StoredProgress:
    """Passes progress on to another Progress and stores it in the job's log, without fragments.

    A reported state becomes the job's state.
    """

    def __init__(self, store: JobStore, job_id: str, watcher: Progress) -> None:
        self._store = store
        self._job = job_id
        self._watcher = watcher

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind not in STREAMED:
            self._store.add_progress(self._job, kind, text)
        if kind == "state" and text in STATES:
            self._store.enter(self._job, cast("JobState", text))
        self._watcher.report(kind, text)
        failpoint(f"said.{kind}")
