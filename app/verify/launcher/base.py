"""What a launcher answers: how each chosen test ended, and whatever speaks against believing it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

from app.core.evidence import Status
from app.core.patch import FileChange
from app.core.record import Record
from app.verify.launcher.supervisor_client import SupervisorAnswer, SupervisorStep


class CaseOutcome(NamedTuple):
    """How one test ended. `plain` is False where that was not by the test's own statements alone.

    An exception was expected, a plugin had its say, or the file could not be loaded at all.
    """

    status: Status
    text: str = ""
    plain: bool = True


class LauncherReport(Record):
    """What was reported. A parametrized or grouped id has one outcome for each of its tests."""

    outcomes: Mapping[str, tuple[tuple[str, CaseOutcome], ...]] = {}
    problem: str = ""
    """Not empty: why this must not be believed."""
    hanging: str = ""
    """The id that was being executed when the time was over."""
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    measured: bool = False


class CopiedTests(Record):
    """Files with copies of tests, laid over the others: what each copy has to end as tells whether results are true.

    `same` and `altered` name the original of each copy: the first must end as that does, the second must fail where
    that passes. `failing` fail whatever happens.
    """

    files: tuple[FileChange, ...] = ()
    same: Mapping[str, str] = {}
    altered: Mapping[str, str] = {}
    failing: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (*self.same, *self.altered, *self.failing)


class Launcher(Protocol):
    """How chosen tests of one framework are executed."""

    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        """The programs that execute these tests, in this order."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """Programs that the steps find in `{place}`, by name."""
        ...

    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        """What the programs reported of these ids. ValueError where the framework cannot do it at all."""
        ...

    def readable(self, output: bytes) -> bytes:
        """What people are shown of the output."""
        ...

    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Files that copies are made of, as far as they exist."""
        ...

    def group(self, name: str) -> str:
        """The same for tests that keep their order."""
        ...

    def copies(
        self, ids: Sequence[str], contents: Mapping[str, bytes], random: Random, *, in_place: bool
    ) -> CopiedTests:
        """Copies of these tests; under other names where they cannot notice, or all `in_place` for another run."""
        ...
