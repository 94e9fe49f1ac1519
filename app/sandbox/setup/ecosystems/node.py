"""Node: installs `node_modules` with the package manager whose lock file exists."""

import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from app.core.text import words
from app.sandbox.base import ENV
from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.declared.commands import simple_commands
from app.sandbox.setup.ecosystems.base import ABSENT, InstallStep, SetupChoice, program
from app.sandbox.setup.manifests import NOT_THE_PROJECT, ManifestFiles, is_member, project_roots, table, texts
from app.sandbox.setup.package_tools import NODE_TOOLS

_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_BUN_LOCKS = ("bun.lock", "bun.lockb")
BUN_FILES = frozenset({*_BUN_LOCKS, "bunfig.toml"})
"""Files that only Bun reads."""
_NPM_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
NODE_MANIFESTS = (
    *("package.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml", ".npmrc", ".yarnrc.yml"),
    *_NPM_LOCKS,
    *sorted(BUN_FILES),
)
MAX_PACKAGES = 200
_QUIET = "--no-audit --no-fund"
_GLOBAL = f"npm install --global --prefix {ENV} {_QUIET}"
_NODE_PACKAGE = "node@npm:node-linux-$(node -p process.arch)"
"""A package with Node's own program; those of the name `node` download it when they are installed."""
_HEADERS = ("npm_package_config_node_gyp_nodedir", f"{ENV}/lib/node_modules/node")
_NPM_FOR_NODE = ((22, 11), (18, 10), (12, 8), (0, 6))
"""The first major version of Node that a major version of npm is for, the newest first."""
_REGISTRY_NAME = re.compile(r"(?:@[\w.-]+/)?[a-z][\w.-]*(?:@[\w.^~-]+)?")
_CLIENTS = frozenset({*NODE_TOOLS, "corepack", "codecov", "coveralls", "i", "install", "n", "node-gyp"})
MAX_GLOBAL = 5
# Its lock names a host in every line, and yarn insists on it; the machine's registry has the same paths.
_YARN_CLASSIC = (
    """{ [ -z "$npm_config_registry" ] || """
    r"""sed -i -E "s|^(  resolved \")https?://[^/]+/|\1${npm_config_registry%/}/|" yarn.lock; } && """
    "yarn install --frozen-lockfile --non-interactive"
)
# The modern yarn reads no proxy from the usual variables, and may rewrite an older lock file (in a temporary tree).
_YARN_MODERN = 'YARN_HTTP_PROXY="$HTTP_PROXY" YARN_HTTPS_PROXY="$HTTPS_PROXY" yarn install --no-immutable'
_PNPM_BY_FORMAT = {"5": "7", "6": "8", "9": "10"}
_AT_INSTALL = words("preinstall install postinstall prepublish preprepare prepare postprepare dependencies")
_CARRIED = re.compile(r"^(?:yarnPath|plugins):", re.MULTILINE)
_LOCK_VERSION = re.compile(r"^lockfileVersion: *'?(\d+)", re.MULTILINE)
_PACKAGE_MANAGER = re.compile(r"(bun|pnpm|yarn)@\d+\.\d+\.\d+")
_GIT = re.compile(r"git(?:\+|:|@|hub:)|gitlab:|bitbucket:|gist:|ssh:|https?://.*\.git(?:#|$)|[\w.-]+/[\w.-]+(?:#.*)?$")
_LEAVE_OUT_PLACE = "/tmp/leave-out.js"  # noqa: S108  # inside, while the set-up lasts: no part of its result
# Test runners must not wait for keys; these packages would download binaries from hosts that are not package indexes.
NODE_ENVIRONMENT = (
    ("CI", "true"),
    ("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0"),
    ("CYPRESS_INSTALL_BINARY", "0"),
    ("ELECTRON_SKIP_BINARY_DOWNLOAD", "1"),
    ("HUSKY", "0"),
    ("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1"),
    ("PUPPETEER_SKIP_DOWNLOAD", "1"),
    ("YARN_ENABLE_TELEMETRY", "0"),
    ("YARN_NODE_LINKER", "node-modules"),
    ("npm_config_replace_registry_host", "always"),
    ("npm_config_update_notifier", "false"),
)


