"""Base and head from inside: a program that reads all it can sees nothing but the patched files' own content."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from app.core.patch import FileChange, Patch
from app.sandbox.base import SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.workspaces import Workspaces
from app.verify.execution import run
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, shell

FILES = {f"pkg/module_{number}.py": b"VALUE = %d\n" % number for number in range(40)} | {"money.py": b"VERSION = 0\n"}
PROBE = r"""
import json, os, socket, sys
seen = {"environ": dict(os.environ), "host": socket.gethostname(), "argv": sys.argv}
seen["who"] = [os.getcwd(), os.getuid()]
def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1_000_000).decode("latin-1")
    except OSError as error:
        return error.strerror
for name in ("cgroup", "mountinfo", "mounts", "environ", "cmdline", "status", "limits", "uid_map", "attr/current"):
    seen["proc " + name] = read("/proc/self/" + name)
    seen["first " + name] = read("/proc/1/" + name)
seen["hosts"] = read("/etc/hosts") + read("/etc/hostname") + read("/etc/passwd")
seen["processes"] = sorted(name for name in os.listdir("/proc") if name.isdigit())
paths, order, nodes = {}, [], []
for top in ("/workspace", "/tmp", "/home", "/run", "/env"):
    for directory, names, files in os.walk(top):
        order += [directory, *names, *files]
        for name in ["", *files]:
            path = os.path.join(directory, name)
            about = os.lstat(path)
            times = [about.st_mtime_ns] if top == "/workspace" else []
            paths[path] = [about.st_mode, about.st_uid, about.st_size, about.st_nlink, *times]
            if path.endswith(".py"):
                nodes.append([about.st_ctime_ns, path])
seen["paths"], seen["order"] = paths, order
# Whether some were written after the others: in the order of their paths, change times only grow.
nodes.sort(key=lambda node: node[1])
seen["late"] = [path for (time, path), (before, _) in zip(nodes[1:], nodes) if time < before]
seen["listing"] = [line.split(" ")[2:] for line in read("/run/filled").split("\0")]
print(json.dumps(seen))
"""
TOKEN = re.compile(r"j1\.[0-9a-f]{16}|agent-fix-\d+-[0-9a-f]{12}")


async def seen(workspaces: Workspaces, name: str, patch: Patch | None) -> dict[str, Any]:
    sandbox = await workspaces.fresh(name, patch)
    try:
        told = await shell(sandbox, f"python3 -c '{PROBE}'")
    finally:
        await sandbox.destroy()
    assert name not in told
    assert len({found for found in TOKEN.findall(told) if found.startswith("j1.")}) <= 1
    without = re.sub(r"^(\d+) (\d+) (\d+:\d+)", "", TOKEN.sub("TOKEN", told), flags=re.MULTILINE)
    found: dict[str, Any] = json.loads(without)
    # Numbers that the kernel gives out to whoever asks next, in every sandbox others.
    for key in ("proc mountinfo", "first mountinfo"):
        found[key] = re.sub(r"^\d+ \d+ \d+:\d+", "", found[key], flags=re.MULTILINE)
    for key in ("proc status", "first status"):
        found[key] = re.sub(r"(?m)^(?:SigQ|Vm|Rss|voluntary|nonvoluntary|Cpus|Mems|Hugetlb).*$", "", found[key])
    return found


async def test_base_and_head_differ_only_in_their_sources(tmp_path: Path) -> None:
    async def setup() -> SetupPlan:
        return SetupPlan(commands=("mkdir built && touch built/x",), key="k")

    provider = BubblewrapProvider(
        tmp_path / "sandboxes", caches=tmp_path / "caches", environment={"PATH": os.environ["PATH"]}
    )
    tree = MemoryTree(FILES)
    workspaces = Workspaces(provider, job="j1", fill=filler(FILES), tree=tree, setup=setup)
    changes = [FileChange(path="money.py", mode="100644", content=b"VERSION = 1000\n")]
    changes += [FileChange(path="pkg/module_7.py", mode="100644", content=b"VALUE = 8\n")]
    patch = Patch(base=tree.commit, changes=tuple(changes))
    await (await workspaces.fresh("suite-head", patch)).destroy()
    before = await seen(workspaces, "reproduction-base", None)
    after = await seen(workspaces, "reproduction-head", patch)
    assert before["late"] == []
    path = "/workspace/money.py"
    assert (before["paths"][path].pop(2), after["paths"][path].pop(2)) == (12, 15)
    assert [line for line in before["listing"] if "money.py" in line] != [
        line for line in after["listing"] if "money.py" in line
    ]
    for told in (before, after):
        told["listing"] = [line for line in told["listing"] if "money.py" not in line]
        del told["paths"]["/run/filled"][2:]
    for key, value in before.items():
        assert after[key] == value, key


@pytest.mark.parametrize("patched", [False, True])
async def test_set_up_sees_the_base_whatever_is_to_be_verified(tmp_path: Path, patched: bool) -> None:
    async def setup() -> SetupPlan:
        return SetupPlan(commands=("cp money.py /env/seen",), key="k")

    provider = BubblewrapProvider(
        tmp_path / "sandboxes", caches=tmp_path / "caches", environment={"PATH": os.environ["PATH"]}
    )
    tree = MemoryTree(FILES)
    workspaces = Workspaces(provider, job="j1", fill=filler(FILES), tree=tree, setup=setup)
    change = FileChange(path="money.py", mode="100644", content=b"VERSION = 1000\n")
    sandbox = await workspaces.fresh("x", Patch(base=tree.commit, changes=(change,)) if patched else None)
    assert await shell(sandbox, "cat /env/seen") == "VERSION = 0\n"
    await sandbox.destroy()


async def test_texts_for_people_hold_no_path_of_this_machine(tmp_path: Path) -> None:
    async def setup() -> SetupPlan:
        return SetupPlan(commands=("touch /env/x",), key="k")

    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches")
    workspaces = Workspaces(provider, job="j1", fill=filler(FILES), tree=MemoryTree(FILES), setup=setup)
    sandbox = await workspaces.fresh("x")
    script = "cat /proc/self/mountinfo; sed -n 's/.* \\([^ ]*\\) .workspace .*/at \\1/p' /proc/self/mountinfo"
    raw = await shell(sandbox, script)
    ran = await run(sandbox, script, timeout=30.0)
    await sandbox.destroy()
    assert str(tmp_path) in raw
    assert str(tmp_path) not in ran.execution.excerpt
    assert "at /workspace" in ran.execution.excerpt
