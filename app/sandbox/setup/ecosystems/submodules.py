"""Submodules: public ones are fetched if `network:` allows their host; the others stay empty directories."""

import shlex
from collections.abc import Collection
from urllib.parse import urlsplit

from app.sandbox.setup.ecosystems.base import InstallStep, ManifestFiles
from app.sandbox.setup.ecosystems.python_metadata import read_ini

SHOWN = 5


def submodule_install_steps(files: ManifestFiles, hosts: Collection[str]) -> list[InstallStep]:
    """`hosts` are those that the configuration allows for the set-up."""
    addresses = _addresses(files)
    allowed = {path: addresses[path] for path in files.gitlinks if _host(addresses.get(path, "")) in hosts}
    empty = [path for path in files.gitlinks if path not in allowed]
    found = []
    if empty:
        names = ", ".join(empty[:SHOWN])
        note = f"{names}: submodules stay empty, because `network:` allows no https host for them"
        found.append(InstallStep("git", notes=(note,)))
    for path, address in allowed.items():
        found.append(
            InstallStep(
                "git",
                commands=(fetch_command(path, address, files.gitlinks[path]),),
                manifests=(".gitmodules",),
                directories=(path,),
                facts=(files.gitlinks[path],),
            )
        )
    return found


def _addresses(files: ManifestFiles) -> dict[str, str]:
    modules = read_ini("\n".join(line.strip() for line in files.text(".gitmodules").splitlines())).values()
    return {module["path"]: module["url"] for module in modules if "path" in module and "url" in module}


def _host(address: str) -> str:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    plain = parts.scheme == "https" and port is None and parts.username is None
    return (parts.hostname or "") if plain else ""


def fetch_command(path: str, address: str, commit: str) -> str:
    """Fetch only the pinned commit, without `.git`; a failure is no reason to stop."""
    place, url = shlex.quote(f"./{path}"), shlex.quote(address)
    git = f"git -C {place}"
    return (
        f"{{ git init -q {place} && {git} fetch -q --depth 1 -- {url} {commit} && {git} checkout -q FETCH_HEAD; }}"
        f" || echo 'the submodule cannot be fetched, and stays empty'; rm -rf {place}/.git"
    )
