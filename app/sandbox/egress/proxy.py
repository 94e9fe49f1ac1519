"""An HTTP proxy on a unix socket to allowed hosts; the only way out of a sandbox during set-up.

client in the sandbox ─► forwarder (127.0.0.1) ─► unix socket ─► EgressProxy ─► package host
"""

import asyncio
import base64
import contextlib
import ipaddress
import os
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from app.core.errors import SetupError
from app.core.proxies import bypasses_proxy
from app.core.text import words
from app.sandbox.egress.allow_list import AllowList, HostRule, address_of, is_public

_REQUEST_LINE = re.compile(rb"(CONNECT|GET|HEAD) ([\x21-\x7e]{1,8000}) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HOP_BY_HOP = words("connection host keep-alive te trailer transfer-encoding upgrade content-length expect")

SOCKET_INSIDE = "/run/egress.sock"
PORT = 3128
PROXY_ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
"""Inside: the variables that lead a set-up's clients through the forwarder to the proxy's socket."""

Method = Literal["CONNECT", "GET", "HEAD"]


class ProxyRefusal(Exception):  # noqa: N818 - an answer, not an error
    """The proxy does not carry this request; the message is a sentence for the client."""

    def __init__(self, sentence: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(sentence)
        self.status = status


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
    """Parse a head that ends in an empty line. Raises ProxyRefusal unless it is plainly one CONNECT, GET or HEAD."""
    request, *lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(request)
    if not found:
        raise ProxyRefusal("only CONNECT, GET and HEAD are carried, one plain HTTP/1.1 head at a time")
    headers = _parse_headers(lines)
    target = found[2].decode("ascii")
    if found[1] == b"CONNECT":
        host, port = _authority(target)
        return RequestHead("CONNECT", host, port)
    return _absolute("GET" if found[1] == b"GET" else "HEAD", target, headers)


def parse_origin_head(raw: bytes, tunnel: RequestHead) -> RequestHead:
    """Parse the head of a request within a tunnel without TLS. Raises ProxyRefusal unless it is one GET or HEAD."""
    method, _, rest = raw.partition(b" ")
    if method not in (b"GET", b"HEAD") or not rest.startswith(b"/"):
        raise ProxyRefusal("only GET and HEAD are carried without TLS, also within a tunnel")
    return parse_head(method + b" http://" + tunnel.authority.encode("ascii") + rest)


def _parse_headers(lines: list[bytes]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if not found:
            raise ProxyRefusal("a header line is malformed")
        headers.append((found[1].decode("ascii"), found[2].decode("latin-1").strip()))
    for name, value in headers:
        # A body is what requests are smuggled in, and downloads need none.
        if name.lower() == "transfer-encoding" or (name.lower() == "content-length" and value != "0"):
            raise ProxyRefusal("requests with a body are not carried")
    return headers


def _authority(target: str) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(target)
    if not found or not 0 < int(found[2]) < 65536:
        raise ProxyRefusal("CONNECT needs HOST:PORT")
    return found[1].strip("[]").lower().rstrip("."), int(found[2])


def _absolute(method: Literal["GET", "HEAD"], target: str, headers: list[tuple[str, str]]) -> RequestHead:
    try:
        url = urlsplit(target)
        port = url.port or 80
    except ValueError:
        raise ProxyRefusal("the requested address cannot be parsed") from None
    if url.scheme != "http" or not url.hostname or "@" in url.netloc:
        raise ProxyRefusal("only absolute http:// addresses are fetched, and https:// by CONNECT")
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

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], hosts: Sequence[str]) -> Self:
        """The proxy that this machine itself uses, for a set-up that needs these hosts.

        Raises SetupError if the environment names only proxies that do not speak HTTP.
        """
        names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
        named = {name: environment[name] for name in names if environment.get(name)} if hosts else {}
        urls = [url if "://" in url else f"http://{url}" for url in named.values()]
        usable = [url for url in urls if urlsplit(url).scheme in {"http", "https"}]
        if urls and not usable:
            raise SetupError(
                f"Set-ups cannot use the proxy that {next(iter(named))} names, because it is not an HTTP proxy.",
                hint="Set HTTPS_PROXY to the address of an HTTP proxy, such as http://proxy.example.com:3128.",
            )
        return cls(next(iter(usable), ""), environment.get("NO_PROXY") or environment.get("no_proxy", ""))

    def used_for(self, head: RequestHead) -> bool:
        return bool(self.url) and not bypasses_proxy(self.no_proxy, head.host, head.port)

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        url = urlsplit(self.url)
        if url.username is None:
            return ()
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        return (("Proxy-Authorization", "Basic " + base64.b64encode(pair.encode()).decode("ascii")),)

    async def open(self, head: RequestHead, rule: HostRule) -> Streams:
        """Streams that can carry out `head`: a tunnel for CONNECT, otherwise the server for its request.

        Raises ProxyRefusal if the host cannot be reached, or is on this machine or its local network.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if not self.used_for(head):
                    return await _open_directly(head.host, head.port, rule, self.resolve)
                await self._refuse_private(head, rule)
                return await self._open_through_proxy(head)
        except TimeoutError:
            sentence = f"{head.host} did not answer within {CONNECT_SECONDS:.0f} seconds"
            raise ProxyRefusal(sentence, HTTPStatus.BAD_GATEWAY) from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ProxyRefusal(f"{head.host} cannot be reached: {error}", HTTPStatus.BAD_GATEWAY) from error

    async def _refuse_private(self, head: RequestHead, rule: HostRule) -> None:
        """Names that this machine cannot resolve are left to its proxy."""
        if not rule.configured:
            with contextlib.suppress(OSError):  # includes TimeoutError
                async with asyncio.timeout(ADDRESS_SECONDS):
                    _check_addresses(head.host, await self.resolve(head.host, head.port))

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
            sentence = f"{head.host} cannot be reached: this machine's proxy answered {answer_line}"
            raise ProxyRefusal(sentence, HTTPStatus.BAD_GATEWAY)
        return reader, writer


def _check_addresses(host: str, addresses: Sequence[str]) -> None:
    if not all(is_public(ipaddress.ip_address(address)) for address in addresses):
        raise ProxyRefusal(
            f"{host} resolves to a private address, and is not the index of a client on this machine; "
            "`network:` in .github/agent-fix.yml allows public hosts only"
        )


async def _open_directly(host: str, port: int, rule: HostRule, resolve: Resolve) -> Streams:
    """Resolve once, check, and connect to exactly the checked addresses, so that no second look-up can differ."""
    addresses = await resolve(host, port)
    if not rule.configured:
        _check_addresses(host, addresses)
    failure: OSError | None = None
    for address in dict.fromkeys(addresses):
        try:
            async with asyncio.timeout(ADDRESS_SECONDS):
                return await asyncio.open_connection(address, port)
        except OSError as error:  # includes TimeoutError
            failure = error
    raise failure or OSError("it has no address")


_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Limits of one set-up: connections at once (and waiting), total bytes each way, seconds without a byte.

    A tunnel on which more than `upload` bytes were sent, and more than were received, is an upload.
    """

    connections: int = 64
    waiting: int = 448
    received: int = 4 * 1024**3
    sent: int = 16 * 1024**2
    upload: int = 512 * 1024
    idle: float = 60.0


class ConnectionRelay:
    """Copies connections and counts them all together."""

    def __init__(self, caps: RelayLimits) -> None:
        self.exhausted = ""
        """If not empty: the limit that was reached, in a sentence; nothing is copied any more."""
        self._caps = caps
        self._received = self._sent = 0

    async def relay(self, near: Streams, far: Streams, *, both: bool) -> None:
        """Until the far side ends, nothing moves for too long, or a limit is reached. `both` is a tunnel."""
        moved = {True: 0, False: 0}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._caps.idle) as clock:
                up = asyncio.create_task(self._pump(near[0], far[1], clock, moved, sending=True)) if both else None
                try:
                    await self._pump(far[0], near[1], clock, moved, sending=False)
                finally:
                    if up is not None:
                        up.cancel()
                        await asyncio.gather(up, return_exceptions=True)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        clock: asyncio.Timeout,
        moved: dict[bool, int],
        *,
        sending: bool,
    ) -> None:
        """Copy until the end or a limit; `moved` counts the connection's bytes each way, True for those sent."""
        loop = asyncio.get_running_loop()
        while chunk := await source.read(_CHUNK):
            moved[sending] += len(chunk)
            if moved[True] > max(self._caps.upload, moved[False]):
                self.exhausted = "the set-up sent more than it received, as an upload does"
            if not self._count(len(chunk), sending=sending):
                break
            clock.reschedule(loop.time() + self._caps.idle)
            sink.write(chunk)
            await sink.drain()
        if sending and sink.can_write_eof():
            sink.write_eof()

    def _count(self, size: int, *, sending: bool) -> bool:
        if sending:
            self._sent += size
        else:
            self._received += size
        if self._sent > self._caps.sent:
            self.exhausted = f"the set-up sent more than {self._caps.sent} bytes, the limit"
        elif self._received > self._caps.received:
            self.exhausted = f"the set-up received more than {self._caps.received} bytes, the limit"
        return not self.exhausted


