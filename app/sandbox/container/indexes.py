"""Finds the package indexes for a container's set-up: this machine's, reached through its proxy."""

from collections.abc import Mapping
from pathlib import Path

from app.sandbox.e2b.indexes import unsettled
from app.sandbox.setup.clients.base import PackageClients
from app.sandbox.setup.package_hosts import ask_clients


async def ask_for_containers(environment: Mapping[str, str], python: Path) -> PackageClients:
    """A mirror on loopback or in a private network works. A directory cannot be shown, so clients with such an index
    are asked again without settings. Certificate files are copied in."""
    asked = await ask_clients(environment, python)
    if not any(place.is_dir() for place in asked.directories) and not asked.problems:
        return PackageClients(asked.hosts, asked.environment, (), asked.cargo_config, asked.problems)
    return await ask_clients(unsettled(environment), python)