def node_install_steps(files: ManifestFiles, tools: Collection[str], choice: SetupChoice) -> list[InstallStep]:
    found = []
    for root in project_roots(files, ["package.json"]):
        members = workspace_members(files, root)
        packages = [files.json(f"{directory}package.json") for directory in (root, *members)]
        programs = "" if root else " ".join(_global_packages(files))
        if not (programs or choice.node) and not any(
            package.get(name) for package in packages for name in _DEPENDENCIES
        ):
            continue
        if "npm" not in tools:
            found.append(
                InstallStep("npm", notes=("the project needs npm packages, but npm is not installed on this machine",))
            )
            continue
        node = (_bring_node(choice.node),) if choice.node and not found else ()
        inside = f"cd {shlex.quote(root)} && " if root else ""
        absent = _from_git(files.json(f"{root}package.json"))
        found.append(
            InstallStep(
                "npm",
                commands=(
                    *node,
                    *(f"{inside}{command}" for command in _commands(files, root, tools, choice.before, absent)),
                    *(
                        (f"{_GLOBAL} {programs} || echo 'what CI installs beside it cannot be had'",)
                        if programs
                        else ()
                    ),
                ),
                short=(*node, *(f"{inside}{command}" for command in _short(files, root, tools, choice.before))),
                tools=("node",),
                manifests=tuple(files)
                if _executes(files, root, members)
                else (
                    *(f"{root}{name}" for name in NODE_MANIFESTS),
                    *(f"{member}package.json" for member in members),
                ),
                environment=(*NODE_ENVIRONMENT, *((_HEADERS,) if choice.node.isdigit() else ())),
                directories=tuple(f"{directory}node_modules" for directory in _packages(files, root, members)),
                notes=tuple(
                    f"{name} is left out, as it can only be had from git ({where})" for name, where in absent.items()
                ),
            )
        )
    return found


def _bring_node(node: str) -> str:
    """The command that puts another Node, with an npm that it can run, in front of this machine's."""
    if not node.isdigit():
        programs = " ".join(shlex.quote(str(PurePosixPath(node).with_name(name))) for name in ("node", "npm", "npx"))
        return f"mkdir -p {ENV}/bin && ln -sf {programs} {ENV}/bin/"
    npm = next(version for least, version in _NPM_FOR_NODE if int(node) >= least)
    missing = f"echo 'Node {node} cannot be had: the one of this machine is used'"
    return f'{_GLOBAL} "{_NODE_PACKAGE}@{node}" npm@{npm} || {missing}'


def _global_packages(files: ManifestFiles) -> list[str]:
    """Programs that jobs of CI which may run tests install by `npm install --global`, quoted for a shell."""
    found: list[str] = []
    for job in ci_jobs(files):
        for command in simple_commands(job.script, job.values) if job.score > 0 else ():
            if command[0] == "npm" and {"i", "install"} & set(command[1:3]) and {"-g", "--global"} & set(command):
                found += [word for word in command[2:] if _REGISTRY_NAME.fullmatch(word)]
    named = (word for word in dict.fromkeys(found) if word.rpartition("@")[0] not in _CLIENTS and word not in _CLIENTS)
    return [shlex.quote(word) for word in named][:MAX_GLOBAL]


def _executes(files: ManifestFiles, root: str, members: Collection[str]) -> bool:
    """Whether the package manager executes something in the tree."""
    if f"{root}.pnpmfile.cjs" in files or _CARRIED.search(files.text(f"{root}.yarnrc.yml")):
        return True
    return any(
        f"{directory}binding.gyp" in files
        or not _AT_INSTALL.isdisjoint(table(files.json(f"{directory}package.json"), "scripts"))
        for directory in (root, *members)
    )


def workspace_members(files: ManifestFiles, root: str) -> tuple[str, ...]:
    """Directories (with a trailing slash) of a workspace's packages, each of which may get its own `node_modules`."""
    declared = files.json(f"{root}package.json").get("workspaces", [])
    patterns = texts(declared.get("packages") if isinstance(declared, dict) else declared)
    patterns += _pnpm_patterns(files.text(f"{root}pnpm-workspace.yaml"))
    wanted = [pattern.removeprefix("./").rstrip("/") for pattern in patterns if not pattern.startswith("!")]
    directories = [path.removesuffix("package.json") for path in files if path.endswith("/package.json")]
    below = [name for name in directories if name.startswith(root) and "node_modules/" not in name and name != root]
    return tuple(name for name in below if any(is_member(name[len(root) :].rstrip("/"), each) for each in wanted))


def _packages(files: ManifestFiles, root: str, members: Collection[str]) -> tuple[str, ...]:
    """Every directory that may get a `node_modules`: a script of the project may install what no workspace declares."""
    if not _executes(files, root, members):
        return (root, *members)
    below = [
        path.removesuffix("package.json") for path in files if path.startswith(root) and path.endswith("/package.json")
    ]
    others = [name for name in below if NOT_THE_PROJECT.isdisjoint(name.split("/"))][:MAX_PACKAGES]
    return tuple(dict.fromkeys((root, *members, *others)))


def _pnpm_patterns(text: str) -> list[str]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    return texts(data.get("packages")) if isinstance(data, dict) else []


def _from_git(package: Mapping[str, Any]) -> dict[str, str]:
    """Dependencies that no package index has, with the address that they are asked from."""
    found = {
        name: wanted
        for group in _DEPENDENCIES
        for name, wanted in table(package, group).items()
        if isinstance(wanted, str) and _GIT.match(wanted)
    }
    return dict(sorted(found.items()))


