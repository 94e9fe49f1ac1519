"""Parses a configured test command, or a Node project's script, far enough to get per-test results from it."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.core.tree import Tree
from app.sandbox.setup.declared.node import EVERY, OF_EACH, node_scripts, prints_tap
from app.sandbox.setup.ecosystems.base import ManifestFiles, table
from app.sandbox.setup.ecosystems.node import BUN_FILES, workspace_members
from app.sandbox.setup.package_tools import RUN_COMMANDS_RE, TEST_SCRIPT_RE
from app.verify.frameworks import WORKSPACES, FrameworkName, SuiteCommand
from app.verify.project_directories import ProjectDirectory, prefix, project_directories

_PLACEHOLDER = re.compile(r"no test specified")
_SCRIPT_OPERATORS = re.compile(r"&&|\|\||[;|<>`]|\$\(")
_VALUE_FLAGS = frozenset({"--import", "--require", "-r", "--loader", "--experimental-loader", "--env-file"})
_BUN_TEST = re.compile(r"[._](?:test|spec)\.[cm]?[jt]sx?$")
# The names that `node --test` itself looks for.
_NODE_TEST = re.compile(r"(?:^|/)(?:[^/]+[.\-_]test|test-[^/]+|test)\.[cm]?js$|(?:^|/)test/.+\.[cm]?js$")


def node_suite(place: ProjectDirectory) -> SuiteCommand | None:
    package = _package(place)
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and script.strip() and not _PLACEHOLDER.search(script):
        return _from_script(place, script.strip())
    if not BUN_FILES.isdisjoint(place.files) and any(_BUN_TEST.search(path) for path in place.files):
        command = f"{prefix(place.directory)}bun test"
        return SuiteCommand(command=command, framework="bun", narrowed=command, directory=place.directory)
    if not any(_NODE_TEST.search(path) for path in place.files):
        return None
    if "package.json" not in place.files and not any(
        b"node:test" in place.read(path) for path in place.files if _NODE_TEST.search(path)
    ):
        return None  # test files that are not known to be for Node
    command = f"{prefix(place.directory)}node --test"
    return SuiteCommand(command=command, framework="node", narrowed=command, directory=place.directory)


def _package(place: ProjectDirectory) -> dict[str, Any]:
    try:
        document = json.loads(place.read("package.json") or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _from_script(place: ProjectDirectory, script: str) -> SuiteCommand:
    command = f"{prefix(place.directory)}{_client(place)} test"
    framework = framework_of(script)
    narrowed = ""
    if framework == "node":
        flags = node_flags(script)
        narrowed = f"{prefix(place.directory)}{flags}" if flags else ""
        if "--test-reporter" in script:  # node would refuse a second reporter
            framework = "other"
    elif framework != "other" and not _SCRIPT_OPERATORS.search(script):
        narrowed = f"{command} --"
    return SuiteCommand(command=command, framework=framework, narrowed=narrowed, directory=place.directory)


def _client(place: ProjectDirectory) -> str:
    """npm runs the script of any project, except if packages are not on disk at all (Yarn's Plug'n'Play)."""
    return "yarn" if ".pnp.cjs" in place.files else "npm"


def framework_of(script: str) -> FrameworkName:
    """The framework that a script's text names."""
    words = {PurePosixPath(word).name for word in re.split(r"[\s;&|]+", script)}
    names: tuple[FrameworkName, ...] = ("vitest", "jest", "mocha", "borp")
    for name in names:
        if name in words:
            return name
    return "node" if re.search(r"\bnode\b.*\s--test\b", script) or "node" in words else "other"


def node_flags(script: str) -> str:
    """`node --test` with the script's own flags and without its paths; empty if the script does more."""
    if _SCRIPT_OPERATORS.search(script):
        return ""
    try:
        first, *words = shlex.split(script)
    except ValueError:
        return ""
    if first != "node" or "--test" not in words:
        return ""
    flags, previous = ["node"], ""
    for word in words:
        if word.startswith("-") or previous in _VALUE_FLAGS:
            flags.append(word)
        previous = word
    return shlex.join(flags)


_OPERATORS = re.compile(r"&&|\|\||[;|<>`\n]|\$\(")
_LAUNCHER_RE = re.compile(
    r"^(?:\w+=\S* )*"
    rf"(?:(?:{RUN_COMMANDS_RE}) run (?:--\S+ )*|npx (?:--\S+ )*|coverage run (?:--?\S+ )*-m )?"
    r"(?:[\w./-]*python[\d.]*(?: -[IEsWX]\S*)* -m )?"
)
_NODE_SCRIPT = re.compile(rf"^(?:{TEST_SCRIPT_RE})(?: run)? test$|^npm t$")
_FILE_RUNNER_VALUES = frozenset(
    {
        "--preload",
        "-r",
        "--timeout",
        "--concurrency",
        "--ignore",
        "--post-compile",
        "--tsconfig-override",
        "--jsx-import-source",
        "--conditions",
    }
)
_PYTEST_VALUES = frozenset(
    {"-c", "-k", "-m", "-p", "-o", "-W", "-n", "-r", "--rootdir", "--ignore", "--ignore-glob", "--deselect"}
    | {"--confcutdir", "--basetemp", "--cov", "--cov-report", "--cov-config", "--maxfail", "--durations"}
    | {"--timeout", "--dist", "--tb", "--override-ini", "--import-mode", "--junitxml", "--color"}
)


class _ConfiguredCommand(NamedTuple):
    """A simple command: the launcher (`uv run python -m `), and the framework with its arguments."""

    tree: Tree
    suite: SuiteCommand
    launcher: str
    rest: str
    detected: SuiteCommand | None


def recognise(tree: Tree, command: str, detected: SuiteCommand | None) -> SuiteCommand:
    """The framework behind a configured command; `detected` names it for `make test` and the like."""
    suite = SuiteCommand(command=command)
    if _OPERATORS.search(command):
        return replace(suite, framework=_through(command, detected))
    if _NODE_SCRIPT.match(command):
        return _node_script(tree, suite)
    launched = _LAUNCHER_RE.match(command)
    end = launched.end() if launched else 0
    simple = _ConfiguredCommand(tree, suite, command[:end], command[end:], detected)
    for start, rule in _RULES:
        if start.match(simple.rest):
            return rule(simple)
    return replace(suite, framework=_through(command, detected))


def _through(command: str, detected: SuiteCommand | None) -> FrameworkName:
    """The framework behind a command that starts it indirectly, if it can be configured by the environment."""
    if re.search(r"\bpy\.?test\b", command):
        return "pytest"
    if detected is not None and detected.framework in ("pytest", "node"):
        return detected.framework
    if re.search(r"\bunittest\b.*\s-v\b|\bmanage\.py test\b.*-v 2", command):
        return "unittest"
    return "cargo" if "cargo test" in command else "other"


def _pytest(command: _ConfiguredCommand) -> SuiteCommand:
    """pytest adds up the paths it is given, so the configured ones must be replaced by the chosen tests."""
    try:
        first, *words = shlex.split(command.rest)
    except ValueError:
        return replace(command.suite, framework="pytest")
    entries = command.tree.entries()
    directories = {path.rsplit("/", end)[0] for path in entries for end in range(1, path.count("/") + 1)}
    kept, previous = [first], first
    for word in words:
        path = word.split("::")[0].rstrip("/").removeprefix("./")
        chosen = word in (".", "./") or path in entries or path in directories
        if not chosen or previous in _PYTEST_VALUES:
            kept.append(word)
        previous = word
    return replace(command.suite, framework="pytest", narrowed=command.launcher + shlex.join(kept))


def _unittest(command: _ConfiguredCommand) -> SuiteCommand:
    detected = command.detected
    modules = detected.modules if detected and detected.framework == "unittest" else ""
    path = f"PYTHONPATH={shlex.quote(modules)} " if modules else ""
    narrowed = f"{path}{command.launcher}unittest -v"
    return replace(command.suite, framework="unittest", narrowed=narrowed, modules=modules)


def _django(command: _ConfiguredCommand) -> SuiteCommand:
    narrowed = f"{command.launcher}{' '.join(command.rest.split()[:3])} -v 2"
    return replace(command.suite, command=narrowed, framework="unittest", narrowed=narrowed)


def _program(command: _ConfiguredCommand) -> str:
    """The program's name without a version, as in `npx jest@29`."""
    return command.rest.split()[0].partition("@")[0]


def _javascript(command: _ConfiguredCommand) -> SuiteCommand:
    names: dict[str, FrameworkName] = {"jest": "jest", "vitest": "vitest", "mocha": "mocha"}
    return replace(command.suite, framework=names[_program(command)], narrowed=command.suite.command)


def _tap(command: _ConfiguredCommand) -> SuiteCommand:
    """tape and QUnit print TAP by themselves, the others if they are asked to."""
    program = _program(command)
    option = {"ava": "--tap", "tap": "--reporter=tap", "lab": "--reporter=tap"}.get(program, "")
    command_line = command.suite.command
    if option and option not in command.rest:
        command_line = f"{command_line} {option}"
    return replace(command.suite, command=command_line, framework="tap")


def _uvu(command: _ConfiguredCommand) -> SuiteCommand:
    return replace(command.suite, framework="uvu")


def _node(command: _ConfiguredCommand) -> SuiteCommand:
    if "--test-reporter" in command.rest:  # node would refuse a second reporter
        return command.suite
    flags = node_flags(command.rest)
    return replace(command.suite, framework="node", narrowed=command.launcher + flags if flags else "")


def _node_program(command: _ConfiguredCommand) -> SuiteCommand:
    """A program of the tests themselves."""
    top = next(place for place in project_directories(command.tree) if not place.directory)
    tap = prints_tap(_package(top), command.rest.split())
    return replace(command.suite, framework="tap" if tap else _through(command.rest, command.detected))


def _by_files(command: _ConfiguredCommand) -> SuiteCommand:
    """`bun test` and borp: words that choose among test files are replaced by the chosen files."""
    words = command.rest.split()
    name: FrameworkName = "bun" if words[0] == "bun" else "borp"
    first = 2 if name == "bun" else 1
    kept = [word for at, word in enumerate(words) if word.startswith("-") or words[at - 1] in _FILE_RUNNER_VALUES]
    narrowed = " ".join([*words[:first], *(word for word in kept if word not in words[:first])])
    return replace(command.suite, framework=name, narrowed=command.launcher + narrowed)


def _go(command: _ConfiguredCommand) -> SuiteCommand:
    words = [word for word in command.rest.split() if word != "." and not word.startswith(("./", "..."))]
    return replace(command.suite, framework="go", narrowed=command.launcher + " ".join(words))


def _maven(command: _ConfiguredCommand) -> SuiteCommand:
    """Several modules may have none of the chosen tests."""
    narrowed = f"{command.suite.command} -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
    return replace(command.suite, framework="maven", narrowed=narrowed)


def _cargo(command: _ConfiguredCommand) -> SuiteCommand:
    narrowed = command.suite.command if " -- " not in command.rest else ""
    return replace(command.suite, framework="cargo", narrowed=narrowed)


def _each_package(command: _ConfiguredCommand) -> SuiteCommand:
    """A command that runs the tests of every package of a workspace, which all have the same runner."""
    files = ManifestFiles(command.tree)
    top = f"{command.detected.directory}/" if command.detected and command.detected.directory else ""
    members = [member for member in workspace_members(files, top) if _has_tests(files, member)]
    runners = {node_scripts(files, member).runner for member in members}
    names = {recognise(command.tree, runner, None).framework for runner in runners}
    name = WORKSPACES.get(names.pop()) if len(names) == 1 else None
    return replace(command.suite, framework=name or _through(command.rest, command.detected))


def _has_tests(files: ManifestFiles, directory: str) -> bool:
    return bool(table(files.json(f"{directory}package.json"), "scripts").get("test"))


_RULES: tuple[tuple[re.Pattern[str], Callable[[_ConfiguredCommand], SuiteCommand]], ...] = (
    (re.compile(r"(?:pytest|py\.test)\b"), _pytest),
    (re.compile(r"unittest\b"), _unittest),
    (re.compile(r"\S*python\S* manage\.py test\b(?!.*\s-v)"), _django),
    (re.compile(r"(?:jest|vitest|mocha)(?:@\S*)?(?!\S)"), _javascript),
    (re.compile(r"(?:ava|tape|tap|qunit|lab)(?:@\S*)?(?!\S)"), _tap),
    (re.compile(r"uvu(?:@\S*)?(?!\S)"), _uvu),
    (re.compile(r"node .*--test\b"), _node),
    (re.compile(r"node \S"), _node_program),
    (re.compile(r"(?:bun test|borp)\b(?![:-])"), _by_files),
    (re.compile(rf"(?:{'|'.join(OF_EACH)}) .*\btest\b.* --$"), _each_package),
    (re.compile(rf"(?:npm|pnpm|yarn) .*(?:{'|'.join(EVERY)})\b"), _each_package),
    (re.compile(r"go test\b"), _go),
    (re.compile(r"cargo test\b"), _cargo),
    (re.compile(r"mvn .*\b(?:test|verify)\b"), _maven),
)


def _node_script(tree: Tree, suite: SuiteCommand) -> SuiteCommand:
    top = next(place for place in project_directories(tree) if not place.directory)
    found = node_suite(top)
    return replace(suite, framework=found.framework, narrowed=found.narrowed) if found else suite
