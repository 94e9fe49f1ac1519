"""`--sandbox none`: the same contract with no isolation at all, for who asked for that in so many words.

Paths are mapped, not isolated: where an argument, a variable or `cwd` begins with /workspace, /env, /tmp, /home/agent
or /run/filled, or has one of these after a space, quote, `=` or `:`, the job's own directory on the host is put in
its place. A program that makes up such a path by itself sees the host's.
"""

import asyncio
import os
import re
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import SandboxError
from app.sandbox.base import ENV, FILLED, HOME, WORKSPACE, Check, Completed, OnOutput, Sandbox, Setup, Spec
from app.sandbox.child import Child, Order
from app.sandbox.command import CANNOT_EXECUTE, Command, Executor, cannot_execute
from app.sandbox.fresh import note_fresh
from app.sandbox.layer_build import COMMAND_SECONDS, carry_out, read_left_out, write_left_out
from app.sandbox.marked import end_marked
from app.sandbox.profile import SYSTEM_PATH
from app.sandbox.setup import WORK_ENVIRONMENT
from app.sandbox.workplace import Workplace

MARK = "AGENT_FIX_COMMAND"
"""A variable by which everything that a command started is found again, also in a session of its own."""
NOT_FOUND = 127
SET_UP = "env.done"
"""Beside the tree when its set-up is done: what of it failed, usually nothing."""


CONTRACT = (WORKSPACE, ENV, HOME, "/tmp", FILLED)  # noqa: S108 - paths as the contract knows them
INSIDE = re.compile(rf"(^|[\s'\"=:(<>|&;])({'|'.join(map(re.escape, CONTRACT))})(?=$|[^\w.-])")


class Unsandboxed(Executor):
    """One job's directories on the host; each command runs as the caller, with a cleared environment."""

    isolated = False

    def __init__(self, place: Workplace, spec: Spec, path: str) -> None:
        self._place = place
        self._spec = spec
        self._running: set[Child] = set()
        self._closed = False
        directory = place.directory
        hosts = (place.tree, directory / "env", directory / "home", directory / "tmp", place.filled)
        self._map = dict(zip(CONTRACT, hosts, strict=True))
        self._environment = {
            "PATH": f"{directory / 'env' / 'bin'}:{path}",
            "HOME": str(directory / "home"),
            "TMPDIR": str(directory / "tmp"),
            "LANG": "C.UTF-8",
            **{name: self.mapped(value) for name, value in (spec.setup.environment if spec.setup else ())},
        }

    @property
    def key(self) -> str:
        return self._place.key

    @property
    def left_out(self) -> tuple[str, ...]:
        return read_left_out(self._place.directory / SET_UP)

    def mapped(self, text: str) -> str:
        """The text with the contract's paths replaced by the host's."""
        return INSIDE.sub(lambda found: f"{found[1]}{self._map[found[2]]}", text)

    async def execute(self, command: Command) -> Completed:
        return await self.unrestrained(command.beneath(dict(WORK_ENVIRONMENT)))

    async def unrestrained(self, command: Command) -> Completed:
        """As `execute`, without the variables that keep package clients offline."""
        if self._closed:
            raise SandboxError("The sandbox is closed.")
        if command.unusable:
            return cannot_execute(command.unusable)
        mark = secrets.token_hex(16)
        mapped = {name: self.mapped(value) for name, value in command.env.items()}
        order = Order(
            command,
            argv=[self.mapped(part) for part in command.argv],
            env={**self._environment, **mapped, MARK: mark},
            cwd=Path(self.mapped(command.cwd)),
            keep=self._spec.limits.output,
        )
        child = Child(order, _Marked(mark))
        self._running.add(child)
        try:
            return await child.run()
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
            return Completed(code, f"{error.filename}: {error.strerror}\n".encode())
        finally:
            self._running.discard(child)

    async def close(self) -> None:
        self._closed = True
        running = list(self._running)
        for child in running:
            child.kill()
        await asyncio.gather(*(child.over() for child in running))

    async def destroy(self) -> None:
        await self.close()
        await asyncio.to_thread(self._place.remove)


class UnsandboxedProvider:
    """Work trees below `root`; `path` is the host's PATH."""

    name = "none"

    def __init__(self, root: Path, *, path: str = ":".join(SYSTEM_PATH)) -> None:
        self._root = root.resolve()
        self._path = path

    async def check(self) -> tuple[Check, ...]:
        """Never all right: a job that uses this has to say so."""
        detail = "commands run on this machine as you, with its network and all your files"
        return (
            Check("isolation", ok=False, detail=detail, repair="Leave out --sandbox none, and run agent-fix doctor."),
        )

    async def open(self, spec: Spec, *, on_output: OnOutput | None = None) -> Sandbox:
        place = Workplace(self._root, spec.key)
        await asyncio.to_thread(_end_left, place)
        await asyncio.to_thread(place.prepare, spec.fill)
        sandbox = Unsandboxed(place, spec, self._path)
        await note_fresh(place, sandbox)
        if spec.setup is not None and spec.setup.commands:
            await _set_up(place, sandbox, spec.setup, on_output)
        return sandbox


def _end_left(place: Workplace) -> None:
    """End what a process that was killed has left running here: nothing but us could have ended it with itself."""
    if place.tree.exists():
        end_marked(f"HOME={place.directory / 'home'}\0".encode())


async def _set_up(place: Workplace, sandbox: Unsandboxed, setup: Setup, on_output: OnOutput | None) -> None:
    """In the job's own tree, once a key: nothing is shared where nothing is isolated."""
    done_before = place.directory / SET_UP
    if done_before.exists():
        return
    place.own(place.directory / "env")
    left_out = await carry_out(
        setup,
        lambda line: sandbox.unrestrained(
            Command(["/bin/sh", "-e", "-c", line], timeout=COMMAND_SECONDS, on_output=on_output)
        ),
    )
    write_left_out(done_before, left_out)


@dataclass(frozen=True, slots=True)
class _Marked:
    """The command's process group, and (on Linux) whatever left it but still carries the command's mark."""

    mark: str

    def kill(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        end_marked(f"{MARK}={self.mark}".encode())

    async def settle(self, process: asyncio.subprocess.Process) -> None:
        self.kill(process)
