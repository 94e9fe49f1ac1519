"""Checks that a sandbox holds: attacks each promised property from inside, and judges the results.

essential()  one command of a few milliseconds, before every job checks()     everything, for `agent-fix doctor`
"""

import asyncio
import json
import platform
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import CompletedCommand, DoctorCheck, Sandbox, SandboxLimits, SandboxSpec
from app.sandbox.bubblewrap.repair import host_conditions, start_repair
from app.sandbox.listeners import listeners
from app.sandbox.probe_results import check, judge_essential, judge_reach
from app.sandbox.seccomp import ARCHITECTURES, FORBIDDEN, MISSING

INSIDE = Path(__file__).with_name("probe_inside.py")
LIMITS = SandboxLimits(memory=96 * 1024**2, processes=48, file_size=1024**2, output=64 * 1024)
VARIABLES = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"})
"""Variables that the sandbox sets, or that a shell or Python adds."""
TIME_LIMITS = (0.3, 3.0)
"""Seconds before the command is ended; the second value if it had not started to do anything."""
PROBED_CALLS = ("keyctl", "bpf", "mount", "setns", "perf_event_open", "userfaultfd", "open_by_handle_at")

Launch = Callable[[SandboxSpec], Awaitable[Sandbox]]


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What an attack aims at on the host: an interpreter inside, and files that must stay invisible."""

    python: str
    private: tuple[str, ...]
    variables: frozenset[str] = frozenset()


ESSENTIAL = r"""
while read -r name value; do
  case $name in Uid:|Cap*|NoNewPrivs:|Seccomp:) echo "$name $value" ;; esac
done < /proc/self/status
while read -r name rest; do
  case $name in *:) echo "Interface: ${name%:}" ;; esac
done < /proc/net/dev
for place in /usr /etc; do
  (: > $place/.agent-fix-probe) 2> /dev/null && echo "Written: $place" && rm $place/.agent-fix-probe
done
[ -w /workspace ] && echo "Tree: writable"
(: < /etc/shadow) 2> /dev/null && echo "Read: /etc/shadow"
exit 0
"""


async def essential(sandbox: Sandbox) -> None:
    """Raise SandboxError if a property that every job relies on does not hold. The job then refuses to start."""
    done = await sandbox.exec(["/bin/sh", "-c", ESSENTIAL], timeout=10)
    failed = [one for one in judge_essential(done.output.decode(errors="replace")) if not one.ok]
    if not done.ok or failed:
        names = ", ".join(f"{one.name} ({one.detail})" for one in failed) or "the first command failed"
        raise SandboxError(
            f"The sandbox does not hold these properties: {names}.",
            hint="Run `agent-fix doctor` for the repair. --sandbox none works without isolation, and says so.",
        )


async def checks(launch: Launch, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    """Try everything in a sandbox with small limits. If none starts, a single check has the reason and the repair."""
    spec = SandboxSpec(key=f"doctor-{secrets.token_hex(6)}", fill=lambda _: None, limits=LIMITS)
    try:
        sandbox = await launch(spec)
    except SandboxError as error:
        return (DoctorCheck("start", ok=False, detail=error.message, repair=start_repair(host_conditions(), error)),)
    try:
        groups = await asyncio.gather(
            _reach(sandbox, context),
            _memory(sandbox, context),
            _file_size(sandbox),
            output_limit(sandbox),
            time_limit(sandbox),
        )
        bomb = await _processes(
            sandbox, context
        )  # alone, because without control groups it takes its neighbours' share
    except SandboxError as error:
        return (DoctorCheck("start", ok=False, detail=error.message, repair=start_repair(host_conditions(), error)),)
    finally:
        await sandbox.destroy()
    return (check("start", True, "a command ran"), *(one for group in (*groups, bomb) for one in group))


async def _reach(sandbox: Sandbox, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    """One interpreter inside tries network, files and system calls; listeners outside wait for it."""
    async with listeners() as (targets, connections):
        order = {
            "reach": targets,
            "read": ["/etc/shadow", "/proc/1/environ", "/proc/kcore", *context.private],
            "write": [
                "/",
                "/usr",
                "/etc",
                "/dev",
                "/run",
                "/env",
                "/proc/sys/kernel",
                "/sys",
                str(Path(context.python).parent),
            ],
            "calls": [(name, number) for name in PROBED_CALLS if (number := _number(name)) is not None],
        }
        script = await asyncio.to_thread(INSIDE.read_text, encoding="utf-8")
        done = await sandbox.exec([context.python, "-I", "-c", script], stdin=json.dumps(order).encode(), timeout=20)
    if not done.ok:
        return (check("attack", False, f"the attacking program failed: {last_line(done)}"),)
    return judge_reach(json.loads(done.output), connections, VARIABLES | context.variables)


FORK_BOMB = """
import os, signal
made = 0
for _ in range({tries}):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        signal.pause()
    made += 1
