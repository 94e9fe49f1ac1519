"""Chosen tests whose results are scripted: by the sandbox's name, so that base, head and variants can differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.patch import Patch
from app.core.verification import Execution, Outcome, TestRun, TestSelection
from app.verify.frameworks import SuiteCommand
from app.verify.launcher.base import OddResult, ReplayReport
from app.verify.project import ProjectUnderTest
from app.verify.replay import Replayed
from app.verify.selected_tests import Runs
from tests.support.no_sandboxes import unopened

PYTEST = SuiteCommand(command="python -m pytest", framework="pytest", narrowed="python -m pytest")
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

    def answer(self, name: str, selection: TestSelection) -> Replayed:
        self.names.append(name)
        odd = self.odd if self.odd_on_base or not name.endswith("-base") else ()
        return Replayed(selection.ids, ReplayReport(self.ends.get(name, {}), odd, "", name in self.unfinished))


@dataclass(frozen=True)
class ScriptedRuns(Runs):
    """Answers each execution by `ends`: (name, how often it was asked for by that name before) → results by id."""

    suite: SuiteCommand = PYTEST
    project: ProjectUnderTest = field(default_factory=unopened)
    ends: Callable[[str, int], Results] = lambda name, before: {}
    replays: ScriptedReplays = field(default_factory=ScriptedReplays)
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
    timed_out: bool = False
    names: list[str] = field(default_factory=list)
    patches: list[tuple[str, Patch | None]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    without_copies: list[str] = field(default_factory=list)

    async def replayed(self, name: str, selection: TestSelection, patch: Patch | None) -> Replayed:
        return self.replays.answer(name, selection)

    async def run(
        self,
        name: str,
        selection: TestSelection,
        patch: Patch | None,
        *,
        timeout: float,
        seed: int,
        watch: Sequence[str] = (),
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
            execution=Execution(
                command=self.suite.command, exit_code=code, seconds=self.seconds, timed_out=self.timed_out
            ),
            results=results,
            texts=tuple((one, self.texts.get(one, "AssertionError: 1 != 2")) for one in failing),
            untrusted=self.untrusted.get(name, ""),
            executed=(self.executed_in(name) if self.executed_in else self.executed) if watch else (),
            measured=self.measured and bool(watch),
            unchecked=self.unchecked,
        )
