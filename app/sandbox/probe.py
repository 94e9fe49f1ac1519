"""Checks that a sandbox holds: attacks each promised property from inside, judges the results, and names repairs.

essential()  one command of a few milliseconds, before every job
checks()     everything, for `agent-fix doctor`
"""

import asyncio
import json
import platform
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.errors import AgentFixError, SandboxError
from app.core.scratch import scratch
from app.sandbox.base import CompletedCommand, DoctorCheck, Sandbox, SandboxLimits, SandboxSpec
from app.sandbox.seccomp import ARCHITECTURES, FORBIDDEN, MISSING
from app.sandbox.trials import trial_key

SYS_ADMIN_BIT = 21
APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
DEBIAN_SETTING = Path("/proc/sys/kernel/unprivileged_userns_clone")
MAX_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

OTHER_SANDBOXES = "Or use another sandbox: --sandbox e2b, --sandbox docker."
AS_ORDINARY_USER = "Run agent-fix as an ordinary user."
DOCKER = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined --user 1000 ..."
)
DOCKER_ROOT = "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined ..."
UBUNTU = (
    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
    "(or install the package apparmor-profiles and load its profile bwrap-userns-restrict for /usr/bin/bwrap)"
)
PROPERTY_REPAIR = {
    "": f"This kernel or container does not enforce it. {OTHER_SANDBOXES}",
    "network": "The kernel needs CONFIG_NET_NS; a container must be allowed to create network namespaces. "
    f"{OTHER_SANDBOXES}",
    "system call filter": f"The kernel needs CONFIG_SECCOMP_FILTER. {OTHER_SANDBOXES}",
    "system calls": f"The kernel needs CONFIG_SECCOMP_FILTER. {OTHER_SANDBOXES}",
    "process limit": "Start agent-fix where it may create control groups (systemd-run --user --scope -p Delegate=yes "
    "agent-fix ...), or on Linux 5.14 or newer, where the process limit counts per sandbox.",
    "memory limit": "Start agent-fix where it may create control groups: "
    "systemd-run --user --scope -p Delegate=yes agent-fix ...",
    "work tree": "Choose a state directory on a writable file system: --state DIR.",
    "attack": "The Python of this installation must be readable by other users: chmod -R a+rX on its directory.",
}


@dataclass(frozen=True, slots=True)
class HostConditions:
    """The facts about this machine that decide whether namespaces can be created."""

    linux: bool = True
    root: bool = False
    sys_admin: bool = False
    container: bool = False
    apparmor_restricts: bool = False
    namespaces_off: bool = False
    """A Debian kernel's own setting turns unprivileged user namespaces off."""
    none_allowed: bool = False


def host_conditions() -> HostConditions:
    status = _read(Path("/proc/self/status"))
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return HostConditions(
        linux=platform.system() == "Linux",
        root=fields.get("Uid", "").split()[1:2] == ["0"],
        sys_admin=bool(int(fields.get("CapEff", "0"), 16) >> SYS_ADMIN_BIT & 1),
        container=any(mark.exists() for mark in CONTAINER_MARKS),
        apparmor_restricts=_read(APPARMOR) == "1",
        namespaces_off=_read(DEBIAN_SETTING) == "0",
        none_allowed=_read(MAX_NAMESPACES) == "0",
    )


