"""The work tree of a LocalSandbox as a patch against the files it began with."""

from collections.abc import Mapping

from app.core.patch import FileChange, Patch, RefusedFile
from tests.support.local_sandbox import LocalSandbox


class LocalTree:
    """Plain files only. `exports` counts what was done; `refusals` are found at each export."""

    def __init__(self, sandbox: LocalSandbox, base: Mapping[str, bytes], commit: str = "0" * 40) -> None:
        self._root = sandbox.workspace
        self._base = dict(base)
        self._commit = commit
        self.refusals: tuple[RefusedFile, ...] = ()
        self.exports = 0

    async def export(self) -> Patch:
        self.exports += 1
        now = self._read()
        changed = {path: content for path, content in now.items() if self._base.get(path) != content}
        deleted: dict[str, bytes | None] = dict.fromkeys(self._base.keys() - now.keys())
        changes = [
            FileChange(path=path, mode="100644", content=content)
            for path, content in sorted({**changed, **deleted}.items())
        ]
        return Patch(base=self._commit, changes=tuple(changes), refusals=self.refusals)

    async def restore(self, patch: Patch) -> None:
        wanted = self._base | {change.path: change.content for change in patch.changes}
        for path in self._read().keys() - wanted.keys():
            (self._root / path).unlink()
        for path, content in wanted.items():
            target = self._root / path
            if content is None:
                target.unlink(missing_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)

    def _read(self) -> dict[str, bytes]:
        files = (path for path in self._root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self._root)): path.read_bytes() for path in files}
