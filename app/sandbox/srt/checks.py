"""The proof that srt holds on this machine: what must not work is tried from inside, and listeners outside wait for it.

essential()  before every job: files of the host, writing outside, the network, rights
checks()     everything, for `agent-fix doctor`
"""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.errors import SandboxError
from app.sandbox.base import DoctorCheck, Sandbox, SandboxSpec
from app.sandbox.listeners import listeners
from app.sandbox.path_mapping import MARK, PLACE
from app.sandbox.probe import INSIDE, LIMITS, VARIABLES, last_line, output_limit, time_limit
from app.sandbox.setup.plan import WORK_ENVIRONMENT
from app.sandbox.srt.policy import SHARED, Platform

ELSEWHERE = "This system does not enforce it with srt. Use --sandbox docker or --sandbox e2b."
CANARY = "canary"
"""A file in a job's directory that no command of it may read."""
HELD = ("CapInh", "CapPrm", "CapEff", "CapAmb")
"""Not CapBnd, the most a program could get: with no new privileges it gets none of it."""
ESSENTIAL = r"""
id -u | { read -r user; echo "User: $user"; }
[ -r /proc/self/status ] && while read -r name value; do
  case $name in Cap*|NoNewPrivs:|Seccomp:) echo "$name $value" ;; esac
done < /proc/self/status
[ -w . ] && echo "Tree: writable"
exec 2> /dev/null
read -r canary; read -r port; read -r name
for file in "$canary" /etc/shadow /etc/master.passwd; do (: < "$file") && echo "Read: $file"; done
bash -c 'exec 3<> "/dev/tcp/127.0.0.1/$1"' bash "$port" && echo "Reached: host tcp"
while read -r place; do (: > "$place/$name"); done
echo "Done: yes"
"""
"""It reads, as lines: a file and a port of the host, a name, and directories in which no file of it may be made.

They are no arguments, for the host's paths are meant, and those of arguments are mapped.
"""


@dataclass(frozen=True, slots=True)
class SrtProbeContext:
    """What of the host is aimed at: `root` holds all jobs, `private` are places that must stay out of sight."""

    root: Path
    platform: Platform
    python: str
    private: tuple[str, ...]


async def essential(sandbox: Sandbox, root: Path) -> None:
    """Raise SandboxError where a property that every job relies on does not hold. A job then refuses to start."""
    job = root / sandbox.key
    places = [str(place) for place in (root, job, "/usr", "/etc")]
    probe = _probe_name()
    async with _listener() as (port, heard):
        lines = "\n".join([str(job / CANARY), str(port), probe, *places, ""]).encode()
        done = await sandbox.exec(["/bin/sh", "-c", ESSENTIAL], stdin=lines, timeout=30)
    left = await asyncio.to_thread(_left, places, probe)
    failed = [one for one in judge_essential(done.output.decode(errors="replace"), heard, left) if not one.ok]
    if failed:
        names = ", ".join(f"{one.name} ({one.detail})" for one in failed)
        raise SandboxError(
            f"srt does not hold what it promises: {names}.",
            hint="Run `agent-fix doctor --sandbox srt`. --sandbox none works without isolation, and says so.",
        )


def judge_essential(text: str, heard: list[str], left: list[str]) -> tuple[DoctorCheck, ...]:
    """From the lines that the script printed, what was heard outside, and where it left a file.

    A line that is missing counts against the property.
    """
    told: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), []).append(value.strip())
    user = told.get("User", [""])[0]
    reached = [*told.get("Reached", []), *heard]
    return (
        _judged("identity", user not in {"", "0"}, f"user {user or 'unknown'}"),
        *judge_rights({name: values[0] for name, values in told.items()}),
        _judged("network", "Done" in told and not reached, _said("reached", reached)),
        _judged("writing outside", not left, _said("written", left)),
        _judged("host files", "Read" not in told, _said("read", told.get("Read", []))),
        _judged("work tree", "Tree" in told, "writable" if "Tree" in told else "the work tree is not writable"),
    )


def judge_rights(status: Mapping[str, str]) -> tuple[DoctorCheck, ...]:
    """Of Linux, from /proc/self/status; a Mac has no such thing."""
    if "CapEff" not in status:
        return ()
    held = [name for name in HELD if status.get(name, "missing").strip("0")]
    return (
        _judged("capabilities", not held, ", ".join(held) or "none"),
        _judged("no new privileges", status.get("NoNewPrivs") == "1", f"NoNewPrivs {status.get('NoNewPrivs')}"),
        _judged("system call filter", status.get("Seccomp") == "2", f"Seccomp {status.get('Seccomp')}"),
    )


