"""Finds added source lines that examine the test framework, the harness, or their own process."""

import re
import tomllib
from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from app.verify.sources.parsed_sources import added_rows, code_only
from app.verify.sources.replaced_functions import replaced_functions

MAX_FINDINGS = 50
EQUALITY = ("is equal to everything", "compares a built-in type in its own way")
"""Findings that say nothing about tests, but that results may equal what they are not."""
_COMMANDS = frozenset({"__main__.py", "cli.py", "main.py", "manage.py", "setup.py", "conf.py", "noxfile.py"})
_COMMAND_DIRECTORIES = frozenset(
    {"bin", "scripts", "script", "tools", "cmd", "examples", "_examples", "docs", "benchmarks", "bench"}
)
_STARTED = re.compile(rb"^(?:if __name__ == |package main\b|fn main\(|#!)|\bpublic static void main\(", re.MULTILINE)

_REPLACES = "replaces a function of another module"
"""Found by the syntax tree; by its patterns only if it cannot be parsed."""
_ATTRIBUTE = re.compile(
    rb"[ \t]*#\[cfg(?:_attr)?\([^\n]*\)\](?=\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|struct|enum)\b)"
)
_FEATURE = re.compile(rb'\bfeature\s*=\s*"([\w-]+)"')
_CONSTRAINT = re.compile(rb"^//(?:go:build|[ \t]*\+build)[ \t][^\n]*", re.MULTILINE)
_MACHINE = re.compile(
    r"_(?:linux|windows|darwin|freebsd|netbsd|openbsd|dragonfly|solaris|illumos|aix|plan9|android|ios|js|wasip1|wasm|unix"
    r"|amd64|386|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x)$"
)
_COMPILED = re.compile(rb"\b(?:debug_assertions|overflow_checks)\b")


class _Rule(NamedTuple):
    what: str
    pattern: re.Pattern[bytes]
    languages: frozenset[str]
    usual: bool


@cache
def _rules() -> tuple[_Rule, ...]:
    document = tomllib.loads(files("app.verify.sources").joinpath("watching.toml").read_text("utf-8"))
    return tuple(
        _Rule(
            rule["what"],
            re.compile("|".join(rule["patterns"]).encode(), re.MULTILINE),
            frozenset(rule.get("languages", ())),
            rule.get("usual", False),
        )
        for rule in document["rule"]
    )


def watching_lines(
    language: str, path: str, old: bytes | None, new: bytes, features: Collection[str] = ()
) -> Iterator[tuple[int, str]]:
    """(line, what it does) of the added lines, from 1. `features` are those that a Rust item may depend on."""
    yield from _constraints(path, old or b"", new) if language == "go" else ()
    code = code_only(language, new) or new
    before = b"" if old is None else code_only(language, old) or old
    rows = added_rows(old or b"", new)
    command = _is_command(path, new)
    for rule in _rules():
        if rule.languages and language not in rule.languages:
            continue
        if rule.usual and command:
            continue
        if rule.what == _REPLACES and (replaced := replaced_functions(new)) is not None:
            if not replaced_functions(before):
                yield from ((one.first + 1, rule.what) for one in replaced if rows.intersection(range(*one)))
            continue
        if rule.usual and rule.pattern.search(before):
            continue
        for match in rule.pattern.finditer(code):
            if features and _is_known_feature(code, match.start(), features):
                continue
            first = code.count(b"\n", 0, match.start())
            if rows.intersection(range(first, first + match[0].count(b"\n") + 1)):
                yield first + 1, rule.what


def _constraints(path: str, old: bytes, new: bytes) -> Iterator[tuple[int, str]]:
    """The build constraint that a Go file has and did not have before, in its text or in its name."""
    constraint = _CONSTRAINT.search(new)
    by_name = not old and _MACHINE.search(PurePosixPath(path).stem) is not None
    if by_name or (constraint is not None and constraint[0] not in old):
        at = constraint.start() if constraint is not None else 0
        yield new.count(b"\n", 0, at) + 1, "is compiled only for some machines or builds"


def _is_known_feature(code: bytes, at: int, features: Collection[str]) -> bool:
    """True for the attribute of a Rust item that is there only with a feature, and has no counterpart without it."""
    attribute = _ATTRIBUTE.match(code, code.rfind(b"\n", 0, at) + 1)
    if attribute is None or b"not(" in attribute[0]:
        return False
    named = _FEATURE.findall(attribute[0])
    return bool(named) and all(name.decode() in features for name in named) and not _COMPILED.search(attribute[0])


def _is_command(path: str, content: bytes) -> bool:
    """True for a file that people start, which may read its command line and end its process."""
    parts = PurePosixPath(path)
    if parts.name in _COMMANDS or not _COMMAND_DIRECTORIES.isdisjoint(parts.parts[:-1]):
        return True
    return _STARTED.search(content) is not None
