"""Plans the installation of a repository's dependencies: its own `setup` commands, or those for its manifests.

Public submodules are fetched if `network:` allows their host; the others stay empty directories.
"""

import asyncio
import hashlib
import json
import platform
import re
import shlex
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TypeVar

from app.core.errors import ConfigError, SetupError
from app.core.patch import Tree
from app.sandbox.base import SetupPlan
from app.sandbox.changes import LITTER
from app.sandbox.egress.allow_list import parse_rule
from app.sandbox.setup.declared.python_metadata import read_ini
from app.sandbox.setup.ecosystems.base import InstallStep, SetupChoice, https_host
from app.sandbox.setup.ecosystems.compiled import (
    GO_ENVIRONMENT,
    GO_MANIFESTS,
    JAVA_ENVIRONMENT,
    JAVA_MANIFESTS,
    REACH,
    RUST_ENVIRONMENT,
    RUST_MANIFESTS,
    configure_cargo,
    go_install_steps,
    java_install_steps,
    rust_install_steps,
)
from app.sandbox.setup.ecosystems.node import NODE_ENVIRONMENT, NODE_MANIFESTS, node_install_steps
from app.sandbox.setup.ecosystems.python import (
    PYTHON_ENVIRONMENT,
    PYTHON_MANIFESTS,
    create_environment,
    has_python,
    python_install_steps,
)
from app.sandbox.setup.manifests import ManifestFiles
from app.sandbox.setup.package_clients import PackageClients, ask, merge
from app.sandbox.setup.package_tools import BESIDE_NODE, SYSTEM_TOOLS

FORMAT = "2"
"""Increase this when the same commands give another result, so that older cached results are not used."""

DETECTED = SetupChoice()
"""The choice of a set-up of which nothing is known but the manifests."""

FindTool = Callable[[str], str | None]

T = TypeVar("T")

_MANIFESTS = frozenset({*PYTHON_MANIFESTS, *NODE_MANIFESTS, *RUST_MANIFESTS, *GO_MANIFESTS, *JAVA_MANIFESTS})


_DECIDING = re.compile(
    r"\.github/(?:workflows/[^/]+|actions/.+/action)\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|azure-pipelines\.yml|\.travis\.yml|\.pre-commit-config\.yaml|\.?appveyor\.yml"
    r"|(?:.*/)?(?:noxfile\.py|tox\.(?:ini|toml)|(?:GNUm|m|M)akefile|\.?[jJ]ustfile|\.gitmodules|hatch\.toml|setup\.(?:py|cfg))"
    r"|(?:.*/)?\.(?:nvmrc|node-version|tool-versions)|scripts/[^/]+|tasks\.py|(?:.*/)?[\w.-]*requirements[\w./-]*\.(?:txt|in)"
)


def is_manifest(path: str) -> bool:
    """True if the file affects how the project is set up or tested."""
    return PurePosixPath(path).name in _MANIFESTS or _DECIDING.fullmatch(path) is not None


def find_tool_for_sandbox(name: str) -> str | None:
    """A tool of this machine that a sandbox shows too: below /usr, or next to a toolchain's own programs."""
    found = shutil.which(name)
    if found is None or name not in BESIDE_NODE:
        return found
    node = shutil.which("node")
    next_to_node = node is not None and Path(found).parent == Path(node).parent
    return found if next_to_node or Path(found).resolve().is_relative_to("/usr") else None


