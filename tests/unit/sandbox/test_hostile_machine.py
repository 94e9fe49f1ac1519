"""A machine whose supervisor was taken over: whatever it says is an error of the sandbox, in bounded memory."""

import asyncio
import base64
import json
import os
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import SandboxCommand, SandboxLimits
from app.sandbox.machine.base import RESULT, LineBuffer, parse_result, step
from app.sandbox.machine.sandbox import MAX_LINE_LENGTH, MachineExecution
from app.sandbox.machine.supervisor import ProcessGroup
from app.sandbox.setup.run_commands import SetupResult

END: dict[str, Any] = {"code": 0, "seconds": 0.5, "timed_out": False, "flooded": False, "dropped": 0}


@dataclass
class ScriptedProgram:
    """A program that says these pieces, and then nothing more."""

    pieces: Iterator[bytes]
    killed: bool = False

    async def read(self) -> bytes:
        return b"" if self.killed else next(self.pieces, b"")

    async def write(self, content: bytes) -> None:
        self.killed = True

    async def ended(self) -> None:
        return

    async def kill(self) -> None:
        self.killed = True

    async def release(self) -> None:
        return


@dataclass
class Machine:
    """It takes everything, and answers each program with `pieces`."""

    pieces: Iterator[bytes]
    call_seconds: float = 1.0
    namespaces: bool = True
    limits_commands: bool = True
    text: bool = False
    filters: Mapping[str, bytes] = field(default_factory=dict)

    async def start(self, argv: Sequence[str]) -> ScriptedProgram:
        return ScriptedProgram(self.pieces)

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        return

    def kept_alive(self, seconds: float) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def suspend(self) -> None:
        return

    async def remove(self) -> None:
        return


def execution(*pieces: bytes, heard: list[bytes] | None = None) -> MachineExecution:
    command = SandboxCommand(["true"], 5.0, on_output=heard.append if heard is not None else None)
    return MachineExecution(Machine(iter(pieces)), command, SandboxLimits(output=4096))


def ending(**changes: Any) -> bytes:
    return b"x" + json.dumps({**END, **changes}).encode() + b"\n"


def line(kind: bytes, content: bytes) -> bytes:
    return kind + base64.b64encode(content) + b"\n"


async def test_frames_are_parsed_however_they_are_split() -> None:
    whole = line(b"o", b"one\n") + line(b"e", b"two\n") + ending(code=7, dropped=3)
    for size in (1, 5, len(whole)):
        heard: list[bytes] = []
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        done = await execution(*pieces, heard=heard).carry_out()
        assert (done.exit_code, done.output, done.dropped, heard) == (7, b"one\ntwo\n", 3, [b"one\n", b"two\n"])


@pytest.mark.parametrize(
    "said",
    [
        b"o%%%\n",
        b"oYQ=\n",
        b"\n",
        b"zYQ==\n",
        b"\xff\xfe\n",
        b"x\n",
        b"x{\n",
        b"xnull\n",
        b"x[]\n",
        b"x" + b"[" * 100_000 + b"\n",
        b"x{}\n",
        ending(code="0"),
        ending(code=None),
        ending(code=-1),
        ending(code=256),
        ending(code=10**30),
        ending(code=0.0),
        ending(seconds="1"),
        ending(seconds=float("nan")),
        ending(seconds=float("inf")),
        ending(timed_out=0),
        ending(flooded="no"),
        ending(dropped=-1),
        ending(dropped=[]),
        b"x" + b"9" * 10_000 + b"\n",
        b"o" * (MAX_LINE_LENGTH + 1),
        b"o" + b"A" * (MAX_LINE_LENGTH + 4) + b"\n",
    ],
)
async def test_a_forbidden_frame_is_an_error(said: bytes) -> None:
    with pytest.raises(SandboxError, match="sent an invalid message"):
        await execution(line(b"o", b"before"), said, ending()).carry_out()


@pytest.mark.parametrize("said", [(), (line(b"o", b"half"),), (b"x" + json.dumps(END).encode(),)])
async def test_silence_does_not_end_a_stream(said: Sequence[bytes]) -> None:
    with pytest.raises(SandboxError, match="without a result"):
        await execution(*said).carry_out()


async def test_a_line_without_end_takes_no_memory_and_no_time() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"o"

    with pytest.raises(SandboxError, match="without an end"):
        await MachineExecution(Machine(endless()), SandboxCommand(["true"], 60.0), SandboxLimits()).carry_out()


async def test_a_flood_of_small_words_takes_little_more_than_what_is_kept() -> None:
    pieces = (line(b"o", b"xy") * 100 for _ in range(300))
    machine = Machine(chain(pieces, [ending()]))
    flooding = MachineExecution(machine, SandboxCommand(["true"], 60.0), SandboxLimits(output=40_000))
    tracemalloc.start()
    try:
        done = await flooding.carry_out()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(done.output) == 40_000
    assert done.dropped == 20_000
    assert peak < 600_000


async def test_a_flood_ends_with_the_commands_time() -> None:
    @dataclass
    class EndlessProgram(ScriptedProgram):
        async def read(self) -> bytes:
            await asyncio.sleep(0)
            return await super().read() or line(b"o", b"x")

    @dataclass
    class EndlessMachine(Machine):
        call_seconds: float = 0.05

        async def start(self, argv: Sequence[str]) -> ScriptedProgram:
            return EndlessProgram(self.pieces)

    endless = MachineExecution(EndlessMachine(iter(())), SandboxCommand(["true"], -29.8), SandboxLimits())
    with pytest.raises(SandboxError, match="did not end a command"):
        await endless.carry_out()


@pytest.mark.parametrize(
    "said", [b"", b"{}", b"[1]", b'"x"', b"no json", b"[" * 100_000, b"\xff", b"[]" * 600_000, b"[[1], [[], 0]]"]
)
async def test_results_that_are_none(said: bytes) -> None:
    with pytest.raises(SandboxError, match="sent an invalid message"):
        parse_result(await step(Machine(iter([said])), RESULT))
    found = parse_result(await step(Machine(iter([b'[["one"], [["a/", "b"], "too much"]]\n'])), RESULT))
    assert found == SetupResult(("one", "too much"), ("a/", "b"))


def test_lines_in_any_pieces() -> None:
    lines = LineBuffer(10)
    assert [lines.feed(piece) for piece in (b"a", b"b\n", b"\nc\nd", b"", b"e\n")] == [
        [],
        [b"ab"],
        [b"", b"c"],
        [],
        [b"de"],
    ]
    for said in (b"x" * 11, b"\n" + b"x" * 11, b"x" * 11 + b"\n"):
        with pytest.raises(ValueError, match="without an end"):
            LineBuffer(10).feed(said)


def test_a_commands_memory_is_limited_by_a_control_group_where_there_is_one(tmp_path: Path) -> None:
    """The kernel makes the files of a new group; here they are there already."""
    place = tmp_path / f"agent-fix-{os.getpid()}"
    place.mkdir()
    for name in ("cgroup.subtree_control", f"{place.name}/memory.max", f"{place.name}/cgroup.procs"):
        (tmp_path / name).touch()
    group = ProcessGroup(1234, tmp_path)
    group.join()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (place / "memory.max").read_text() == "1234"
    assert (place / "cgroup.procs").read_text() == str(os.getpid())
    for file in place.iterdir():
        file.unlink()
    group.end()
    assert not place.exists()
