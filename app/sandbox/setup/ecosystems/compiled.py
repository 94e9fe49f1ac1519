"""Go, Java and Rust: dependencies are downloaded into `/env` during the set-up, and later commands are offline."""

import re
import shlex
from collections.abc import Collection
from typing import Any

from app.sandbox.base import ENV
from app.sandbox.setup.ecosystems.base import InstallStep, inside, not_installed
from app.sandbox.setup.manifests import ManifestFiles, project_roots, table

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
            found.append(not_installed("cargo", "crates", "cargo"))
            continue
        locked = " --locked" if f"{root}Cargo.lock" in files else ""
        manifest = f" --manifest-path {shlex.quote(root + 'Cargo.toml')}" if root else ""
        found.append(
            InstallStep(
                "cargo",
                commands=(f"cargo fetch{locked}{manifest}",),
                tools=("cargo",),
                manifests=files.named(RUST_MANIFESTS),
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


GO_MANIFESTS = ("go.mod", "go.sum", "go.work", "go.work.sum")
# -modcacherw: the module cache would otherwise be read-only directories that only root can remove.
GO_ENVIRONMENT = (("GOFLAGS", "-modcacherw"), ("GOMODCACHE", f"{ENV}/go/mod"))
GO_CACHE = f"{ENV}/go/cache"
"""The standard library, compiled. Go reads a cache that it cannot write."""
_REQUIRE = re.compile(r"^\s*require\b", re.MULTILINE)


def go_install_steps(files: ManifestFiles, tools: Collection[str]) -> list[InstallStep]:
    found = []
    roots = project_roots(files, ["go.work", "go.mod"])
    if roots and "go" in tools:
        command = f"GOCACHE={GO_CACHE} go build std"
        found.append(InstallStep("go build", commands=(command,), tools=("go",), neutral=True))
    for root in roots:
        modules = _modules(files, root)
        vendored = f"{root}vendor/modules.txt" in files
        if vendored or not any(_REQUIRE.search(files.text(module)) for module in modules):
            continue
        if "go" not in tools:
            found.append(not_installed("go", "Go modules", "go"))
            continue
        found.append(
            InstallStep(
                "go",
                commands=(inside(root, "go mod download"),),
                tools=("go",),
                manifests=files.named(GO_MANIFESTS),
                environment=GO_ENVIRONMENT,
            )
        )
    return found


def _modules(files: ManifestFiles, root: str) -> list[str]:
    """In a workspace every module below counts, otherwise the one of this directory."""
    if f"{root}go.work" in files:
        return [path for path in files if path.startswith(root) and path.endswith("/go.mod")]
    return [f"{root}go.mod"]


JAVA_MANIFESTS = ("pom.xml", "maven.config", "extensions.xml", "jvm.config")
# MAVEN_OPTS, because mvn before 3.9 does not read MAVEN_ARGS.
JAVA_ENVIRONMENT = (("MAVEN_OPTS", f"-Dmaven.repo.local={ENV}/m2"),)
MIRROR = "AGENT_FIX_MAVEN_MIRROR"
"""The variable with the address of this machine's mirror."""
_TEST_CLASS = re.compile(r"(?:.*/)?src/test/java/(?:.*/)?(\w*Tests?)\.java")
# Maven reads no proxy from the usual variables. A mirror with the name of the public repository has its artifacts
# found offline, too. The file is kept with the home directory, and configured commands find it as well.
_PROXIES = "".join(
    f"<proxy><id>{kind}</id><active>true</active><protocol>{kind}</protocol><host>%s</host><port>%s</port></proxy>"
    for kind in ("http", "https")
)
_MIRROR = "<mirrors><mirror><id>central</id><mirrorOf>*</mirrorOf><url>%s</url></mirror></mirrors>"
REACH = (
    'proxy="${HTTPS_PROXY#*://}"; proxy="${proxy%/}"; host="${proxy%:*}" port="${proxy##*:}"; mkdir -p ~/.m2; '
    "{ echo '<settings>'; "
    f'[ -z "$proxy" ] || printf "<proxies>{_PROXIES}</proxies>" "$host" "$port" "$host" "$port"; '
    f'[ -z "${MIRROR}" ] || printf "{_MIRROR}" "${MIRROR}"; '
    "echo '</settings>'; } > ~/.m2/settings.xml"
)
"""The command that tells Maven how packages are reached."""


def java_install_steps(files: ManifestFiles, tools: Collection[str]) -> list[InstallStep]:
    found = []
    for root in project_roots(files, ["pom.xml"]):
        if "mvn" not in tools:
            found.append(not_installed("maven", "Java packages", "mvn"))
            continue
        # What runs the tests is only resolved if there is one to run.
        only = f" -Dtest={smallest} -DfailIfNoTests=false" if (smallest := _smallest_test(files, root)) else ""
        skipped = "-Dsurefire.failIfNoSpecifiedTests=false -Dmaven.test.failure.ignore=true"
        command = inside(root, f"mvn --batch-mode --quiet {skipped}{only} test")
        found.append(
            InstallStep(
                "maven",
                commands=(REACH, command),
                short=(command,),
                tools=("mvn",),
                manifests=tuple(files),
                environment=JAVA_ENVIRONMENT,
            )
        )
    return found


def _smallest_test(files: ManifestFiles, root: str) -> str:
    """The name of the shortest test class; empty if there is none."""
    found = (
        (files.entries[path].size, named[1])
        for path in files
        if path.startswith(root) and (named := _TEST_CLASS.fullmatch(path)) and not named[1].startswith("Abstract")
    )
    return min(found, default=(0, ""))[1]
