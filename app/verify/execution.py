"""Runs one command in a sandbox until its time limit, and several tasks at once, none of which outlives an error."""

import asyncio
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from app.core.text import plain
from app.core.tracing import span
from app.core.verification import Execution
from app.sandbox.base import BASE_LISTING, HOME, WORKSPACE, CompletedCommand, Sandbox

EXCERPT = 4_000
GRACE = 10.0
"""Seconds between the interrupt, after which frameworks still write their report, and the kill."""

_INTERRUPTED = frozenset({124, 137})
_KINDLY = 'command -v timeout >/dev/null && exec timeout -s INT -k "$1" "$2" bash -c "$3"; exec bash -c "$3"'
_OUR_REPORT = re.compile(r"^.*\breport-[0-9a-f]{16}\b.*\n?", re.MULTILINE)
_MOUNTED = re.compile(rb"(?m)^(\d+ \d+ \d+:\d+ )/\S*( /\S* r[ow]\b)")
"""A line of /proc/self/mountinfo, whose fourth word is a path of this machine."""
_PLACES = {b"tree": WORKSPACE.encode(), b"home": HOME.encode(), b"tmp": b"/tmp", b"filled": BASE_LISTING.encode()}
_NO_RESULT = re.compile(
    rb"(?m)^ {3,}(?:Compiling|Fresh|Downloaded|Adding|Locking) .*\n|^[^|\n]*(?:\|(?: +[\d.]+ | % \w+ |-+)){4}.*\n"
)
"""Lines of cargo about what it compiles, and tables of istanbul with the coverage of each file."""
_FRAME = r"(?:\S.*\n\t.*\n|\.\.\..*elided\.\.\.\n)"
_GOROUTINE = re.compile(rf"(?m)^(goroutine \d+ .*:\n{_FRAME}{{0,8}}){_FRAME}*\n?".encode())
_DISPLAY_FILTER = re.compile(r"\|&?\s*(?:tail|head|cat|tee)\b[^|&;]*$")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The facts of a command, and its output as bytes (`dropped` of them were not kept)."""

    execution: Execution
    output: bytes
    dropped: int = 0


async def run(sandbox: Sandbox, command: str, *, timeout: float, env: Mapping[str, str] | None = None) -> CommandResult:
    """Run a shell command; at `timeout` seconds it is interrupted, and killed soon after."""
    argv = ["bash", "-c", _KINDLY, "bash", f"{GRACE:g}", f"{timeout:g}", failing_pipe(command)]
    with span("run") as traced:
        completed = await sandbox.exec(argv, timeout=timeout + 2 * GRACE, env=env)
        traced.add({"process.exit.code": completed.exit_code, "agent_fix.timed_out": completed.timed_out})
    completed = replace(completed, output=await as_inside(sandbox, completed.output))
    timed_out = completed.timed_out or (completed.exit_code in _INTERRUPTED and completed.seconds >= timeout)
    return CommandResult(execution_of(command, completed, timed_out=timed_out), completed.output, completed.dropped)


async def as_inside(sandbox: Sandbox, text: bytes) -> bytes:
    """Output without this machine's paths, so that it is the same in every run.

    Without isolation, the work tree really is elsewhere, below the sandbox's key; and the kernel reports where mounts
    come from.
    """
    text = _MOUNTED.sub(rb"\1/\2", text)
    if sandbox.isolated and sandbox.key.encode() not in text:
        return text
    if sandbox.isolated:
        place = rb"(?:/[^\s:'\"]*)?/" + re.escape(sandbox.key.encode()) + rb"(?:/(\w+))?"
        return re.sub(place, lambda found: _PLACES.get(found[1], b"/sandbox"), text)
    found = await sandbox.exec(["pwd", "-P"], separate_stderr=True)
    root = found.output.strip()
    return text.replace(root, WORKSPACE.encode()) if found.ok and len(root) > 1 else text


def failing_pipe(command: str) -> str:
    """A command whose output is only cut for display (`… | tail -5`) must keep its exit code."""
    return f"set -o pipefail; {command}" if _DISPLAY_FILTER.search(command.strip()) else command


def execution_of(command: str, completed: CompletedCommand, *, timed_out: bool | None = None) -> Execution:
    return Execution(
        command=command,
        exit_code=completed.exit_code,
        seconds=round(completed.seconds, 2),
        timed_out=completed.timed_out if timed_out is None else timed_out,
        excerpt=excerpt(completed.output),
    )


def excerpt(output: bytes, limit: int = EXCERPT) -> str:
    """The end of an output for people: no escape sequences, whole lines, at most `limit` characters.

    What cargo compiles and tables of coverage are left out, and of Go's stacks all but the start of the first, which
    names the place.
    """
    shown = _NO_RESULT.sub(b"", output)
    if first := _GOROUTINE.search(shown):
        shown = shown[: first.end(1)] + _GOROUTINE.sub(b"", shown[first.end() :])
    text = _OUR_REPORT.sub("", plain(shown[-8 * limit :].decode(errors="replace"))).strip()
    if len(text) <= limit:
        return text
    tail = text[-limit:]
    return tail[tail.find("\n") + 1 :]


T = TypeVar("T")
U = TypeVar("U")


async def gather_all(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results in order. If one fails, the others are cancelled and awaited before its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def gather_pair(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """The same for two tasks of different types."""
    works: tuple[Coroutine[Any, Any, Any], ...] = (one, other)
    first, second = await gather_all(*works)
    return first, second
