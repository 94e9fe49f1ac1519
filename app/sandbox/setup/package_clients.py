"""Asks this machine's own clients which package indexes they use, so that a private mirror works by itself."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree

from app.core.scratch import scratch
from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule
from app.sandbox.setup.ecosystems.compiled import MIRROR

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
_PIP_QUESTION = """
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
_PIP_SETTINGS = ("trusted-host", "cert", "default-timeout", "timeout", "no-index", "prefer-binary")
_HREF = re.compile(rb"""href\s*=\s*["']([^"'<>]+)["']""", re.IGNORECASE)
_PAGES_READ = 3


async def ask_pip(environment: Mapping[str, str], interpreters: Sequence[Path | str]) -> PackageClients:
    """The first interpreter with pip answers."""
    for interpreter in interpreters:
        answer = await ask([str(interpreter), "-c", _PIP_QUESTION], environment)
        if answer is not None:
            return read_pip(json.loads(answer))
    return PackageClients()


def read_pip(answer: dict[str, Any]) -> PackageClients:
    """Hosts, variables and local directories from pip's index object and settings."""
    settings = {name: _setting(answer["settings"], name) for name in ("index-url", "extra-index-url", "find-links")}
    hosts: list[str] = []
    directories: list[Path] = []
    problems: list[ClientProblem] = []
    variables = {f"PIP_{name.upper().replace('-', '_')}": _setting(answer["settings"], name) for name in _PIP_SETTINGS}
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


_NPM_SETTINGS = {
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
    for name, variable in _NPM_SETTINGS.items():
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


_MAVEN_DEFAULTS = "org/apache/maven/model/pom-4.0.0.xml"
_MIRRORED = frozenset({"*", "central", "external:*"})


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
            if _MIRRORED.isdisjoint(mirrored.split(",")):
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
                root = ElementTree.fromstring(content.read(_MAVEN_DEFAULTS))  # noqa: S314  # a file of this machine
        except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError):
            continue
        yield from (found.text.strip() for found in root.iterfind("{*}repositories/{*}repository/{*}url") if found.text)


_GO_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")


async def ask_go(environment: Mapping[str, str]) -> PackageClients:
    answer = await ask(["go", "env", "-json", *_GO_VARIABLES], environment)
    return PackageClients() if answer is None else read_go(json.loads(answer))


def read_go(settings: dict[str, str]) -> PackageClients:
    """`GOPROXY` lists addresses and the words `direct` and `off`; `GOSUMDB` is a host's name, or key and address."""
    locations = [locate(entry) for entry in re.split(r"[,|]", settings.get("GOPROXY", "")) if "://" in entry]
    problems = [credentials_problem("go", location, fatal=True) for location in locations if location.credentials]
    if problems:
        return PackageClients(problems=tuple(problems))
    return PackageClients(
        hosts=tuple(location.origin for location in [*locations, *_checksums(settings)] if location.origin),
        environment=tuple((name, settings[name]) for name in _GO_VARIABLES if settings.get(name)),
        directories=tuple(location.path for location in locations if location.path is not None),
    )


def _checksums(settings: dict[str, str]) -> list[IndexLocation]:
    name, *address = settings.get("GOSUMDB", "off").split()
    if name == "off":
        return []
    return [locate(address[0] if address else f"https://{name.partition('+')[0]}")]


CERTIFICATE_FILES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "PIP_CERT"),
)
"""Variables with a file of what a client trusts: a proxy that opens TLS needs them inside too. No repository can set
them."""
CERTIFICATE_VARIABLES = (*CERTIFICATE_FILES, "SSL_CERT_DIR", "npm_config_cafile")
"""All that name certificates of this machine."""
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
    named = {name: Path(environment[name]) for name in CERTIFICATE_VARIABLES if environment.get(name)}
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
