"""Reads the server name from a TLS client's first message, so that a tunnel reaches only the allowed host.

Many package hosts share a delivery network; otherwise a tunnel to an allowed name could reach any other name there. RFC
8446 section 4.1.2, RFC 6066 section 3.
"""

import struct

HANDSHAKE = 0x16
RECORD_HEADER = 5
MAX_RECORD_SIZE = 16384 + 256

_CLIENT_HELLO = 1
_SERVER_NAME = 0


def record_length(header: bytes) -> int:
    """The length of the record that these five bytes start. Raises ValueError if they do not."""
    kind, major, _, length = struct.unpack("!BBBH", header)
    if kind != HANDSHAKE or major != 3 or not 4 <= length <= MAX_RECORD_SIZE:
        raise ValueError("not the start of a TLS handshake")
    return int(length)


def server_name(record: bytes) -> str:
    """The server name in a ClientHello (without the record's header), empty if there is none.

    Raises ValueError if this is not a ClientHello, or one in several records, which no package client sends.
    """
    try:
        message = _Bytes(record)
        if message.number(1) != _CLIENT_HELLO:
            raise ValueError("not a ClientHello")
        hello = message.vector(3)
        hello.skip(2 + 32)  # version, random
        for size in (1, 2, 1):  # session id, cipher suites, compression methods
            hello.vector(size)
        extensions = hello.vector(2) if hello.left else _Bytes(b"")
        while extensions.left:
            kind, content = extensions.number(2), extensions.vector(2)
            if kind == _SERVER_NAME:
                return _host_name(content.vector(2))
    except IndexError:
        raise ValueError("a ClientHello that ends too early") from None
    return ""


def _host_name(names: "_Bytes") -> str:
    while names.left:
        kind, name = names.number(1), names.vector(2)
        if kind == 0:
            return name.rest().decode("ascii").lower().rstrip(".")
    return ""


class _Bytes:
    """A cursor over bytes. Raises IndexError past their end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def skip(self, count: int) -> bytes:
        if count > self.left:
            raise IndexError
        self._at += count
        return self._content[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.skip(size), "big")

    def vector(self, size: int) -> "_Bytes":
        return _Bytes(self.skip(self.number(size)))

    def rest(self) -> bytes:
        return self.skip(self.left)
