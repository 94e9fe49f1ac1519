"""Progress that is kept, so that `jobs logs -f` can follow a job from another terminal."""

from app.job import Progress, ProgressKind
from app.jobs.store import JobStore

STREAMED: frozenset[ProgressKind] = frozenset({"text", "output"})


class KeptProgress:
    """Says everything twice: to the log of the job, fragments left out, and to whoever watches now."""

    def __init__(self, store: JobStore, job_id: str, watcher: Progress) -> None:
        self._store = store
        self._job = job_id
        self._watcher = watcher

    def say(self, kind: ProgressKind, text: str) -> None:
        if kind not in STREAMED:
            self._store.say(self._job, kind, text)
        self._watcher.say(kind, text)
