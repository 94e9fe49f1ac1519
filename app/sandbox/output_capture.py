"""What is kept of a command's output: its head and its tail, never more memory than that."""

from collections import deque

GATHERED = 4096


class OutputCapture:
    """Bytes in order, of which the first and the last `limit / 2` stay; the middle is counted."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._gathered = min(GATHERED, self._tail_limit // 8)
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
            self._tail[-1] += chunk  # who writes byte by byte would cost us an object for each
        elif chunk:
            self._tail.append(bytearray(chunk))
        self._tail_size += len(chunk)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def value(self) -> bytes:
        tail = b"".join(self._tail)
        return bytes(self._head) + tail[max(0, len(tail) - self._tail_limit) :]

    def held(self) -> list[bytes]:
        """All that is in memory, to be measured."""
        return [bytes(self._head), *map(bytes, self._tail)]

    @property
    def dropped(self) -> int:
        return self.seen - len(self.value())
