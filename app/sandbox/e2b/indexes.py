"""Finds the package indexes for a cloud machine: this machine's if it can reach them, otherwise the defaults."""

import os
from collections.abc import Mapping
from pathlib import Path

from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule
from app.sandbox.setup.clients.base import PackageClients
from app.sandbox.setup.package_hosts import ask_clients

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
