"""Executors with a test runner as the host, for what needs the project's bundler or a DOM: vitest and jest."""

import posixpath
import re
import shlex
from pathlib import PurePosixPath
from typing import Literal

from app.core.examples import Example
from app.repo.grammars import with_tree
from app.sandbox.setup.manifests import table
from app.verify.examples.launch import MAX_MANIFESTS, Launch, Project, has_jsx, inside
from app.verify.paths_of_tests import is_test_file, is_test_path

HOST_SECONDS = 50.0
_TYPED = re.compile(
    r"^import type\b|\bas const\b|\w\??: ?(?:[A-Z]\w*|string|number|boolean|any|unknown|void)\b|\binterface \w+ ?\{",
    re.MULTILINE,
)
_PLACED = re.compile(r"^(?:(?:const|let|var)\s[^=]*=\s*)?(?:await\s+)?(?:vi|jest)\.(?:mock|unmock|hoisted|setMock)\(")
_RELATIVE = re.compile(
    r"(?P<before>(?:\bfrom|\bimport|\b(?:require|import|mock|unmock|doMock|importActual|requireActual|importMock)(?:<[^<>]*>)?\()\s*)"
    r"(?P<quote>['\"])(?P<path>\.{1,2}(?:/[^'\"\n]*)?)(?P=quote)"
)
_NOT_FOUND = re.compile(
    r"Failed to resolve (?:import|entry)|Failed to load url|Cannot find module '\.|Does the file exist"
)
_CONFIG = re.compile(r"(?:^|\s)(?:--config|-c)[= ](\S+)")
_NODE_OPTIONS = re.compile(r"NODE_OPTIONS=(\"[^\"]*\"|'[^']*'|\S+)|(--experimental-vm-modules)")
_SETTINGS = re.compile(r"(?:vitest|vite|jest)\.config\.\w+$|vitest\.workspace\.\w+$")
_PROJECTS = re.compile(r"\b(?:projects|workspace)['\"]?\s*:")
_RUNNERS = ("vitest", "@jest", "@playwright", "@wdio", "cypress", "node:test", "bun:test", "ava", "tape", "tap", "uvu")
_MAX_READ = 60
_OPTIONS = {"vitest": "run --coverage.enabled=false", "jest": "--ci --coverage=false --watchman=false --runTestsByPath"}


def vitest(project: Project, example: Example, stem: str) -> Launch:
    return _hosted("vitest", project, example, stem)


def jest(project: Project, example: Example, stem: str) -> Launch:
    return _hosted("jest", project, example, stem)


def _hosted(host: Literal["vitest", "jest"], project: Project, example: Example, stem: str) -> Launch:
    """The program as the body of one test, beside a test that the runner's settings include."""
    place, name = _place(host, project, example.program, stem)
    package = _settings(host, project, place)
    suffix = "mjs" if host == "vitest" else "cjs"
    channel = f"{stem}-printed.{suffix}"
    text = _as_test(host, _moved(example.program, place), channel)
    options, node = _OPTIONS[host], ""
    if any("typecheck" in project.files.text(path) for path in project.files if _SETTINGS.search(path)):
        options += " --typecheck.enabled=false"
    scripts = table(project.files.json(f"{package}package.json"), "scripts")
    named = (scripts[key] for key in sorted(scripts) if key.startswith("test") and isinstance(scripts[key], str))
    script = next((each for each in named if re.search(rf"\b{host}\b", each)), "")
    if (found := _CONFIG.search(script)) and project.has(f"{package}{found[1].removeprefix('./')}"):
        options += f" --config {shlex.quote(found[1])}"
    if found := _NODE_OPTIONS.search(script):
        node = (found[1] or found[2]).strip("'\"")
    path = f"{place}{name}"[len(package) :]
    search = " ".join(
        f"'{'/'.join(['..'] * up) or '.'}/node_modules/.bin/{host}'" for up in range(package.count("/") + 1)
    )
    command = (
        f'cd \'./{package}\'; export NODE_OPTIONS="${{NODE_OPTIONS:-}} {node}" EXAMPLE_OUTPUT="$own"; '
        f'for runner in {search}; do [ -x "$runner" ] && exec "$runner" {options} {shlex.quote(path)}; done; '
        f"echo '{host} is not installed here' >&2; exit 127"
    )
    return Launch(
        command,
        files={f"{place}{name}": text, f"{place}{channel}": _channel(host)},
        needs=("node",),
        not_here=_NOT_FOUND,
        host_seconds=HOST_SECONDS,
        host=True,
    )


