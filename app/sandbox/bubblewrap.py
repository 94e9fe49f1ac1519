"""The default sandbox on Linux: a bubblewrap around every command, over directories of this machine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.errors import SandboxError
from app.sandbox.base import (
    FILLED,
    HOME,
    LISTING,
    WORKSPACE,
    Check,
    Completed,
    OnOutput,
    Sandbox,
    Spec,
)
from app.sandbox.box import Box
from app.sandbox.cgroup import sweep
from app.sandbox.machine import Survey, survey
from app.sandbox.profile import Mount
from app.sandbox.workplace import Workplace


class BubblewrapSandbox:
    """A job's sandbox. Its state is on disk only, so one that was lost is had again by opening its key."""

    isolated = True

    def __init__(self, place: Workplace, box: Box) -> None:
        self._place = place
        self._box = box

    @property
    def key(self) -> str:
        return self._place.key

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 120.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        separate_stderr: bool = False,
        on_output: OnOutput | None = None,
    ) -> Completed:
        return await self._box.exec(
            argv,
            timeout=timeout,
            stdin=stdin,
            env=env,
            cwd=cwd,
            separate_stderr=separate_stderr,
            on_output=on_output,
        )

    async def close(self) -> None:
        await self._box.close()

    async def destroy(self) -> None:
        await self.close()
        await asyncio.to_thread(self._place.remove)


class BubblewrapProvider:
    """Sandboxes below `root`, one directory a key.

    `caches` keeps what jobs share. `environment` is the host's, for finding toolchains (PATH, HOME and the version
    managers' own variables); nothing of it enters a sandbox.
    """

    name = "bubblewrap"

    def __init__(self, root: Path, *, caches: Path, environment: Mapping[str, str] | None = None) -> None:
        self._root = root.resolve()
        self._caches = caches.resolve()
        self._environment = dict(environment or {})
        self._surveyed: asyncio.Future[Survey] | None = None

    async def check(self) -> tuple[Check, ...]:
        raise NotImplementedError

    async def open(self, spec: Spec, *, on_output: OnOutput | None = None) -> Sandbox:
        machine = (await self.survey()).machine
        place = Workplace(self._root, spec.key, machine.owner)
        await asyncio.to_thread(place.prepare, spec.fill)
        sandbox = BubblewrapSandbox(place, Box(machine, lambda: _mounts(place), spec.limits, {}))
        try:
            await self._list(place, sandbox)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _list(self, place: Workplace, sandbox: Sandbox) -> None:
        if place.filled.exists():
            return
        listing = bytearray()
        listed = await sandbox.exec(LISTING, on_output=listing.extend)
        if not listed.ok:
            raise SandboxError(f"The new work tree could not be listed: {listed.output.decode(errors='replace')}")
        await asyncio.to_thread(place.mark, bytes(listing))

    async def survey(self) -> Survey:
        """What this machine offers; made once."""
        if self._surveyed is None:
            self._surveyed = asyncio.ensure_future(asyncio.to_thread(self._survey))
        return await asyncio.shield(self._surveyed)

    def _survey(self) -> Survey:
        sweep()
        return survey(self._caches, self._environment, (self._root, self._caches))


def _mounts(place: Workplace) -> list[Mount]:
    mounts = [
        Mount(place.tree, WORKSPACE, writable=True),
        Mount(place.directory / "home", HOME, writable=True),
        Mount(place.directory / "tmp", "/tmp", writable=True),  # noqa: S108 - a path inside the sandbox
    ]
    if place.filled.exists():
        mounts.append(Mount(place.filled, FILLED))
    return mounts
