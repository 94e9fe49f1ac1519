"""Ends sandboxes that a killed process of ours left behind.

bwrap ties its process 1 to itself only when everything is set up. If it is killed before, its process 1 waits for ever
and never starts its command (`app.sandbox.bubblewrap.start`). Two kinds can only be leftovers, whoever started them:

- a process 1 without its bwrap: it has nobody to report to - a process 1 that has started nothing for a minute: nobody
opened its gate
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.bubblewrap.profile import HostMachine
from app.sandbox.bubblewrap.start import watch

PROC = Path("/proc")
MAX_START_SECONDS = 60.0
"""Seconds. Opening a gate takes milliseconds."""


def end_orphans(machine: HostMachine, *, max_start_seconds: float = MAX_START_SECONDS) -> int:
    """End them and return how many there were; only the caller's own, and only with our command line."""
    parents = {entry.name: _parent(entry) for entry in PROC.iterdir() if entry.name.isdigit()}
    busy = frozenset(parents.values())
    ended = 0
    for pid in parents:
        candidate = _OrphanCandidate(PROC / pid, machine, has_children=pid in busy)
        if not candidate.is_orphaned(max_start_seconds):
            continue
        descriptor = watch(int(pid))
        if descriptor is None:
            continue
        if candidate.is_orphaned(max_start_seconds):  # still the same process, now that we hold a descriptor
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended += 1
        os.close(descriptor)
    return ended


@dataclass(frozen=True, slots=True)
class _OrphanCandidate:
    entry: Path
    machine: HostMachine
    has_children: bool

    def is_orphaned(self, max_start_seconds: float) -> bool:
        try:
            return self._is_ours() and (
                self._has_no_bwrap() or (not self.has_children and self._age() > max_start_seconds)
            )
        except OSError:
            return False  # gone

    def _is_ours(self) -> bool:
        programs = self.machine.programs
        first = programs.setpriv if self.machine.privileged else programs.prlimit
        words = (self.entry / "cmdline").read_bytes().split(b"\0")
        ours = words[:2] == [programs.bwrap.name.encode(), b"--args"] and words[3:5] == [b"--", first.encode()]
        return ours and self.entry.stat().st_uid == os.geteuid()

    def _has_no_bwrap(self) -> bool:
        return _name(PROC / _parent(self.entry)) != self.machine.programs.bwrap.name

    def _age(self) -> float:
        started = int(_stat(self.entry)[19]) / os.sysconf("SC_CLK_TCK")
        return float((PROC / "uptime").read_text().split()[0]) - started


def _parent(entry: Path) -> str:
    try:
        return _stat(entry)[1]
    except OSError:
        return ""


def _name(entry: Path) -> str:
    return (entry / "comm").read_text().strip()


def _stat(entry: Path) -> list[str]:
    """The fields after the name, which may contain anything: state, parent, and so on (proc(5), from number 3)."""
    return (entry / "stat").read_text().rpartition(")")[2].split()
