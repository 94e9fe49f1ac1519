"""The port to a launcher: it reports how each chosen test ended, and reasons not to trust that.

Its programs are run inside a sandbox through the supervisor.
"""

import base64
import binascii
import json
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from app.core.patch import FileChange
from app.core.record import Record
from app.core.verification import Status
from app.sandbox.base import Sandbox

START = (
    "import sys;sys.path[:]=filter(None,sys.path);"
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),{'__name__':'__main__'})"
)
"""Python that executes a program from its input: the length in bytes, a line end, the program.

Nothing is imported from the directory that it starts in.
"""
PYTHON = ("python3", "-I", "-S", "-c", START)
GRACE = 30.0
MAX_ANSWER = 256 * 1024**2


class SupervisorStep(Record):
    """One program. `drop` are prefixes of variables that it does not get."""

    argv: tuple[str, ...]
    timeout: float
    cwd: str = ""
    env: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    prelude: str = ""
    """The start of its input, before the line with its channel."""
    input: str = ""
    channel: bool = False
    coverage: tuple[str, ...] = ()
    """Scripts of the work tree whose executed lines are read from V8's reports in `{place}/coverage`."""
    collect: tuple[str, ...] = ()
    """Files that the program leaves in `{place}`."""
    keep: int = 1024**2
    """Bytes of output that are kept."""


class StepEnd(Record):
    """How one program ended. `broken` says that something else wrote to its channel."""

    exit_code: int = 127
    seconds: float = 0.0
    timed_out: bool = False
    output: bytes = b""
    dropped: int = 0
    messages: tuple[str, ...] = ()
    broken: str = ""
    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()
    collected: Mapping[str, bytes] = {}
    not_started: str = ""


class SupervisorAnswer(Record):
    """The supervisor's answer; `problem` says why there is none, or why it may not be the supervisor's."""

    steps: tuple[StepEnd, ...] = ()
    files: Mapping[str, bytes] = {}
    problem: str = ""


async def supervise(
    sandbox: Sandbox,
    steps: Sequence[SupervisorStep],
    *,
    read: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> SupervisorAnswer:
    """Execute the programs in order. `read` are files whose content is wanted as it is before.

    `files` are written to a directory that replaces `{place}` in arguments and variables.
    """
    nonce = secrets.token_hex(16)
    job: dict[str, Any] = {"nonce": nonce, "read": list(read), "files": dict(files or {})}
    job["steps"] = [step.model_dump(mode="json") for step in steps]
    timeout = sum(step.timeout for step in steps) + GRACE
    stdin = with_program("supervise.py") + json.dumps(job)
    done = await sandbox.exec(PYTHON, stdin=stdin.encode(), timeout=timeout, separate_stderr=True)
    parts = done.output.split(nonce.encode())
    if len(parts) != 3:
        return SupervisorAnswer(problem="The program that starts the tests did not come to its end.")
    return _answer(parts[1], isolated=sandbox.isolated)


@cache
def with_program(name: str) -> str:
    """The input of a Python that is started by START, up to the program's own input."""
    source = Path(__file__).with_name(name).read_text("utf-8")
    return f"{len(source.encode())}\n{source}"


def _answer(text: bytes, *, isolated: bool) -> SupervisorAnswer:
    try:
        unpacked = zlib.decompressobj()
        answer: dict[str, Any] = json.loads(unpacked.decompress(base64.b64decode(text), MAX_ANSWER))
        steps = tuple(_ended(step) for step in answer["steps"])
        files = {path: base64.b64decode(content) for path, content in answer["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        return SupervisorAnswer(problem="The program that starts the tests was disturbed.")
    if isolated and not answer.get("hidden"):
        return SupervisorAnswer(problem="The program that starts the tests could not hide its memory from them.")
    return SupervisorAnswer(steps=steps, files=files)


def _ended(step: dict[str, Any]) -> StepEnd:
    collected = {name: base64.b64decode(content) for name, content in step.get("collected", {}).items()}
    return StepEnd(**{**step, "output": base64.b64decode(step.get("output", "")), "collected": collected})


class CaseOutcome(NamedTuple):
    """How one test ended. `plain` is False if other things than the test's own statements decided that.

    Examples: an expected exception, a plugin, a file that could not be loaded.
    """

    status: Status
    text: str = ""
    plain: bool = True


class LauncherReport(Record):
    """The reports. A parametrized or grouped id has one outcome for each of its tests."""

    outcomes: Mapping[str, tuple[tuple[str, CaseOutcome], ...]] = {}
    problem: str = ""
    """If not empty: why this must not be trusted."""
    hanging: str = ""
    """The id of the test that was running when the time was over."""
    unbegun: tuple[str, ...] = ()
    """The ids without a result because another test ended the program that they share."""
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    measured: bool = False


class CopiedTests(Record):
    """Files with copies of tests, whose known outcomes show whether the results are true.

    `same` and `altered` name the original of each copy: the first must end like it, the second must fail if it passes.
    `failing` always fail.
    """

    files: tuple[FileChange, ...] = ()
    same: Mapping[str, str] = {}
    altered: Mapping[str, str] = {}
    failing: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (*self.same, *self.altered, *self.failing)


class ReplayProgram(Record):
    """Programs that call the functions of tests without their framework. `paths` are the files with the tests."""

    ids: tuple[str, ...]
    paths: tuple[str, ...]
    steps: tuple[SupervisorStep, ...]
    token: str = ""
    """What begins each line of output that is a message, if there is no channel."""


class OddResult(NamedTuple):
    """A result of a class that changes a built-in type: (name, file, line) of each of its methods that do so."""

    test: str
    kind: str
    methods: tuple[tuple[str, str, int], ...]


class ReplayReport(NamedTuple):
    """By phase and id: the kind of failure and its text, both empty for a test that passed."""

    outcomes: Mapping[str, Mapping[str, tuple[str, str]]]
    odd: tuple[OddResult, ...] = ()
    problem: str = ""
    unfinished: bool = False
    """A program did not come to its end."""
    left: frozenset[str] = frozenset()
    """Tests that turned out to need their framework."""


class Launcher(ABC):
    """Executes chosen tests of one framework."""

    @abstractmethod
    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        """The programs that execute these tests, in this order."""

    @abstractmethod
    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        """What executes all tests of a command: the suite's own, or the narrowed one with chosen tests.

        Raises ValueError for a command that this launcher cannot execute.
        """

    @property
    def files(self) -> Mapping[str, str]:
        """Programs that the steps find in `{place}`, by name."""
        return {}

    @abstractmethod
    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        """The reports about these ids. Raises ValueError if the framework cannot run them."""

    @abstractmethod
    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        """The reports about all tests, by their ids; a file that could not be loaded is one of them."""

    def readable(self, output: bytes) -> bytes:
        """The output in a readable form for people."""
        return output

    @abstractmethod
    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Existing files that copies are made of."""

    def group(self, name: str) -> str:
        """The group of tests that keep their order."""
        return name

    @abstractmethod
    def copies(
        self, ids: Sequence[str], contents: Mapping[str, bytes], random: Random, *, in_place: bool
    ) -> CopiedTests:
        """Copies of these tests: renamed if they cannot notice that, or all `in_place` for a separate run."""