async def checks(
    launch: Callable[[SandboxSpec], Awaitable[Sandbox]], grounds: SrtProbeContext
) -> tuple[DoctorCheck, ...]:
    """Try everything in a sandbox of small limits. Without one, a single check says why and how to mend that."""
    spec = SandboxSpec(f"doctor-{secrets.token_hex(6)}", lambda _: None, limits=LIMITS)
    sandbox: Sandbox | None = None
    try:
        sandbox = await launch(spec)
        reach = await _reach(sandbox, grounds)
        found = (*reach, *await output_limit(sandbox), *await _limits(sandbox, grounds))
    except SandboxError as error:
        return (DoctorCheck("start", ok=False, detail=error.message, repair=error.hint or ELSEWHERE),)
    finally:
        if sandbox is not None:
            await sandbox.destroy()
    return (_judged("start", True, "a command was executed"), *found)


async def _reach(sandbox: Sandbox, grounds: SrtProbeContext) -> tuple[DoctorCheck, ...]:
    if not grounds.python:
        return (_judged("attack", False, "there is no python3 that a command could start"),)
    job = grounds.root / sandbox.key
    places = [str(place) for place in (grounds.root, job, "/usr", "/etc", "/Library", *grounds.private)]
    ours = await asyncio.to_thread(_command_line)
    async with listeners() as (targets, heard):
        order = {
            "reach": targets,
            "read": [
                *(str(job / CANARY), "/etc/shadow", "/etc/master.passwd", "/proc/1/environ", *grounds.private),
                SHARED[grounds.platform],
            ],
            "write": [],
            "calls": [],
            "processes": [ours],
        }
        program = await asyncio.to_thread(INSIDE.read_text, encoding="utf-8")
        done = await sandbox.exec([grounds.python, "-I", "-c", program], stdin=json.dumps(order).encode(), timeout=30)
    if not done.ok:
        return (_judged("attack", False, f"the attacking program failed: {last_line(done)}"),)
    probe = _probe_name()
    script = f'while read -r place; do (: > "$place/{probe}"); done; exit 0'
    await sandbox.exec(["/bin/sh", "-c", script], stdin="\n".join([*places, ""]).encode(), timeout=30)
    return judge_reach(json.loads(done.output), heard, await asyncio.to_thread(_left, places, probe))


def judge_reach(facts: Mapping[str, Any], heard: list[str], left: list[str]) -> tuple[DoctorCheck, ...]:
    """From what the attacking program says it did, what listeners heard, and what it left where it may not write.

    Where a directory is hidden, what is written to its place goes to memory and is gone: only what is left counts.
    """
    known = {*VARIABLES, *dict(WORK_ENVIRONMENT), MARK, PLACE, "__CF_USER_TEXT_ENCODING"}
    foreign = sorted(set(facts["environment"]) - known)
    connected = [*(name for name in facts["reached"] if name != "udp"), *heard]
    return (
        _judged("identity", facts["uid"] != 0, f"user {facts['uid']}"),
        *judge_rights(facts["status"]),
        _judged("network", not connected, _said("reached", connected)),
        _judged("host files", not facts["read"], _said("read", facts["read"])),
        _judged("writing outside", not left, _said("written", left)),
        _judged("processes", not facts["processes"], _said("seen of the host", [str(n) for n in facts["processes"]])),
        _judged("environment", not foreign, _said("foreign variables", foreign)),
    )


async def _limits(sandbox: Sandbox, grounds: SrtProbeContext) -> tuple[DoctorCheck, ...]:
    """A Mac limits no command's memory, so that is not promised there."""
    (ended,) = await time_limit(sandbox)
    if grounds.platform != "linux":
        return (ended,)
    hog = f"held = b'x' * {LIMITS.memory * 2}; print('held')"
    done = await sandbox.exec([grounds.python, "-I", "-c", hog], timeout=30)
    memory = _judged("memory limit", not done.ok and b"held" not in done.output, f"exit code {done.exit_code}")
    return (ended, memory)


@asynccontextmanager
async def _listener() -> AsyncIterator[tuple[int, list[str]]]:
    heard: list[str] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append("host tcp, as heard outside")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def _probe_name() -> str:
    return f".agent-fix-probe-{secrets.token_hex(8)}"


def _left(places: list[str], name: str) -> list[str]:
    """Where the file really came to be; it is removed."""
    found = [place for place in places if Path(place, name).exists()]
    for place in found:
        with suppress(OSError):
            Path(place, name).unlink()
    return found


def _command_line() -> tuple[int, str]:
    """Of this process, by which it would be known again inside; empty where there is no /proc."""
    place = Path("/proc/self/cmdline")
    return os.getpid(), place.read_bytes().hex() if place.exists() else ""


def _judged(name: str, ok: bool, detail: str) -> DoctorCheck:
    return DoctorCheck(name, ok=ok, detail=detail, repair="" if ok else ELSEWHERE)


def _said(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names) or 'nothing'}"
