"""Go: modules are downloaded into `/env/go`, and the standard library is compiled; later commands are offline."""

import re
import shlex
from collections.abc import Collection
from pathlib import PurePosixPath

from app.sandbox.base import ENV
from app.sandbox.setup.ecosystems.base import InstallStep, ManifestFiles, project_roots

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
            found.append(
                InstallStep("go", notes=("the project needs Go modules, but go is not installed on this machine",))
            )
            continue
        command = "go mod download"
        found.append(
            InstallStep(
                "go",
                commands=(f"cd {shlex.quote(root)} && {command}" if root else command,),
                tools=("go",),
                manifests=tuple(path for path in files if PurePosixPath(path).name in GO_MANIFESTS),
                environment=GO_ENVIRONMENT,
            )
        )
    return found


def _modules(files: ManifestFiles, root: str) -> list[str]:
    """In a workspace every module below counts, otherwise the one of this directory."""
    if f"{root}go.work" in files:
        return [path for path in files if path.startswith(root) and path.endswith("/go.mod")]
    return [f"{root}go.mod"]