async def plan_setup(
    tree: Tree,
    *,
    commands: Sequence[str] | None,
    extra_hosts: Sequence[str],
    clients: Callable[[], Awaitable[PackageClients]],
    python: Path,
    scope: str = "",
    find_tool: FindTool = find_tool_for_sandbox,
    choice: SetupChoice = DETECTED,
) -> SetupPlan:
    """Configured `commands`, or (None) what is detected. The clients are asked only if something is installed.

    `python` is an interpreter that the sandbox shows at the same path. `choice` is what a candidate decides beside
    the manifests. `scope` names whose code may prepare a result for whom (a repository, and how far its commit is
    trusted): set-up executes project code, and without a scope one repository could copy another's manifests and
    prepare that one's environment.

    Raises ConfigError for a host in `extra_hosts` that cannot be allowed, SetupError if a needed index cannot be used
    from a sandbox.
    """
    hosts = _public_hosts(extra_hosts)
    files = ManifestFiles(tree)
    tools = {name: path for name in SYSTEM_TOOLS if (path := find_tool(name)) is not None}
    steps = detect(files, frozenset(tools), python, choice, hosts)
    if commands is not None:
        steps = [_configured(files, commands, steps, python)]
    steps += submodule_install_steps(files, hosts)
    notes = _flat(step.notes for step in steps)
    if not any(step.commands for step in steps):
        return SetupPlan(notes=notes)
    programs = {**tools, "python": choice.python or str(python)}
    owner = "" if all(step.neutral for step in steps if step.commands) else scope
    indexes, versions = await asyncio.gather(clients(), _versions(steps, programs))
    left_out = _index_problems(indexes, steps)
    if indexes.cargo_config:
        steps = [InstallStep("cargo", commands=(configure_cargo(indexes.cargo_config),)), *steps]
    environment = {**dict(indexes.environment), **dict(_flat(step.environment for step in steps))}
    return SetupPlan(
        commands=_commands(steps),
        key=_key(files, steps, versions, owner, hosts),
        hosts=_flat([indexes.hosts, hosts]),
        environment=tuple(sorted(environment.items())),
        readable=tuple(str(path) for path in indexes.directories),
        notes=_flat([notes, left_out]),
        groups=_groups(steps),
        short=_flat(step.short or step.commands for step in steps),
    )


async def plan_tools(
    commands: Sequence[str],
    *,
    client: str,
    programs: Mapping[str, str],
    clients: Callable[[], Awaitable[PackageClients]],
    more: PackageClients | None = None,
) -> SetupPlan:
    """Plan the installation of another agent's programs: exact versions, the same for every repository on this machine.

    `client` (`npm`, `pip`) downloads; `programs` are the tools whose version the result depends on, by name; `more` is
    what the commands need besides the client. Raises SetupError if no index can be used.
    """
    steps = [InstallStep(client, commands=tuple(commands), tools=tuple(programs), neutral=True)]
    own, versions = await asyncio.gather(clients(), _versions(steps, programs))
    indexes = merge([own, more] if more else [own])
    _index_problems(indexes, steps)
    facts = {"format": FORMAT, "machine": platform.machine(), "commands": list(commands), "versions": versions}
    return SetupPlan(
        commands=tuple(commands),
        key=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(),
        hosts=indexes.hosts,
        environment=tuple(sorted({**dict(indexes.environment), **dict(NODE_ENVIRONMENT)}.items())),
        readable=tuple(str(path) for path in indexes.directories),
    )


def detect(
    files: ManifestFiles, tools: frozenset[str], python: Path, choice: SetupChoice, hosts: Collection[str]
) -> list[InstallStep]:
    """Every ecosystem's answer, in a fixed order. `hosts` are those of `network:`."""
    found = [
        *python_install_steps(files, python, choice),
        *node_install_steps(files, tools, choice, hosts),
        *rust_install_steps(files, tools),
        *go_install_steps(files, tools),
        *java_install_steps(files, tools),
    ]
    return [step for step in found if step.client not in choice.without]


def _configured(
    files: ManifestFiles, commands: Sequence[str], detected: Sequence[InstallStep], python: Path
) -> InstallStep:
    """The repository's own commands, with the environments that their clients expect."""
    short = written = tuple(command for command in commands if command.strip())
    if written and files.named(("pom.xml",)):
        written = (REACH, *written)
    with_python = has_python(files)
    return InstallStep(
        "",
        commands=(create_environment(python), *written) if written and with_python else written,
        short=short,
        tools=_flat([("python",), *(step.tools for step in detected)]),
        manifests=tuple(files),
        environment=(
            *(PYTHON_ENVIRONMENT if with_python else ()),
            *RUST_ENVIRONMENT,
            *GO_ENVIRONMENT,
            *JAVA_ENVIRONMENT,
            *_flat(step.environment for step in detected),
        ),
        facts=_flat(step.facts for step in detected),
    )


def _public_hosts(names: Iterable[str]) -> tuple[str, ...]:
    """`network:` allows public hosts by name; only this machine's clients may name an index by its address."""
    found = tuple(dict.fromkeys(name.strip() for name in names))
    for name in found:
        try:
            rule = parse_rule(name)
        except ValueError as error:
            raise ConfigError(f"network: {error}") from error
        if rule.configured:
            raise ConfigError(f"network: {name!r} is a URL; write only the host's name")
    return found


