"""Who works on a job: a process named so that another can tell whether it still lives."""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path

_MAX_HOST_LENGTH = 32
"""Of a name that is kept in columns of 80 characters together with all else."""


def this_process() -> str:
    """`HOST:PID:START-WORLD`: START is the kernel's start time of the process, so that a reused pid is no match; WORLD
    names the running kernel and its numbering of processes, so that a host of the same name is none either."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_start_time(pid)}-{_world()}"


def is_alive(owner: str) -> bool:
    """Whether that process still lives. A process of another host is taken for living."""
    host, pid, start = _parts(owner)
    return host != _host() or _lives(pid, start)


def is_gone(owner: str) -> bool:
    """Whether that process has certainly ended: it was one of this kernel, among the processes that we can see.

    Then its leases need not be waited for.
    """
    host, pid, start = _parts(owner)
    return host == _host() and start.endswith(f"-{_world()}") and not _lives(pid, start)


def _parts(owner: str) -> tuple[str, int, str]:
    """What was added after them is a part of that process. A name of another form is nobody's here."""
    host, pid, start = [*owner.split(":"), "", "", ""][:3]
    return (host, int(pid), start) if pid.isdecimal() else ("", 0, "")


def _lives(pid: int, start: str) -> bool:
    since, _, world = start.partition("-")
    return world in {"", _world()} and bool(since) and _start_time(pid) == since


@cache
def _host() -> str:
    return socket.gethostname().replace(":", "")[:_MAX_HOST_LENGTH]


@cache
def _world() -> str:
    """Boot and process namespace; two machines may have one name, and two containers one kernel."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        numbering = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # its text is no path
    except OSError:
        return "unknown"
    return hashlib.sha256(f"{boot} {numbering}".encode()).hexdigest()[:8]


def _start_time(pid: int) -> str:
    """Field 22 of `/proc/PID/stat`, in clock ticks since boot; empty where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return "" if state in {"Z", "X"} else start
