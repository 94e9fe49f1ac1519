"""Asks pip and cargo on this machine for the index and the settings that they use."""

import asyncio
import contextlib
import json
import os
import re
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from app.core.scratch import scratch

SECONDS = 30.0
"""The time a client has to answer (half a second is usual, ten on a busy machine), else it is treated as not there."""

_REMOTE = {"http", "https"}


@dataclass(frozen=True, slots=True)
class ClientProblem:
    """Why an index cannot be used from a sandbox; `fatal` for a client's main index."""

    client: str
    sentence: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class PackageClients:
    """What a set-up needs to use this machine's package indexes.

    `hosts` are origins for `app.sandbox.egress.allow_list`; `environment` holds client settings, never a credential;
    `directories` are host paths to mount at the same path (local indexes, a CA file); `cargo_config` is text for
    cargo's configuration file, because source replacement has no variable.
    """

    hosts: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    directories: tuple[Path, ...] = ()
    cargo_config: str = ""
    problems: tuple[ClientProblem, ...] = ()


def merge(parts: Iterable[PackageClients]) -> PackageClients:
    """All parts as one; the first to set a variable wins."""
    every = tuple(parts)
    variables: dict[str, str] = {}
    for part in every:
        variables = dict(part.environment) | variables
    return PackageClients(
        hosts=tuple(dict.fromkeys(host for part in every for host in part.hosts)),
        environment=tuple(sorted(variables.items())),
        directories=tuple(dict.fromkeys(path for part in every for path in part.directories)),
        cargo_config="".join(part.cargo_config for part in every),
        problems=tuple(problem for part in every for problem in part.problems),
    )


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """Where an index is: `origin` for a remote one, `path` for one on this machine; both empty for anything else."""

    url: str
    origin: str = ""
    path: Path | None = None
    credentials: bool = False


