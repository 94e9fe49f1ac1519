"""Asks pip for its index: the default one, or the one in its configuration."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from app.sandbox.setup.clients.base import (
    ClientProblem,
    IndexLocation,
    PackageClients,
    ask,
    credentials_problem,
    locate,
)

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
