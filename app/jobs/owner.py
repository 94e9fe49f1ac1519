"""Who works on a job: a process named so that another can tell whether it still lives."""

import os
import socket
from pathlib import Path


def this_process() -> str:
    """`HOST:PID:START`, where START is the kernel's start time of the process, so that a reused pid is no match."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}"


def is_alive(owner: str) -> bool:
    """Whether that process still lives. A process of another host is taken for living."""
    host, pid, start = owner.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    return _start_time(int(pid)) == start


def _start_time(pid: int) -> str:
    """Field 22 of `/proc/PID/stat`, in clock ticks since boot; empty where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return "" if state in {"Z", "X"} else start
