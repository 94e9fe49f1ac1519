"""The suite of a Node project: its own `test` script, or `node --test` if there are test files."""

import json
import re
import shlex
from pathlib import PurePosixPath
from typing import Any

from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.project_directories import ProjectDirectory, prefix

_PLACEHOLDER = re.compile(r"no test specified")
_OPERATORS = re.compile(r"&&|\|\||[;|<>`]|\$\(")
_VALUE_FLAGS = frozenset({"--import", "--require", "-r", "--loader", "--experimental-loader", "--env-file"})
# The names that `node --test` itself looks for.
_NODE_TEST = re.compile(r"(?:^|/)(?:[^/]+[.\-_]test|test-[^/]+|test)\.[cm]?js$|(?:^|/)test/.+\.[cm]?js$")


def suite(place: ProjectDirectory) -> SuiteCommand | None:
    package = _package(place)
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and script.strip() and not _PLACEHOLDER.search(script):
        return _from_script(place, script.strip())
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
    elif framework != "other" and not _OPERATORS.search(script):
        narrowed = f"{command} --"
    return SuiteCommand(command=command, framework=framework, narrowed=narrowed, directory=place.directory)


def _client(place: ProjectDirectory) -> str:
    """npm runs the script of any project, except if packages are not on disk at all (Yarn's Plug'n'Play)."""
    return "yarn" if ".pnp.cjs" in place.files else "npm"


def framework_of(script: str) -> FrameworkName:
    """The framework that a script's text names."""
    words = {PurePosixPath(word).name for word in re.split(r"[\s;&|]+", script)}
    names: tuple[FrameworkName, ...] = ("vitest", "jest", "mocha")
    for name in names:
        if name in words:
            return name
    return "node" if re.search(r"\bnode\b.*\s--test\b", script) or "node" in words else "other"


def node_flags(script: str) -> str:
    """`node --test` with the script's own flags and without its paths; empty if the script does more."""
    if _OPERATORS.search(script):
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
