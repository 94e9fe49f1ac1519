"""Rust: crates are fetched into `/env/cargo`; later commands are offline."""

import shlex
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any

from app.sandbox.base import ENV
from app.sandbox.setup.ecosystems.base import InstallStep, ManifestFiles, project_roots, table

CARGO_HOME = f"{ENV}/cargo"
RUST_MANIFESTS = ("Cargo.toml", "Cargo.lock")
RUST_ENVIRONMENT = (("CARGO_HOME", CARGO_HOME),)
_TABLES = ("dependencies", "dev-dependencies", "build-dependencies")


def rust_install_steps(files: ManifestFiles, tools: Collection[str]) -> list[InstallStep]:
    found = []
    for root in project_roots(files, ["Cargo.toml"]):
        if not _has_foreign_crates(files, root):
            continue
        if "cargo" not in tools:
            found.append(
                InstallStep("cargo", notes=("the project needs crates, but cargo is not installed on this machine",))
            )
            continue
        locked = " --locked" if f"{root}Cargo.lock" in files else ""
        manifest = f" --manifest-path {shlex.quote(root + 'Cargo.toml')}" if root else ""
        found.append(
            InstallStep(
                "cargo",
                commands=(f"cargo fetch{locked}{manifest}",),
                tools=("cargo",),
                manifests=tuple(path for path in files if PurePosixPath(path).name in RUST_MANIFESTS),
                environment=RUST_ENVIRONMENT,
            )
        )
    return found


def configure_cargo(text: str) -> str:
    """The command that writes cargo's configuration file inside, for a machine with a mirror."""
    return f"mkdir -p {CARGO_HOME} && printf %s {shlex.quote(text)} > {CARGO_HOME}/config.toml"


def _has_foreign_crates(files: ManifestFiles, root: str) -> bool:
    if f"{root}Cargo.lock" in files:
        packages = files.toml(f"{root}Cargo.lock").get("package", [])
        return any(isinstance(package, dict) and "source" in package for package in packages)
    manifest = files.toml(f"{root}Cargo.toml")
    return "workspace" in manifest or any(_names_foreign(table(manifest, name)) for name in _TABLES)


def _names_foreign(dependencies: dict[str, Any]) -> bool:
    return any(not (isinstance(wanted, dict) and "path" in wanted) for wanted in dependencies.values())