def start_repair(conditions: HostConditions, error: AgentFixError) -> str:
    """The repair that fits this machine best; `error` is why no sandbox started."""
    has_own_hint = bool(error.hint) and "doctor" not in error.hint
    rules = (
        (not conditions.linux, "bubblewrap exists on Linux only. Use --sandbox docker or --sandbox e2b."),
        (has_own_hint, error.hint),
        (
            conditions.root and conditions.sys_admin,
            f"This container does not let even root create namespaces. {AS_ORDINARY_USER} {OTHER_SANDBOXES}",
        ),
        (
            conditions.root,
            f"This root user may not create namespaces. {AS_ORDINARY_USER} Or: {DOCKER_ROOT} {OTHER_SANDBOXES}",
        ),
        (conditions.apparmor_restricts, UBUNTU),
        (conditions.namespaces_off, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (conditions.none_allowed, "sudo sysctl -w user.max_user_namespaces=15000"),
        (conditions.container, f"{DOCKER} The sandbox has its own filter. {OTHER_SANDBOXES}"),
        (True, f"The kernel needs CONFIG_USER_NS and user.max_user_namespaces above 0. {OTHER_SANDBOXES}"),
    )
    return next(text for holds, text in rules if holds)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


ProbeFacts = Mapping[str, Any]
REFUSALS = frozenset({"EPERM", "ENOSYS"})
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def check(name: str, ok: bool, detail: str) -> DoctorCheck:
    return DoctorCheck(name, ok=ok, detail=detail, repair="" if ok else PROPERTY_REPAIR.get(name, PROPERTY_REPAIR[""]))


def judge_essential(text: str) -> tuple[DoctorCheck, ...]:
    """From the script's output. A missing line counts against the property."""
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    found: dict[str, list[str]] = {}
    for name, *value in lines:
        found.setdefault(name.rstrip(":"), []).append(value[0] if value else "")
    status = {name: values[0] for name, values in found.items()}
    return (
        *judge_status(status, uid=int((status.get("Uid") or "0").split()[0])),
        check("network", found.get("Interface") == ["lo"], f"interfaces: {', '.join(found.get('Interface', []))}"),
        check("read-only system", "Written" not in found, f"written: {', '.join(found.get('Written', ['nothing']))}"),
        check("host files", "Read" not in found, f"read: {', '.join(found.get('Read', ['nothing']))}"),
        check("work tree", "Tree" in found, "writable" if "Tree" in found else "the work tree is not writable"),
    )


def judge_status(status: Mapping[str, str], *, uid: int) -> tuple[DoctorCheck, ...]:
    """Check user, capabilities and seccomp by /proc/self/status inside."""
    sets = {name: status.get(name, "missing") for name in CAPABILITY_SETS}
    held = {name: value for name, value in sets.items() if value.strip("0")}
    return (
        check("identity", uid != 0, f"uid {uid}"),
        check("capabilities", not held, ", ".join(f"{name} {value}" for name, value in held.items()) or "none"),
        check("no new privileges", status.get("NoNewPrivs") == "1", f"NoNewPrivs {status.get('NoNewPrivs')}"),
        check("system call filter", status.get("Seccomp") == "2", f"Seccomp {status.get('Seccomp')}"),
    )


def judge_reach(facts: ProbeFacts, connections: Sequence[str], variables: frozenset[str]) -> tuple[DoctorCheck, ...]:
    """Check isolation by the attacking program's report and by what the listeners outside received."""
    reached = [*facts["reached"], *(f"{name}, as seen from outside" for name in connections)]
    open_calls = [f"{name} ({answer})" for name, answer in facts["answers"].items() if answer not in REFUSALS]
    foreign = sorted(set(facts["environment"]) - variables)
    # The kernel accepts a datagram to its own loopback and sends it nowhere, so there the listener decides.
    connected = [name for name in reached if name != "udp"]
    return (
        *judge_status(facts["status"], uid=facts["uid"]),
        check("system calls", not open_calls, "refused" if not open_calls else f"answered: {', '.join(open_calls)}"),
        check("user namespaces", not facts["user_namespace"], "made" if facts["user_namespace"] else "refused"),
        check("network", not connected and facts["interfaces"] == ["lo"], _list_names("reached", connected)),
        check("host files", not facts["read"], _list_names("read", facts["read"])),
        check("read-only system", not facts["written"], _list_names("written", facts["written"])),
        check("environment", not foreign, _list_names("foreign variables", foreign)),
    )


def _list_names(what: str, names: Sequence[str]) -> str:
    return f"{what}: {', '.join(names)}" if names else f"{what}: nothing"


METADATA = ("169.254.169.254", 80)
ListenerTarget = tuple[str, str, object]
"""A target to try, for `probe_inside`: label, kind, address."""


@asynccontextmanager
async def listeners() -> AsyncIterator[tuple[list[ListenerTarget], list[str]]]:
    """The targets to try, and the names of those that were reached, updated while this is open."""
    reached: list[str] = []

    def record(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(name)
            writer.close()

        return accept

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            reached.append("host udp")

    async with AsyncExitStack() as stack:
        directory = stack.enter_context(scratch("ears"))
        directory.chmod(0o711)  # anyone who knows its name may try
        tcp = await stack.enter_async_context(await asyncio.start_server(record("host tcp"), "127.0.0.1", 0))
        path = str(directory / "socket")
        await stack.enter_async_context(await asyncio.start_unix_server(record("host socket"), path))
        (directory / "socket").chmod(0o777)
        udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0), family=socket.AF_INET
        )
        stack.callback(udp.close)
        targets: list[ListenerTarget] = [
            ("tcp", "tcp", list(tcp.sockets[0].getsockname())),
            ("udp", "udp", list(udp.get_extra_info("sockname"))),
            ("socket", "path", path),
            ("metadata address", "tcp", list(METADATA)),
        ]
        if sys.platform == "linux":
            name = f"agent-fix-{secrets.token_hex(8)}"
            await stack.enter_async_context(
                await asyncio.start_unix_server(record("host abstract socket"), f"\0{name}")
            )
            targets.append(("abstract socket", "unix", name))
        yield targets, reached


