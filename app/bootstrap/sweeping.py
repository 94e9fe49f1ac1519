"""What jobs leave behind on this machine when they end in the middle: sandboxes, and removals that were cut short."""

import logging
from collections.abc import Callable
from pathlib import Path

from app.jobs.store import JobRow, JobStore
from app.sandbox.workplace import remove_tree
from app.scratch import sweep_scratch

logger = logging.getLogger(__name__)


def left_alone(row: JobRow) -> bool:
    """Nobody works on it, not even a process of ours."""
    return row.living_owner is None


def sweep(state: Path, store: JobStore, may_go: Callable[[JobRow], bool] = left_alone) -> int:
    """Remove scratch of the dead, and the sandboxes of jobs that have ended and that `may_go`; returns how many of
    these. Blocking."""
    sweep_scratch()
    swept = 0
    for left in (state / "sandboxes").glob("*"):
        row = store.get(left.name.partition(".")[0])
        if left.name.startswith(".gone-") or (row is not None and row.final and may_go(row)):
            try:
                remove_tree(left)
            except OSError as error:  # the next sweep comes by again
                logger.warning("the sandbox %s cannot be removed: %s", left.name, error.strerror)
                continue
            swept += 1
    return swept
