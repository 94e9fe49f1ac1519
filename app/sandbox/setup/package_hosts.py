"""Asks this machine's own clients which package hosts they use, so that a private mirror works by itself."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule
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


PYTHON = Path("python3")
TOOLS = frozenset({"node", "npm"})
"""What the base template has, besides Python."""
NOWHERE = "/nonexistent"
_KEPT = ("PATH", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "LANG")


def find_in_template(name: str) -> str | None:
    return name if name in TOOLS else None


async def ask_reachable(environment: Mapping[str, str], python: Path) -> PackageClients:
    """A cloud machine cannot reach a mirror on loopback or in a private network; clients are then asked without
    settings."""
    clients = await ask_clients(environment, python)
    if not clients.directories and not clients.problems and all(map(_public, clients.hosts)):
        return clients
    return await ask_clients(without_settings(environment), python)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which package clients find no settings."""
    kept = {name: environment[name] for name in _KEPT if name in environment}
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "GOENV": "off", "HOME": NOWHERE}
    npm = {f"npm_config_{kind}config": f"{NOWHERE}/{kind}" for kind in ("user", "global")}
    return {**kept, **nowhere, **npm}


def _public(origin: str) -> bool:
    host = parse_rule(origin).host
    return address_of(host) is None and not is_internal_name(host)


async def ask_for_containers(environment: Mapping[str, str], python: Path) -> PackageClients:
    """A mirror on loopback or in a private network works. A directory cannot be shown, so clients with such an index
    are asked again without settings. Certificate files are copied in."""
    clients = await ask_clients(environment, python)
    if not any(place.is_dir() for place in clients.directories) and not clients.problems:
        return PackageClients(clients.hosts, clients.environment, (), clients.cargo_config, clients.problems)
    return await ask_clients(without_settings(environment), python)