def _index_problems(indexes: PackageClients, steps: Sequence[InstallStep]) -> list[str]:
    """Sentences about indexes that are left out. Raises SetupError if nothing can be installed without one."""
    used = {step.client for step in steps if step.commands}
    problems = [problem for problem in indexes.problems if problem.client in used]
    for problem in problems:
        if problem.fatal:
            raise SetupError(
                f"The set-up cannot use this machine's package index: {problem.sentence}.",
                hint="Configure an index that needs none (such as a local mirror), or write `setup:` commands "
                "in .github/agent-fix.yml that do not use it.",
            )
    return [problem.sentence for problem in problems]


async def _versions(steps: Sequence[InstallStep], programs: Mapping[str, str]) -> tuple[str, ...]:
    """The version output of the relevant tools."""
    used = [tool for tool in sorted(_flat(step.tools for step in steps)) if tool in programs]
    questions = ([programs[tool], "version" if tool == "go" else "--version"] for tool in used)
    answers = await asyncio.gather(*(ask(question) for question in questions))
    return tuple(f"{tool} {(answer or '').strip()}" for tool, answer in zip(used, answers, strict=True))


def _key(
    files: ManifestFiles, steps: Sequence[InstallStep], versions: Sequence[str], owner: str, hosts: Iterable[str]
) -> str:
    """Equal keys mean equal commands over equal manifests by equal tools, with the same `hosts` of `network:`."""
    facts = {
        "format": FORMAT,
        "machine": platform.machine(),
        "owner": owner,
        "versions": versions,
        "commands": _commands(steps),
        "environment": _flat(step.environment for step in steps),
        "hosts": sorted(hosts),
        "facts": _flat(step.facts for step in steps),
        "manifests": files.digest(_flat(step.manifests for step in steps)),
        # What it creates must not be tracked in another commit: a deletion there would have no effect.
        "tracked": files.digest(path for path in files if LITTER.match_file(path)),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _groups(steps: Iterable[InstallStep]) -> tuple[tuple[str, ...], ...]:
    """The commands by client, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if step.commands:
            found[step.client] = (*found.get(step.client, ()), *step.commands)
    return tuple(found.values())


def _commands(steps: Iterable[InstallStep]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(step.commands for step in steps))


def _flat(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """All items in order, each once."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


MAX_NAMED = 5


def submodule_install_steps(files: ManifestFiles, hosts: Collection[str]) -> list[InstallStep]:
    """`hosts` are those that the configuration allows for the set-up."""
    addresses = _addresses(files)
    allowed = {path: addresses[path] for path in files.gitlinks if https_host(addresses.get(path, "")) in hosts}
    empty = [path for path in files.gitlinks if path not in allowed]
    found = []
    if empty:
        names = ", ".join(empty[:MAX_NAMED])
        hosts_left = sorted({host for path in empty if (host := https_host(addresses.get(path, "")))})
        wanted = f"does not name {', '.join(hosts_left)}" if hosts_left else "allows no https host for them"
        note = f"{names}: submodules stay empty, because `network:` {wanted}"
        found.append(InstallStep("git", notes=(note,)))
    for path, address in allowed.items():
        found.append(
            InstallStep(
                "git",
                commands=(fetch_command(path, address, files.gitlinks[path]),),
                manifests=(".gitmodules",),
                facts=(files.gitlinks[path],),
            )
        )
    return found


def _addresses(files: ManifestFiles) -> dict[str, str]:
    modules = read_ini("\n".join(line.strip() for line in files.text(".gitmodules").splitlines())).values()
    return {module["path"]: module["url"] for module in modules if "path" in module and "url" in module}


def fetch_command(path: str, address: str, commit: str) -> str:
    """Fetch only the pinned commit, without `.git`; a failure does not stop the set-up."""
    place, url = shlex.quote(f"./{path}"), shlex.quote(address)
    git = f"git -C {place}"
    return (
        f"{{ git init -q {place} && {git} fetch -q --depth 1 -- {url} {commit} && {git} checkout -q FETCH_HEAD; }}"
        f" || echo 'the submodule cannot be fetched, and stays empty'; rm -rf {place}/.git"
    )
