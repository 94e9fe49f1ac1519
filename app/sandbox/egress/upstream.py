"""Connects the egress proxy to an allowed host, directly or through this machine's own proxy."""

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from app.sandbox.egress.allow_list import HostRule, is_public
from app.sandbox.egress.request_head import RequestHead

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
