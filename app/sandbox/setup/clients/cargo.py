"""Finds cargo's index: from its configuration, else from the host that it tries to reach."""

import asyncio
import json
import re
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.core.scratch import scratch
from app.sandbox.setup.clients.base import IndexLocation, PackageClients, ask, credentials_problem, locate, merge

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
