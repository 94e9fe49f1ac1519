"""Real sandboxes over trees in memory, for tests of what happens inside them."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from app.core.patch import Patch
from app.sandbox.base import Sandbox, SandboxProvider, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider


class Filler(Protocol):
    """A `fill`, with or without a patch."""

    def __call__(self, directory: Path, patch: Patch | None = None, /) -> None: ...


def filler(files: Mapping[str, bytes], modes: Mapping[str, str] | None = None) -> Filler:
    """A `fill` that writes these files; a mode 120000 makes a link to its content."""

    def fill(directory: Path, patch: Patch | None = None, /) -> None:
        changes = {change.path: change.content for change in patch.changes} if patch else {}
        for path, content in sorted({**files, **changes}.items()):
            if content is None:
                continue
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = (modes or {}).get(path, "100644")
            if mode == "120000":
                target.symlink_to(content.decode())
                continue
            target.write_bytes(content)
            target.chmod(int(mode[-3:], 8))

    return fill


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapProvider:
    """Its set-ups are made once in a test session, whichever process needs them first."""
    own = tmp_path_factory.getbasetemp()
    session = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return BubblewrapProvider(own / "sandboxes", caches=session / "caches", environment=environment)


@asynccontextmanager
async def opened(provider: SandboxProvider, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    sandbox = await provider.open(spec)
    try:
        yield sandbox
    finally:
        await sandbox.destroy()


async def shell(sandbox: Sandbox, script: str, *, timeout: float = 30.0) -> str:
    """The output of a script that must succeed."""
    done = await sandbox.exec(["/bin/bash", "-euo", "pipefail", "-c", script], timeout=timeout)
    assert done.ok, (script, done)
    return done.output.decode(errors="replace")
