"""Splits a stream into lines, with bounded memory even if a line never ends."""


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
