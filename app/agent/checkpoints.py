"""Saves the work tree after each turn, so that a tree left half-changed by a crash can be restored."""

import asyncio
from typing import Protocol

from app.agent.step import Checkpoint, FileState
from app.core.job import Blobs
from app.core.patch import FileChange, Patch


class WorkTreePort(Protocol):
    """The agent's work tree, as a difference to its base."""

    async def export(self) -> Patch: ...

    async def restore(self, patch: Patch) -> None: ...


class Checkpoints:
    """Takes and restores checkpoints; file contents are stored among the job's blobs."""

    def __init__(self, tree: WorkTreePort, blobs: Blobs, base: str) -> None:
        self._tree = tree
        self._blobs = blobs
        self.clean = Checkpoint(base=base)

    async def take(self) -> Checkpoint:
        patch = await self._tree.export()
        files = await asyncio.to_thread(lambda: tuple(map(self._keep, patch.changes)))
        return Checkpoint(base=patch.base, files=files, refusals=patch.refusals)

    async def restore(self, checkpoint: Checkpoint) -> None:
        changes = await asyncio.to_thread(lambda: tuple(map(self._recall, checkpoint.files)))
        await self._tree.restore(Patch(base=checkpoint.base, changes=changes))

    def _keep(self, change: FileChange) -> FileState:
        digest = None if change.content is None else self._blobs.put(change.content)
        return FileState(path=change.path, mode=change.mode, digest=digest)

    def _recall(self, state: FileState) -> FileChange:
        content = None if state.digest is None else self._blobs.get(state.digest)
        return FileChange(path=state.path, mode=state.mode, content=content)
