"""A command that is interrupted while its control group is joined: what follows touches no file of somebody else."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from app.sandbox.bubblewrap.cgroup import Cgroup
from app.sandbox.bubblewrap.command import BubblewrapStart
from app.sandbox.bubblewrap.provider import choose_bwrap


async def test_a_gate_that_is_closed_is_not_opened_later(tmp_path: Path) -> None:
    bwrap, _ = choose_bwrap(tmp_path)
    joined = tmp_path / "cgroup.procs"
    os.mkfifo(joined)  # joining waits until somebody reads
    with BubblewrapStart(["--ro-bind", "/", "/", "--unshare-pid"], 1, Cgroup((tmp_path,))) as start:
        gate = start.inherited[-1]
        words = (str(bwrap), *start.options, "--", "/bin/true")
        process = await asyncio.create_subprocess_exec(*words, pass_fds=start.inherited)
        reader = await asyncio.to_thread(os.open, joined, os.O_RDONLY)  # once somebody waits to write
    pipes = [os.pipe() for _ in range(20)]
    try:
        assert gate in {end for pair in pipes for end in pair}, "the number is another file's by now"
        for inside, outside in pipes:
            os.set_blocking(inside, False)
            os.set_blocking(outside, False)
        assert (await asyncio.to_thread(os.read, reader, 100)).isdigit()
        await asyncio.sleep(0.2)
        for inside, _ in pipes:
            with pytest.raises(BlockingIOError):
                os.read(inside, 1)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        for descriptor in (reader, *(end for pair in pipes for end in pair)):
            os.close(descriptor)
