"""Decides which hosts a set-up may reach: rules from package clients and `network:`, and forbidden addresses.

Entries with a scheme are indexes, others are hosts:

https://index.corp:8443     an index that a client on this machine is configured with: this port, any address
example.com   *.example.com `network:` of the repository: ports 443 and 80 (or `example.com:8080`), public addresses
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.config.value_rules import PRIVATE_SUFFIXES

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_WEB_PORTS = frozenset({80, 443})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def address_of(host: str) -> Address | None:
    """The IP address that `host` literally is, in any spelling that libc would accept too, else None."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    # 127.1, 0x7f000001, 2130706433, 0177.0.0.1: inet_aton reads them as addresses, so they are not names.
    return ipaddress.IPv4Address(0) if re.fullmatch(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*", host) else None


def is_public(address: Address) -> bool:
    """True for an address on the public internet; IPv6 spellings of IPv4 addresses are decoded."""
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public(embedded)
    return address.is_global and not address.is_multicast


def is_internal_name(host: str) -> bool:
    """True for a name that means something only on this machine or its local network."""
    return "." not in host or host.endswith(PRIVATE_SUFFIXES)


@dataclass(frozen=True, slots=True)
class HostRule:
    """One allowed destination. `configured` marks a client's own index, which may have a private address.

    With `tls` a tunnel must start with a TLS handshake.
    """

    host: str
    ports: frozenset[int]
    tls: bool = True
    configured: bool = False

    def matches(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def parse_rule(entry: str) -> HostRule:
    """Parse one entry. Raises ValueError with a sentence if it names no host that can be allowed."""
    if "://" in entry:
        return _parse_origin(entry)
    name, _, port = entry.strip().lower().rstrip(".").partition(":")
    bare = name.removeprefix("*.")
    if not _NAME.fullmatch(bare) or (port and not _is_port(port)):
        raise ValueError(f"{entry!r} is not a host name")
    if address_of(bare) is not None:
        raise ValueError(f"{entry!r} is an address; name a host")
    if is_internal_name(bare):
        raise ValueError(f"{entry!r} is a name of this machine or its local network")
    return HostRule(name, frozenset({int(port)}) if port else _WEB_PORTS)


def _parse_origin(entry: str) -> HostRule:
    url = urlsplit(entry.strip())
    host = (url.hostname or "").rstrip(".")
    if url.scheme not in _DEFAULT_PORTS or not host or (address_of(host) is None and not _NAME.fullmatch(host)):
        raise ValueError(f"{entry!r} is not the origin of a package index")
    ports = frozenset({url.port or _DEFAULT_PORTS[url.scheme]})
    return HostRule(host, ports, tls=url.scheme == "https", configured=True)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536


class AllowList:
    """The rules of one set-up; everything else is refused."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._rules = tuple(dict.fromkeys(parse_rule(entry) for entry in entries))

    def find(self, host: str, port: int) -> HostRule | None:
        """The rule that allows `host` at `port`; a client's own index wins over a wider rule."""
        found = [rule for rule in self._rules if rule.matches(host, port)]
        if address_of(host) is not None:
            found = [rule for rule in found if rule.configured]
        return max(found, key=lambda rule: rule.configured, default=None)
