"""The processes below another one."""

from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """What the process has started, whichever of its threads did, and what that has started: parents first."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since it was listed
            parents.setdefault(int(place.read_text().rpartition(")")[2].split()[1]), []).append(int(place.parent.name))
    found = list(parents.get(pid, ()))
    for each in found:
        found += parents.get(each, ())
    return found
