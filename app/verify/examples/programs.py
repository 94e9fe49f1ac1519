"""Runs examples in a sandbox: each in a fresh process, under one of two conditions, with nothing left afterwards."""

import asyncio
import io
import tarfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from weakref import WeakKeyDictionary

from app.core.examples import MAX_STDOUT, Example, ProgramRun
from app.core.patch import LINK, Tree
from app.core.text import head_and_tail, plain
from app.sandbox.base import CompletedCommand, Sandbox
from app.verify.examples.executors import EXECUTORS
from app.verify.examples.launch import Launch, Project
from app.verify.execution import as_inside

BUILD_SECONDS = 900.0
KEPT_OUT = MAX_STDOUT + 1_000
KEPT_ERR = 4_000
PREPARE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the two conditions under which programs run; `stem` is the name of a program's file and directory."""

    name: str
    env: Mapping[str, str]
    stem: str


CONDITIONS: Final = (
    Condition("first", {"PYTHONHASHSEED": "1", "TZ": "UTC"}, "alpine"),
    Condition("second", {"PYTHONHASHSEED": "4242", "TZ": "America/St_Johns"}, "borealis"),
)
"""A time zone west of Greenwich with summer time and half an hour. No other language: it may not be installed."""

_OWN = 'own="${TMPDIR:-/tmp}/$1"; '
_LAY = (
    _OWN
    + """set -e; shift
rm -rf "$own"; mkdir -p "$own/tmp" "$own/laid" "$own/program"
tar -x --no-same-owner -C "$own" -f -
cp -R "$own/laid/." .; rm -r "$own/laid"
ln -s "$PWD" "$own/project"
while [ "$1" != -- ]; do ln -s "$own/program/$1" "$1"; shift; done; shift
for program; do command -v "$program" > /dev/null || echo "$program"; done"""
)
_LIST = """list() { find "$1" -mindepth 1 \\( -name node_modules -o -name .git -o -name __pycache__ \\) -prune \
-o -printf "%y %s %T@ $2%P\\0"; }
list . ""; list "$HOME" "~/\""""
_RUN = _OWN + 'shift; export TMPDIR="$own/tmp"; '
_CLEAN = (
    _OWN
    + """shift; rm -rf "$own"
while [ "$1" != -- ]; do case "$1" in "~/"*) rm -rf -- "$HOME/${1#??}";; *) rm -rf -- "./$1";; esac; shift; done; shift
for start; do rm -f -- "./$start"*; done"""
)
_READ = _OWN + 'cat "$own/printed" 2>/dev/null; [ -e "$own/started" ]'


class _Turns:
    """Programs run side by side, and those that are repeated alone."""

    def __init__(self) -> None:
        self._running = 0
        self._alone = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def one(self, *, alone: bool) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not (alone and self._running))
            self._alone, self._running = alone, self._running + 1
        try:
            yield
        finally:
            async with self._changed:
                self._alone, self._running = False, self._running - 1
                self._changed.notify_all()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns() -> _Turns:
    """Those of all sandboxes of this process."""
    return _TURNS.setdefault(asyncio.get_running_loop(), _Turns())