print(made)
"""


async def _processes(sandbox: Sandbox, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    bomb = FORK_BOMB.format(tries=LIMITS.processes * 4)
    done = await sandbox.exec([context.python, "-I", "-c", bomb], timeout=20)
    made = int(done.output) if done.output.strip().isdigit() else None
    bounded = made is not None and made <= LIMITS.processes
    return (
        check("process limit", bounded, f"{made} processes of {LIMITS.processes} allowed" if made else last_line(done)),
    )


async def _memory(sandbox: Sandbox, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    take_memory = f"held = b'x' * {LIMITS.memory * 2}; print('held')"
    done = await sandbox.exec([context.python, "-I", "-c", take_memory], timeout=20)
    return (check("memory limit", b"held" not in done.output and not done.ok, f"exit code {done.exit_code}"),)


async def _file_size(sandbox: Sandbox) -> tuple[DoctorCheck, ...]:
    write = f"head -c {LIMITS.file_size * 2} /dev/zero > $HOME/large; stat -c %s $HOME/large"
    done = await sandbox.exec(["/bin/sh", "-c", write], timeout=20)
    size = done.output.split()[-1:]
    return (check("file size limit", size == [str(LIMITS.file_size).encode()], f"bytes written: {last_line(done)}"),)


async def output_limit(sandbox: Sandbox) -> tuple[DoctorCheck, ...]:
    done = await sandbox.exec(["/bin/sh", "-c", f"head -c {LIMITS.output * 4} /dev/zero"], timeout=20)
    ok = len(done.output) == LIMITS.output and done.dropped == LIMITS.output * 3
    return (check("output limit", ok, f"{len(done.output)} bytes kept, {done.dropped} counted"),)


async def time_limit(sandbox: Sandbox) -> tuple[DoctorCheck, ...]:
    """A daemon that writes to a file: after the time limit it must have stopped for good.

    On a busy machine it may not even have started by then; that shows nothing, and it gets more time.
    """
    write_forever = "while :; do echo x >> $HOME/beat; done"
    new_session = "$(command -v setsid)"  # a session of its own, if there is the program for it
    command = ["/bin/sh", "-c", f"echo x > $HOME/beat; {new_session} sh -c '{write_forever}' & exec sleep 60"]
    for seconds in TIME_LIMITS:
        done = await sandbox.exec(command, timeout=seconds)
        sizes = [(await sandbox.exec(["/bin/sh", "-c", "wc -c < $HOME/beat"])).output for _ in range(2)]
        if daemon_started := sizes[0].strip().isdigit():
            break
    stopped = done.timed_out and daemon_started and sizes[0] == sizes[1]
    failure = f"its daemons {'went on' if daemon_started else 'never began'}: {last_line(done)}"
    return (check("time limit", stopped, "ended with its daemons" if stopped else failure),)


def last_line(done: CompletedCommand) -> str:
    return done.output.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {done.exit_code}"


def _number(name: str) -> int | None:
    return (FORBIDDEN | MISSING)[name][ARCHITECTURES[platform.machine()].column]
