"""Keeps the head and the tail of a command's output in bounded memory."""

from collections import deque


class EndlessLineError(ValueError):
    """A line is longer than any valid one."""


class LineBuffer:
    """`longest` is the maximum length of a line, without its end."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        first, *others = piece.split(b"\n")
        self._rest += first
        if not others:
            self._measure(self._rest)
            return []
        *whole, rest = others
        lines = [bytes(self._rest), *whole]
        self._rest = bytearray(rest)
        for line in (*lines, rest):
            self._measure(line)
        return lines

    def _measure(self, line: bytes | bytearray) -> None:
        if len(line) > self._longest:
            raise EndlessLineError("a line without an end")


MAX_JOINED = 4096


class OutputCapture:
    """Bytes in order; the first and the last `limit / 2` are kept, the middle is counted."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._gathered = min(MAX_JOINED, self._tail_limit // 8)
        self._head = bytearray()
        self._tail: deque[bytearray] = deque()
        self._tail_size = 0
        self.seen = 0

    def add(self, chunk: bytes) -> None:
        self.seen += len(chunk)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += chunk[:space]
            chunk = chunk[space:]
        if chunk and self._tail and len(self._tail[-1]) < self._gathered:
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
