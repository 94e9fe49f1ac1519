"""The port to a launcher: it reports how each chosen test ended, and reasons not to trust that."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from app.core.patch import FileChange
from app.core.record import Record
from app.core.verification import Status
from app.verify.launcher.supervisor_client import SupervisorAnswer, SupervisorStep


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
