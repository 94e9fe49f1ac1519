"""Finds Maven's repository: a mirror of this machine's settings, else the one that Maven itself names."""

import asyncio
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from app.sandbox.setup.clients.base import PackageClients, credentials_problem, locate
from app.sandbox.setup.ecosystems.java import MIRROR

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
