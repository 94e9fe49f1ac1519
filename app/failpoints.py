"""Named places where a test kills the process, to prove that a job survives it; a no-op unless armed."""

import os
import signal

_armed: dict[str, int] = {}


def arm(spec: str) -> None:
    """Arm from `NAME` or `NAME:N` (die at the N-th passing); several are comma-separated."""
    for item in filter(None, (part.strip() for part in spec.split(","))):
        name, _, count = item.partition(":")
        _armed[name] = int(count or 1)


def failpoint(name: str) -> None:
    """Die by SIGKILL here, as in a power cut, where a test armed this name."""
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
