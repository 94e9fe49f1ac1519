"""Asks go for its module proxies and checksum database."""

import json
import re
from collections.abc import Mapping

from app.sandbox.setup.clients.base import IndexLocation, PackageClients, ask, credentials_problem, locate

_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")


async def ask_go(environment: Mapping[str, str]) -> PackageClients:
    answer = await ask(["go", "env", "-json", *_VARIABLES], environment)
    return PackageClients() if answer is None else read_go(json.loads(answer))


def read_go(settings: dict[str, str]) -> PackageClients:
    """`GOPROXY` lists addresses and the words `direct` and `off`; `GOSUMDB` is a host's name, or key and address."""
    locations = [locate(entry) for entry in re.split(r"[,|]", settings.get("GOPROXY", "")) if "://" in entry]
    problems = [credentials_problem("go", location, fatal=True) for location in locations if location.credentials]
    if problems:
        return PackageClients(problems=tuple(problems))
    return PackageClients(
        hosts=tuple(location.origin for location in [*locations, *_checksums(settings)] if location.origin),
        environment=tuple((name, settings[name]) for name in _VARIABLES if settings.get(name)),
        directories=tuple(location.path for location in locations if location.path is not None),
    )


def _checksums(settings: dict[str, str]) -> list[IndexLocation]:
    name, *address = settings.get("GOSUMDB", "off").split()
    if name == "off":
        return []
    return [locate(address[0] if address else f"https://{name.partition('+')[0]}")]
