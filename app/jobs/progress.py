"""Progress that is kept, so that `jobs logs -f` can follow a job from another terminal."""

from typing import cast, get_args

from app.core.failpoints import failpoint
from app.core.job import FINAL, JobState, Progress, ProgressKind
from app.jobs.store import JobStore

STATES: frozenset[str] = frozenset(get_args(JobState)) - FINAL
"""What a job that is worked on says of itself; how it ended is decided elsewhere."""
STREAMED: frozenset[ProgressKind] = frozenset({"text", "output"})


class StoredProgress:
    """Says everything twice: to the log of the job, fragments left out, and to whoever watches now.

    A state that is said is the job's state from then on.
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
