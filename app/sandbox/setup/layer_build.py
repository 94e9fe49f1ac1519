"""Builds one set-up result: runs the commands in a separate sandbox over a temporary copy of the tree."""

import asyncio
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.core.errors import SetupError
from app.core.scratch import scratch
from app.core.text import clip, one_line, plain
from app.sandbox.base import ENV, FORWARDER, TOOLS, CompletedCommand, OnOutput, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.command import WRITABLE, BubblewrapCommand, HostMachine, Mount
from app.sandbox.egress.proxy import EgressProxy, Upstream
from app.sandbox.host_directories import HostDirectory, make_mount_point, plain_path
from app.sandbox.setup.ecosystems.base import ABSENT

FORWARDER_PROGRAM = Path(__file__).parents[1] / "egress" / "forwarder.py"
SOCKET_INSIDE = "/run/egress.sock"
PORT = 3128
PROXY_ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
COMMAND_SECONDS = 1800.0
LEFT_OUT = "left-out.json"
DISK = 2
"""How many times as much disk as a sandbox's files the result and what is made on the way may take."""
COMMAND = 200
"""Characters of a failed command in its error."""
TAIL = 2_000
"""Characters of a failed command's output in its error."""
_ABSENT_LINE = re.compile(rf"^[\w@./~-]{{1,214}}{re.escape(ABSENT)}$", re.MULTILINE | re.ASCII)
MAX_ABSENT = 20
HIDDEN = ("/usr", "/etc", "/run", ENV, TOOLS)
"""Parts of a sandbox that no other path of the machine may cover."""


