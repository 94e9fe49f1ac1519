"""Node: `node_modules`, by the package manager whose lock file is there."""

import shlex
from collections.abc import Collection
from pathlib import PurePosixPath

import yaml

from app.sandbox.detect.base import Files, Needs, project_roots, texts

_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_NPM_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
NODE_MANIFESTS = (
    *("package.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml", ".npmrc", ".yarnrc.yml"),
    *_NPM_LOCKS,
)
_QUIET = "--no-audit --no-fund"
# Test runners must not wait for keys; these packages would download binaries from hosts that are no package index.
NODE_ENVIRONMENT = (
    ("CI", "true"),
    ("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0"),
    ("CYPRESS_INSTALL_BINARY", "0"),
    ("ELECTRON_SKIP_BINARY_DOWNLOAD", "1"),
    ("HUSKY", "0"),
    ("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1"),
    ("PUPPETEER_SKIP_DOWNLOAD", "1"),
    ("YARN_NODE_LINKER", "node-modules"),
    ("npm_config_update_notifier", "false"),
)


def node_needs(files: Files, tools: Collection[str]) -> list[Needs]:
    found = []
    for root in project_roots(files, ["package.json"]):
        members = workspace_members(files, root)
        packages = [files.json(f"{directory}package.json") for directory in (root, *members)]
        if not any(package.get(name) for package in packages for name in _DEPENDENCIES):
            continue
        if "npm" not in tools:
            found.append(Needs("npm", notes=("the project needs npm packages, and there is no npm on this machine",)))
            continue
        command, note = _command(files, root, tools)
        found.append(
            Needs(
                "npm",
                commands=(f"cd {shlex.quote(root)} && {command}" if root else command,),
                tools=("node",),
                manifests=(
                    *(f"{root}{name}" for name in NODE_MANIFESTS),
                    *(f"{member}package.json" for member in members),
                ),
                environment=NODE_ENVIRONMENT,
                directories=tuple(f"{directory}node_modules" for directory in (root, *members)),
                notes=(note,) if note else (),
            )
        )
    return found


def workspace_members(files: Files, root: str) -> tuple[str, ...]:
    """Directories (with a slash at the end) of a workspace's packages, each of which may get its own `node_modules`."""
    declared = files.json(f"{root}package.json").get("workspaces", [])
    patterns = texts(declared.get("packages") if isinstance(declared, dict) else declared)
    patterns += _pnpm_patterns(files.text(f"{root}pnpm-workspace.yaml"))
    wanted = [pattern.removeprefix("./").rstrip("/") for pattern in patterns if not pattern.startswith("!")]
    directories = [path.removesuffix("package.json") for path in files if path.endswith("/package.json")]
    below = [name for name in directories if name.startswith(root) and "node_modules/" not in name and name != root]
    return tuple(name for name in below if any(_matches(name[len(root) :].rstrip("/"), each) for each in wanted))


def _matches(directory: str, pattern: str) -> bool:
    path, wanted = PurePosixPath(directory), PurePosixPath(pattern)
    if "**" in wanted.parts:
        return directory.startswith(pattern.partition("**")[0])
    return len(path.parts) == len(wanted.parts) and path.match(pattern)


def _pnpm_patterns(text: str) -> list[str]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    return texts(data.get("packages")) if isinstance(data, dict) else []


def _command(files: Files, root: str, tools: Collection[str]) -> tuple[str, str]:
    """The install command, and what to say where another one had been expected."""
    if any(f"{root}{lock}" in files for lock in _NPM_LOCKS):
        return f"npm ci {_QUIET}", ""
    for tool, lock in (("pnpm", "pnpm-lock.yaml"), ("yarn", "yarn.lock")):
        if f"{root}{lock}" not in files:
            continue
        if tool in tools:
            modern = tool == "yarn" and f"{root}.yarnrc.yml" in files
            return f"{tool} install {'--immutable' if modern else '--frozen-lockfile'}", ""
        note = f"{lock} is there and {tool} is not on this machine: npm installs without its pinned versions"
        return f"npm install --no-package-lock {_QUIET}", note
    return f"npm install --no-package-lock {_QUIET}", ""
