"""Runs inside the sandbox for the doctor: tries what must not work, and prints the results as JSON.

Standard library only. It reads JSON: `reach` (label, kind, address), `read` and `write` (paths), `calls` (numbers by
the machine's name and the call's).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
SECONDS = 0.25


def status() -> dict[str, str]:
    """Empty if the system does not have it."""
    place = Path("/proc/self/status")
    lines = place.read_text(encoding="ascii", errors="replace").splitlines() if place.exists() else []
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def reached(kind: str, address: Any) -> bool:
    """True if a connection was made; for a datagram, if the kernel accepted it."""
    family = socket.AF_UNIX if kind in {"unix", "path"} else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as probe:
            probe.settimeout(SECONDS)
            if kind == "udp":
                probe.sendto(b"x", tuple(address))
            else:
                probe.connect({"tcp": tuple(address), "unix": f"\0{address}", "path": address}[kind])
    except OSError:
        return False
    return True


def readable(path: str) -> bool:
    try:
        if Path(path).is_dir():
            return any(Path(path).iterdir())
        with Path(path).open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def writable(directory: str) -> bool:
    probe = Path(directory, ".agent-fix-probe")
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError:
        return False
    return True


def refusal(number: int) -> str:
    """The kernel's answer to a system call with impossible arguments: the name of the error, or `done`."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    answer = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 5)
    return "done" if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), "unknown")


def new_user_namespace() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(CLONE_NEWUSER) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def main(order: dict[str, Any]) -> dict[str, object]:
    return {
        "uid": os.getuid(),
        "status": status(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "reached": [label for label, kind, address in order["reach"] if reached(kind, address)],
        "read": [path for path in order["read"] if readable(path)],
        "written": [path for path in order["write"] if writable(path)],
        "answers": {name: refusal(number) for name, number in order["calls"][os.uname().machine].items()},
        "user_namespace": new_user_namespace(),
        "environment": sorted(os.environ),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
