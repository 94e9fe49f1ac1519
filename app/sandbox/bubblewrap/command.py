"""Builds bubblewrap's arguments, runs one bubblewrap per command over fixed mounts, and watches its process 1.

What a command sees:

/usr /bin /lib …      the machine's programs            read-only
toolchains            Python, Node, Rust, Go elsewhere  read-only, at their own path
/etc                  a generated one                   read-only
/workspace            the job's tree                    writable
/tmp /home/agent      the job's own                     writable
/dev/shm              memory, gone after the command    writable, with a size
/env and the like     set-up's result                   writable, and as it was after the command

Killing bwrap kills what is inside (`--die-with-parent`), but a moment later, and nothing could wait for that. So
process 1 of the namespace is killed and awaited by its own descriptor, which never refers to another process.

The command waits at a gate until its process 1 is known and has joined its control group (for which the kernel may take
10 ms, while bwrap sets up). Until then nothing would end it if we were killed, because bwrap ties itself to its parent
last. So bwrap holds the gate's other end open, and a command that we never release never starts.
"""

import asyncio
import errno
import json
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from pathlib import Path, PurePosixPath

from app.core.errors import LostSandboxError, SandboxError
from app.sandbox import seccomp
from app.sandbox.base import (
    HOME,
    SYSTEM_PATH,
    WORK_ENVIRONMENT,
    WORKSPACE,
    CompletedCommand,
    Executor,
    SandboxCommand,
    SandboxLimits,
    base_variables,
    cannot_execute,
)
from app.sandbox.bubblewrap.cgroup import Cgroup, make_cgroup
from app.sandbox.child_process import ChildProcess, DiskQuota, end_all
from app.sandbox.host_directories import remove_tree

INSIDE_UID = 1000
"""The user inside, for an ordinary caller."""
ROOT_UID = 64321
"""The host user of the sandbox if the caller is root: outside the ranges that distributions assign."""

SAFE_FOR_ROOT = frozenset({"PATH", "HOME", "TMPDIR", "LANG", *WORK_ENVIRONMENT})
"""Our own variables, which the loader and C library of a program that is still root ignore."""
SHM_BYTES = 512 * 1024**2
WRITABLE = (WORKSPACE, "/tmp", HOME)  # noqa: S108 - a path inside the sandbox

UPPER, WORK = "upper", "work"
"""What the kernel needs for a restored mount: empty directories of one file system."""

