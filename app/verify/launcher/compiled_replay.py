"""Plain programs that call what tests of Go and Rust call, without a test framework.

Such a program is the text of the tests with `go_replay.go` or `rust_replay.rs`.
"""

import base64
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from random import SystemRandom

from app.verify.frameworks import GO_COMPILED
from app.verify.launcher.base import CopyNames, ReplayProgram, SupervisorStep
from app.verify.launcher.compiled_copies import rust_parts

SHARE = 0.4
"""Of the time that calls are repeated, in each of two processes: the first may leave something for the second."""
REPLAY_TIMEOUT = 300.0
MAX_ROUNDS = 20_000
_GO_TEST = r"(?m)^func {name}\(\w+ \*testing\.T\) \{{"
_GO_IMPORT = re.compile(r'(?m)^(?:import[ \t]+"testing"|[ \t]+"testing")[ \t]*$')
_GO_PACKAGE = re.compile(r"(?m)^package (\w+)\s*$")
_GO_ARGUMENT = re.compile(r"(?<=[(,])(?P<start>\s*)(?P<value>(?:\[\]|map\[\w+\])[\w*.]+\{[^{}()]*\})(?=\s*[,)])")
_PLAIN_RUST_TEST = re.compile(r"(?m)^#\[test\]\s+(?:pub )?fn (\w+)\(\) \{")
_RUST_NEEDS_MORE = re.compile(r"(?m)^#!\[|^\s*(?:pub )?mod \w+;|\bfn main\b|#\[(?:should_panic|ignore|cfg)")
_TEXT = re.compile(r'(?<=\w\()"[^"\\\n]+"(?=\))')
"""A text that is the only argument of a call."""
_NAME = "sed -n 's/^name *= *\"\\(.*\\)\"/\\1/p' Cargo.toml | head -n 1"


def go_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, seconds: float
) -> ReplayProgram | None:
    """A program beside the packages of those tests that are in the packages themselves; None if there are none."""
    mark = f"Zz{CopyNames(SystemRandom()).fresh('')}"
    files, chosen, imports, calls = dict[str, str](), list[str](), list[str](), list[str]()
    paths: list[str] = []
    for number, package in enumerate(dict.fromkeys(name.partition("::")[0] for name in ids)):
        mine = [name for name in ids if name.startswith(f"{package}::") and "/" not in name.partition("::")[2]]
        by_path = _go_files(mine, contents)
        folders = {str(PurePosixPath(path).parent) for path in by_path}
        names = [name for found in by_path.values() for name in found]
        if not names or len(folders) != 1:
            continue
        folder, package_name = folders.pop(), ""
        for path in by_path:
            text = contents[path].decode("utf-8", "replace")
            package_name = (_GO_PACKAGE.search(text) or [""] * 2)[1]
            text = _GO_ARGUMENT.sub(rf"\g<start>{mark}Given(\g<value>)", _GO_IMPORT.sub("", text))
            text = _TEXT.sub(rf"{mark}Text(\g<0>)", text)
            files[f"{path.removesuffix('_test.go')}_{mark.lower()}.go"] = text.replace("*testing.T", f"*{mark}T")
        tests = ", ".join(name.partition("::")[2] for name in names)
        replaced = {"PACKAGE": package_name, "NAMES": ", ".join(map(json.dumps, names)), "TESTS": tests}
        replaced |= {"TOKEN": mark, "ZZ": mark, "zz": mark.lower()}
        replaced |= {"SECONDS": str(int(seconds * SHARE * 1000)), "ROUNDS": str(MAX_ROUNDS)}
        files[str(PurePosixPath(folder, f"{mark.lower()}.go"))] = _filled("go_replay.go", replaced)
        imports.append(f'p{number} "{package}"')
        calls.append(f"p{number}.{mark}Replay()")
        chosen += names
        paths += by_path
    if not chosen:
        return None
    end = f'fmt.Print("\\n{mark}[\\"end\\"]\\n")'
    listed = "\n\t".join(['"fmt"', *imports])
    main = f"package main\n\nimport (\n\t{listed}\n)\n\nfunc main() {{\n\t" + "\n\t".join([*calls, end]) + "\n}\n"
    files[str(PurePosixPath(directory, mark.lower(), "main.go"))] = main
    build = _or_without(f'go build -o "$0"/{mark} ./{mark.lower()}', f"{mark}Text", files, directory)
    build = f'{GO_COMPILED}; {build} && {{ "$0"/{mark} >/dev/null; exec "$0"/{mark}; }}'
    return _program(files, directory, build, (chosen, paths), mark)


