"""Runs inside the sandbox: starts test programs one after the other and passes on what they report.

Standard library only. It reads one JSON job from its input and writes one JSON answer, compressed and between two
copies of the job's nonce. Other processes of the same user can neither read its memory nor reach its descriptors, so
the code under test cannot write the answer.

A program with a channel finds a JSON line at the start of its input, with the socket's `fd`, a `key`, the `root` of the
work tree and the `environment` that was withheld from it (`drop`). It reports through that socket, a line for each
message: `number mac text`, the keyed digest over `number:text`.
"""

from __future__ import annotations

import base64
import ctypes
import hmac
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

PR_SET_DUMPABLE = 4
MAX_MESSAGES = 64 * 1024**2
MAX_READ = 2 * 1024**2
MAX_FILES = 400
MAX_COVERAGE = 128 * 1024**2
TICK = 0.05


class OutputBuffer:
    """The first and last bytes of an output; the middle is only counted."""

    def __init__(self, keep: int) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0
        self._half = keep // 2

    def add(self, data: bytes) -> None:
        space = max(0, self._half - len(self.head))
        self.head += data[:space]
        self.tail += data[space:]
        if len(self.tail) > 2 * self._half:
            self.cut()

    def cut(self) -> None:
        dropped = max(0, len(self.tail) - self._half)
        self.dropped += dropped
        del self.tail[:dropped]


class ReportPipe:
    """Messages of one program. `broken` describes data that the program did not send."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        # A number that cannot be guessed, and that programs which close the usual ones do not touch.
        self.fd = self._moved(theirs.detach())
        self.key = os.urandom(32).hex()
        self.ours.setblocking(False)
        self.texts: list[str] = []
        self.broken = ""
        self._seen = 0
        self._pending = b""

    @staticmethod
    def _moved(descriptor: int) -> int:
        number = 300 + int.from_bytes(os.urandom(2), "big") % 600
        os.dup2(descriptor, number)
        os.close(descriptor)
        return number

    def read(self) -> bool:
        """Read what has arrived; False if nothing more will come."""
        try:
            data = self.ours.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._seen += len(data)
        if self._seen > MAX_MESSAGES:
            self.broken = "too much was written to the results"
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._take(line)
        return bool(data)

    def _take(self, line: bytes) -> None:
        number, _, rest = line.partition(b" ")
        mac, _, text = rest.partition(b" ")
        due = str(len(self.texts)).encode()
        right = hmac.digest(bytes.fromhex(self.key), due + b":" + text, "sha256").hex().encode()
        if number != due or mac != right:
            self.broken = self.broken or "something else than the test program wrote to the results"
        else:
            self.texts.append(text.decode("ascii", "replace"))


class SupervisedProgram:
    """One running program, until it has ended or its time is over."""

    def __init__(self, step: dict[str, Any], root: Path, place: str) -> None:
        self.step = step
        self.place = place
        self.root = root
        arguments = [word.replace("{place}", place) for word in step["argv"]]
        self.channel = ReportPipe() if step.get("channel") else None
        self.output = OutputBuffer(step["keep"])
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        drop = tuple(step.get("drop", ()))
        kept_back = {name: value for name, value in os.environ.items() if name.startswith(drop)} if drop else {}
        environment = {name: value for name, value in os.environ.items() if name not in kept_back}
        environment.update({name: value.replace("{place}", place) for name, value in step.get("env", {}).items()})
        head = b""
        if self.channel is not None:
            route = {"fd": self.channel.fd, "key": self.channel.key, "root": str(root), "environment": kept_back}
            head = json.dumps(route).encode() + b"\n"
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=writing,
                stderr=writing,
                cwd=root / step.get("cwd", ""),
                env=environment,
                pass_fds=(self.channel.fd,) if self.channel else (),
                start_new_session=True,
            )
        finally:
            os.close(writing)
            if self.channel is not None:
                os.close(self.channel.fd)
        assert self.process.stdin is not None  # noqa: S101 - it was asked for
        self.stdin = self.process.stdin
        os.set_blocking(self.stdin.fileno(), False)
        self.unwritten = memoryview(step.get("prelude", "").encode() + head + step.get("input", "").encode())

    def run(self) -> dict[str, Any]:
        timed_out = False
        while self.process.poll() is None:
            self._listen(TICK)
            if not timed_out and time.monotonic() - self.started > self.step["timeout"]:
                timed_out = True
                self._kill()
        seconds = time.monotonic() - self.started
        self._kill()  # what it left running in its own session
        self.stdin.close()
        while self._listen(0):
            pass
        self.output.cut()
        code = self.process.returncode
        return {
            "exit_code": code if code >= 0 else 128 - code,
            "seconds": round(seconds, 3),
            "timed_out": timed_out,
            "output": base64.b64encode(self.output.head + self.output.tail).decode(),
            "dropped": self.output.dropped,
            "messages": self.channel.texts if self.channel else [],
            "broken": self.channel.broken if self.channel else "",
            "collected": read_files(self.step.get("collect", []), Path(self.place)),
            "lines": executed(Path(self.place, "coverage"), self.step.get("coverage", []), self.root),
        }

    def _listen(self, seconds: float) -> bool:
        """Read output and messages, and write input as far as it is taken; False if there is nothing now."""
        sources = [self.reading, *([self.channel.ours.fileno()] if self.channel else [])]
        ready, writable, _ = select.select(sources, [] if self.stdin.closed else [self.stdin], [], seconds)
        more = bool(writable)
        if writable:
            self._feed()
        if self.reading in ready:
            data = os.read(self.reading, 65536)
            self.output.add(data)
            more = bool(data)
        if self.channel is not None and self.channel.ours.fileno() in ready:
            more = self.channel.read() or more
        if not more and ready:
            time.sleep(seconds)  # both ends are closed, and the program still runs
        return more

    def _feed(self) -> None:
        """Write a part of the input; after the last the program finds its end."""
        try:
            written = os.write(self.stdin.fileno(), self.unwritten)
        except BrokenPipeError:
            written = len(self.unwritten)
        self.unwritten = self.unwritten[written:]
        if not self.unwritten:
            self.stdin.close()

    def _kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def executed(reports: Path, paths: list[str], root: Path) -> list[tuple[str, list[int]]]:
    """The executed lines of scripts, from V8's reports: innermost ranges decide, and one process is enough."""
    wanted = {(root / path).as_uri(): path for path in paths}
    lines: dict[str, set[int]] = {path: set() for path in paths}
    for report in reports.glob("*.json") if paths else ():
        if report.stat().st_size > MAX_COVERAGE:
            continue
        try:
            scripts = json.loads(report.read_bytes())["result"]
        except (ValueError, KeyError, TypeError):
            continue
        for script in scripts:
            path = wanted.get(script["url"]) or wanted.get(f"file://{script['url']}")
            if path is not None:
                lines[path] |= lines_of((root / path).read_text("utf-8"), script["functions"])
    return [(path, sorted(found)) for path, found in lines.items()]