def _as_test(host: str, program: str, channel: str) -> str:
    """First comments stay first; imports and the mocks that runners place above them stay outside the test."""
    source = program.encode()
    comments: list[str] = []
    outside: list[str] = []
    body: list[str] = []
    statements = with_tree(
        "tsx", source, lambda tree: [(node.type, node.start_byte, node.end_byte) for node in tree.root_node.children]
    )
    for kind, first, last in statements or [("", 0, len(source))]:
        text = source[first:last].decode("utf-8", "replace")
        if kind == "comment" and not outside and not body:
            comments.append(text)
        elif kind in ("import_statement", "export_statement") or _PLACED.match(text):
            outside.append(text)
        else:
            body.append(text)
    as_module = host == "vitest" or any(text.startswith("import") for text in outside)
    added = [f"import './{channel}';" if as_module else f"require('./{channel}');"]
    if host == "vitest":
        added.append("import { test as theProgram } from 'vitest';")
    function = "theProgram" if host == "vitest" else "test"
    start, end = f"{function}('program', async () => {{ globalThis[Symbol.for('printed')]();", "}, 60_000);\n"
    return "\n".join([*comments, *added, *outside, start, *body, end])


def _channel(host: str) -> str:
    text = inside("printed.mjs")
    return (
        text
        if host == "vitest"
        else re.sub(r"^import (.*) from ('.*');", r"const \1 = require(\2);", text, flags=re.MULTILINE)
    )


def _place(host: str, project: Project, program: str, stem: str) -> tuple[str, str]:
    """A directory (with a trailing slash) and a name as an existing test has them, near what the program imports."""
    typed, jsx = bool(_TYPED.search(program)), has_jsx(program)
    imported = [posixpath.normpath(found["path"]) for found in _RELATIVE.finditer(program)]
    near = [path.split("/") for path in (*imported, *_members_used(project, program))]
    scripts = [path for path in project.files if re.search(r"\.[cm]?[jt]sx?$", path) and is_test_path(path)]
    tests = [path for path in scripts if is_test_file(path)] or scripts

    def rank(path: str) -> tuple[int, bool, int, str]:
        shared = sum(len(posixpath.commonprefix([parts, path.split("/")])) for parts in near)
        suffix = path.rpartition(".")[2]
        fits = suffix.endswith("x") >= jsx and ("t" in suffix) >= typed
        return -shared, not fits, path.count("/"), path

    nearest = sorted(tests, key=rank)[:_MAX_READ]
    texts = project.texts(nearest)
    chosen = next((path for path in nearest if not _others(host).search(texts[path])), "x.test.js")
    place, _, name = chosen.rpartition("/")
    start, marked, end = name.rpartition(".")
    middle = next((mark for mark in (".test", ".spec", "_test", "-test") if start.endswith(mark)), "")
    if start.startswith(("test-", "test_")):
        stem = start[:5] + stem
    if typed and "t" not in end:
        end = "tsx" if jsx else "ts"
    elif jsx and end in ("ts", "mts", "mjs"):
        end = "tsx" if "t" in end else "jsx"
    return f"{place}/" if place else "", f"{stem}{middle}{marked}{end}"


def _members_used(project: Project, program: str) -> list[str]:
    """The directories of packages of this repository that a program imports by their names."""
    manifests = [path for path in project.files.named(("package.json",)) if "/" in path][:MAX_MANIFESTS]
    names = {path.rpartition("/")[0]: project.files.json(path).get("name") for path in manifests}
    return [
        place for place, name in names.items() if name and re.search(rf"['\"]{re.escape(str(name))}['\"/]", program)
    ]


def _others(host: str) -> re.Pattern[str]:
    """In tests of another runner."""
    names = "|".join(name for name in _RUNNERS if name.strip("@") != host)
    return re.compile(rf"['\"](?:{names})(?:/[\w-]+)?['\"]|\bcy\.visit\b")


def _settings(host: str, project: Project, place: str) -> str:
    """The directory (with a trailing slash) with the runner's settings: one for several projects, else the nearest.

    The top without any.
    """
    at = PurePosixPath(place)
    starts = ["" if str(directory) == "." else f"{directory}/" for directory in (at, *at.parents)]
    found = []
    for start in dict.fromkeys(starts):
        own = [path for path in project.files if path.startswith(start) and _SETTINGS.match(path[len(start) :])]
        if any("workspace." in path or _PROJECTS.search(project.files.text(path)) for path in own):
            return start
        if own or host in project.files.json(f"{start}package.json"):
            found.append(start)
    return found[0] if found else ""


def _moved(program: str, place: str) -> str:
    """The program with its relative paths, which are written from the project's root, from another directory."""

    def path(found: re.Match[str]) -> str:
        moved = posixpath.relpath(found["path"], place or ".")
        moved = moved if moved.startswith(".") else f"./{moved}"
        return f"{found['before']}{found['quote']}{moved}{found['quote']}"

    return _RELATIVE.sub(path, program) if place else program
