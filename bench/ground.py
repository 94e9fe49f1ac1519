"""What the measurements work on: a small repository with an issue, a state directory, and the installed command."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

COMMAND = Path(sys.executable).with_name("agent-fix")
ISSUE = """\
# split loses cents

`split(100, 3)` gives `[33, 33, 33]`: one cent is lost. The sum should be the total.
"""
MONEY = '''\
"""Money in whole cents."""

VERSION = 0


def split(total: int, people: int) -> list[int]:
    """Parts that are as equal as can be."""
    share = total // people
    return [share] * people
'''
TESTS = """\
import unittest

from money import split


class SplitTest(unittest.TestCase):
    def test_even(self):
        self.assertEqual(split(100, 4), [25, 25, 25, 25])
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process took: seconds of the clock, seconds of processors with those of its children, and the most
    megabytes that it or one of them had resident."""

    seconds: float
    cpu: float
    peak: float = 0.0


@dataclass(frozen=True, slots=True)
class BenchDirectory:
    """Everything below one temporary directory; the state is warm once a job was done in it."""

    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def issue(self) -> Path:
        return self.root / "issue.md"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def environment(self) -> dict[str, str]:
        """Ours without what could make a difference between two machines' figures."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_FIX_", "OPENAI_"))}
        return kept | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def prepare(self) -> None:
        tests = self.repository / "tests"
        tests.mkdir(parents=True)
        self.issue.write_text(ISSUE)
        (self.repository / "money.py").write_text(MONEY)
        (tests / "__init__.py").touch()
        (tests / "test_money.py").write_text(TESTS)
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
        for command in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "Begin")):
            subprocess.run(("git", "-C", str(self.repository), *command), check=True)

    def fix(self, *options: str) -> list[str]:
        """The command line of a new job."""
        places = ["--repo", self.repository, "--issue", self.issue, "--state", self.state, "--out", self.root / "out"]
        return [str(COMMAND), "fix", "--restart", *map(str, places), *options]


class Command:
    """A process started now, whose output is kept for the case that it fails."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], cwd: Path = Path("/")) -> None:
        self._argv = list(argv)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self.begun = monotonic()
        self._process = subprocess.Popen(
            argv, env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self, *codes: int) -> Spent:
        """Wait for the end, which is to be with one of `codes`."""
        _, status, usage = os.wait4(self.pid, 0)
        seconds = monotonic() - self.begun
        self._process.returncode = os.waitstatus_to_exitcode(status)
        with self._said as said:
            if self._process.returncode not in codes:
                said.seek(0)
                last = said.read()[-2_000:].decode(errors="replace")
                raise RuntimeError(f"{self._argv} ended with {self._process.returncode}: {last}")
        return Spent(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1_024)


def processor_seconds(pid: int) -> float:
    """What a process has used by now, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent(argv: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Execute a command to its end."""
    return Command(argv, environment).end(0)