_ORDINARY = ("--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID))
# Without a user namespace, because an unprivileged user could not reach sources below root's own directories. The three
# capabilities are for setpriv, which drops them together with the uid; seccomp forbids new user namespaces.
_PRIVILEGED = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
    *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path shown at `target`.

    With `below`, this directory shows through wherever `source` has nothing, and never changes; `work` is the kernel's
    directory for that. With `restored`, every command may change it, and the next one finds it as it was.
    """

    source: Path
    target: str
    writable: bool = False
    restored: bool = False
    below: Path | None = None
    work: Path | None = None


@dataclass(frozen=True, slots=True)
class HostPrograms:
    """The host programs in a command line, by absolute path; all but bwrap are below /usr."""

    bwrap: Path
    setpriv: str
    prlimit: str
    env: str


@dataclass(frozen=True, slots=True)
class HostMachine:
    """What every sandbox on this machine shows; surveyed once (`app.sandbox.bubblewrap.provider`)."""

    programs: HostPrograms
    privileged: bool
    links: tuple[tuple[str, str], ...]
    """Top-level symlinks of a merged-usr system: target, path."""
    mounts: tuple[Mount, ...]
    path: tuple[str, ...]
    """Directories of toolchains outside /usr, for PATH."""
    python: str
    overlays: bool = False
    """True if bwrap can put a writable layer over a directory here."""
    left_out: tuple[str, ...] = ()
    """Sentences about toolchains that a sandbox does not show."""

    @property
    def owner(self) -> int | None:
        """The host uid that must own writable directories; None if it is the caller's own."""
        return ROOT_UID if self.privileged else None

    def environment(self) -> dict[str, str]:
        """Every variable inside, without those of the set-up and the single command."""
        return base_variables(*self.path, *SYSTEM_PATH)


def options(machine: HostMachine, mounts: Sequence[Mount], environment: Mapping[str, str]) -> list[str]:
    """Arguments of bwrap up to the command; passed by a pipe, so that no host path is in /proc/1/cmdline."""
    return [
        *("--cap-drop", "ALL"),
        *(_PRIVILEGED if machine.privileged else _ORDINARY),
        *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
        *_layout(machine, tuple(mounts)),
        *("--chdir", WORKSPACE),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
    ]


def split_variables(machine: HostMachine, variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Variables to set at once, and those, such as LD_PRELOAD, that must wait until root is given up."""
    early = {name: value for name, value in variables.items() if not machine.privileged or name in SAFE_FOR_ROOT}
    return early, {name: value for name, value in variables.items() if name not in early}


def within(
    machine: HostMachine, limits: SandboxLimits, command: SandboxCommand, *, variables: Mapping[str, str], grouped: bool
) -> list[str]:
    """The command as bwrap runs it: drop root, set limits, change directory, and only then run foreign code."""
    programs = machine.programs
    chain = []
    if machine.privileged:
        identity = ("--reuid", str(ROOT_UID), "--regid", str(ROOT_UID), "--clear-groups")
        chain += [programs.setpriv, *identity, "--bounding-set=-all", "--inh-caps=-all", "--"]
    chain += [programs.prlimit, "--core=0", f"--fsize={limits.file_size}"]
    if not grouped:
        # Data, not address space: V8 and Go reserve far more of that than they use.
        chain += [f"--data={limits.memory}", f"--nproc={limits.processes}"]
    if command.cwd == WORKSPACE and not variables:
        return [*chain, "--", *command.argv]
    settings = (f"{name}={value}" for name, value in variables.items())
    # A missing directory is then a failed command instead of a lost sandbox.
    return [*chain, "--", programs.env, f"--chdir={command.cwd}", "--", *settings, *command.argv]


@lru_cache(maxsize=64)
def _layout(machine: HostMachine, mounts: tuple[Mount, ...]) -> tuple[str, ...]:
    return tuple(_laid_out(machine, mounts))


def _laid_out(machine: HostMachine, mounts: Sequence[Mount]) -> Iterable[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for target, path in machine.links:
        yield from ("--symlink", target, path)
    shown = [*machine.mounts, *mounts]
    for parent in _parents(mount.target for mount in shown):
        yield from ("--perms", "0755", "--dir", parent)  # bwrap would make them for root only
    yield from ("--perms", "0755", "--dir", "/run", "--perms", "0755", "--dir", "/var", "--symlink", "/tmp", "/var/tmp")  # noqa: S108
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from ("--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
    for mount in shown:
        if mount.below is not None:
            yield from (
                "--overlay-src",
                str(mount.below),
                "--overlay",
                str(mount.source),
                str(mount.work),
                mount.target,
            )
            continue
        yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), mount.target)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _parents(targets: Iterable[str]) -> list[str]:
    """Directories to create for mount points, outermost first, except those that a mount contains."""
    targets = list(targets)
    brought = ("/usr", "/etc", *targets)
    parents = {str(parent) for target in targets for parent in PurePosixPath(target).parents if str(parent) != "/"}
    return sorted(parent for parent in parents if not any(PurePosixPath(parent).is_relative_to(top) for top in brought))


def limit_processors(pid: int, most: int) -> None:
    """Let a process, and all that it starts later, run on `most` processors, chosen at random.

    Raises OSError if the process is gone. Hostile code can lift the limit for itself: a control group is stronger.
    """
    there = sorted(os.sched_getaffinity(0))
    if len(there) > most:
        os.sched_setaffinity(pid, random.sample(there, most))


END_SECONDS = 10.0


class BubblewrapStart:
    """Enter it before bwrap is started; `inherited` descriptors go to bwrap, which needs `options` first."""

    def __init__(self, arguments: Sequence[str], cpus: int, group: Cgroup | None = None) -> None:
        self._group = group
        self._cpus = cpus
        self._gate_inside, self._gate = os.pipe()
        self._kill_requested = False
        self._joining: asyncio.Task[None] | None = None
        self._filter = _memory("seccomp", seccomp.program())
        self._status, self._status_inside = os.pipe()
        os.set_blocking(self._status, False)
        options = ["--seccomp", str(self._filter), "--json-status-fd", str(self._status_inside)]
        options += ["--block-fd", str(self._gate_inside), "--sync-fd", str(self._gate), *arguments]
        self._arguments = _memory("arguments", b"".join(os.fsencode(argument) + b"\0" for argument in options))
        self._status_output = b""
        self._process_1: int | None = None
        self.problem = ""
        """If not empty: why the command could not be limited, and so was never started."""

    def __enter__(self) -> "BubblewrapStart":
        asyncio.get_running_loop().add_reader(self._status, self._read_status)
        return self

    def __exit__(self, *_: object) -> None:
        if self._joining is not None:
            self._joining.cancel()  # if it opened the gate now, that number might be another file's
        watched = [self._status] if self._process_1 is None else [self._status, self._process_1]
        for descriptor in watched:
            asyncio.get_running_loop().remove_reader(descriptor)
        for descriptor in (*self.inherited, *watched):
            os.close(descriptor)

    @property
    def inherited(self) -> tuple[int, ...]:
        """bwrap closes those that its options name before the command starts."""
        return self._filter, self._arguments, self._status_inside, self._gate_inside, self._gate

    @property
    def options(self) -> list[str]:
        return ["--args", str(self._arguments)]

    def began(self) -> bool:
        """bwrap reports an exit code only of a command that it started."""
        self._read_status()
        return "exit-code" in self._report()

    def kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill at once, or as soon as bwrap has named its process 1, which would otherwise survive bwrap."""
        self._kill_requested = True
        self._read_status()
        if self._process_1 is not None:
            _kill(self._process_1)

    async def wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        self._read_status()
        if self._joining is not None:
            await self._joining
        if self._process_1 is None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process_1, ended.set)  # such a descriptor becomes readable when its process has ended
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await ended.wait()
        finally:
            loop.remove_reader(self._process_1)
        _reap(self._process_1)

    def _read_status(self) -> None:
        with suppress(BlockingIOError):
            self._status_output += os.read(self._status, 65536)
        if self._process_1 is not None:
            return
        pid = self._report().get("child-pid")
        if not isinstance(pid, int) or (first := watch(pid)) is None:
            return
        self._process_1 = first
        with suppress(OSError):  # it is gone
            limit_processors(pid, self._cpus)
        if self._kill_requested:
            _kill(first)
        elif self._group is not None:
            self._joining = asyncio.create_task(self._join(pid, first, self._group))
        else:
            os.write(self._gate, b"1")

    async def _join(self, pid: int, first: int, group: Cgroup) -> None:
        """Open the gate once the limits hold. If they cannot be set, the command never starts."""
        try:
            await asyncio.to_thread(group.join, pid)
        except OSError as error:
            self.problem = "" if isinstance(error, ProcessLookupError) else f"its control group: {error}"
            _kill(first)
        else:
            os.write(self._gate, b"1")

    def _report(self) -> dict[str, object]:
        """The complete lines so far; a later line never changes which process is watched."""
        report: dict[str, object] = {}
        for line in self._status_output.split(b"\n")[:-1]:
            with suppress(ValueError):
                entry = json.loads(line)
                report |= entry if isinstance(entry, dict) else {}
        return report


def _kill(watched: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched, signal.SIGKILL)


def _reap(watched: int) -> None:
    """bwrap leaves its process 1 to the machine's init, which in some containers is this process."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, watched, os.WEXITED | os.WNOHANG)


def watch(pid: int) -> int | None:
    """A descriptor of the process, if it is still the first of a namespace: a number alone may be reused."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    if len(numbers) > 1 and numbers[-1] == "1":
        return descriptor
    os.close(descriptor)
    return None


def _memory(name: str, content: bytes) -> int:
    """A descriptor that reads `content` from its start."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


REMOVAL_TRIES = 50


@dataclass(eq=False)
class BubblewrapCommand(Executor):
    """`mounts` is called for each command, because mount points may have been removed in between.

    `changes` is a directory for what commands write to mounts that are restored after each.
    """

    machine: HostMachine
    mounts: Callable[[], Sequence[Mount]]
    limits: SandboxLimits
    environment: Mapping[str, str]
    changes: Path | None = None
    _running: set[ChildProcess] = field(default_factory=set)
    _groups_to_remove: list[Cgroup] = field(default_factory=list)
    _quota: DiskQuota = field(init=False)

    def __post_init__(self) -> None:
        written = [mount.source for mount in self.mounts() if mount.writable]
        if self.changes is not None:
            self.changes.mkdir(mode=0o700, exist_ok=True)
            written.append(self.changes)
        self._quota = DiskQuota(written, self.limits.disk, self.limits.files)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        variables = {**self.machine.environment(), **self.environment, **command.env}
        early, late = split_variables(self.machine, variables)
        mounts = [self._layered(mount) for mount in self.mounts()]
        try:
            return await self._execute(command, options(self.machine, mounts, early), late)
        finally:
            own = [mount.work.parent for mount in mounts if mount.work is not None]
            await asyncio.to_thread(_remove_changes, own)

    async def _execute(
        self, command: SandboxCommand, arguments: Sequence[str], late: Mapping[str, str]
    ) -> CompletedCommand:
        with self._limited() as group, BubblewrapStart(arguments, self.limits.cpus, group) as start:
            bwrap = self.machine.programs.bwrap
            tail = within(self.machine, self.limits, command, variables=late, grouped=group is not None)
            child = ChildProcess(
                command,
                argv=[bwrap.name, *start.options, "--", *tail],  # process 1 shows this in its cmdline, and
                env={},  # this in its environ
                cwd=Path("/"),
                killer=start,
                keep=self.limits.output,
                executable=bwrap,
                pass_fds=start.inherited,
                quota=self._quota,
            )
            self._running.add(child)
            try:
                completed = await child.run()
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise SandboxError(f"The sandbox could not be started: {error}") from error
                return cannot_execute(error.strerror or "the arguments are too long")
            finally:
                self._running.discard(child)
            if child.signalled:  # `start` kills process 1 only, so this is no result of the command
                raise LostSandboxError(
                    "A command's sandbox was ended by a signal.",
                    hint="Run the same command again to continue from the last checkpoint.",
                )
            if start.problem or (not start.began() and completed.exit_code < 128 and not completed.timed_out):
                message = start.problem or (completed.output + completed.stderr).decode(errors="replace").strip()
                raise SandboxError(
                    f"The sandbox could not be started: {message or 'no message from bubblewrap'}",
                    hint="Run `agent-fix doctor`: it checks each property of the sandbox and prints the repair.",
                )
            if group is None or not group.refused():
                return completed
            note = f"\n[the command reached the sandbox's limit of {self.limits.processes} processes]\n".encode()
            if command.separate_stderr:
                return replace(completed, stderr=completed.stderr + note)
            return replace(completed, output=completed.output + note)

    async def close(self) -> None:
        """End what is running, and remove the control groups."""
        self._closed = True
        await end_all(self._running)
        for _ in range(REMOVAL_TRIES):
            if not self._groups_to_remove:
                break
            await asyncio.sleep(0.01)
            self._remove_groups()

    def _layered(self, mount: Mount) -> Mount:
        """The mount with this command's own new directories; without them a restored one is read-only."""
        if self.changes is None or not self.machine.overlays or not (mount.restored or mount.below):
            return mount
        directory = self._free_directory(self.changes)
        (directory / WORK).mkdir()
        if mount.below is not None:
            self._own(directory / WORK, mount.source)
            return replace(mount, work=directory / WORK)
        (directory / UPPER).mkdir(mode=0o755)
        for name in (UPPER, WORK):
            self._own(directory / name, mount.source)
        # Its owner, mode and times are those that the command sees.
        about = mount.source.stat()
        os.utime(directory / UPPER, ns=(about.st_atime_ns, about.st_mtime_ns))
        return replace(mount, source=directory / UPPER, below=mount.source, work=directory / WORK)

    def _own(self, directory: Path, like: Path) -> None:
        if self.machine.owner is not None:
            os.chown(directory, like.stat().st_uid, like.stat().st_gid)

    @staticmethod
    def _free_directory(parent: Path) -> Path:
        """The first free number: a command sees the name in its mounts, which must not tell base from head."""
        for number in count():
            with suppress(FileExistsError):
                (parent / str(number)).mkdir(mode=0o700)
                return parent / str(number)
        raise AssertionError("numbers do not end")

    @contextmanager
    def _limited(self) -> Iterator[Cgroup | None]:
        """A control group for one command, if this machine allows one."""
        group = make_cgroup(self.limits)
        try:
            yield group
        finally:
            if group is not None:
                self._groups_to_remove.append(group)
                self._remove_groups()

    def _remove_groups(self) -> None:
        """The kernel releases a group a moment after its last process, so removal is tried again later."""
        self._groups_to_remove = [group for group in self._groups_to_remove if not group.remove()]


def _remove_changes(changes: Sequence[Path]) -> None:
    """Blocking. What cannot be removed now is removed with the sandbox."""
    for directory in changes:
        with suppress(SandboxError):
            remove_tree(directory)
