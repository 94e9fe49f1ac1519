"""A small project in a real sandbox, and examples that run on it before and after a change."""

import textwrap
from collections.abc import Mapping

from app.core.examples import Because, Example, ProgramRun, Run, SourceText
from app.sandbox.base import SandboxProvider, SetupPlan
from app.verify.examples.programs import CONDITIONS, Programs
from app.verify.overlay import Overlay
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import NO_SETUP, ProjectWorkspaces, patch_of

NO_FILES: Mapping[str, str] = {}
NO_CHANGE: Mapping[str, str | bytes | None] = {}


def example(run: Run, program: str, stdout: str = "", *, files: Mapping[str, str] = NO_FILES, code: int = 0) -> Example:
    laid = tuple(SourceText(path=path, text=textwrap.dedent(text)) for path, text in files.items())
    because = Because(quote="it says so", source="issue")
    text = textwrap.dedent(program)
    return Example(behaviour="It does.", because=because, run=run, program=text, stdout=stdout, exit=code, files=laid)


class ExampleProject:
    """Files by path, the set-up of their sandboxes, and the command that builds them."""

    def __init__(
        self, provider: SandboxProvider, files: Mapping[str, str], *, setup: SetupPlan = NO_SETUP, build: str = ""
    ) -> None:
        self.tree = MemoryTree({path: textwrap.dedent(text).encode() for path, text in files.items()})
        self.workspaces = ProjectWorkspaces(provider, self.tree, setup=setup)
        self._build = build

    async def run(
        self, *examples: Example, change: Mapping[str, str | bytes | None] = NO_CHANGE, timeout: float = 10.0
    ) -> list[list[ProgramRun]]:
        """For each example its run under each condition, on the project with this change."""
        dedented = {path: textwrap.dedent(text) if isinstance(text, str) else text for path, text in change.items()}
        patch = patch_of(dedented)
        tree = Overlay(self.tree, patch)
        found: list[list[ProgramRun]] = [[] for _ in examples]
        for condition in CONDITIONS:
            sandbox = await self.workspaces.fresh(condition.name, patch)
            try:
                programs = Programs(tree, sandbox, condition, build=self._build)
                for number, one in enumerate(examples):
                    found[number].append(await programs.run(one, timeout=timeout))
            finally:
                await sandbox.destroy()
        return found

    async def story(self, shows: Example, keeps: Example, change: Mapping[str, str | bytes | None]) -> None:
        """`shows` differs before the change in both runs and is right after it; `keeps` is right in all four."""
        before, after = await self.run(shows, keeps), await self.run(shows, keeps, change=change)
        for run in (*before[0], *before[1], *after[0], *after[1]):
            assert not run.problem, run
        assert [run.printed(shows) for run in before[0]] == [False, False], before[0]
        assert [run.printed(shows) for run in after[0]] == [True, True], after[0]
        assert [run.printed(keeps) for run in (*before[1], *after[1])] == [True] * 4, (before[1], after[1])
