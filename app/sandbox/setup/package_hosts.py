"""Asks this machine's own clients which package hosts they use, so that a private mirror works by itself."""

import asyncio
import json
import os
import re
import shutil
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule
from app.sandbox.setup.ecosystems.compiled import MIRROR
from app.sandbox.setup.package_clients import (
    ClientProblem,
    IndexLocation,
    PackageClients,
    ask,
    ask_cargo,
    ask_pip,
    credentials_problem,
    locate,
    merge,
)

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


_DEFAULTS = "org/apache/maven/model/pom-4.0.0.xml"
_EVERYTHING = frozenset({"*", "central", "external:*"})


async def ask_maven(environment: Mapping[str, str]) -> PackageClients:
    return await asyncio.to_thread(_read, environment)


def _read(environment: Mapping[str, str]) -> PackageClients:
    """Settings and defaults are read instead of asked for: Maven would have to download a plug-in to answer."""
    program = shutil.which("mvn", path=environment.get("PATH") or os.defpath)
    if program is None:
        return PackageClients()
    home = Path(program).resolve().parents[1]
    user = Path(environment.get("HOME", "/nonexistent")) / ".m2/settings.xml"
    for settings in (user, home / "conf/settings.xml"):
        for mirrored, url in _mirrors(settings):
            if _EVERYTHING.isdisjoint(mirrored.split(",")):
                continue
            location = locate(url)
            if location.credentials:
                return PackageClients(problems=(credentials_problem("maven", location, fatal=True),))
            return PackageClients(
                hosts=(location.origin,) if location.origin else (),
                environment=((MIRROR, url),),
                directories=(location.path,) if location.path else (),
            )
    return PackageClients(hosts=tuple(dict.fromkeys(filter(None, (locate(url).origin for url in _defaults(home))))))


def _mirrors(settings: Path) -> Iterator[tuple[str, str]]:
    """Each mirror's `mirrorOf` pattern and URL."""
    try:
        root = ElementTree.parse(settings).getroot()  # noqa: S314  # a file of this machine
    except (OSError, ElementTree.ParseError):
        return
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        yield mirror.findtext("{*}mirrorOf", "").replace(" ", ""), mirror.findtext("{*}url", "").strip()


def _defaults(home: Path) -> Iterator[str]:
    """The repositories of the model that all of Maven's projects inherit."""
    for archive in sorted((home / "lib").glob("maven-model-builder-*.jar")):
        try:
            with zipfile.ZipFile(archive) as content:
                root = ElementTree.fromstring(content.read(_DEFAULTS))  # noqa: S314  # a file of this machine
        except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError):
            continue
        yield from (found.text.strip() for found in root.iterfind("{*}repositories/{*}repository/{*}url") if found.text)


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
    return replace(found, directories=seen)


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
        return replace(clients, directories=())
    return await ask_clients(without_settings(environment), python)
