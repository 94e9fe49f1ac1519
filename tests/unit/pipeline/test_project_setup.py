"""What is kept of the trials of a set-up, so that the next job does not make them again."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.pipeline.wiring.project_setup import ChosenSetup, ProjectSetup, SetupProject
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


class EndingSandbox(Executor):
    """Every command ends with `exit_code` when its time is over."""

    key, isolated, left_out = "ending", True, ()

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return CompletedCommand(self.exit_code, b"", seconds=command.timeout)

    async def close(self) -> None:
        """Nothing outlives a command."""

    async def destroy(self) -> None:
        """There is no tree."""


class CountedProvider:
    name = "counted"

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.opened = 0

    async def check(self) -> tuple[DoctorCheck, ...]:
        return ()

    async def open(self, _spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        self.opened += 1
        return EndingSandbox(self.exit_code)


async def clients() -> PackageClients:
    return PackageClients(hosts=("https://index.test",))


async def tools() -> SetupTools:
    return SetupTools(Path("/usr/bin/python3"), clients, {"npm": "/bin/true", "node": "/bin/true"}.get)


async def chosen(provider: CountedProvider, memory: Path) -> ChosenSetup:
    tree = MemoryTree({path: text.encode() for path, text in FILES.items()})
    project = SetupProject(tree, lambda: datetime.now(UTC).date(), "scope")
    setup = ProjectSetup(
        project, provider, tools, lambda _directory: None, "key", ListProgress(), memory=memory, limits=LIMITS
    )
    return await setup.chosen()


@pytest.mark.parametrize(("exit_codes", "trials"), [([124, 124], 1), ([1, 124, 124], 2)])
async def test_a_suite_that_is_too_long_is_known_the_next_time(
    tmp_path: Path, exit_codes: Sequence[int], trials: int
) -> None:
    """One whose tests cannot start is tried again."""
    opened = 0
    for exit_code in exit_codes:
        provider = CountedProvider(exit_code)
        found = await chosen(provider, tmp_path)
        opened += provider.opened
    assert opened == trials
    assert "stopped at its limit of 7 s" in found.sentence
