"""Removes what interrupted jobs leave on this machine: sandboxes and unfinished removals."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from app.config.settings import Settings
from app.core.errors import SandboxError
from app.core.scratch import sweep_scratch
from app.jobs.store import JobRow, JobStore
from app.pipeline.wiring.sandboxes import make_containers, make_e2b
from app.sandbox.host_directories import remove_tree

logger = logging.getLogger(__name__)


def has_no_owner(row: JobRow) -> bool:
    """True if no process works on the job, not even one of ours."""
    return row.living_owner is None


def sweep(state: Path, store: JobStore, may_remove: Callable[[JobRow], bool] = has_no_owner) -> int:
    """Remove dead scratch directories, and the sandboxes of ended jobs that `may_remove`; returns the number of
    sandboxes. Blocking."""
    sweep_scratch()
    swept = 0
    for directory in (state / "sandboxes").glob("*"):
        row = store.get(directory.name.partition(".")[0])
        if directory.name.startswith(".gone-") or (row is not None and row.final and may_remove(row)):
            try:
                remove_tree(directory)
            except OSError as error:  # the next sweep tries again
                logger.warning("the sandbox %s cannot be removed: %s", directory.name, error.strerror)
                continue
            swept += 1
    return swept


def sweep_everywhere(settings: Settings, store: JobStore, may_remove: Callable[[JobRow], bool] = has_no_owner) -> int:
    """On this machine, in containers and in the cloud. Blocking; not for a thread with an event loop."""
    return sweep(settings.state, store, may_remove) + sum(
        sweep_provider(kind, settings, store, may_remove) for kind in ("e2b", "docker", "podman")
    )


def sweep_provider(
    kind: str, settings: Settings, store: JobStore, may_remove: Callable[[JobRow], bool] = has_no_owner
) -> int:
    """The same for E2B or a container engine, if this installation has used it; returns how many. Blocking."""
    if settings.sandbox != kind and not (settings.state / "caches" / kind).exists():
        return 0

    def ended(key: str) -> bool:
        row = store.get(key.partition(".")[0])
        return row is not None and row.final and may_remove(row)

    provider = make_e2b(settings) if kind == "e2b" else make_containers(kind, settings)
    try:
        return asyncio.run(provider.sweep(ended))
    except SandboxError as error:  # the next sweep tries again
        logger.warning("sandboxes of %s cannot be listed: %s", kind, error.message)
        return 0