INSIDE = Path(__file__).with_name("probe_inside.py")
LIMITS = SandboxLimits(memory=96 * 1024**2, processes=48, file_size=1024**2, output=64 * 1024)
VARIABLES = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"})
"""Variables that the sandbox sets, or that a shell or Python adds."""
TIME_LIMITS = (0.3, 3.0)
"""Seconds before the command is ended; the second value if it had not started to do anything."""
PROTECTED = ("/", "/usr", "/etc", "/dev", "/run", "/env", "/proc/sys/kernel", "/sys")
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


async def proven(sandbox: Sandbox) -> Sandbox:
    """The sandbox after the check of `essential`; closed if it fails."""
    async with AsyncExitStack() as unproven:
        unproven.push_async_callback(sandbox.close)
        await essential(sandbox)
        unproven.pop_all()
    return sandbox


async def checks(launch: Launch, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    """Try everything in a sandbox with small limits. If none starts, a single check has the reason and the repair."""
    spec = SandboxSpec(trial_key(), fill=lambda _: None, limits=LIMITS)
    try:
        async with AsyncExitStack() as opened:
            sandbox = await launch(spec)
            opened.push_async_callback(sandbox.destroy)
            groups = await asyncio.gather(
                _reach(sandbox, context),
                memory_limit(sandbox, context),
                _file_size(sandbox),
                output_limit(sandbox),
                time_limit(sandbox),
            )
            # Alone, because without control groups it takes its neighbours' share.
            bomb = await _processes(sandbox, context)
    except SandboxError as error:
        return (DoctorCheck("start", ok=False, detail=error.message, repair=start_repair(host_conditions(), error)),)
    return (check("start", True, "a command ran"), *(one for group in (*groups, bomb) for one in group))


async def _reach(sandbox: Sandbox, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    """One interpreter inside tries network, files and system calls; listeners outside wait for it."""
    async with listeners() as (targets, connections):
        order = {
            "reach": targets,
            "read": ["/etc/shadow", "/proc/1/environ", "/proc/kcore", *context.private],
            "write": [*PROTECTED, str(Path(context.python).parent)],
            "calls": {machine: _numbers(machine) for machine in ARCHITECTURES},
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
    number = done.output.partition(b"\n")[0]  # a sandbox may add a line that says so
    made = int(number) if number.isdigit() else None
    bounded = made is not None and made <= LIMITS.processes
    return (
        check("process limit", bounded, f"{made} processes of {LIMITS.processes} allowed" if made else last_line(done)),
    )


async def memory_limit(sandbox: Sandbox, context: ProbeContext) -> tuple[DoctorCheck, ...]:
    take_memory = f"b'x' * {LIMITS.memory * 2}"
    done = await sandbox.exec([context.python, "-I", "-c", take_memory], timeout=20)
    return (check("memory limit", not done.ok, f"exit code {done.exit_code}"),)


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


def _numbers(machine: str) -> dict[str, int]:
    """The probed system calls that a processor architecture has."""
    column = ARCHITECTURES[machine].column
    numbers = {name: (FORBIDDEN | MISSING)[name][column] for name in PROBED_CALLS}
    return {name: number for name, number in numbers.items() if number is not None}
