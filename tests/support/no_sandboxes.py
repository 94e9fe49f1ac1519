"""A project of which nothing is to be executed."""

from app.core.patch import Patch, Tree
from app.sandbox.base import Sandbox
from app.verify.project import ProjectUnderTest
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress


class NoSandboxes:
    """A sandbox that is asked for is an error."""

    provider = "none"

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        raise AssertionError(f"{name} was to be opened")


def unopened(tree: Tree | None = None) -> ProjectUnderTest:
    return ProjectUnderTest(NoSandboxes(), tree or MemoryTree({}), ListProgress())
