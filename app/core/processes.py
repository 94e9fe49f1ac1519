"""Names of processes, which own rows and sandboxes, and whether they are still alive."""

import hashlib
import os
import re
import socket
from functools import cache
from pathlib import Path

_MAX_HOST_LENGTH = 32
"""Keeps an owner's whole name within the 80-character columns."""
_UNKNOWN = "unknown"


def this_process() -> str:
    """This process as `HOST:PID:START-WORLD`.

    START is the kernel's start time of the process, so that a reused pid does not match. WORLD identifies the running
    kernel and its pid namespace, so that another host of the same name does not match.
    """
    pid = os.getpid()
    return f"{_host()}:{pid}:{_start_time(pid)}-{_world()}"


def is_alive(owner: str) -> bool:
    """True if that process is alive. A process on another host is assumed to be alive."""
    host, pid, start = _parts(owner)
    return host != _host() or _is_running(pid, start)


def is_gone(owner: str) -> bool:
    """True if that process has certainly ended, so its leases need not expire first.

    Only known for processes of this kernel that are visible from here, which takes `/proc`.
    """
    host, pid, start = _parts(owner)
    here = host == _host() and start.endswith(f"-{_world()}")
    return here and _world() != _UNKNOWN and not _is_running(pid, start)


def _parts(owner: str) -> tuple[str, int, str]:
    """Host, pid and start of an owner. A suffix names a part of the same process; an unknown format matches nothing."""
    host, pid, start = [*owner.split(":"), "", "", ""][:3]
    return (host, int(pid), start) if pid.isdecimal() else ("", 0, "")


def _is_running(pid: int, start: str) -> bool:
    since, _, world = start.partition("-")
    return world in {"", _world()} and bool(since) and _start_time(pid) == since


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:_MAX_HOST_LENGTH]


@cache
def _world() -> str:
    """Boot id and pid namespace: two machines may share a name, and two containers a kernel."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        numbering = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # its text is not a path
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(f"{boot} {numbering}".encode()).hexdigest()[:8]


def _start_time(pid: int) -> str:
    """The start time from `/proc/PID/stat`, field 22, in clock ticks since boot; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return "" if state in {"Z", "X"} else start
