"""Stores set-ups at E2B as snapshots: finds them by their inputs, and removes old ones.

A snapshot instead of a template of E2B's builder, because the builder runs its steps with open internet access, and a
repository's set-up is foreign code that may reach package hosts only.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import SetupPlan
from app.sandbox.e2b.cloud import TAG, E2BCloud

logger = logging.getLogger(__name__)
DAYS = 30
"""A set-up is made again after so many days, to get new versions of unpinned packages and to limit storage."""


class SetupSnapshots:
    """A snapshot's name at E2B contains our scope, its day and its digest; `directory` holds the ids made here.

    So workers with the same scope share set-ups, and a snapshot is found and removed even if its maker is gone.
    """

    def __init__(self, cloud: E2BCloud, directory: Path, now: Callable[[], float] = time.time) -> None:
        self._cloud = cloud
        self._directory = directory
        self._now = now
        self._prefix = f"{TAG}-{cloud.scope[:12]}-"

    def note_use(self) -> None:
        """Also shows that there is something to sweep."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def find(self, setups: Sequence[SetupPlan]) -> str:
        """The id of their result; empty if there is none or it is too old."""
        record = self._record(setups)
        with suppress(FileNotFoundError):
            return "" if self._old(self._made(record)) else record.read_text("utf-8")
        try:
            listed = await self._listed()
        except SandboxError as error:  # a set-up that is not found is made again
            logger.warning("stored set-ups cannot be listed: %s", error.message)
            return ""
        digest = self._digest(setups)
        found = [(day, name) for name, day, made_of in listed if made_of == digest and not self._old(day)]
        return max(found)[1] if found else ""

    async def keep(self, machine: AsyncSandbox, setups: Sequence[SetupPlan]) -> None:
        """Let the next job start from this machine; on failure the next one prepares again."""
        name = f"{self._prefix}{self._today():%Y%m%d}-{self._digest(setups)}"
        try:
            snapshot = await self._cloud.snapshot(machine, name)
        except SandboxError as error:
            logger.warning("the set-up is not stored for the next job: %s", error.message)
            return
        record = self._record(setups)
        partial = record.with_suffix(".partial")
        partial.write_text(snapshot, "utf-8")
        os.utime(partial, (self._now(), self._now()))
        partial.rename(record)

    def forget(self, setups: Sequence[SetupPlan]) -> None:
        self._record(setups).unlink(missing_ok=True)

    async def sweep(self) -> int:
        """Remove those that are too old, whoever of this scope made them; returns how many."""
        old = {name for name, day, _ in await self._listed() if self._old(day)}
        records = [record for record in self._directory.glob("*") if self._old(self._made(record))]
        old |= {record.read_text("utf-8") for record in records if not record.suffix}
        for name in sorted(old):
            await self._cloud.remove_snapshot(name)
        for record in records:
            record.unlink(missing_ok=True)
        return len(old)

    async def _listed(self) -> list[tuple[str, date, str]]:
        """Id, day and digest of all snapshots with our name."""
        found = []
        for snapshot in await self._cloud.snapshots():
            for name in snapshot.names:
                plain = name.rpartition("/")[2].partition(":")[0]
                day, _, digest = plain.removeprefix(self._prefix).partition("-")
                with suppress(ValueError):
                    if plain.startswith(self._prefix):
                        made = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date()
                        found.append((snapshot.snapshot_id, made, digest))
        return found

    def _digest(self, setups: Sequence[SetupPlan]) -> str:
        template = (f"template {self._cloud.template}",) if self._cloud.template else ()
        keys = "\n".join((*template, *(setup.key or repr(setup) for setup in setups)))
        return hashlib.sha256(keys.encode()).hexdigest()[:32]

    def _record(self, setups: Sequence[SetupPlan]) -> Path:
        return self._directory / self._digest(setups)

    def _made(self, record: Path) -> date:
        return datetime.fromtimestamp(record.stat().st_mtime, UTC).date()

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()

    def _old(self, made: date) -> bool:
        return self._today() - made > timedelta(days=DAYS)