class Programs:
    """Runs programs in one sandbox under one condition. `tree` is what the sandbox holds, `build` what set-up recorded
    as the command that builds the project."""

    def __init__(self, tree: Tree, sandbox: Sandbox, condition: Condition, *, build: str = "") -> None:
        self._project = Project(tree)
        self._sandbox = sandbox
        self._condition = condition
        self._build = build
        self._built = not build
        self._known: Mapping[str, str] = {}
        """What is in the tree and at home between two runs; empty if that is not known."""
        self._one = asyncio.Lock()

    async def run(self, example: Example, *, timeout: float = 10.0, repeat: bool = True) -> ProgramRun:
        """What the program did; one that did not end in time is run once more, alone, unless `repeat` is false."""
        async with self._one:
            found = await self._run(example, timeout)
            return await self._run(example, timeout, alone=True) if found.timed_out and repeat else found

    async def _run(self, example: Example, timeout: float, *, alone: bool = False) -> ProgramRun:
        try:
            launch = EXECUTORS[example.run](self._project, example, self._condition.stem)
            laid = self._laid(example, launch)
        except ValueError as error:
            return ProgramRun(problem=str(error))
        if not self._built and (problem := await self._build_project()):
            return ProgramRun(problem=problem)
        try:
            if failed := await self._prepare(launch, laid):
                return failed
            async with _turns().one(alone=alone):
                done = await self._exec(launch.command, example, timeout + launch.host_seconds)
            return await self._ended(launch, done)
        finally:
            await self._clean(launch, laid)

    async def _prepare(self, launch: Launch, laid: Mapping[str, str]) -> ProgramRun | None:
        """Lay and build the program; None if it can be run now."""
        if not self._known:
            self._known = await self._listing()
        if problem := await self._lay(launch, laid):
            return ProgramRun(problem=problem)
        if launch.build:
            if failed := await self._build_program(launch):
                return failed
            self._known = await self._listing()
        return None

    async def _build_project(self) -> str:
        """Why the project could not be built; empty if it was."""
        done = await self._sandbox.exec(["bash", "-c", self._build], timeout=BUILD_SECONDS)
        if done.ok:
            self._built = True
            return ""
        why = "did not end" if done.timed_out else f"ended with exit code {done.exit_code}"
        return f"The project's build (`{self._build}`) {why}: {await self._end_of(done.output)}"

    def _laid(self, example: Example, launch: Launch) -> dict[str, str]:
        """The files in the project. Raises ValueError for one that cannot be there."""
        given = {file.path.removeprefix("./"): file.text for file in example.files}
        entries = self._project.tree.entries()
        for path in given:
            pure = PurePosixPath(path)
            if pure.is_absolute() or not pure.name or {"..", ".git"} & set(pure.parts) or "\0" in path:
                raise ValueError(f"files: {path!r} is not a path below the project's root.")
        for path in (*given, *launch.files, *launch.links):
            if any(str(place) in entries for place in (PurePosixPath(path), *PurePosixPath(path).parents)):
                raise ValueError(f"files: {path} is in the project already; choose another name.")
        return {**given, **launch.files}

    async def _lay(self, launch: Launch, laid: Mapping[str, str]) -> str:
        """Why the program could not be laid, or cannot be run; empty if it can."""
        texts = {**{f"laid/{path}": text for path, text in laid.items()}, **launch.own}
        files = {path: _text_file(text) for path, text in texts.items()}
        argv = ["bash", "-c", _LAY, "bash", self._condition.stem, *launch.links, "--", *launch.needs]
        done = await self._sandbox.exec(argv, stdin=_archive(files), timeout=PREPARE_SECONDS, separate_stderr=True)
        if not done.ok:
            return f"The program could not be written: {await self._end_of(done.stderr)}"
        missing = done.output.decode().partition("\n")[0]
        return f"{missing} is not installed here." if missing else ""

    async def _build_program(self, launch: Launch) -> ProgramRun | None:
        """How the build failed: as a run that printed nothing, because names that the project lacks may be why."""
        script = f"{_OWN}shift; {launch.build}"
        argv = ["bash", "-c", script, "bash", self._condition.stem]
        done = await self._sandbox.exec(argv, timeout=BUILD_SECONDS)
        if done.ok:
            return None
        output = await self._end_of(done.output)
        if done.timed_out:
            return ProgramRun(problem=f"The build of the program did not end in {BUILD_SECONDS:g} seconds.")
        if launch.own_failure and launch.own_failure.search(output):
            return ProgramRun(problem=f"The program itself cannot be compiled: {output}")
        if launch.not_here and launch.not_here.search(output):
            return ProgramRun(problem=f"The program cannot be built here: {output}")
        return ProgramRun(stderr=output, exit_code=done.exit_code, seconds=round(done.seconds, 2))

    async def _exec(self, command: str, example: Example, timeout: float) -> CompletedCommand:
        argv = ["bash", "-c", f"{_RUN}{command}", "bash", self._condition.stem, *example.args]
        env, stdin = self._condition.env, example.stdin.encode()
        return await self._sandbox.exec(argv, timeout=timeout, env=env, stdin=stdin, separate_stderr=True)

    async def _ended(self, launch: Launch, done: CompletedCommand) -> ProgramRun:
        output, stderr = done.output, done.stderr
        if launch.host:
            answer = await self._sandbox.exec(["bash", "-c", _READ, "bash", self._condition.stem], separate_stderr=True)
            stderr, output = output + stderr, answer.output
            if (
                not answer.ok
                and not done.timed_out
                and not (launch.not_here and launch.not_here.search(stderr.decode()))
            ):
                return ProgramRun(problem=f"The test runner did not start: {await self._end_of(stderr)}")
        return ProgramRun(
            stdout=(await as_inside(self._sandbox, output)).decode(errors="replace")[:KEPT_OUT],
            stderr=await self._end_of(stderr),
            exit_code=done.exit_code,
            seconds=round(done.seconds, 2),
            timed_out=done.timed_out,
        )

    async def _end_of(self, output: bytes) -> str:
        """Its beginning, too: there Go, Java and Node say what went wrong."""
        if len(output) > 4 * KEPT_ERR:
            output = output[: 2 * KEPT_ERR] + b"\n" + output[-2 * KEPT_ERR :]
        text = plain((await as_inside(self._sandbox, output)).decode(errors="replace"))
        return head_and_tail(text.strip(), KEPT_ERR)

    async def _listing(self) -> dict[str, str]:
        """Kind, size and time of everything in the tree and at home but caches, by path."""
        done = await self._sandbox.exec(["bash", "-c", _LIST], timeout=PREPARE_SECONDS, separate_stderr=True)
        lines = done.output.decode("utf-8", "surrogateescape").split("\0")
        fields = (line.split(" ", 3) for line in lines if line)
        return {path: "d" if kind == "d" else f"{kind} {size} {time}" for kind, size, time, path in fields}

    async def _clean(self, launch: Launch, laid: Mapping[str, str]) -> None:
        """Remove what the program and the harness left, and write again what the program has changed."""
        ours, now = {*laid, *launch.links}, await self._listing()
        before = {path: what for path, what in self._known.items() if path not in ours}
        new = {path for path in now if path not in before} if before else set()
        gone = [path for path in new if str(PurePosixPath(path).parent) not in new]
        argv = ["bash", "-c", _CLEAN, "bash", self._condition.stem, *sorted({*gone, *ours}), "--", *_modules(ours)]
        await self._sandbox.exec(argv, timeout=PREPARE_SECONDS)
        self._known = before
        if changed := [path for path in before if now.get(path) != before[path] and not path.startswith("~/")]:
            await self._restore(changed)

    async def _restore(self, paths: Sequence[str]) -> None:
        """As the tree has them; what a build has made is built again."""
        entries = self._project.tree.entries()
        known = {path: entries[path].mode for path in paths if path in entries}
        contents = self._project.tree.read_many(known)
        archive = _archive({path: (contents[path], mode) for path, mode in known.items()})
        argv = ["tar", "-x", "--no-same-owner", "--unlink-first", "--recursive-unlink", "-f", "-"]
        await self._sandbox.exec(argv, stdin=archive, timeout=PREPARE_SECONDS)
        self._built = self._built and (not self._build or len(known) == len(paths))
        self._known = {}


def _modules(paths: Iterable[str]) -> list[str]:
    """Patterns of what Python compiled for modules that are gone: one of that name, size and time would get it."""
    modules = (PurePosixPath(path) for path in paths if path.endswith(".py"))
    return [f"{path.parent}/__pycache__/{path.stem}." for path in modules]


def _archive(files: Mapping[str, tuple[bytes, str]]) -> bytes:
    """A tar archive of files with these contents and git modes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, (content, mode) in files.items():
            member = tarfile.TarInfo(path)
            member.mode = int(mode[-3:], 8) or 0o777
            if mode == LINK:
                member.type, member.linkname = tarfile.SYMTYPE, content.decode("utf-8", "surrogateescape")
                archive.addfile(member)
                continue
            member.size, member.mtime = len(content), int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _text_file(text: str) -> tuple[bytes, str]:
    return text.encode(), "100755" if text.startswith("#!") else "100644"
