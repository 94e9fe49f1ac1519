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


BUILDING = SetupPlan(
    (
        "mkdir -p build/deep logs; echo base | tee build/a.o build/deep/b > money.o",
        "echo spoiled > money.py; mkdir ~/.tool; echo made > ~/.tool/x",
    ),
    key="building",
)


def building(root: Path) -> Workspaces:
    async def setup() -> SetupPlan:
        return BUILDING

    provider = BubblewrapProvider(root / "sandboxes", caches=root / "caches")
    return Workspaces(provider, job="j1", fill=filler(TREE.files), tree=TREE, setup=setup)


async def test_files_created_by_setup_are_not_part_of_the_change(tmp_path: Path) -> None:
    """Neither as they are nor rewritten, nor new ones in its directories; an empty directory is nobody's."""
    workspaces = building(tmp_path)
    work = await workspaces.work()
    assert (await workspaces.export(work)).paths() == ()
    await shell(work, "echo 1 > build/new && echo 2 > build/a.o && echo 3 > money.o && rm -r build/deep")
    assert (await workspaces.export(work)).paths() == ()
    await shell(work, "echo 1 > new && echo 2 > logs/log && echo 3 > money.py")
    assert (await workspaces.export(work)).paths() == ("logs/log", "money.py", "new")
    await shell(work, "rm -r build money.o logs new money.py && touch build")
    assert (await workspaces.export(work)).paths() == ("money.py",)
    await work.destroy()


async def test_every_sandbox_has_what_the_setup_created_and_keeps_what_it_changes_there(tmp_path: Path) -> None:
    workspaces = building(tmp_path)
    for _ in range(2):
        sandbox = await workspaces.fresh("suite", None)
        assert await shell(sandbox, "cat build/a.o build/deep/b money.o money.py ~/.tool/x; ls -A") == (
            "base\nbase\nbase\nVERSION = 0\nmade\nbuild\nlogs\nmoney.o\nmoney.py\n"
        )
        await shell(sandbox, "echo changed > build/a.o; rm -r build/deep; echo x > ~/.tool/x")
        assert await shell(sandbox, "cat build/a.o ~/.tool/x; ls build") == "changed\nx\na.o\n"
        await sandbox.destroy()


async def test_only_changed_files_are_younger_than_what_the_setup_built(tmp_path: Path) -> None:
    workspaces = building(tmp_path)
    younger = "[ money.py -nt money.o ] && echo younger || echo older"
    work = await workspaces.work()
    assert await shell(work, younger) == "older\n"
    assert await shell(work, f"echo 1 >> money.py; {younger}") == "younger\n"
    await work.destroy()
    base = await workspaces.fresh("base")
    assert await shell(base, younger) == "older\n"
    await base.destroy()
    change = FileChange(path="money.py", mode="100644", content=b"VERSION = 1\n")
    for patch in (Patch(base=TREE.commit, changes=(change,)), None):  # no time tells head from base
        sandbox = await workspaces.fresh("head", patch)
        assert await shell(sandbox, younger) == "younger\n"
        await sandbox.destroy()


async def test_a_file_that_the_change_deletes_or_adds_is_not_what_the_setup_left(tmp_path: Path) -> None:
    workspaces = building(tmp_path)
    gone = FileChange(path="money.py", mode="100644", content=None)
    added = FileChange(path="build/a.o", mode="100644", content=b"tracked now\n")
    sandbox = await workspaces.fresh("head", Patch(base=TREE.commit, changes=(added, gone)))
    assert await shell(sandbox, "cat build/a.o build/deep/b; ls") == "tracked now\nbase\nbuild\nlogs\nmoney.o\n"
    await sandbox.destroy()
