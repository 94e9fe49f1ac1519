"""Parses a client's request to the egress proxy: one request head, strictly, so that nothing can hide in it."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

_REQUEST_LINE = re.compile(rb"(CONNECT|GET|HEAD) ([\x21-\x7e]{1,8000}) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HOP_BY_HOP = frozenset(
    {"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect"}
)

Method = Literal["CONNECT", "GET", "HEAD"]


class BadRequest(ValueError):  # noqa: N818 - the name of the status it becomes
    """The proxy does not carry this head; the message is a sentence for the client."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request for `host` (lower case, no brackets) at `port`; `target` is the origin-form path of a GET."""

    method: Method
    host: str
    port: int
    target: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def to_bytes(self, *, absolute: bool = False, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
        """The request as it is sent on: rebuilt from its parsed parts, never the client's own bytes."""
        host = self.authority.removesuffix(":80")
        target = f"http://{host}{self.target}" if absolute else self.target
        headers = (("Host", host), *self.headers, *extra, ("Connection", "close"))
        lines = [f"{self.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_head(raw: bytes) -> RequestHead:
    """Parse a head that ends in an empty line. Raises BadRequest unless it is plainly one CONNECT, GET or HEAD."""
    request, *lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(request)
    if not found:
        raise BadRequest("only CONNECT, GET and HEAD are carried, one plain HTTP/1.1 head at a time")
    headers = _parse_headers(lines)
    target = found[2].decode("ascii")
    if found[1] == b"CONNECT":
        host, port = _authority(target)
        return RequestHead("CONNECT", host, port)
    return _absolute("GET" if found[1] == b"GET" else "HEAD", target, headers)


def _parse_headers(lines: list[bytes]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if not found:
            raise BadRequest("a header line is malformed")
        headers.append((found[1].decode("ascii"), found[2].decode("latin-1").strip()))
    for name, value in headers:
        # A body is what requests are smuggled in, and downloads need none.
        if name.lower() == "transfer-encoding" or (name.lower() == "content-length" and value != "0"):
            raise BadRequest("requests with a body are not carried")
    return headers


def _authority(target: str) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(target)
    if not found or not 0 < int(found[2]) < 65536:
        raise BadRequest("CONNECT needs HOST:PORT")
    return found[1].strip("[]").lower().rstrip("."), int(found[2])


def _absolute(method: Literal["GET", "HEAD"], target: str, headers: list[tuple[str, str]]) -> RequestHead:
    try:
        url = urlsplit(target)
        port = url.port or 80
    except ValueError:
        raise BadRequest("the requested address cannot be parsed") from None
    if url.scheme != "http" or not url.hostname or "@" in url.netloc:
        raise BadRequest("only absolute http:// addresses are fetched, and https:// by CONNECT")
    _authority(f"[{url.hostname}]:{port}" if ":" in url.hostname else f"{url.hostname}:{port}")
    connection = ",".join(value for name, value in headers if name.lower() == "connection")
    dropped = _HOP_BY_HOP | {name.strip().lower() for name in connection.split(",")}
    kept = tuple(
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith("proxy-")
    )
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return RequestHead(method, url.hostname.rstrip("."), port, path, kept)
