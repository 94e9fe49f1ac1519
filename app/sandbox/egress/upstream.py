"""Connects the egress proxy to an allowed host, directly or through this machine's own proxy."""

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from app.sandbox.egress.allow_list import HostRule, is_public

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


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Resolve = Callable[[str, int], Awaitable[list[str]]]

CONNECT_SECONDS = 20.0
ADDRESS_SECONDS = 6.0


class HostUnreachable(Exception):  # noqa: N818 - reads as what it says
    """An allowed host could not be reached; the message is a sentence."""


class AddressForbidden(Exception):  # noqa: N818 - reads as what it says
    """A name resolves to this machine or its local network, and is not a client's own index."""


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine resolves names."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in found]


@dataclass(frozen=True, slots=True)
class Upstream:
    """This machine's own HTTP proxy; `url` is empty if it needs none, `no_proxy` is the variable of that name."""

    url: str = ""
    no_proxy: str = ""
    resolve: Resolve = look_up

    def used_for(self, host: str) -> bool:
        bypassed = [name.strip().lower().lstrip("*.") for name in self.no_proxy.split(",") if name.strip()]
        everything = "*" in self.no_proxy.split(",")
        named = any(host == name or host.endswith(f".{name}") for name in bypassed if name)
        return bool(self.url) and not everything and not named

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        url = urlsplit(self.url)
        if url.username is None:
            return ()
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        return (("Proxy-Authorization", "Basic " + base64.b64encode(pair.encode()).decode("ascii")),)

    async def open(self, head: RequestHead, rule: HostRule) -> Streams:
        """Streams that can carry out `head`: a tunnel for CONNECT, otherwise the server for its request."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if not self.used_for(head.host):
                    return await _open_directly(head.host, head.port, rule, self.resolve)
                return await self._open_through_proxy(head)
        except TimeoutError:
            raise HostUnreachable(f"{head.host} did not answer within {CONNECT_SECONDS:.0f} seconds") from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise HostUnreachable(f"{head.host} cannot be reached: {error}") from error

    async def _open_through_proxy(self, head: RequestHead) -> Streams:
        url = urlsplit(self.url)
        secure = ssl.create_default_context() if url.scheme == "https" else None
        port = url.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=secure)
        if head.method != "CONNECT":
            return reader, writer
        lines = [f"CONNECT {head.authority} HTTP/1.1", f"Host: {head.authority}"]
        lines += [f"{name}: {value}" for name, value in self.authorization]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = await reader.readuntil(b"\r\n\r\n")
        status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) < 2 or status[1] != b"200":
            writer.close()
            answer_line = b" ".join(status[1:]).decode("latin-1")
            raise HostUnreachable(f"{head.host} cannot be reached: this machine's proxy answered {answer_line}")
        return reader, writer


async def _open_directly(host: str, port: int, rule: HostRule, resolve: Resolve) -> Streams:
    """Resolve once, check, and connect to exactly the checked addresses, so that no second look-up can differ."""
    addresses = await resolve(host, port)
    if not rule.configured and not all(is_public(ipaddress.ip_address(address)) for address in addresses):
        raise AddressForbidden(host)
    failure: OSError | None = None
    for address in dict.fromkeys(addresses):
        try:
            async with asyncio.timeout(ADDRESS_SECONDS):
                return await asyncio.open_connection(address, port)
        except OSError as error:  # includes TimeoutError
            failure = error
    raise failure or OSError("it has no address")