@dataclass(slots=True)
class LayerBuild:
    """One build of `setup`, which ends as the directory `place`, or not at all."""

    machine: HostMachine
    spec: SandboxSpec
    setup: SetupPlan
    place: Path
    environment: Mapping[str, str]
    """This machine's, which may name a proxy."""
    on_output: OnOutput | None = None
    target: str = ENV
    """Where the result will be mounted: programs remember the path that they were installed at."""
    left_out: list[str] = field(default_factory=list)
    """Sentences about parts that failed while others succeeded."""
    _site: HostDirectory = field(init=False)

    def __post_init__(self) -> None:
        self._site = HostDirectory(self.place.parent, f"{self.place.name}.building", self.machine.owner)

    async def run(self) -> None:
        """Leave the result at `place`, or next to it for this job alone if a part failed."""
        await asyncio.to_thread(self._site.remove)  # a builder that died left it
        try:
            await asyncio.to_thread(self._prepare)
            await self._execute()
            await asyncio.to_thread(self._collect)
            place = incomplete(self.place, self.spec.key) if to_repeat(self.left_out) else self.place
            write_left_out(self._result / LEFT_OUT, self.left_out)
            self._result.rename(place)
        finally:
            await asyncio.to_thread(self._site.remove)

    @property
    def _result(self) -> Path:
        return self._site.directory / "result"

    @property
    def _writable(self) -> tuple[tuple[str, Path], ...]:
        """The host directory of each writable directory inside."""
        directory = self._site.directory
        return tuple(zip(WRITABLE, (self._site.tree, directory / "tmp", directory / "home"), strict=True))

    def _prepare(self) -> None:
        self._site.prepare(self.spec.fill)
        for directory in (self._result, self._result / "tree"):
            directory.mkdir(mode=0o755)
        self._site.own(self._result / "env")
        for path in self.setup.readable:
            self._make_point(Path(path))

    async def _execute(self) -> None:
        with scratch("egress") as private:
            socket = private / "egress.sock"
            limits = replace(self.spec.limits, disk=DISK * self.spec.limits.disk)
            box = BubblewrapCommand(self.machine, lambda: self._mounts(socket), limits, self._environment())
            upstream = Upstream.from_environment(self.environment, self.setup.hosts)
            proxy = EgressProxy(socket, self.setup.hosts, upstream=upstream, owner=self.machine.owner)
            try:
                async with proxy:
                    self.left_out += await carry_out(
                        self.setup,
                        lambda command: box.exec(
                            self._shell(command), timeout=COMMAND_SECONDS, on_output=self.on_output
                        ),
                        lambda: proxy.explanation,
                    )
            finally:
                await box.close()

    def _mounts(self, socket: Path) -> list[Mount]:
        return [
            *(Mount(base, inside, writable=True) for inside, base in self._writable),
            Mount(self._result / "env", self.target, writable=True),
            Mount(socket, SOCKET_INSIDE),
            Mount(FORWARDER_PROGRAM, FORWARDER),
            *(Mount(Path(path), path) for path in self.setup.readable if self._showable(Path(path))),
        ]

    def _environment(self) -> dict[str, str]:
        return {**PROXY_ENVIRONMENT, **dict(self.setup.environment)}

    def _shell(self, command: str) -> list[str]:
        return [self.machine.python, "-I", FORWARDER, SOCKET_INSIDE, str(PORT), "--", *as_step(command)]

    def _collect(self) -> None:
        """Move the result out of the temporary tree, in which nothing runs any more."""
        for path in self.setup.directories:
            made = plain_path(self._site.tree, path)
            if made is not None and (made.is_dir() or made.is_file()):
                (self._result / "tree" / path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                made.rename(self._result / "tree" / path)

    def _below_writable(self, path: Path) -> tuple[Path, str] | None:
        """A path inside as host directory and rest, if commands may write above it."""
        for inside, base in self._writable:
            if path.is_relative_to(inside):
                return base, str(path.relative_to(inside))
        return None

    def _make_point(self, path: Path) -> None:
        below = self._below_writable(path)
        if below is None or not path.exists():
            return
        base, relative = below
        steps = relative.split("/")
        for depth in range(1, len(steps)):
            make_mount_point(base, "/".join(steps[:depth]), base, self.machine.owner)
        make_mount_point(base, relative, path, self.machine.owner)

    def _showable(self, path: Path) -> bool:
        """False if a command has put a link at a mount point, or if it would cover a part of the sandbox."""
        below = self._below_writable(path)
        direct = below is None or plain_path(*below) is not None
        return direct and path.exists() and not any(path.is_relative_to(top) for top in HIDDEN)


def as_step(command: str) -> list[str]:
    """As a step of continuous integration: the first failing line ends it."""
    bash = shutil.which("bash", path="/usr/bin:/bin")
    shell = [bash, "-e", "-o", "pipefail"] if bash else ["/bin/sh", "-e"]
    return [*shell, "-c", command]


async def carry_out(
    setup: SetupPlan, execute: Callable[[str], Awaitable[CompletedCommand]], explain: Callable[[], str] = str
) -> tuple[str, ...]:
    """Run the commands; returns what failed in one group if another succeeded, and dependencies that they left out.

    Raises SetupError if every group failed.
    """
    groups = setup.groups or (setup.commands,)
    failures, absent = [], dict[str, None]()
    for group in groups:
        for command in group:
            done = await execute(command)
            absent |= dict.fromkeys(_ABSENT_LINE.findall(done.output.decode(errors="replace"))[:MAX_ABSENT])
            if not done.ok:
                failures.append(setup_failure(command, done, explain()))
                break
    if len(failures) == len(groups):
        raise failures[0]
    return (*(failure.message for failure in failures), *absent)


def to_repeat(left_out: Sequence[str]) -> bool:
    """Whether something failed, so that the next job tries again; a dependency that no index has is not a failure."""
    return not all(map(is_absent, left_out))


def is_absent(sentence: str) -> bool:
    """Whether it names a dependency that was left out, and no failure."""
    return _ABSENT_LINE.fullmatch(sentence) is not None


def incomplete(place: Path, key: str) -> Path:
    """The path of a job's own, partly failed result: the next job tries again."""
    return place.with_name(f"{place.name}.{key.partition('.')[0]}")


def write_left_out(path: Path, sentences: Sequence[str]) -> None:
    path.write_text(json.dumps(list(sentences)), "utf-8")


def read_left_out(path: Path) -> tuple[str, ...]:
    """The stored sentences; empty for a result of an older version."""
    return tuple(json.loads(path.read_text("utf-8") or "[]")) if path.exists() else ()


def setup_failure(command: str, done: CompletedCommand, explanation: str = "") -> SetupError:
    late = f"took longer than {COMMAND_SECONDS:.0f} seconds"
    ended = late if done.timed_out else f"ended with exit code {done.exit_code}"
    output = plain(done.output[-4 * TAIL :].decode(errors="replace")).strip()
    tail = output if len(output) <= TAIL else output[-TAIL:].partition("\n")[2] or output[-TAIL:]
    shown = clip(one_line(command), COMMAND)
    return SetupError(
        f"The set-up command `{shown}` {ended}{f'; {explanation}' if explanation else ''}.\n{tail}",
        hint="Change `setup:` in .github/agent-fix.yml, or fix what the output reports.",
    )
