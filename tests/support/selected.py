"""Chosen tests whose results are scripted: by the sandbox's name, so that base, head and variants can differ."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from app.core.patch import Patch
from app.core.verification import Execution, Outcome, TestRun, TestSelection
from app.verify.frameworks import SuiteCommand
from app.verify.launcher.base import OddResult, ReplayReport
from app.verify.replay import Replayed
from app.verify.reproduction import BorrowSandbox

Results = Mapping[str, Outcome]
Ended = tuple[str, str]


@dataclass
class ScriptedReplays:
    """Answers each replay by the sandbox's name: phase → id → (kind, text); every other test passes in every phase."""

    ends: Mapping[str, Mapping[str, Mapping[str, Ended]]] = field(default_factory=dict)
    odd: tuple[OddResult, ...] = ()
    odd_on_base: bool = True
    unfinished: frozenset[str] = frozenset()
    names: list[str] = field(default_factory=list)

    async def __call__(
        self, suite: SuiteCommand, selection: TestSelection, borrow: BorrowSandbox, patch: Patch | None, *, name: str
    ) -> Replayed:
        self.names.append(name)
        odd = self.odd if self.odd_on_base or not name.endswith("-base") else ()
        return Replayed(selection.ids, ReplayReport(self.ends.get(name, {}), odd, "", name in self.unfinished))


@dataclass
class ScriptedRuns:
    """Answers each execution by `ends`: (name, how often it was asked for by that name before) → results by id."""

    ends: Callable[[str, int], Results]
    texts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.5
    untrusted: Mapping[str, str] = field(default_factory=dict)
    """Why the executions of a name must not be believed."""
    unchecked: tuple[str, ...] = ()
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    executed_in: Callable[[str], tuple[tuple[str, tuple[int, ...]], ...]] | None = None
    """The same by the execution's name."""
    measured: bool = True
    exit_code: int | None = None
    names: list[str] = field(default_factory=list)
    patches: list[tuple[str, Patch | None]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    without_copies: list[str] = field(default_factory=list)

    async def __call__(
        self,
        suite: SuiteCommand,
        selection: TestSelection,
        borrow: BorrowSandbox,
        patch: Patch | None,
        *,
        name: str,
        timeout: float,
        watch: Mapping[str, Set[int]] | None = None,
        seed: int,
        copies: bool = True,
    ) -> TestRun:
        found = self.ends(name, self.names.count(name))
        self.names.append(name)
        self.patches.append((name, patch))
        self.seeds.append(seed)
        if not copies:
            self.without_copies.append(name)
        results = tuple((one, found.get(one, "not_run")) for one in selection.ids)
        failing = [one for one, result in results if result in ("failed", "error")]
        code = (1 if failing else 0) if self.exit_code is None else self.exit_code
        return TestRun(
            execution=Execution(command=suite.command, exit_code=code, seconds=self.seconds),
            results=results,
            texts=tuple((one, self.texts.get(one, "AssertionError: 1 != 2")) for one in failing),
            untrusted=self.untrusted.get(name, ""),
            executed=(self.executed_in(name) if self.executed_in else self.executed) if watch is not None else (),
            measured=self.measured and watch is not None,
            unchecked=self.unchecked,
        )
