"""Runs programs inside a sandbox through the supervisor, and reads its answer."""

import base64
import binascii
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from app.core.record import Record
from app.sandbox.base import Sandbox

START = (
    "import sys;sys.path[:]=filter(None,sys.path);"
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),{'__name__':'__main__'})"
)
"""Python that executes a program from its input: the length in bytes, a line end, the program.

Nothing is imported from the directory that it starts in.
"""
PYTHON = ("python3", "-I", "-S", "-c", START)
GRACE = 30.0
MAX_ANSWER = 256 * 1024**2


class SupervisorStep(Record):
    """One program. `drop` are prefixes of variables that it does not get."""

    argv: tuple[str, ...]
    timeout: float
    cwd: str = ""
    env: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    prelude: str = ""
    """The start of its input, before the line with its channel."""
    input: str = ""
    channel: bool = False
    coverage: tuple[str, ...] = ()
    """Scripts of the work tree whose executed lines are read from V8's reports in `{place}/coverage`."""
    collect: tuple[str, ...] = ()
    """Files that the program leaves in `{place}`."""
    keep: int = 1024**2
    """Bytes of output that are kept."""


class StepEnd(Record):
    """How one program ended. `broken` says that something else wrote to its channel."""

    exit_code: int = 127
    seconds: float = 0.0
    timed_out: bool = False
    output: bytes = b""
    dropped: int = 0
    messages: tuple[str, ...] = ()
    broken: str = ""
    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()
    collected: Mapping[str, bytes] = {}
    not_started: str = ""


class SupervisorAnswer(Record):
    """The supervisor's answer; `problem` says why there is none, or why it may not be the supervisor's."""

    steps: tuple[StepEnd, ...] = ()
    files: Mapping[str, bytes] = {}
    problem: str = ""


async def supervise(
    sandbox: Sandbox,
    steps: Sequence[SupervisorStep],
    *,
    read: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> SupervisorAnswer:
    """Execute the programs in order. `read` are files whose content is wanted as it is before.

    `files` are written to a directory that replaces `{place}` in arguments and variables.
    """
    nonce = secrets.token_hex(16)
    job: dict[str, Any] = {"nonce": nonce, "read": list(read), "files": dict(files or {})}
    job["steps"] = [step.model_dump(mode="json") for step in steps]
    timeout = sum(step.timeout for step in steps) + GRACE
    stdin = with_program("supervise.py") + json.dumps(job)
    done = await sandbox.exec(PYTHON, stdin=stdin.encode(), timeout=timeout, separate_stderr=True)
    parts = done.output.split(nonce.encode())
    if len(parts) != 3:
        return SupervisorAnswer(problem="The program that starts the tests did not come to its end.")
    return _answer(parts[1], isolated=sandbox.isolated)


@cache
def with_program(name: str) -> str:
    """The input of a Python that is started by START, up to the program's own input."""
    source = Path(__file__).with_name(name).read_text("utf-8")
    return f"{len(source.encode())}\n{source}"


def _answer(text: bytes, *, isolated: bool) -> SupervisorAnswer:
    try:
        unpacked = zlib.decompressobj()
        answer: dict[str, Any] = json.loads(unpacked.decompress(base64.b64decode(text), MAX_ANSWER))
        steps = tuple(_ended(step) for step in answer["steps"])
        files = {path: base64.b64decode(content) for path, content in answer["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        return SupervisorAnswer(problem="The program that starts the tests was disturbed.")
    if isolated and not answer.get("hidden"):
        return SupervisorAnswer(problem="The program that starts the tests could not hide its memory from them.")
    return SupervisorAnswer(steps=steps, files=files)


def _ended(step: dict[str, Any]) -> StepEnd:
    collected = {name: base64.b64decode(content) for name, content in step.get("collected", {}).items()}
    return StepEnd(**{**step, "output": base64.b64decode(step.get("output", "")), "collected": collected})
