"""What is kept of the trials of a set-up, so that the next job does not make them again."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.pipeline.wiring.project_setup import ProjectSetup, SetupProject
from app.pipeline.wiring.sandboxes import SetupTools
from app.sandbox.base import CompletedCommand, DoctorCheck, OnOutput, Sandbox, SandboxSpec
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.setup.package_hosts import PackageClients
from app.verify.trials import TrialLimits
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress

FILES = {
    "pyproject.toml": '[project]\nname = "a"\n',
    "tox.ini": "[testenv]\ndeps = pytest\ncommands = pytest tests\n",
    "tests/test_a.py": "def test_a(): pass\n",
}
LIMITS = TrialLimits(total=0.0, suite=7.0)


HALF = b"test_a (tests.a.Case.test_a) ... ok\ntest_b (tests.a.Case.test_b) ... FAIL\n-----\nRan 2 tests\n"


class EndingSandbox(Executor):
    """Every command ends with `exit_code` when its time is over."""

    key, isolated, left_out = "ending", True, ()

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
    """Its sandboxes end with these exit codes, one after the other; 3: half of the tests pass."""

    name = "counted"

    def __init__(self, *exit_codes: int) -> None:
        self.exit_codes = exit_codes
        self.opened = 0
        self.may_end: asyncio.Event | None = None

    async def check(self) -> tuple[DoctorCheck, ...]:
        return ()

    async def open(self, _spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        exit_code = self.exit_codes[self.opened]
        self.opened += 1
        if self.may_end is not None:
            return WaitingSandbox(self.may_end)
        return EndingSandbox(1, HALF) if exit_code == 3 else EndingSandbox(exit_code)


async def clients() -> PackageClients:
    return PackageClients(hosts=("https://index.test",))


async def tools() -> SetupTools:
    return SetupTools(Path("/usr/bin/python3"), clients, {"npm": "/bin/true", "node": "/bin/true"}.get)


def project_setup(
    provider: CountedProvider, memory: Path, limits: TrialLimits = LIMITS, commands: str = "pytest tests"
) -> ProjectSetup:
    files = {**FILES, "tox.ini": FILES["tox.ini"].replace("pytest tests", commands)}
    tree = MemoryTree({path: text.encode() for path, text in files.items()})
    project = SetupProject(tree, lambda: datetime.now(UTC).date(), "scope")
    return ProjectSetup(
        project, provider, tools, lambda _directory: None, "key", ListProgress(), memory=memory, limits=limits
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


LONG, CANNOT_START, HALF_PASSES = 124, 1, 3


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
