"""Asks npm, yarn and pnpm for their registries."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.sandbox.setup.clients.base import ClientProblem, PackageClients, ask, credentials_problem, locate, merge

_PASSED_ON = {
    "strict-ssl": "npm_config_strict_ssl",
    "nodedir": "npm_package_config_node_gyp_nodedir",  # npm no longer knows the setting, but node-gyp does
}


async def ask_node(environment: Mapping[str, str]) -> PackageClients:
    """npm gives all settings in one answer; the others are asked for their own default, which may be another host."""
    npm, *others = await asyncio.gather(
        ask(["npm", "config", "list", "--json"], environment),
        ask(["yarn", "config", "get", "registry"], environment),
        ask(["yarn", "config", "get", "npmRegistryServer"], environment),
        ask(["pnpm", "config", "get", "registry"], environment),
    )
    found = [PackageClients()] if npm is None else [read_npm(json.loads(npm))]
    origins = [locate(other.strip()).origin for other in others if other is not None]
    return merge([*found, PackageClients(hosts=tuple(origin for origin in origins if origin))])


def read_npm(settings: dict[str, Any]) -> PackageClients:
    """Registries (also those of single scopes) and the settings without which they would not be trusted."""
    hosts: list[str] = []
    variables: dict[str, str] = {}
    problems: list[ClientProblem] = []
    for name, value in settings.items():
        if name != "registry" and not (name.startswith("@") and name.endswith(":registry")):
            continue
        location = locate(str(value))
        if location.credentials:
            problems.append(credentials_problem("npm", location, fatal=name == "registry"))
        elif location.origin:
            hosts.append(location.origin)
            variables[f"npm_config_{name}"] = location.url
            if name == "registry":
                variables["YARN_NPM_REGISTRY_SERVER"] = location.url.rstrip("/")
    for name, variable in _PASSED_ON.items():
        value = settings.get(name)
        if value is not None and value is not True:
            variables[variable] = str(value).lower() if value is False else str(value)
    authorities = str(settings.get("cafile") or "")
    if authorities:
        variables["npm_config_cafile"] = authorities
    return PackageClients(
        hosts=tuple(hosts),
        environment=tuple(variables.items()),
        directories=(Path(authorities),) if authorities else (),
        problems=tuple(problems),
    )