def rust_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, seconds: float
) -> ReplayProgram | None:
    """An example of the crate, without assertions for debugging, of the tests in `tests/`; None if there are none."""
    mark = f"zz{CopyNames(SystemRandom()).fresh('')}"
    start = f"{directory}/" if directory else ""
    modules, calls, chosen, paths = list[str](), list[str](), list[str](), list[str]()
    for path in dict.fromkeys(rust_parts(name)[0] for name in ids):
        text = contents.get(f"{start}{path}", b"").decode("utf-8", "replace")
        found = set(_PLAIN_RUST_TEST.findall(text))
        mine = [name for name in ids if rust_parts(name)[0] == path and found.issuperset(rust_parts(name)[1])]
        if not mine or not path.startswith("tests/") or _RUST_NEEDS_MORE.search(text):
            continue
        module = f"m{len(modules)}"
        functions = _TEXT.sub(r"crate::other_text(\g<0>)", _PLAIN_RUST_TEST.sub(r"pub fn \1() {", text))
        modules.append(f"mod {module} {{\n{functions}\n}}\n")
        calls += [f"({json.dumps(name)}, {module}::{rust_parts(name)[1][-1]} as fn())" for name in mine]
        chosen += mine
        paths.append(f"{start}{path}")
    if not chosen:
        return None
    replaced = {"TESTS": ", ".join(calls), "TOKEN": mark}
    replaced |= {"SECONDS": str(int(seconds * SHARE * 1000)), "ROUNDS": str(MAX_ROUNDS)}
    text = "#![allow(dead_code, unused_imports)]\n" + "".join(modules) + _filled("rust_replay.rs", replaced)
    without = " ".join(
        f'--config profile.dev.package."$({_NAME})".{name}=false' for name in ("debug-assertions", "overflow-checks")
    )
    files = {str(PurePosixPath(directory, "examples", f"{mark}.rs")): text}
    build = _or_without(f"cargo build -q --offline --example {mark} {without}", "crate::other_text", files, directory)
    program = f'env -i PATH="$PATH" "${{CARGO_TARGET_DIR:-target}}/debug/examples/{mark}"'
    build += f" && {{ {program} >/dev/null; exec {program}; }}"
    return _program(files, directory, build, (chosen, paths), mark)


def _go_files(ids: Sequence[str], contents: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The files that have these tests, each with its own, if they need nothing else of `testing`."""
    found: dict[str, list[str]] = {}
    for path, content in contents.items():
        text = content.decode("utf-8", "replace")
        package = _GO_PACKAGE.search(text)
        more = "testing." in text.replace("*testing.T", "")
        if not path.endswith("_test.go") or package is None or package[1].endswith(("_test", "main")) or more:
            continue
        mine = [name for name in ids if re.search(_GO_TEST.format(name=re.escape(name.partition("::")[2])), text)]
        if mine:
            found[path] = mine
    return found


def _or_without(build: str, function: str, files: Mapping[str, str], directory: str) -> str:
    """The build, once more without this function around texts if they are of another type."""
    paths = shlex.join(str(PurePosixPath(path).relative_to(directory or ".")) for path in files)
    return f'{{ {build} 2>/dev/null || {{ sed -i -E \'s/{function}\\(("[^"]*")\\)/\\1/g\' {paths}; {build}; }}; }}'


def _filled(name: str, replaced: Mapping[str, str]) -> str:
    """The text of a program beside this file, with these words replaced."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)


def _program(
    files: Mapping[str, str], directory: str, build: str, found: tuple[Sequence[str], Sequence[str]], token: str
) -> ReplayProgram:
    """`found` are the ids and the paths of their files."""
    lines = []
    for path, text in files.items():
        file = shlex.quote(str(PurePosixPath(path).relative_to(directory or ".")))
        lines.append(f"mkdir -p $(dirname {file}) && base64 -d <<<{base64.b64encode(text.encode()).decode()} >{file}")
    command = " && ".join([*lines, f"{{ {build}; }}"])
    argv = ("bash", "-c", 'eval "$(cat)"', "{place}")  # an argument is at most 128 KiB
    step = SupervisorStep(argv=argv, cwd=directory, timeout=REPLAY_TIMEOUT, input=command, keep=8 * 1024**2)
    return ReplayProgram(ids=tuple(found[0]), paths=tuple(found[1]), steps=(step,), token=token)
