"""Node: installs `node_modules` with the package manager whose lock file exists."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.core.text import words
from app.sandbox.base import ENV
from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.declared.commands import simple_commands
from app.sandbox.setup.ecosystems.base import (
    ABSENT,
    WITHOUT_SCRIPTS,
    InstallStep,
    SetupChoice,
    https_host,
    inside,
    not_installed,
    program,
)
from app.sandbox.setup.manifests import ManifestFiles, is_member, project_roots, table, texts
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
_YARN_RELAXED = "yarn install --non-interactive --ignore-scripts --ignore-engines"
# The modern yarn reads no proxy from the usual variables, and may rewrite an older lock file (in a temporary tree).
_YARN_MODERN = 'YARN_HTTP_PROXY="$HTTP_PROXY" YARN_HTTPS_PROXY="$HTTPS_PROXY" yarn install --no-immutable'
_PNPM_BY_FORMAT = {"5": "7", "6": "8", "9": "10"}
_AT_INSTALL = words("preinstall install postinstall prepublish preprepare prepare postprepare dependencies")
_CARRIED = re.compile(r"^(?:yarnPath|plugins):", re.MULTILINE)
_LOCK_VERSION = re.compile(r"^lockfileVersion: *'?(\d+)", re.MULTILINE)
_PACKAGE_MANAGER = re.compile(r"(bun|pnpm|yarn)@\d+\.\d+\.\d+")
_GIT = re.compile(
    r"git(?:\+|:|@|hub:)|gitlab:|bitbucket:|gist:|ssh:|https?://.*\.git(?:#|$)|(?!\.)[\w.-]+/[\w.-]+(?:#.*)?$"
)
_GIT_HOSTS = {"bitbucket": "bitbucket.org", "gist": "gist.github.com", "github": "github.com", "gitlab": "gitlab.com"}
"""Hosts that npm has short names for; without one it means GitHub."""
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


class InstallAttempts(NamedTuple):
    """How a package manager installs: each of `commands` is for when the one before it fails.

    `bring` installs the manager if the machine has none. `last` is repeated without what no index has (empty: the last
    command), and `short` is what a person would write (empty: the first command).
    """

    commands: tuple[str, ...]
    bring: tuple[str, ...] = ()
    last: str = ""
    short: str = ""


@dataclass(frozen=True, slots=True)
class NodeInstall:
    """The packages at `root` (`""` or `"server/"`) and those of its workspace, as they were at the date `before`."""

    files: ManifestFiles
    root: str
    tools: Collection[str]
    before: str
    members: tuple[str, ...]

    def commands(self, absent: Collection[str], allowed: Collection[str]) -> tuple[str, ...]:
        """The install command, after one that brings its package manager if this machine has none.

        If it fails, it is tried without the packages' own scripts, which may want to download more, then without the
        lock file, with the packages of its time, and in the end without the development dependencies that no index has.
        `absent` are dependencies that are left out at once, and `allowed` those from git that are left out at the end.
        """
        forget = (_forget(absent),) if absent else ()
        attempts = self._attempts(frozen=not absent)
        last = shlex.quote(attempts.last or attempts.commands[-1])
        relaxed = f"node {_LEAVE_OUT_PLACE} {last} {shlex.quote(ABSENT)}"
        note = f"echo {shlex.quote(WITHOUT_SCRIPTS)}"
        attempted = (f"{{ {one} && {note}; }}" if "--ignore-scripts" in one else one for one in attempts.commands)
        install = " || ".join((*attempted, relaxed))
        if allowed:
            named = " ".join(shlex.quote(f"{name}{ABSENT}") for name in allowed)
            install += f" || {{ {_forget(allowed)} && printf '%s\\n' {named} && {relaxed}; }}"
        leave_out = f"printf %s {shlex.quote(program('node_leave_out.js'))} > {_LEAVE_OUT_PLACE}"
        return tuple(inside(self.root, command) for command in (*forget, *attempts.bring, leave_out, install))

    def short(self) -> tuple[str, ...]:
        """The install command that is tried first, after one that brings its package manager."""
        attempts = self._attempts(frozen=True)
        plain = (*attempts.bring, attempts.short or attempts.commands[0])
        return tuple(inside(self.root, command.replace(f" {_QUIET}", "")) for command in plain)

    def executes(self) -> bool:
        """Whether the package manager executes something in the tree."""
        if f"{self.root}.pnpmfile.cjs" in self.files or _CARRIED.search(self._text(".yarnrc.yml")):
            return True
        return any(
            f"{directory}binding.gyp" in self.files
            or not _AT_INSTALL.isdisjoint(table(self.files.json(f"{directory}package.json"), "scripts"))
            for directory in (self.root, *self.members)
        )

    def manifests(self) -> tuple[str, ...]:
        """The files that decide the result."""
        if self.executes():
            return tuple(self.files)
        own = (f"{self.root}{name}" for name in NODE_MANIFESTS)
        return (*own, *(f"{member}package.json" for member in self.members))

    def _attempts(self, *, frozen: bool) -> InstallAttempts:
        before = f" --before {self.before}" if self.before else ""
        dated = f"npm install --no-package-lock --ignore-scripts --legacy-peer-deps {_QUIET}{before}"
        if self._has(*_NPM_LOCKS):
            return InstallAttempts((f"npm ci {_QUIET}", f"npm ci --ignore-scripts --legacy-peer-deps {_QUIET}", dated))
        if self._has("pnpm-lock.yaml"):
            lock = "--frozen-lockfile" if frozen else "--no-frozen-lockfile"
            relaxed = "pnpm install --no-frozen-lockfile --ignore-scripts"
            written = _LOCK_VERSION.search(self._text("pnpm-lock.yaml"))
            pnpm = self._named_version("pnpm") or f"pnpm@{_PNPM_BY_FORMAT.get(written[1] if written else '', '10')}"
            return InstallAttempts((f"pnpm install {lock}", relaxed), self._bring(pnpm, "pnpm"))
        if self._has("yarn.lock"):
            modern = "__metadata:" in self._text("yarn.lock")
            commands = (_YARN_MODERN,) if modern else (_YARN_CLASSIC, _YARN_RELAXED)
            short = "yarn install" if modern else "yarn install --frozen-lockfile"
            return InstallAttempts((*commands, dated), self._bring(self._yarn(modern=modern), "yarn"), short=short)
        if self._has(*_BUN_LOCKS) or self._named_version("bun"):
            relaxed = "bun install --ignore-scripts"
            bun = self._bring(self._named_version("bun") or "bun", "bun")
            return InstallAttempts(("bun install --frozen-lockfile", relaxed, dated), bun, relaxed)
        return InstallAttempts((f"npm install --no-package-lock {_QUIET}{before}", dated))

    def _has(self, *names: str) -> bool:
        return any(f"{self.root}{name}" in self.files for name in names)

    def _text(self, name: str) -> str:
        return self.files.text(f"{self.root}{name}")

    def _bring(self, package: str, tool: str) -> tuple[str, ...]:
        return () if tool in self.tools else (f"{_GLOBAL} {shlex.quote(package)}",)

    def _yarn(self, *, modern: bool) -> str:
        """Classic yarn also starts the release that a modern project contains; without one, its npm package."""
        if not modern or "yarnPath:" in self._text(".yarnrc.yml"):
            return "yarn@1"
        return "@yarnpkg/cli-dist@" + (self._named_version("yarn").removeprefix("yarn@") or "4")

    def _named_version(self, tool: str) -> str:
        """`pnpm@9.1.0` if package.json's `packageManager` says so, else empty."""
        package = self.files.json(f"{self.root}package.json")
        found = _PACKAGE_MANAGER.match(str(package.get("packageManager", "")))
        return found[0] if found and found[1] == tool else ""


