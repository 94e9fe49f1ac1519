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
    if charge.left == 0 and _fires_for_the_first_time(charge.fuse):
        os.kill(os.getpid(), signal.SIGKILL)


def _fires_for_the_first_time(fuse: str) -> bool:
    """True if this process must die: there is no fuse file, or it was the one that removed it."""
    if not fuse:
        return True
    try:
        os.unlink(fuse)  # noqa: PTH108  # pathlib is not imported by the processes that import this first
    except FileNotFoundError:
        return False
    return True