def listen_privately(path: Path, owner: int | None) -> socket.socket:
    """A listening unix socket for its owner only; on Linux, even if the path is longer than such paths may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if hasattr(os, "O_PATH"):
            os.fchmod(listener.fileno(), 0o600)  # for the file that bind() creates, so that it is never open to others
            _bind_below(listener, path)
        else:  # macOS has no modes of sockets; the directory is private
            listener.bind(str(path))
            path.chmod(0o600)
        if owner is not None:
            os.chown(path, owner, -1)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_below(listener: socket.socket, path: Path) -> None:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


# The server name is read from a TLS client's first message (RFC 8446 section 4.1.2, RFC 6066 section 3): many package
# hosts share a delivery network, and a tunnel to an allowed name could otherwise reach any other name there.

HANDSHAKE = 0x16
RECORD_HEADER = 5
MAX_RECORD_SIZE = 16384 + 256


def record_length(header: bytes) -> int:
    """The length of the record that these five bytes start. Raises ValueError if they do not."""
    kind, major, _, length = struct.unpack("!BBBH", header)
    if kind != HANDSHAKE or major != 3 or not 4 <= length <= MAX_RECORD_SIZE:
        raise ValueError("not the start of a TLS handshake")
    return int(length)


def server_name(handshake: bytes) -> str:
    """The server name in a client's first TLS record, with its header; empty if there is none.

    Raises ValueError if this is not a ClientHello, or one in several records, which no package client sends.
    """
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _connection, name, _context: names.append(name)
    received = ssl.MemoryBIO()
    received.write(handshake)
    with contextlib.suppress(ssl.SSLError):  # there is no certificate to go on with
        context.wrap_bio(received, ssl.MemoryBIO(), server_side=True).do_handshake()
    if not names:
        raise ValueError("not a ClientHello in one record")
    return (names[0] or "").lower().rstrip(".")


_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 20.0
_BACKLOG = 1024  # a unix socket rejects connections if its backlog is full, instead of letting them wait


class _ConnectionLost(Exception):  # noqa: N818 - an end, not an error
    """A tunnel that is closed without an answer, because the client no longer expects HTTP."""


class EgressProxy:
    """A proxy with an allow list, listening while its context is entered.

    `hosts` are entries for `app.sandbox.egress.allow_list`. `owner` is another uid that may connect (root's sandbox
    runs as another user); without it only this process's user may.
    """

    def __init__(
        self,
        socket_path: Path,
        hosts: Sequence[str],
        *,
        upstream: Upstream | None = None,
        owner: int | None = None,
        caps: RelayLimits | None = None,
    ) -> None:
        self.refused: list[str] = []
        """Refused hosts, in order of appearance, each once."""
        self._path = socket_path
        self._allowed = AllowList(hosts)
        self._upstream = upstream or Upstream()
        self._owner = owner
        self._caps = caps or RelayLimits()
        self._slots = asyncio.Semaphore(self._caps.connections)
        self._relay = ConnectionRelay(self._caps)
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def explanation(self) -> str:
        """A network reason for a failed set-up, to add to its error; empty if nothing was refused."""
        parts = [self._relay.exhausted] if self._relay.exhausted else []
        if self.refused:
            parts.append(f"refused: {', '.join(self.refused)} (allow with `network:` in .github/agent-fix.yml)")
        return "; ".join(parts)

    async def __aenter__(self) -> Self:
        listener = listen_privately(self._path, self._owner)
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=_HEAD_BYTES, backlog=_BACKLOG)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= self._caps.connections + self._caps.waiting:
            writer.close()
            return
        client = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._slots:
                await self._answer(reader, writer)
        except ProxyRefusal as refusal:
            with contextlib.suppress(OSError, TimeoutError):
                await _send_refusal(writer, refusal.status, str(refusal))
        except (_ConnectionLost, OSError):
            pass  # either side hung up: the other is closed below, and the client reports what it missed
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _read_head(reader)
        rule, far = await self._connect(head)
        try:
            if head.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                first_bytes = await self._check_first_bytes(reader, head, rule)
                far[1].write(first_bytes)
                await self._relay.relay((reader, writer), far, both=first_bytes[:1] == bytes([HANDSHAKE]))
            else:
                chained = self._upstream.used_for(head)
                extra = self._upstream.authorization if chained else ()
                far[1].write(head.to_bytes(absolute=chained, extra=extra))
                await self._relay.relay((reader, writer), far, both=False)
        finally:
            far[1].close()

    async def _connect(self, head: RequestHead) -> tuple[HostRule, Streams]:
        if self._relay.exhausted:
            raise ProxyRefusal(self._relay.exhausted)
        try:
            rule = self._find_rule(head)
            return rule, await self._upstream.open(head, rule)
        except ProxyRefusal as refusal:
            if refusal.status is HTTPStatus.FORBIDDEN:
                self._note_refusal(head)
            raise

    def _find_rule(self, head: RequestHead) -> HostRule:
        rule = self._allowed.find(head.host, head.port)
        if rule is None:
            raise ProxyRefusal(
                f"{head.authority} is not a host that this set-up may reach; "
                "a maintainer can allow it under `network:` in .github/agent-fix.yml"
            )
        return rule

    async def _check_first_bytes(self, reader: asyncio.StreamReader, head: RequestHead, rule: HostRule) -> bytes:
        """What a tunnel begins with: the client's TLS handshake, if it is meant for the allowed host; or, to an index
        without TLS, one download, rebuilt as outside of a tunnel."""
        async with asyncio.timeout(self._caps.idle):
            first_bytes = await reader.read(1)
            if not first_bytes:
                raise _ConnectionLost
            if first_bytes[0] != HANDSHAKE and not rule.tls:
                return parse_origin_head(first_bytes + await _rest_of_head(reader), head).to_bytes()
            try:
                first_bytes += await reader.readexactly(RECORD_HEADER - 1)
                first_bytes += await reader.readexactly(record_length(first_bytes))
                name = server_name(first_bytes)
            except (ValueError, asyncio.IncompleteReadError) as error:
                raise _ConnectionLost from error
        if name != head.host and (name or address_of(head.host) is None):  # for an address, clients send no name
            if name:
                self._note_refusal(head, name)
            raise _ConnectionLost
        return first_bytes

    def _note_refusal(self, head: RequestHead, within: str = "") -> None:
        name = within or (head.host if head.port in {80, 443} else head.authority)
        if name not in self.refused and len(self.refused) < 100:
            self.refused.append(name)


async def _read_head(reader: asyncio.StreamReader) -> RequestHead:
    return parse_head(await _rest_of_head(reader))


async def _rest_of_head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise ProxyRefusal("the request's head is too large", status) from None
    except asyncio.IncompleteReadError:
        raise ProxyRefusal("the request ended within its head", HTTPStatus.BAD_REQUEST) from None
    except TimeoutError:
        raise ProxyRefusal("the request's head did not arrive in time", HTTPStatus.REQUEST_TIMEOUT) from None


async def _send_refusal(writer: asyncio.StreamWriter, status: HTTPStatus, sentence: str) -> None:
    """Refuse with one plain sentence, also as the reason phrase, since clients often show only that."""
    body = f"agent-fix: {sentence}\n".encode()
    reason = sentence.encode("ascii", "replace").decode("ascii")
    head = (
        f"HTTP/1.1 {status.value} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + body)
    async with asyncio.timeout(_HEAD_SECONDS):
        await writer.drain()
