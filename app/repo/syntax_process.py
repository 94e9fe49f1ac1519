"""A process that parses for us: a file made to break a parser then costs this process and nothing else.

Parsers in C recurse as deep as a file nests, and some need gigabytes for forty kilobytes of `a<b<a<b<…`. So the
process has a deep stack, little memory, no environment, and may be killed at any time; it ends by itself when idle.
Which questions it answers depends on the module that it executes; that module calls `answer_requests`.

    request   {"ask": "symbols", "path": "a.py", "bytes": 12}\\n followed by the bytes
    answer    one line of JSON
"""

import json
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

_TIMEOUT = 10.0
"""Seconds for one file; parsing gives up by itself after one second of processor time."""
_IDLE = 60.0
_EXIT_TIMEOUT = 2.0
"""Seconds between the end of its output and its own."""
_MEMORY = 2 << 30
_STACK = 256 << 20
"""512 bytes for each byte of the largest file that is parsed; 70 were seen to be needed."""


class SyntaxProcess:
    """The parent's side: starts the process on first use and again after it died. Thread-safe."""

    def __init__(self, module: str, *, timeout: float = _TIMEOUT, idle: float = _IDLE) -> None:
        self._module = module
        self._timeout = timeout
        self._idle = idle
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_by_itself = False
        """Whether the last one ended for want of work, perhaps in the moment when there was some."""

    def ask(self, question: str, path: str, content: bytes) -> Any:
        """The answer as JSON values; None if the file killed the process, took too long or cannot be judged."""
        head = json.dumps({"ask": question, "path": path, "bytes": len(content)}).encode("ascii")
        with self._lock:
            answer = self._exchange(head + b"\n" + content)
            if answer is None and self._ended_by_itself:
                answer = self._exchange(head + b"\n" + content)
        return json.loads(answer) if answer else None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _exchange(self, request: bytes) -> bytes | None:
        process = self._process or self._start()
        if process is None or process.stdin is None or process.stdout is None:
            return None
        answer, ended = b"", True
        with suppress(OSError):
            process.stdin.write(request)
            process.stdin.flush()
            ended = _readable(process.stdout, self._timeout)
            answer = process.stdout.readline() if ended else b""
        if answer.endswith(b"\n"):
            return answer
        self._stop(timeout=_EXIT_TIMEOUT if ended else 0.0)
        return None

    def _start(self) -> subprocess.Popen[bytes] | None:
        self._ended_by_itself = False
        command = [sys.executable, "-I", "-m", self._module, str(self._idle)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env={}, cwd="/"
            )
        except OSError:
            self._process = None
        return self._process

    def _stop(self, *, timeout: float = 0.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._ended_by_itself = process.wait(timeout) == 0
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        process.wait()


def _readable(pipe: IO[bytes], seconds: float) -> bool:
    """True if the other side has sent something or closed the pipe."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))


def answer_requests(answer: Callable[[str, str, bytes], Any]) -> None:
    """The child's side: answer (question, path, content) until requests end or none comes for a while."""
    idle = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    threading.stack_size(_STACK)
    server = threading.Thread(target=_serve, args=(sys.stdin.buffer, sys.stdout.buffer, idle, answer))
    server.start()
    server.join()


def _serve(requests: IO[bytes], answers: IO[bytes], idle: float, answer: Callable[[str, str, bytes], Any]) -> None:
    while _readable(requests, idle):
        line = requests.readline()
        if not line:
            return
        head = json.loads(line)
        content = requests.read(head["bytes"])
        answers.write(json.dumps(answer(head["ask"], head["path"], content)).encode("ascii") + b"\n")
        answers.flush()