def lines_of(text: str, functions: list[dict[str, Any]]) -> set[int]:
    ranges = [one for function in functions for one in function["ranges"]]
    counts = [0] * len(text)
    for one in sorted(ranges, key=lambda one: one["startOffset"] - one["endOffset"]):  # the widest first
        start, end = one["startOffset"], min(one["endOffset"], len(text))
        counts[start:end] = [one["count"]] * (end - start)
    found, at = set(), 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        inner = [
            counts[at + place] for place, letter in enumerate(line) if not letter.isspace() and letter not in "{}();"
        ]
        if any(inner):
            found.add(number)
        at += len(line)
    return found


def hidden() -> bool:
    """True if the kernel now hides our memory and descriptors from other processes of this user."""
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def read_files(paths: list[str], root: Path) -> dict[str, str]:
    """Base64 by path, of the plain files among them; a path with `*` means all files like that."""
    found: dict[str, str] = {}
    for path in paths:
        for file in root.glob(path) if "*" in path else (root / path,):
            if len(found) < MAX_FILES and file.is_file() and file.stat().st_size <= MAX_READ:
                found[str(file.relative_to(root))] = base64.b64encode(file.read_bytes()).decode()
    return found


def write_files(files: dict[str, str]) -> str:
    """In a new directory, which programs may also write to."""
    place = tempfile.mkdtemp(prefix="")
    for name, content in files.items():
        Path(place, name).write_text(content, "utf-8")
    return place


def main() -> None:
    safe = hidden()
    job = json.load(sys.stdin)
    nonce = job["nonce"]
    root = Path.cwd()
    answer: dict[str, Any] = {"hidden": safe, "files": read_files(job.get("read", []), root), "steps": []}
    place = write_files(job["files"]) if "{place}" in json.dumps(job["steps"]) else os.devnull
    for step in job["steps"]:
        try:
            answer["steps"].append(SupervisedProgram(step, root, place).run())
        except OSError as error:
            answer["steps"].append({"not_started": f"{step['argv'][0]}: {error.strerror}"})
    packed = base64.b64encode(zlib.compress(json.dumps(answer).encode(), 1)).decode()
    sys.stdout.write(f"{nonce}{packed}{nonce}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
