"""Named places where a test kills the process, to prove that a job survives it; a no-op unless armed."""

import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class _ArmedFailpoint:
    """Goes off at the `left`-th passing from now; with a `fuse`, a file, once for all processes together."""

    left: int
    fuse: str


_armed: dict[str, _ArmedFailpoint] = {}


def arm(spec: str) -> None:
    """Arm from `NAME`, `NAME:N` (die at the N-th passing) or `NAME:N@FILE` (while FILE exists, which dying removes);
    several are comma-separated."""
    for item in filter(None, (part.strip() for part in spec.split(","))):
        place, _, fuse = item.partition("@")
        name, _, count = place.partition(":")
        _armed[name] = _ArmedFailpoint(int(count or 1), fuse)


def failpoint(name: str) -> None:
    """Die by SIGKILL here, as in a power cut, where a test armed this name."""
    charge = _armed.get(name)
    if charge is None:
        return
    charge.left -= 1
    if charge.left == 0 and _already_fired(charge.fuse):
        os.kill(os.getpid(), signal.SIGKILL)


def _already_fired(fuse: str) -> bool:
    """Whether it is this process that is to die."""
    if not fuse:
        return True
    try:
        os.unlink(fuse)  # noqa: PTH108  # pathlib is not imported by the processes that import this first
    except FileNotFoundError:
        return False
    return True
