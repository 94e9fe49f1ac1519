"""What the files of a sandbox may take of the disk, in a real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.sandbox.base import Sandbox, SandboxLimits, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandboxes import filler, opened, shell

LIMITS = SandboxLimits(disk=48 * 1024**2, files=8_000)
NOTE = b"[ended: the sandbox's files take more than 48 MiB of disk]"
PLACES = ("/tmp", "/workspace", "/home/agent")
FILL = {
    "one file": "cat /dev/zero > big",
    "many files": "for i in $(seq 100000); do head -c 1000000 /dev/zero > $i; done",
    "files that nobody may read": "mkdir a; exec 3> a/b; chmod 0 a; cat /dev/zero >&3",
    "in the background": "(cat /dev/zero > big) & sleep 600",
}
"""Each of them without end."""


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
    async with opened(provider, SandboxSpec("job", filler({"a.py": b""}), limits=LIMITS)) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("way", "place"), [*((way, "/tmp") for way in FILL), *(("one file", place) for place in PLACES[1:])]
)
async def test_a_command_that_fills_the_disk_is_ended(sandbox: Sandbox, way: str, place: str) -> None:
    done = await sandbox.exec(["bash", "-c", FILL[way]], cwd=place, timeout=200.0)
    assert (done.exit_code, done.timed_out) == (137, False)
    assert NOTE in done.output
    await shell(sandbox, f"chmod -R u+rwX {place}; rm -rf {place}/*; cd /tmp; head -c 1000 /dev/zero > small")


EMPTY = {
    "files": "i=0; while :; do : > $((i+=1)); done",
    "directories": "i=0; while :; do mkdir -p $((i+=1))/a/b/c/d/e/f/g/h; done",
    "links": "i=0; while :; do ln -s . $((i+=1)); done",
}
"""Each of them without end, and of next to no bytes."""


@pytest.mark.parametrize("kind", EMPTY)
async def test_a_command_that_makes_too_many_empty_files_is_ended(sandbox: Sandbox, kind: str) -> None:
    done = await sandbox.exec(["bash", "-c", EMPTY[kind]], cwd="/tmp", timeout=200.0)
    assert (done.exit_code, done.timed_out) == (137, False)
    assert b"[ended: the sandbox's files and directories are more than 8,000]" in done.output


async def test_a_full_sandbox_can_be_cleaned_slowly_but_not_filled_further(sandbox: Sandbox) -> None:
    await sandbox.exec(["bash", "-c", "cat /dev/zero > /tmp/big"], timeout=200.0)
    refused = await sandbox.exec(["bash", "-c", "cat /dev/zero > /tmp/more"], timeout=200.0)
    assert NOTE in refused.output
    # As when the file system places on disk only now what an earlier command wrote, and needs a block more for that.
    late = "head -c 100000 /dev/zero > /tmp/late; sync"
    await shell(sandbox, f"{late}; sleep 2; rm /tmp/big /tmp/more; head -c 1000 /dev/zero > /tmp/small")


async def test_all_commands_together_are_counted(sandbox: Sandbox) -> None:
    outputs = []
    for number in range(16):
        command = f"head -c 8000000 /dev/urandom > /tmp/{number}; sleep 1"
        outputs.append((await sandbox.exec(["bash", "-c", command], timeout=60.0)).output)
    assert outputs[0] == b""
    assert NOTE in outputs[-1]


async def test_a_setup_may_use_twice_the_disk(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")

    def spec(mebibytes: int) -> SandboxSpec:
        setup = SetupPlan((f"head -c {mebibytes}M /dev/zero > /env/big; sleep 2",), key=str(mebibytes))
        return SandboxSpec("job", filler({}), setup, limits=LIMITS)

    async with opened(provider, spec(70)) as sandbox:
        assert await shell(sandbox, "stat -c %s /env/big") == f"{70 * 1024**2}\n"
    with pytest.raises(SetupError, match="files take more than 96 MiB of disk"):
        await provider.open(spec(500))
