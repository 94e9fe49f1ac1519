"""The executor of shell programs, for which the project's own commands are on the path."""

import re
import shlex
from collections.abc import Collection, Iterator

from app.core.examples import Example
from app.sandbox.setup.declared.python_metadata import read_ini
from app.sandbox.setup.manifests import table
from app.verify.examples.compiled import GO_WITH_CACHE, cargo_build, go_modules
from app.verify.examples.launch import Launch, Project
from app.verify.examples.scripts import PYTHON_PATH, python_places

_PROJECT = '"$(dirname "$0")/../project/"'
_VERSION = re.compile(r"/v\d+$")
_GO_MAIN = re.compile(r"^package main\b", re.MULTILINE)


def shell(project: Project, example: Example, stem: str) -> Launch:
    """bash, with what a program names of the project's commands, those of its packages, and its modules for Python."""
    name = f"{stem}.sh"
    own = python_places(project) if project.below(".py") else {}
    words = set(re.findall(r"[\w.-]+", example.program))
    own |= {f"bin/{name}": text for name, text in (*_of_node(project), *_of_python(project)) if name in words}
    commands = list(_of_go(project, words))
    build = " && ".join([*(build for name, build in _of_rust(project) if name in words), *commands])
    start = f"{PYTHON_PATH} " if "boot/places" in own else ""
    command = f'export PATH="$own/bin:$PWD/node_modules/.bin:$PATH"; {start}exec bash {name} "$@"'
    build = f'{GO_WITH_CACHE * bool(commands)}mkdir -p "$own/bin" && {build}' if build else ""
    return Launch(command, files={name: example.program}, own=own, needs=("bash",), build=build)


def _of_node(project: Project) -> Iterator[tuple[str, str]]:
    declared = project.package.get("bin")
    package = str(project.package.get("name", "")).rpartition("/")[2]
    commands = {package: declared} if isinstance(declared, str) else table(project.package, "bin")
    for name, path in commands.items():
        yield name, f'#!/bin/sh\nexec node {_PROJECT}{shlex.quote(str(path))} "$@"\n'


def _of_python(project: Project) -> Iterator[tuple[str, str]]:
    """Console scripts."""
    pyproject = project.files.toml("pyproject.toml")
    found = {**table(pyproject, "project", "scripts"), **table(pyproject, "tool", "poetry", "scripts")}
    listed = read_ini(project.files.text("setup.cfg")).get("options.entry_points", {}).get("console_scripts", "")
    listed += "\n".join(re.findall(r"[\"']([\w.-]+ *= *[\w.]+:[\w.]+)[\"']", project.files.text("setup.py")))
    found |= {
        name.strip(): where.strip()
        for name, sign, where in (line.partition("=") for line in listed.split("\n"))
        if sign
    }
    for name, where in found.items():
        module, _, function = str(where).partition(":")
        first = function.partition(".")[0]
        code = f"import sys; sys.argv[0] = {name!r}; from {module} import {first}; sys.exit({function}())"
        yield name, f'#!/bin/sh\nexec python3 -c {shlex.quote(code)} "$@"\n'


def _of_rust(project: Project) -> Iterator[tuple[str, str]]:
    for path in project.files.named(("Cargo.toml",)):
        root, manifest = path.removesuffix("Cargo.toml"), project.files.toml(path)
        package = table(manifest, "package").get("name")
        if not isinstance(package, str):
            continue
        listed = manifest.get("bin")
        names = {str(one.get("name")) for one in listed if isinstance(one, dict)} if isinstance(listed, list) else set()
        names |= {package} if project.has(f"{root}src/main.rs") and not names else set()
        names |= {
            one[len(root) + 8 : -3]
            for one in project.files
            if re.fullmatch(rf"{re.escape(root)}src/bin/[^/]+\.rs", one)
        }
        for name in names:
            yield name, cargo_build(f"--manifest-path './{path}' -p '{package}' --bin '{name}'")


def _of_go(project: Project, words: Collection[str]) -> Iterator[str]:
    """What builds those of its commands that are among the words."""
    sources = [path for path in project.files if path.endswith(".go") and not path.endswith("_test.go")]
    for module in go_modules(project):
        below = {path.rpartition("/")[0] for path in sources if path.startswith(module.directory)}
        for directory in sorted(below):
            place = directory[len(module.directory) :]
            name = (place or _VERSION.sub("", module.path)).rpartition("/")[2]
            own = [path for path in sources if path.rpartition("/")[0] == directory] if name in words else []
            if any(_GO_MAIN.search(text) for text in project.texts(own).values()):
                yield f'(cd "./{module.directory}" && go build -o "$own/bin/{name}" "./{place}")'
