"""Builds a sandbox's bubblewrap arguments: namespaces, visible files, the identity inside.

/usr /bin /lib …  the machine's programs            read-only toolchains        Python, Node, Rust, Go elsewhere
read-only, at their own path /etc              a generated one                   read-only /workspace        the
job's tree                    writable /tmp /home/agent  the job's own                     writable /dev/shm
memory, gone after the command    writable, with a size /env and the like set-up's result     writable, and as it was
after the command
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from app.sandbox.base import ENV, HOME, WORKSPACE, SandboxLimits
from app.sandbox.command import SandboxCommand
from app.sandbox.setup.plan import WORK_ENVIRONMENT

INSIDE_UID = 1000
"""The user inside, for an ordinary caller."""
ROOT_UID = 64321
"""The host user of the sandbox if the caller is root: outside the ranges that distributions assign."""

SAFE_FOR_ROOT = frozenset({"PATH", "HOME", "TMPDIR", "LANG", *dict(WORK_ENVIRONMENT)})
"""Our own variables, which the loader and C library of a program that is still root ignore."""
SHM_BYTES = 512 * 1024**2
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
WRITABLE = (WORKSPACE, "/tmp", HOME)  # noqa: S108 - a path inside the sandbox

UPPER, WORK = "upper", "work"
"""What the kernel needs of `Mount.changes`: empty directories of one file system."""

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

    With `restored`, every command may change it, and the next one finds it as it was: changes go to `changes`, a
    directory of that command.
    """

    source: Path
    target: str
    writable: bool = False
    restored: bool = False
    changes: Path | None = None


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

    @property
    def owner(self) -> int | None:
        """The host uid that must own writable directories; None if it is the caller's own."""
        return ROOT_UID if self.privileged else None

    def environment(self) -> dict[str, str]:
        """Every variable inside, without those of the set-up and the single command."""
        path = ":".join((f"{ENV}/bin", *self.path, *SYSTEM_PATH))
        return {"PATH": path, "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


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
    chain = _setpriv(programs.setpriv) if machine.privileged else []
    chain += [programs.prlimit, "--core=0", f"--fsize={limits.file_size}"]
    if not grouped:
        # Data, not address space: V8 and Go reserve far more of that than they use.
        chain += [f"--data={limits.memory}", f"--nproc={limits.processes}"]
    if command.cwd == WORKSPACE and not variables:
        return [*chain, "--", *command.argv]
    settings = (f"{name}={value}" for name, value in variables.items())
    # A missing directory is then a failed command instead of a lost sandbox.
    return [*chain, "--", programs.env, f"--chdir={command.cwd}", "--", *settings, *command.argv]


def _setpriv(program: str) -> list[str]:
    identity = ["--reuid", str(ROOT_UID), "--regid", str(ROOT_UID), "--clear-groups"]
    return [program, *identity, "--bounding-set=-all", "--inh-caps=-all", "--"]


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
        if mount.changes is not None:
            yield from ("--overlay-src", str(mount.source), "--overlay", str(mount.changes / UPPER))
            yield from (str(mount.changes / WORK), mount.target)
            continue
        yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), mount.target)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _parents(targets: Iterable[str]) -> list[str]:
    """Directories to create for mount points, outermost first, except those that a mount contains."""
    targets = list(targets)
    brought = ("/usr", "/etc", *targets)
    parents = {str(parent) for target in targets for parent in PurePosixPath(target).parents if str(parent) != "/"}
    return sorted(parent for parent in parents if not any(PurePosixPath(parent).is_relative_to(top) for top in brought))