def _commands(
    files: ManifestFiles, root: str, tools: Collection[str], before: str, absent: Collection[str]
) -> tuple[str, ...]:
    """The install command, after one that brings its package manager if this machine has none.

    If it fails, it is tried without the packages' own scripts, which may want to download more, then without
    the lock file, with the packages of its time, and in the end without the development dependencies that no index has.
    """
    forget = (f"node -e {shlex.quote(program('node_forget.js'))} {shlex.join(absent)}",) if absent else ()
    dated = f"npm install --no-package-lock --ignore-scripts --legacy-peer-deps {_QUIET}"
    dated += f" --before {before}" if before else ""
    if any(f"{root}{lock}" in files for lock in _NPM_LOCKS):
        install = f"npm ci {_QUIET} || npm ci --ignore-scripts --legacy-peer-deps {_QUIET} || {dated}"
        return (*forget, *_leaving_out(install, dated))
    if f"{root}pnpm-lock.yaml" in files:
        frozen = "--no-frozen-lockfile" if absent else "--frozen-lockfile"
        relaxed = "pnpm install --no-frozen-lockfile --ignore-scripts"
        install = f"pnpm install {frozen} || {relaxed}"
        return (*forget, *_bring(_pnpm(files, root), "pnpm", tools), *_leaving_out(install, relaxed))
    if f"{root}yarn.lock" in files:
        lock = files.text(f"{root}yarn.lock")
        modern = "__metadata:" in lock
        install = _YARN_MODERN if modern else _YARN_CLASSIC
        if not modern:
            install += " || yarn install --non-interactive --ignore-scripts --ignore-engines"
        install = f"{{ {install}; }} || {dated}"
        return (*forget, *_bring(_yarn(files, root, modern=modern), "yarn", tools), *_leaving_out(install, dated))
    if any(f"{root}{lock}" in files for lock in _BUN_LOCKS) or _named_version(files, root, "bun"):
        relaxed = "bun install --ignore-scripts"
        install = f"bun install --frozen-lockfile || {relaxed} || {dated}"
        bun = _named_version(files, root, "bun") or "bun"
        return (*forget, *_bring(bun, "bun", tools), *_leaving_out(install, relaxed))
    dated_first = f"npm install --no-package-lock {_QUIET}" + (f" --before {before}" if before else "")
    return (*forget, *_leaving_out(f"{dated_first} || {dated}", dated))


def _short(files: ManifestFiles, root: str, tools: Collection[str], before: str) -> tuple[str, ...]:
    """The install command that is tried first, after one that brings its package manager."""
    *others, install = _commands(files, root, tools, before, ())
    first = install.partition(" || ")[0].replace(f" {_QUIET}", "")
    if f"{root}yarn.lock" in files and " || " in install:
        first = "yarn install" if "__metadata:" in files.text(f"{root}yarn.lock") else "yarn install --frozen-lockfile"
    return (*(command.replace(f" {_QUIET}", "") for command in others if not command.startswith("printf")), first)


def _leaving_out(install: str, last: str) -> tuple[str, str]:
    """`install`, and if it fails `last` again without what cannot be fetched."""
    return (
        f"printf %s {shlex.quote(program('node_leave_out.js'))} > {_LEAVE_OUT_PLACE}",
        f"{install} || node {_LEAVE_OUT_PLACE} {shlex.quote(last)} {shlex.quote(ABSENT)}",
    )


def _bring(package: str, tool: str, tools: Collection[str]) -> tuple[str, ...]:
    return () if tool in tools else (f"{_GLOBAL} {shlex.quote(package)}",)


def _pnpm(files: ManifestFiles, root: str) -> str:
    """The version that the project names, or the one that wrote its lock file's format."""
    written = _LOCK_VERSION.search(files.text(f"{root}pnpm-lock.yaml"))
    return _named_version(files, root, "pnpm") or f"pnpm@{_PNPM_BY_FORMAT.get(written[1] if written else '', '10')}"


def _yarn(files: ManifestFiles, root: str, *, modern: bool) -> str:
    """Classic yarn also starts the release that a modern project contains; without one, its npm package."""
    if not modern or "yarnPath:" in files.text(f"{root}.yarnrc.yml"):
        return "yarn@1"
    return "@yarnpkg/cli-dist@" + (_named_version(files, root, "yarn").removeprefix("yarn@") or "4")


def _named_version(files: ManifestFiles, root: str, tool: str) -> str:
    """`pnpm@9.1.0` if package.json's `packageManager` says so, else empty."""
    found = _PACKAGE_MANAGER.match(str(files.json(f"{root}package.json").get("packageManager", "")))
    return found[0] if found and found[1] == tool else ""
