"""`build:` builds a fresh tree on top of what the set-up left: only what changed, and nothing old if it fails."""

from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.workspaces import Workspaces
from app.verify.execution import run
from app.verify.frameworks import SuiteCommand
from app.verify.project import ProjectUnderTest
from app.verify.suite_runner import SuiteRunner
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.sandboxes import filler

BUILD = r"""
mkdir -p out
for file in *.src; do
  [ ! "$file" -nt "out/$file" ] || { grep -q bad "$file" && exit 3; cp "$file" out/; echo "$file" >> out/log; }
done
"""
FILES = {"a.src": b"1\n", "b.src": b"2\n"}
TREE = MemoryTree(FILES)


@pytest.fixture
def project(tmp_path: Path) -> ProjectUnderTest:
    async def setup() -> SetupPlan:
        return SetupPlan((BUILD,), key="build")

    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches")
    sandboxes = Workspaces(provider, job="j1", fill=filler(FILES), tree=TREE, setup=setup)
    return ProjectUnderTest(sandboxes, TREE, ListProgress(), build=f"echo building; {BUILD}")


def change(content: bytes) -> Patch:
    return Patch(base=TREE.commit, changes=(FileChange(path="b.src", mode="100644", content=content),))


async def test_only_what_a_change_touches_is_built_again(project: ProjectUnderTest) -> None:
    for patch, built in ((None, "a.src b.src 1 2"), (change(b"3\n"), "a.src b.src b.src 1 3")):
        async with project.open("suite", patch) as sandbox:
            ran = await run(sandbox, "echo $(cat out/log out/a.src out/b.src)", timeout=30)
        assert ran.execution.excerpt == built


async def test_nothing_older_is_tested_if_the_build_fails(project: ProjectUnderTest) -> None:
    async with project.open("suite", change(b"bad\n")) as sandbox:
        ran = await run(sandbox, "cat out/a.src", timeout=30)
    assert (ran.execution.exit_code, ran.execution.excerpt) == (3, "building")
    suite = SuiteRunner(SuiteCommand("test -e out/log"), project, 30)
    base = await suite.base()
    assert base.execution.exit_code == 0
    found = await suite.compare(change(b"bad\n"), base)
    assert found.head is not None
    assert (found.head.execution.exit_code, found.head.execution.excerpt) == (3, "building")