def node_install_steps(
    files: ManifestFiles, tools: Collection[str], choice: SetupChoice, hosts: Collection[str]
) -> list[InstallStep]:
    """`hosts` are those that the configuration allows: what comes from git there is tried, other git is left out."""
    found: list[InstallStep] = []
    for root in project_roots(files, ["package.json"]):
        install = NodeInstall(files, root, tools, choice.before, workspace_members(files, root))
        packages = [files.json(f"{directory}package.json") for directory in (root, *install.members)]
        programs = "" if root else " ".join(_global_packages(files))
        needed = any(package.get(name) for package in packages for name in _DEPENDENCIES)
        if not (programs or choice.node or needed):
            continue
        if "npm" not in tools:
            found.append(not_installed("npm", "npm packages", "npm"))
            continue
        node = (_bring_node(choice.node),) if choice.node and not found else ()
        others = (f"{_GLOBAL} {programs} || echo 'what CI installs beside it cannot be had'",) if programs else ()
        git = _from_git(packages[0])
        absent = {name: where for name, where in git.items() if https_host(_git_address(where)) not in hosts}
        found.append(
            InstallStep(
                "npm",
                commands=(*node, *install.commands(absent, [name for name in git if name not in absent]), *others),
                short=(*node, *install.short()),
                tools=("node",),
                manifests=install.manifests(),
                environment=(*NODE_ENVIRONMENT, *((_HEADERS,) if choice.node.isdigit() else ())),
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


def workspace_members(files: ManifestFiles, root: str) -> tuple[str, ...]:
    """Directories (with a trailing slash) of a workspace's packages, each of which may get its own `node_modules`."""
    declared = files.json(f"{root}package.json").get("workspaces", [])
    patterns = texts(declared.get("packages") if isinstance(declared, dict) else declared)
    patterns += texts(files.yaml(f"{root}pnpm-workspace.yaml").get("packages"))
    wanted = [pattern.removeprefix("./").rstrip("/") for pattern in patterns if not pattern.startswith("!")]
    below = (name for name in _package_directories(files) if name.startswith(root) and name != root)
    below = (name for name in below if "node_modules/" not in name)
    return tuple(name for name in below if any(is_member(name[len(root) :].rstrip("/"), each) for each in wanted))


def _package_directories(files: ManifestFiles) -> Iterator[str]:
    return (path.removesuffix("package.json") for path in files if path.endswith("/package.json"))


def _forget(names: Collection[str]) -> str:
    """The command that takes dependencies out of the manifest and npm's lock."""
    return f"node -e {shlex.quote(program('node_forget.js'))} {shlex.join(sorted(names))}"


def _git_address(wanted: str) -> str:
    """The URL from which a dependency is fetched."""
    short, colon, path = wanted.partition("#")[0].partition(":")
    if not colon:
        short, path = "github", short
    return f"https://{_GIT_HOSTS[short]}/{path}" if short in _GIT_HOSTS else wanted.removeprefix("git+")


def _from_git(package: Mapping[str, Any]) -> dict[str, str]:
    """Dependencies that no package index has, with the address from which they are fetched."""
    found = {
        name: wanted
        for group in _DEPENDENCIES
        for name, wanted in table(package, group).items()
        if isinstance(wanted, str) and _GIT.match(wanted)
    }
    return dict(sorted(found.items()))
