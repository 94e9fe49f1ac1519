"""Runs as root inside a machine: executes one order as the agent's account, and reports its output in lines.

An order is JSON on the command line (base64) or in a file. Lines on stdout are `o` or `e` and base64 of output, and at
last `x` with JSON: exit code, seconds, dropped bytes. Anything on stdin, or its end, kills the command. Nothing that a
command starts outlives it: it is process 2 of its own process namespace, or, if the machine allows none, all its
descendants become our children and are ended one by one. Standard library only; `OutputCapture` is imported by others.
"""

import base64
import ctypes
import fcntl
import json
import os
import pwd
import random
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

CHUNK = 48 * 1024
CANNOT_EXECUTE = 126
MAX_JOINED = 4096
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 36, 38, 22, 2
FILTER_INSTRUCTION = 8
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 0x1
PATIENT_PASSES, PASSES, PASS_SECONDS = 20, 4000, 0.005
"""How often descendants are ended one by one, and how often at all, before this program gives up."""
SETTLE_SECONDS = 2.0
"""How long to wait for a dead command's output, since another command may have inherited the pipe's other end."""
GROUPS = Path("/sys/fs/cgroup")
INIT = 'exec 3>&2 2> /dev/null; (exec 2>&3 3>&-; exec "$@"); exit $?'
"""Process 1: waits for the command without any output. Its end ends everything in the namespace."""


class OutputCapture:
    """Bytes in order; the first and the last `limit / 2` are kept in bounded memory, the middle is counted."""

    def __init__(self, limit: int) -> None:
        self._head_limit, self._tail_limit = limit // 2, limit - limit // 2
        self._joined = min(MAX_JOINED, self._tail_limit // 8)
        self._head, self._tail = bytearray(), deque[bytearray]()
        self._tail_size = self.seen = 0

    def add(self, chunk: bytes) -> None:
        self.seen += len(chunk)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += chunk[:space]
            chunk = chunk[space:]
        if chunk and self._tail and len(self._tail[-1]) < self._joined:
            self._tail[-1] += chunk  # a program that writes byte by byte would otherwise cost an object for each
        elif chunk:
            self._tail.append(bytearray(chunk))
        self._tail_size += len(chunk)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def value(self) -> bytes:
        tail = b"".join(self._tail)
        return bytes(self._head) + tail[max(0, len(tail) - self._tail_limit) :]

    @property
    def dropped(self) -> int:
        return self.seen - len(self.value())


def command(order: dict[str, Any]) -> list[str]:
    account = pwd.getpwnam(order["account"])
    who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--no-new-privs"]
    namespace = [
        *("/usr/bin/setpriv", "--pdeathsig", "KILL", "--"),
        *("/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--"),
        *("/bin/sh", "-c", INIT, "sh"),
    ]
    return [
        *(namespace if order["namespace"] else ()),
        *("/usr/bin/setpriv", *who, "--bounding-set=-all", "--inh-caps=-all", "--"),
        *("/usr/bin/env", "-i", "-C", order["cwd"], "--", *(f"{n}={v}" for n, v in order["env"].items())),
        *order["argv"],
    ]


class ProcessGroup:
    """A control group (version 2) for one command's memory, if the machine allows one; 0 is no limit."""

    def __init__(self, memory: int, mount: Path = GROUPS) -> None:
        self.memory, self.place = memory, mount / f"agent-fix-{os.getpid()}"
        if memory:
            with suppress(OSError):
                put(mount / "cgroup.subtree_control", "+memory")
                self.place.mkdir()

    def join(self) -> None:
        """Join it, or else set a limit for this process and each one that it starts."""
        if not self.memory:
            return
        try:
            put(self.place / "memory.max", str(self.memory))
            with suppress(OSError):  # a kernel without swap has no such file
                put(self.place / "memory.swap.max", "0")
            put(self.place / "cgroup.procs", str(os.getpid()))
        except OSError:  # data, not address space: V8 and Go reserve far more of that than they use
            resource.setrlimit(resource.RLIMIT_DATA, (self.memory, self.memory))

    def end(self) -> None:
        for _ in range(PATIENT_PASSES):
            with suppress(OSError):  # a dying process may hold it for a moment
                self.place.rmdir()
            if not self.place.exists():
                break
            time.sleep(PASS_SECONDS)


def put(file: Path, text: str) -> None:
    with file.open("r+") as opened:  # the kernel's own files only
        opened.write(text)


def start(order: dict[str, Any], group: ProcessGroup) -> Callable[[], None]:
    """The first actions of the new process: set its limits for good, or fail."""
    filters, machine = order["filters"], os.uname().machine
    if filters and machine not in filters:
        raise SystemExit(f"there is no filter of system calls for the processor {machine}")
    program = ctypes.create_string_buffer(base64.b64decode(filters.get(machine, "")))
    length = (len(program) - 1) // FILTER_INSTRUCTION
    filter_program = struct.pack("HxxxxxxP", length, ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)

    def begin() -> None:
        with suppress(OSError):  # it is ended before us if memory runs short
            Path("/proc/self/oom_score_adj").write_text("500")
        group.join()
        there = sorted(os.sched_getaffinity(0))
        if len(there) > order["cpus"]:
            os.sched_setaffinity(0, random.sample(there, order["cpus"]))
        if not order["network"]:
            if libc.unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "no network of its own")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        if length and (
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_program, 0, 0)
        ):
            raise OSError(ctypes.get_errno(), "no filter")
        _ = program  # held until here

    return begin


