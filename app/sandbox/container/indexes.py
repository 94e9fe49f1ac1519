"""Which package indexes a container's set-up uses: those of this machine, through whose proxy all of it goes."""

from collections.abc import Mapping
from pathlib import Path

from app.sandbox.e2b.indexes import unsettled
from app.sandbox.setup.clients.base import PackageClients
from app.sandbox.setup.package_hosts import ask_clients


async def ask_for_containers(environment: Mapping[str, str], python: Path) -> PackageClients:
    """A mirror on loopback or in an office serves; an index in a directory cannot be shown, so that clients are then
    asked without anybody's settings. Certificate files are copied in."""
    asked = await ask_clients(environment, python)
    if not any(place.is_dir() for place in asked.directories) and not asked.problems:
        return PackageClients(asked.hosts, asked.environment, (), asked.cargo_config, asked.problems)
    return await ask_clients(unsettled(environment), python)
