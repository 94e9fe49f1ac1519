"""What is kept of the trials of a set-up, so that the next job does not make them again."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.llm.errors import BudgetError, ModelError
from app.pipeline.wiring.project_setup import ProjectSetup, Propose, ProposedSetup, SetupProject
from app.pipeline.wiring.sandboxes import SetupTools
from app.sandbox.base import CompletedCommand, DoctorCheck, Executor, OnOutput, Sandbox, SandboxCommand, SandboxSpec
from app.sandbox.setup.package_clients import PackageClients
from app.verify.candidates import Trial, TrialLimits
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress

FILES = {
    "pyproject.toml": '[project]\nname = "a"\n',
    "tox.ini": "[testenv]\ndeps = pytest\ncommands = pytest tests\n",
    "tests/test_a.py": "def test_a(): pass\n",
}
LIMITS = TrialLimits(total=0.0, suite=7.0)


HALF = b"test_a (tests.a.Case.test_a) ... ok\ntest_b (tests.a.Case.test_b) ... FAIL\n-----\nRan 2 tests\n"
ALL = HALF.replace(b"FAIL", b"ok")


class EndingSandbox(Executor):
    """Every command ends with `exit_code` when its time is over."""

    key, isolated, left_out, created = "ending", True, (), ()

    def __init__(self, exit_code: int, output: bytes = b"") -> None:
        self.exit_code, self.output = exit_code, output

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return CompletedCommand(self.exit_code, self.output, seconds=command.timeout)

    async def close(self) -> None:
        """Nothing outlives a command."""

    async def destroy(self) -> None:
        """There is no tree."""


class WaitingSandbox(EndingSandbox):
    """Its suite ends when it may."""

    def __init__(self, may_end: asyncio.Event) -> None:
        super().__init__(0)
        self.may_end = may_end

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        await self.may_end.wait()
        return await super().execute(command)


class CountedProvider:
    """Its sandboxes end with these exit codes, one after the other; 3: half of the tests pass, 4: all do, 5: all that
    ran before the suite was stopped."""

    name = "counted"

    def __init__(self, *exit_codes: int) -> None:
        self.exit_codes = exit_codes
        self.opened = 0
        self.plans: list[tuple[str, ...]] = []
        self.may_end: asyncio.Event | None = None

    async def check(self) -> tuple[DoctorCheck, ...]:
        return ()

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        self.plans.append(spec.setup.commands)
        exit_code = self.exit_codes[self.opened]
        self.opened += 1
        if self.may_end is not None:
            return WaitingSandbox(self.may_end)
        return EndingSandbox(*{3: (1, HALF), 4: (0, ALL), 5: (124, ALL)}.get(exit_code, (exit_code, b"")))


async def clients() -> PackageClients:
    return PackageClients(hosts=("https://index.test",))


async def tools() -> SetupTools:
    return SetupTools(Path("/usr/bin/python3"), clients, {"npm": "/bin/true", "node": "/bin/true"}.get)


def project_setup(
    provider: CountedProvider,
    memory: Path,
    limits: TrialLimits = LIMITS,
    commands: str = "pytest tests",
    propose: Propose | None = None,
) -> ProjectSetup:
    files = {**FILES, "tox.ini": FILES["tox.ini"].replace("pytest tests", commands)}
    tree = MemoryTree({path: text.encode() for path, text in files.items()})
    project = SetupProject(tree, lambda: datetime.now(UTC).date(), "scope")
    return ProjectSetup(
        project,
        provider,
        tools,
        lambda _directory: None,
        "key",
        ListProgress(),
        memory=memory,
        limits=limits,
        propose=propose,
    )


@pytest.mark.parametrize(("exit_codes", "trials"), [([124, 124], 1), ([1, 124, 124], 2)])
async def test_a_suite_that_is_too_long_is_known_the_next_time(
    tmp_path: Path, exit_codes: Sequence[int], trials: int
) -> None:
    """One whose tests cannot start is tried again."""
    opened = 0
    for exit_code in exit_codes:
        provider = CountedProvider(exit_code)
        found = await project_setup(provider, tmp_path).chosen()
        opened += provider.opened
    assert opened == trials
    assert "stopped at its limit of 7 s" in found.sentence


async def test_a_suite_that_is_stopped_is_comparable_by_its_first_tests(tmp_path: Path) -> None:
    found = await project_setup(CountedProvider(5), tmp_path, commands="python -m unittest").chosen()
    assert (
        "2 tests pass, 0 fail, 0 are not run. The suite was stopped at its limit of 7 s; 2 tests had" in found.sentence
    )
    assert (found.trials[0].comparable, found.base) == (True, None)


@pytest.mark.parametrize(("options", "known"), [("", True), (" -n4", False)])
async def test_results_of_several_processes_are_not_those_that_a_head_is_compared_with(
    tmp_path: Path, options: str, known: bool
) -> None:
    found = await project_setup(CountedProvider(NO_RESULTS), tmp_path, commands=f"pytest tests{options}").chosen()
    assert (found.base is not None) is known


LONG, CANNOT_START, HALF_PASSES, ALL_PASS, NO_RESULTS = 124, 1, 3, 4, 0


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ((LONG, CANNOT_START), "stopped at its limit", 0),
        ((CANNOT_START, LONG), "stopped at its limit", 0),
        ((HALF_PASSES, LONG), "1 tests pass, 1 fail", 1),
        ((HALF_PASSES, CANNOT_START), "1 tests pass, 1 fail", 2),
    ],
)
async def test_candidates_that_are_too_long_are_not_tried_again(
    tmp_path: Path, first: Sequence[int], second: str, again: int
) -> None:
    everything = TrialLimits(total=1e9, suite=7.0)
    commands = "python -m unittest discover -v"
    provider = CountedProvider(*first)
    found = await project_setup(provider, tmp_path, everything, commands).chosen()
    assert provider.opened == 2
    assert second in found.sentence
    provider = CountedProvider(HALF_PASSES, HALF_PASSES)
    await project_setup(provider, tmp_path, everything, commands).chosen()
    assert provider.opened == again


async def test_a_plan_is_asked_for_while_the_first_candidates_suite_runs(tmp_path: Path) -> None:
    provider = CountedProvider(0)
    provider.may_end = asyncio.Event()
    setup = project_setup(provider, tmp_path)
    await setup.possible()
    assert not provider.may_end.is_set()
    provider.may_end.set()
    assert (await setup.chosen()).base is not None


class Proposer:
    """A model that always proposes the same."""

    def __init__(self, test: str = "python -m unittest -v") -> None:
        self.test = test
        self.asked: list[int] = []

    async def __call__(self, trials: Sequence[Trial]) -> ProposedSetup:
        self.asked.append(len(trials))
        return ProposedSetup(setup=("pip install special",), test=self.test)


ONE_TEST = "python -m unittest discover -v"


async def test_a_model_is_asked_once_where_no_candidate_is_good(tmp_path: Path) -> None:
    proposer, provider = Proposer(), CountedProvider(HALF_PASSES, HALF_PASSES, ALL_PASS)
    found = await project_setup(provider, tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
    assert proposer.asked == [2]
    assert found.suite is not None
    assert (found.suite.command, found.suite.proposed) == ("python -m unittest -v", True)
    assert provider.plans[2][-1] == "pip install special"
    assert found.sentence == (
        "Set-up: what a model proposed after others had failed (`pip install special`): 2 tests pass, 0 fail, "
        "0 are not run. Of 3 candidates most tests pass with it (tox.ini: 1 passed, 1 failed, 0 not run; "
        "manifests: 1 passed, 1 failed, 0 not run)."
    )
    again = await project_setup(CountedProvider(), tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
    assert (again.plan.commands, again.suite, again.sentence) == (found.plan.commands, found.suite, found.sentence)
    assert len(proposer.asked) == 1


async def test_proposed_command_that_the_project_has_too_is_its_own(tmp_path: Path) -> None:
    provider = CountedProvider(HALF_PASSES, HALF_PASSES, ALL_PASS)
    proposer = Proposer("python3 -m unittest discover -v")
    found = await project_setup(provider, tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
    assert found.suite is not None
    assert "proposed" in found.sentence
    assert not found.suite.proposed


@pytest.mark.parametrize("proposed", [HALF_PASSES, CANNOT_START, NO_RESULTS])
async def test_a_proposal_that_is_not_better_is_not_used_and_not_asked_for_again(tmp_path: Path, proposed: int) -> None:
    """Of a bare exit code nothing is known but that the model's own command ended with it."""
    proposer = Proposer()
    for number in (1, 2):
        provider = CountedProvider(HALF_PASSES, HALF_PASSES, proposed)
        found = await project_setup(provider, tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
        assert found.suite is not None
        assert "proposed" not in found.sentence
        assert (provider.opened, len(proposer.asked)) == (3 if number == 1 else 2, 1)


@pytest.mark.parametrize(
    "error", [ModelError("It is down.", kind="retry", reason="unavailable"), BudgetError("No money is left.")]
)
async def test_without_an_answer_a_job_goes_on_and_the_next_one_asks_again(tmp_path: Path, error: Exception) -> None:
    async def refuse(_trials: Sequence[Trial]) -> ProposedSetup:
        raise error

    for propose in (refuse, proposer := Proposer()):
        provider = CountedProvider(HALF_PASSES, HALF_PASSES, ALL_PASS)
        found = await project_setup(provider, tmp_path, TrialLimits(), ONE_TEST, propose).chosen()
        assert ("proposed" in found.sentence) == (propose is proposer)


def change_kept(memory: Path) -> None:
    """Give the kept proposal another shape."""
    (kept,) = memory.glob("*.json")
    kept.write_text(kept.read_text("utf-8").replace('"setup"', '"of a later version"'), "utf-8")


async def test_a_kept_proposal_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    proposer = Proposer()
    for _ in range(2):
        provider = CountedProvider(HALF_PASSES, HALF_PASSES, ALL_PASS)
        found = await project_setup(provider, tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
        assert "proposed" in found.sentence
        change_kept(tmp_path)
    assert len(proposer.asked) == 2


async def test_no_model_is_asked_where_a_candidate_is_good(tmp_path: Path) -> None:
    proposer = Proposer()
    await project_setup(CountedProvider(ALL_PASS), tmp_path, TrialLimits(), ONE_TEST, proposer).chosen()
    assert proposer.asked == []


async def test_lines_for_a_configuration_are_tried_as_they_stand(tmp_path: Path) -> None:
    provider = CountedProvider(4)
    trial = await project_setup(provider, tmp_path).try_lines(("pip install x",), "python -m unittest -v")
    assert (trial.comparable, trial.count.passed) == (True, 2)
    assert provider.plans == [("/usr/bin/python3 -I -m venv /env", "pip install x")]
