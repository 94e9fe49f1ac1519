"""Small real projects in memory, opened in a real sandbox: what the proof engine is tried on."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from app.core.patch import LINK, FileChange, Mode, Patch
from app.sandbox.base import CompletedCommand, Sandbox, SandboxCommand, SandboxProvider, SandboxSpec, SetupPlan
from app.sandbox.setup.package_clients import asked_once
from app.sandbox.setup.plan import plan_setup
from app.sandbox.workspaces import set_times
from app.verify.overlay import Overlay
from tests.support.memory_tree import MemoryTree
from tests.support.wrapped_sandbox import WrappedSandbox

_PACKAGES = Path(str(pytest.__file__)).parents[1]
_PYTEST = ("_pytest", "iniconfig", "packaging", "pluggy", "py.py", "pygments", "pytest")
NO_SETUP = SetupPlan()
WITH_PYTEST = SetupPlan(
    commands=(
        f"{sys.base_prefix}/bin/python3 -I -m venv --without-pip /env",
        f"cd {_PACKAGES} && cp -rp {' '.join(_PYTEST)} {{pytest,pluggy}}-*.dist-info /env/lib/python3.*/site-packages/",
    ),
    key=f"pytest {pytest.__version__} of {sys.base_prefix}",
    readable=(str(_PACKAGES),),
)
"""The pytest of this test's own environment, without its plugins."""
_GO_PACKAGES = "fmt os path/filepath runtime strings syscall testing testing/internal/testdeps"
WITH_GO = SetupPlan(commands=(f"GOCACHE=/env/go/cache go build {_GO_PACKAGES}",), key=f"go {_GO_PACKAGES}")
"""The compiled packages of Go that small projects need."""

_PYTHON = Path(sys.base_prefix).resolve() / "bin" / "python3"
_CLIENTS = asked_once(dict(os.environ), _PYTHON)


async def npm_setup(package: str) -> SetupPlan:
    """What installs the dependencies of this `package.json`."""
    tree = MemoryTree({"package.json": package.encode()})
    return await plan_setup(tree, commands=None, extra_hosts=(), clients=_CLIENTS, python=_PYTHON)


@cache
def missing_npm_package(name: str) -> str:
    """Why npm cannot install a package here; empty if it can."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    asked = subprocess.run(["npm", "view", "--fetch-retries=0", name, "version"], capture_output=True, check=False)
    return "" if asked.returncode == 0 else f"npm's registry does not answer for {name}"


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

    def __init__(
        self, provider: SandboxProvider, tree: MemoryTree, *, with_pytest: bool = False, setup: SetupPlan = NO_SETUP
    ) -> None:
        self._provider = provider
        self._tree = tree
        self._setup = WITH_PYTEST if with_pytest else setup
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
            for path, entry in after.entries().items():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if entry.mode == LINK:
                    file.symlink_to(after.read(path).decode())
                else:
                    file.write_bytes(after.read(path))
            (directory / ".opened").write_text(name)
            changed = {change.path for change in (patch.changes if patch else ())}
            set_times(directory, changed, int(time.time()))

        spec = SandboxSpec(key=f"test-{name}-{len(self.opened)}", fill=fill, setup=self._setup)
        sandbox = await self._provider.open(spec)
        self.alive.add(name)
        return _Watched(sandbox, name, self)


class _Watched(WrappedSandbox):
    """A sandbox that tells when it is used and when it was destroyed."""

    def __init__(self, sandbox: Sandbox, name: str, workspaces: ProjectWorkspaces) -> None:
        super().__init__(sandbox)
        self._name = name
        self._workspaces = workspaces

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        self._workspaces.executing.set()
        return await super().execute(command)

    async def destroy(self) -> None:
        await super().destroy()
        self._workspaces.alive.discard(self._name)
