"""A job's sandboxes: one that is had again, and fresh ones that nobody has touched."""

from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.workspaces import Workspaces
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, shell

TREE = MemoryTree({"money.py": b"VERSION = 0\n"})
NOTHING = Patch(base=TREE.commit)


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return opened_by_a_process(tmp_path)


def opened_by_a_process(root: Path) -> Workspaces:
    async def setup() -> SetupPlan:
        return SetupPlan()

    provider = BubblewrapProvider(root / "sandboxes", caches=root / "caches")
    return Workspaces(provider, job="j1", fill=filler(TREE.files), tree=TREE, setup=setup)


async def test_the_work_tree_is_had_again_as_it_was_left(workspaces: Workspaces, tmp_path: Path) -> None:
    work = await workspaces.work()
    await shell(work, "echo more >> money.py")
    await work.close()
    again = await opened_by_a_process(tmp_path).work()
    assert await shell(again, "cat money.py") == "VERSION = 0\nmore\n"
    await again.destroy()


async def test_a_fresh_one_is_untouched_whatever_a_dead_process_left(workspaces: Workspaces, tmp_path: Path) -> None:
    left = await workspaces.fresh("verify.head")
    await shell(left, "echo planted > sitecustomize.py")
    await left.close()
    change = FileChange(path="money.py", mode="100644", content=b"VERSION = 1\n")
    patch = Patch(base=TREE.commit, changes=(change,))
    fresh = await opened_by_a_process(tmp_path).fresh("verify.head", patch)
    assert await shell(fresh, "ls; cat money.py") == "money.py\nVERSION = 1\n"
    await fresh.destroy()


async def test_a_fresh_one_is_filled_once(tmp_path: Path) -> None:
    fills: list[Patch | None] = []
    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches")

    async def setup() -> SetupPlan:
        return SetupPlan()

    workspaces = Workspaces(provider, job="j1", fill=lambda _, patch: fills.append(patch), tree=TREE, setup=setup)
    sandbox = await workspaces.fresh("verify.base", NOTHING)
    assert fills == [NOTHING]
    assert sandbox.key.startswith("j1.")  # so that it is swept with its job
    assert "base" not in sandbox.key
    await sandbox.destroy()


async def test_files_created_by_setup_are_not_part_of_the_change(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches")

    async def setup() -> SetupPlan:
        return SetupPlan(directories=("vendored",))

    workspaces = Workspaces(provider, job="j1", fill=filler(TREE.files), tree=TREE, setup=setup)
    work = await workspaces.work()
    await shell(work, "mkdir -p vendored && echo 1 > vendored/package && echo 1 > new")
    patch = await workspaces.export(work)
    assert patch.paths() == ("new",)
    await work.destroy()