def locate(url: str) -> IndexLocation:
    """Tell a remote index from a local one, and whether its address contains a user name or password."""
    plain = url.removeprefix("sparse+")
    try:
        parts = urlsplit(plain)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return IndexLocation(url)
    if parts.scheme == "file":
        return IndexLocation(url, path=Path(unquote(parts.path)))
    if not parts.scheme and plain:
        return IndexLocation(url, path=Path(plain).expanduser())
    if parts.scheme not in _REMOTE or not parts.hostname:
        return IndexLocation(url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return IndexLocation(url, origin=f"{parts.scheme}://{host}{port}", credentials="@" in parts.netloc)


def credentials_problem(client: str, location: IndexLocation, *, fatal: bool) -> ClientProblem:
    sentence = f"{client} on this machine uses an index at {location.origin} with credentials in its address"
    return ClientProblem(client, f"{sentence}, which must not enter the sandbox", fatal)


async def ask(
    argv: Sequence[str], environment: Mapping[str, str] | None = None, *, seconds: float = SECONDS
) -> str | None:
    """A client's output, or None if it is missing, fails or takes too long.

    Runs in the root directory, because the settings of the caller's project are not this machine's.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=None if environment is None else dict(environment),
            cwd="/",
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 else None


# Runs in the interpreter that is asked; its pip may be of any age: newer ones nest their settings by file.
_SCRIPT = """
import json
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
configuration = Configuration(isolated=False)
configuration.load()
settings = {}
for key, value in configuration.items():
    settings.update(value if isinstance(value, dict) else {key: value})
print(json.dumps({"index": PyPI.url, "files": PyPI.file_storage_domain, "settings": settings}))
"""
_SECTIONS = (":env:", "install", "global")
_PASSED_ON = ("trusted-host", "cert", "default-timeout", "timeout", "no-index", "prefer-binary")
_HREF = re.compile(rb"""href\s*=\s*["']([^"'<>]+)["']""", re.IGNORECASE)
_PAGES_READ = 3


async def ask_pip(environment: Mapping[str, str], interpreters: Sequence[Path | str]) -> PackageClients:
    """The first interpreter with pip answers."""
    for interpreter in interpreters:
        answer = await ask([str(interpreter), "-c", _SCRIPT], environment)
        if answer is not None:
            return read_pip(json.loads(answer))
    return PackageClients()


def read_pip(answer: dict[str, Any]) -> PackageClients:
    """Hosts, variables and local directories from pip's index object and settings."""
    settings = {name: _setting(answer["settings"], name) for name in ("index-url", "extra-index-url", "find-links")}
    hosts: list[str] = []
    directories: list[Path] = []
    problems: list[ClientProblem] = []
    variables = {f"PIP_{name.upper().replace('-', '_')}": _setting(answer["settings"], name) for name in _PASSED_ON}
    for name, value in settings.items():
        kept = []
        for location in map(locate, value.split()):
            if location.credentials:
                problems.append(credentials_problem("pip", location, fatal=name == "index-url"))
                continue
            kept.append(location.url)
            hosts += [location.origin] if location.origin else []
            directories += _local_directories(location, index=name != "find-links")
        variables[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(kept)
    if not settings["index-url"]:
        hosts += [locate(answer["index"]).origin, f"https://{answer['files']}"]
    if variables["PIP_CERT"]:
        directories.append(Path(variables["PIP_CERT"]))
    variables |= {
        "UV_DEFAULT_INDEX": variables["PIP_INDEX_URL"],
        "UV_INDEX": variables["PIP_EXTRA_INDEX_URL"],
        "UV_FIND_LINKS": ",".join(variables["PIP_FIND_LINKS"].split()),
        "UV_INSECURE_HOST": variables["PIP_TRUSTED_HOST"],
        "UV_HTTP_TIMEOUT": variables["PIP_DEFAULT_TIMEOUT"] or variables["PIP_TIMEOUT"],
        "SSL_CERT_FILE": variables["PIP_CERT"],
    }
    return PackageClients(
        hosts=tuple(hosts),
        environment=tuple((name, value) for name, value in variables.items() if value),
        directories=tuple(directories),
        problems=tuple(problems),
    )


def _setting(settings: dict[str, str], name: str) -> str:
    for section in _SECTIONS:
        if value := settings.get(f"{section}.{name}"):
            return str(value).strip()
    return ""


def _local_directories(location: IndexLocation, *, index: bool) -> list[Path]:
    """The directory of a local index and those that its pages link to: files are often next to the pages."""
    if location.path is None or not location.path.exists():
        return []
    found = [location.path]
    if index and location.path.is_dir():
        for page in sorted(location.path.glob("*/index.html"))[:_PAGES_READ]:
            found += [_branch(location.path, target) for target in _links(page)]
    return list(dict.fromkeys(found))


def _links(page: Path) -> list[Path]:
    """The local files that a page of an index links to."""
    targets = [urldefrag(href.decode("utf-8", "replace")).url for href in _HREF.findall(page.read_bytes())]
    paths = [location.path for location in map(locate, targets) if location.path is not None]
    return [Path(os.path.normpath(page.parent / path)) for path in paths]


def _branch(index: Path, target: Path) -> Path:
    """The highest directory that contains `target` but not `index`; `index` itself if it contains the target."""
    if target.is_relative_to(index):
        return index
    shared = Path(os.path.commonpath([index, target]))
    return shared / target.relative_to(shared).parts[0]


_CRATE = """\
[package]
name = "asked"
version = "0.0.0"
edition = "2021"
[lib]
path = "lib.rs"
[dependencies]
asked-for = "1"
"""
_CONNECT_REQUEST = re.compile(rb"CONNECT ([A-Za-z0-9.-]+:[0-9]+) ")
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PUBLIC = "crates-io"
_ASK_SECONDS = 3.0
_FETCH_SECONDS = 1.0


async def ask_cargo(environment: Mapping[str, str]) -> PackageClients:
    """Index and download hosts of an installed cargo."""
    if await ask(["cargo", "--version"], environment, seconds=_ASK_SECONDS) is None:
        return PackageClients()
    configuration = await asyncio.to_thread(_configuration, environment)
    found = read_cargo(configuration)
    indexes = [locate(url) for url in _index_urls(configuration)]
    if replacement(configuration) is None:
        indexes.append(await _find_requested_host(environment))
    proxy = environment.get("HTTPS_PROXY") or environment.get("https_proxy") or ""
    remote = [index for index in indexes if index.origin and not index.credentials]
    downloads = await asyncio.gather(*(asyncio.to_thread(_downloads, index.url, proxy) for index in remote))
    hosts = tuple(location.origin for location in [*remote, *downloads] if location.origin)
    return merge([found, PackageClients(hosts=hosts)])


def read_cargo(configuration: Mapping[str, Any]) -> PackageClients:
    """The parts of cargo's configuration that a sandbox needs: source replacement, further registries, local
    directories."""
    source = replacement(configuration)
    mirror = str((source or {}).get("registry", ""))
    problems = [
        credentials_problem("cargo", location, fatal=location.url == mirror)
        for location in map(locate, _index_urls(configuration))
        if location.credentials
    ]
    text, directories = "", []
    if source is not None and not locate(mirror).credentials:
        kept = {key: source[key] for key in ("registry", "local-registry", "directory") if key in source}
        lines = [f"{key} = {json.dumps(str(value))}" for key, value in kept.items()]
        text = f'[source.{_PUBLIC}]\nreplace-with = "mirror"\n[source.mirror]\n' + "\n".join(lines) + "\n"
        directories = [Path(str(kept[key])) for key in ("local-registry", "directory") if key in kept]
    variables = {
        f"CARGO_REGISTRIES_{name.upper().replace('-', '_')}_INDEX": str(registry["index"])
        for name, registry in configuration.get("registries", {}).items()
        if "index" in registry and not locate(str(registry["index"])).credentials
    }
    return PackageClients(
        environment=tuple(variables.items()),
        directories=tuple(directories),
        cargo_config=text,
        problems=tuple(problems),
    )


def replacement(configuration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The source that replaces the public index, or None."""
    sources = configuration.get("source", {})
    name, seen = _PUBLIC, {_PUBLIC}
    while (following := str(sources.get(name, {}).get("replace-with", ""))) and following not in seen:
        seen.add(following)
        name = following
    return None if name == _PUBLIC else sources.get(name, {})


def _index_urls(configuration: Mapping[str, Any]) -> list[str]:
    registries = configuration.get("registries", {}).values()
    urls = [str((replacement(configuration) or {}).get("registry", ""))]
    return [url for url in [*urls, *(str(registry.get("index", "")) for registry in registries)] if url]


def _configuration(environment: Mapping[str, str]) -> dict[str, Any]:
    home = Path(environment.get("CARGO_HOME") or Path(environment.get("HOME", "/")) / ".cargo")
    for name in ("config", "config.toml"):  # cargo prefers the older name if both exist
        try:
            return tomllib.loads((home / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return {}


async def _find_requested_host(environment: Mapping[str, str]) -> IndexLocation:
    """Let cargo fetch a crate through a proxy that refuses, and note the requested host. Needs no network."""
    requested: list[IndexLocation] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = _CONNECT_REQUEST.match(await reader.read(4096))
        if found:
            requested.append(locate(f"https://{found[1].decode('ascii')}".removesuffix(":443")))
        writer.write(_REFUSAL)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    proxy_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with scratch("cargo") as crate:
        (crate / "Cargo.toml").write_text(_CRATE, encoding="utf-8")
        (crate / "lib.rs").touch()
        proxy_settings = {"CARGO_HOME": str(crate), "CARGO_HTTP_PROXY": proxy_url, "CARGO_NET_RETRY": "0"}
        command = ["cargo", "fetch", "--manifest-path", str(crate / "Cargo.toml")]
        async with server:
            await ask(command, {**environment, **proxy_settings}, seconds=_ASK_SECONDS)
    return requested[0] if requested else IndexLocation("")


def _downloads(index: str, proxy: str) -> IndexLocation:
    """The download address for crates in an index's `config.json`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"https": proxy} if proxy else {}))
    address = index.removeprefix("sparse+").rstrip("/") + "/config.json"
    try:
        with opener.open(address, timeout=_FETCH_SECONDS) as response:
            return locate(str(json.loads(response.read(65536)).get("dl", "")))
    except (OSError, ValueError):
        return IndexLocation("")
