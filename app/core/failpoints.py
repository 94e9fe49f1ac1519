"""Named places where a test can kill the process, to prove that jobs survive it; a no-op unless armed."""

import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class _ArmedFailpoint:
    """Fires when it is reached for the `left`-th time.

    With the file `fuse`, it fires once for all processes together.
    """

    left: int
    fuse: str


_armed: dict[str, _ArmedFailpoint] = {}


def arm(spec: str) -> None:
    """Arm failpoints from a comma-separated list.

    `NAME` dies at the first pass, `NAME:N` at the N-th. `NAME:N@FILE` works only while FILE exists; dying removes it.
    """
    for item in filter(None, (part.strip() for part in spec.split(","))):
        place, _, fuse = item.partition("@")
        name, _, count = place.partition(":")
        _armed[name] = _ArmedFailpoint(int(count or 1), fuse)


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL, as a power cut would, if a test armed this name."""
    charge = _armed.get(name)
    if charge is None:
        return
    charge.left -= 1
    if charge.left != 0:
        return
    try:
        if charge.fuse:  # pathlib is not imported by the processes that import this first
            os.unlink(charge.fuse)  # noqa: PTH108
    except FileNotFoundError:
        return  # another process has died here
    os.kill(os.getpid(), signal.SIGKILL)