def become_subreaper() -> None:
    """From now on orphaned descendants become our children, so that having no child means having no descendant."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no subreaper")


def end_descendants(account: str) -> None:
    """Until there are none. If they multiply faster than they are found, everything of the account is ended."""
    for attempt in range(PASSES):
        if not reap():
            return
        for pid in descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if attempt > PATIENT_PASSES:
            end_account(pwd.getpwnam(account).pw_uid)
        time.sleep(PASS_SECONDS if attempt else 0)
    raise SystemExit("what the command started cannot be ended")


def reap() -> bool:
    """True while there are children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                status = (entry / "stat").read_bytes()
                parents.setdefault(int(status.rpartition(b")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def end_account(number: int) -> None:
    """In one step, which no fork escapes: the kernel signals all processes that the account may signal, except us."""
    os.setresuid(number, number, 0)
    try:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    finally:
        os.setresuid(0, 0, 0)


def send_output(kind: str, chunk: bytes) -> None:
    for start in range(0, len(chunk), CHUNK):
        write(kind.encode() + base64.b64encode(chunk[start : start + CHUNK]) + b"\n")


def write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


class ControlChannel:
    """The running command: drains its output, feeds its input, limits its time and output."""

    def __init__(self, order: dict[str, Any], process: "subprocess.Popen[bytes]") -> None:
        self.order, self.process = order, process
        self.kept = {kind: OutputCapture(order["keep"]) for kind in ("o", "e")}
        self.timed_out = self.flooded = self.over = False
        self.ended = 0.0

    def kill(self) -> None:
        self.process.kill()
        if not self.order["namespace"]:
            self.code()
            end_descendants(self.order["account"])
            self.over = True

    def code(self) -> int:
        """The command's own exit code, which must be read before anything else is reaped."""
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def on_output(self, kind: str, chunk: bytes) -> None:
        kept = self.kept[kind]
        kept.add(chunk)
        if self.order["stream"]:
            send_output(kind, chunk)
        if kept.seen > self.order["ceiling"] and not self.flooded:
            self.flooded = True
            self.kill()

    def listen(self) -> None:
        """Until the command has ended and all its output is read."""
        deadline = time.monotonic() + self.order["timeout"]
        sources = {"o": self.process.stdout, "e": self.process.stderr, "p": os.pidfd_open(self.process.pid), "": 0}
        with selectors.DefaultSelector() as selector:
            for name, source in sources.items():
                if source is not None:
                    selector.register(source, selectors.EVENT_READ, name)
            while any(key.data for key in selector.get_map().values()):
                ready = selector.select(self.wait_seconds(deadline))
                if not ready and self.over:
                    break
                for key, _ in ready:
                    if not self.on_readable(key.data, key.fd):
                        selector.unregister(key.fileobj)

    def wait_seconds(self, deadline: float) -> float | None:
        """How long to wait for the next output; kills the command if its time is up."""
        left = deadline - time.monotonic()
        if left <= 0 and not self.timed_out:
            self.timed_out = True
            self.kill()
        if self.over:
            return SETTLE_SECONDS
        return None if self.timed_out else left

    def on_readable(self, name: str, descriptor: int) -> bool:
        """True if more may come from it."""
        chunk = b"" if name == "p" else os.read(descriptor, 256 * 1024)
        if chunk and name:
            self.on_output(name, chunk)
        elif name in {"", "p"}:
            self.kill()
        return bool(chunk)


def standard_input(order: dict[str, Any]) -> int:
    """A descriptor with the command's input: from the order itself, or from a separate file."""
    if order["stdin_file"]:
        descriptor = os.open(order["stdin_file"], os.O_RDONLY)
        Path(order["stdin_file"]).unlink()
        return descriptor
    descriptor = os.memfd_create("stdin")
    os.write(descriptor, base64.b64decode(order["stdin"]))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def execute(order: dict[str, Any]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_size"], order["file_size"]))
    resource.setrlimit(resource.RLIMIT_NPROC, (order["processes"], order["processes"]))
    source = standard_input(order)
    if not order["namespace"]:
        become_subreaper()
    group = ProcessGroup(order["memory"])
    started = time.monotonic()
    stderr = subprocess.PIPE if order["apart"] else subprocess.STDOUT
    try:
        process = subprocess.Popen(
            command(order),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env={},
            preexec_fn=start(order, group),  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        send_output("o", f"{error.strerror}\n".encode())
        return {"code": CANNOT_EXECUTE, "seconds": 0.0, "timed_out": False, "flooded": False, "dropped": 0}
    channel = ControlChannel(order, process)
    channel.listen()
    dropped = 0
    if not order["stream"]:
        for kind, kept in channel.kept.items():
            send_output(kind, kept.value())
            dropped += kept.dropped
    code = channel.code()
    group.end()
    return {
        "code": code,
        "seconds": time.monotonic() - started,
        "timed_out": channel.timed_out,
        "flooded": channel.flooded,
        "dropped": dropped,
    }


def read_order(word: str) -> dict[str, Any]:
    kind, _, rest = word.partition(":")
    if kind == "inline":
        content = base64.b64decode(rest)
    else:
        content = Path(rest).read_bytes()
        Path(rest).unlink()
    order: dict[str, Any] = json.loads(content)
    return order


if __name__ == "__main__":
    write(b"x" + json.dumps(execute(read_order(sys.argv[1]))).encode() + b"\n")
