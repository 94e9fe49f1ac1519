"""Small real projects in memory, opened in a real sandbox: what the proof engine is tried on."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.patch import FileChange, Mode, Patch
from app.sandbox.base import Completed, Sandbox, SandboxProvider, Setup, Spec
from app.sandbox.command import Command
from app.verify.overlay import Overlay
from tests.fakes.around import Around
from tests.fakes.memory_tree import MemoryTree

DEPENDENCIES = ".dependencies"
_PYTEST = ("_pytest", "iniconfig", "packaging", "pluggy", "pygments", "pytest")


def patch_of(changes: Mapping[str, str | bytes | None], modes: Mapping[str, Mode] | None = None) -> Patch:
    """A patch from new contents by path; None deletes."""
    return Patch(
        base="0" * 40,
        changes=tuple(
            FileChange(
                path=path,
                mode=(modes or {}).get(path, "100644"),
                content=content.encode() if isinstance(content, str) else content,
            )
            for path, content in sorted(changes.items())
        ),
    )


class ProjectWorkspaces:
    """Fresh sandboxes of a tree in memory, each with its own name in the file `.opened`.

    `opened` and `alive` tell what was asked for and what is still there, `executing` that a command was started.
    """

    def __init__(self, provider: SandboxProvider, tree: MemoryTree, *, with_pytest: bool = False) -> None:
        self._provider = provider
        self._tree = tree
        self._with_pytest = with_pytest
        self.opened: list[str] = []
        self.alive: set[str] = set()
        self.executing = asyncio.Event()

    @property
    def provider(self) -> str:
        return self._provider.name

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        self.opened.append(name)
        after = Overlay(self._tree, patch or Patch(base=self._tree.commit))

        def fill(directory: Path) -> None:
            for path in after.entries():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(after.read(path))
            (directory / ".opened").write_text(name)
            if self._with_pytest:
                _copy_pytest(directory / DEPENDENCIES)

        environment = (("PYTHONPATH", f"/workspace/{DEPENDENCIES}"), ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"))
        spec = Spec(
            key=f"test-{name}-{len(self.opened)}",
            fill=fill,
            setup=Setup(environment=environment if self._with_pytest else ()),
        )
        sandbox = await self._provider.open(spec)
        self.alive.add(name)
        return _Watched(sandbox, name, self)


def _copy_pytest(directory: Path) -> None:
    """The pytest of this test's own environment, without the many lexers that it never asks for."""
    packages = Path(str(pytest.__file__)).parents[1]
    for name in _PYTEST:
        shutil.copytree(packages / name, directory / name, ignore=shutil.ignore_patterns("lexers"))
    (directory / "pygments" / "lexers").mkdir()
    for name in ("__init__.py", "_mapping.py", "python.py", "diff.py"):
        shutil.copy(packages / "pygments" / "lexers" / name, directory / "pygments" / "lexers" / name)


class _Watched(Around):
    """A sandbox that tells when it is used and when it was destroyed."""

    def __init__(self, sandbox: Sandbox, name: str, workspaces: ProjectWorkspaces) -> None:
        super().__init__(sandbox)
        self._name = name
        self._workspaces = workspaces

    async def execute(self, command: Command) -> Completed:
        self._workspaces.executing.set()
        return await super().execute(command)

    async def destroy(self) -> None:
        await super().destroy()
        self._workspaces.alive.discard(self._name)
