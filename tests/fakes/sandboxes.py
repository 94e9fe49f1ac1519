"""Real sandboxes over trees in memory, for tests of what happens inside them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from app.sandbox.base import Sandbox, SandboxProvider, Spec


def filler(files: Mapping[str, bytes], modes: Mapping[str, str] | None = None) -> Callable[[Path], None]:
    """A `fill` that writes these files; a mode 120000 makes a link to its content."""

    def fill(directory: Path) -> None:
        for path, content in files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = (modes or {}).get(path, "100644")
            if mode == "120000":
                target.symlink_to(content.decode())
                continue
            target.write_bytes(content)
            target.chmod(int(mode[-3:], 8))

    return fill


@asynccontextmanager
async def opened(provider: SandboxProvider, spec: Spec) -> AsyncIterator[Sandbox]:
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
