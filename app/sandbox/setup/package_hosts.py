"""Asks this machine's own clients which package hosts they use, so that a private mirror works by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from app.sandbox.setup.clients.base import PackageClients, merge
from app.sandbox.setup.clients.cargo import ask_cargo
from app.sandbox.setup.clients.go import ask_go
from app.sandbox.setup.clients.maven import ask_maven
from app.sandbox.setup.clients.node import ask_node
from app.sandbox.setup.clients.pip import ask_pip

__all__ = ["PackageClients", "ask_clients", "asked_once"]

# Variables that name certificates, by the clients that read them. A proxy that opens TLS needs them inside too.
_CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
)
# Every sandbox shows these, read-only.
_ALWAYS_VISIBLE = (Path("/etc/ssl"), Path("/usr"))


async def ask_clients(environment: Mapping[str, str], python: Path) -> PackageClients:
    """Ask every client at once; `environment` is this machine's, and the pip of `python` counts first."""
    parts = await asyncio.gather(
        ask_pip(environment, [python, "python3"]),
        ask_node(environment),
        ask_cargo(environment),
        ask_go(environment),
        ask_maven(environment),
    )
    found = merge([*parts, certificates(environment)])
    seen = tuple(path for path in found.directories if not any(path.is_relative_to(top) for top in _ALWAYS_VISIBLE))
    return PackageClients(found.hosts, found.environment, seen, found.cargo_config, found.problems)


def certificates(environment: Mapping[str, str]) -> PackageClients:
    """The certificate settings of this machine, if the named files exist."""
    named = {name: Path(environment[name]) for name in _CERTIFICATES if environment.get(name)}
    present = {name: path for name, path in named.items() if path.is_absolute() and path.exists()}
    return PackageClients(
        environment=tuple((name, str(path)) for name, path in present.items()),
        directories=tuple(dict.fromkeys(present.values())),
    )


def asked_once(
    environment: Mapping[str, str],
    python: Path,
    ask: Callable[[Mapping[str, str], Path], Awaitable[PackageClients]] = ask_clients,
) -> Callable[[], Awaitable[PackageClients]]:
    """A callable that asks on its first call, and remembers the answer."""
    lock = asyncio.Lock()
    answers: list[PackageClients] = []

    async def clients() -> PackageClients:
        async with lock:
            if not answers:
                answers.append(await ask(environment, python))
        return answers[0]

    return clients
