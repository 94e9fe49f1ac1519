"""Finds the package indexes for a container's set-up: this machine's, reached through its proxy."""

from collections.abc import Mapping
from pathlib import Path

from app.sandbox.e2b.indexes import without_settings
from app.sandbox.setup.clients.base import PackageClients
from app.sandbox.setup.package_hosts import ask_clients


async def ask_for_containers(environment: Mapping[str, str], python: Path) -> PackageClients:
    """A mirror on loopback or in a private network works. A directory cannot be shown, so clients with such an index
    are asked again without settings. Certificate files are copied in."""
    clients = await ask_clients(environment, python)
    if not any(place.is_dir() for place in clients.directories) and not clients.problems:
        return PackageClients(clients.hosts, clients.environment, (), clients.cargo_config, clients.problems)
    return await ask_clients(without_settings(environment), python)
