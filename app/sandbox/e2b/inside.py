"""Inside the cloud's machine, as root: executes one order as the agent's account, and tells its output in lines.

An order is JSON on the command line (base64) or in a file. Lines on stdout are `o` or `e` and base64 of output, and at
last `x` with JSON: exit code, seconds, what was dropped. Anything on stdin kills the command.
Every command is process 2 of a process namespace of its own, so nothing that it starts outlives it.
"""

import base64
import json
import os
import pwd
import resource
import selectors
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

CHUNK = 48 * 1024
CANNOT_EXECUTE = 126
INIT = 'exec 3>&2 2> /dev/null; (exec 2>&3 3>&-; exec "$@"); exit $?'
"""Process 1: waits for the command, and says nothing itself. Its end is the end of everything in the namespace."""


class HeadTail:
    """The first and the last `limit / 2` bytes."""

    def __init__(self, limit: int) -> None:
        self.head_limit, self.tail_limit = limit // 2, limit - limit // 2
        self.head, self.tail = bytearray(), deque[bytes]()
        self.tail_size = self.seen = 0

    def add(self, chunk: bytes) -> None:
        self.seen += len(chunk)
        room = self.head_limit - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self.tail.append(chunk)
            self.tail_size += len(chunk)
        while self.tail and self.tail_size - len(self.tail[0]) >= self.tail_limit:
            self.tail_size -= len(self.tail.popleft())

    def value(self) -> bytes:
        tail = b"".join(self.tail)
        return bytes(self.head) + tail[max(0, len(tail) - self.tail_limit) :]


def command(order: dict[str, Any]) -> list[str]:
    account = pwd.getpwnam(order["account"])
    who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--no-new-privs"]
    return [
        *("/usr/bin/setpriv", "--pdeathsig", "KILL", "--"),
        *("/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--"),
        *("/bin/sh", "-c", INIT, "sh"),
        *("/usr/bin/setpriv", *who, "--inh-caps=-all", "--"),
        *("/usr/bin/env", "-i", "-C", order["cwd"], "--", *(f"{n}={v}" for n, v in order["env"].items())),
        *order["argv"],
    ]


def say(kind: str, chunk: bytes) -> None:
    for start in range(0, len(chunk), CHUNK):
        write(kind.encode() + base64.b64encode(chunk[start : start + CHUNK]) + b"\n")


def write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


class Talk:
    """The command under way: its output drained, its input fed, its time and its output limited."""

    def __init__(self, order: dict[str, Any], process: "subprocess.Popen[bytes]") -> None:
        self.order, self.process = order, process
        self.kept = {kind: HeadTail(order["keep"]) for kind in ("o", "e")}
        self.timed_out = self.flooded = False
        self.ended = 0.0

    def kill(self) -> None:
        self.process.kill()

    def heard(self, kind: str, chunk: bytes) -> None:
        kept = self.kept[kind]
        kept.add(chunk)
        if self.order["stream"]:
            say(kind, chunk)
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
                left = deadline - time.monotonic()
                if left <= 0 and not self.timed_out:
                    self.timed_out = True
                    self.kill()
                for key, _ in selector.select(None if self.timed_out else max(0.0, left)):
                    if not self.attend(key.data, key.fd):
                        selector.unregister(key.fileobj)

    def attend(self, name: str, descriptor: int) -> bool:
        """Whether there may be more to come from it."""
        chunk = b"" if name == "p" else os.read(descriptor, 256 * 1024)
        if chunk and name:
            self.heard(name, chunk)
        elif chunk:
            self.kill()
        return bool(chunk)


def standard_input(order: dict[str, Any]) -> int:
    """A descriptor with what the command is to read: from the order itself, or from a file beside it."""
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
    started = time.monotonic()
    apart = subprocess.PIPE if order["apart"] else subprocess.STDOUT
    try:
        process = subprocess.Popen(
            command(order), stdin=source, stdout=subprocess.PIPE, stderr=apart, bufsize=0, env={}
        )
    except OSError as error:
        say("o", f"{error.strerror}\n".encode())
        return {"code": CANNOT_EXECUTE, "seconds": 0.0, "timed_out": False, "flooded": False, "dropped": 0}
    talk = Talk(order, process)
    talk.listen()
    code = process.wait()
    dropped = 0
    if not order["stream"]:
        for kind, kept in talk.kept.items():
            say(kind, kept.value())
            dropped += kept.seen - len(kept.value())
    return {
        "code": code if code >= 0 else 128 - code,
        "seconds": time.monotonic() - started,
        "timed_out": talk.timed_out,
        "flooded": talk.flooded,
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
