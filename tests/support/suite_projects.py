"""Small projects whose suites are compared, each time in a fresh real sandbox."""

import textwrap
from collections.abc import Mapping

from app.core.verification import SuiteComparison, SuiteResult
from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.verify.detect import find_suite
from app.verify.project import ProjectUnderTest, TimeLimits
from app.verify.suite_runner import SuiteRunner
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.sandbox_projects import ProjectWorkspaces, patch_of

_BASES: dict[frozenset[tuple[str, bytes]], SuiteResult] = {}
"""What suites gave on their base: the same for every change of a project."""


class Project:
    """A tree in memory with its suite."""

    def __init__(
        self,
        provider: BubblewrapProvider,
        files: Mapping[str, str],
        *,
        test: str | None = None,
        setup: SetupPlan | None = None,
    ) -> None:
        self.tree = MemoryTree({path: as_bytes(content) for path, content in files.items()})
        suite = find_suite(self.tree, test)
        assert suite is not None
        self.suite = suite
        self.workspaces = ProjectWorkspaces(
            provider, self.tree, with_pytest=suite.framework == "pytest", setup=setup or SetupPlan()
        )

    @property
    def under_test(self) -> ProjectUnderTest:
        limits = TimeLimits(suite=200.0, reproduction=200.0)
        return ProjectUnderTest(self.workspaces, self.tree, ListProgress(), limits)

    def suite_runner(self) -> SuiteRunner:
        return SuiteRunner(self.suite, self.under_test, 200.0)

    async def compare(self, changes: Mapping[str, str | None]) -> SuiteComparison:
        """The suite on the base, where it is run once, and on the head."""
        patch = patch_of({path: None if text is None else as_bytes(text) for path, text in changes.items()})
        project = frozenset(self.tree.files.items())
        found = await self.suite_runner().compare(patch, _BASES.get(project))
        assert found.base is not None
        _BASES[project] = found.base
        return found


def as_bytes(content: str) -> bytes:
    return textwrap.dedent(content).encode()
