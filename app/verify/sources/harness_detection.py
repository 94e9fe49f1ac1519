"""Finds added source lines that examine the test framework, the harness, or their own process."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from app.verify.sources.parsed_sources import added_rows, code_only

MAX_FINDINGS = 50
EQUALITY = ("is equal to everything", "compares a built-in type in its own way")
"""Findings that say nothing about tests, but that results may equal what they are not."""
_COMMANDS = frozenset({"__main__.py", "cli.py", "main.py", "manage.py", "setup.py", "conf.py", "noxfile.py"})
_COMMAND_DIRECTORIES = frozenset(
    {"bin", "scripts", "script", "tools", "cmd", "examples", "_examples", "docs", "benchmarks", "bench"}
)
_STARTED = re.compile(rb"^(?:if __name__ == |package main\b|fn main\(|#!)|\bpublic static void main\(", re.MULTILINE)


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


def watching_lines(language: str, path: str, old: bytes | None, new: bytes) -> Iterator[tuple[int, str]]:
    """(line, what it does) of the added lines, from 1."""
    code = code_only(language, new) or new
    before = b"" if old is None else code_only(language, old) or old
    rows = added_rows(old or b"", new)
    command = _is_command(path, new)
    for rule in _rules():
        if rule.languages and language not in rule.languages:
            continue
        if rule.usual and (command or rule.pattern.search(before)):
            continue
        for match in rule.pattern.finditer(code):
            first = code.count(b"\n", 0, match.start())
            if rows.intersection(range(first, first + match[0].count(b"\n") + 1)):
                yield first + 1, rule.what


def _is_command(path: str, content: bytes) -> bool:
    """True for a file that people start, which may read its command line and end its process."""
    parts = PurePosixPath(path)
    if parts.name in _COMMANDS or not _COMMAND_DIRECTORIES.isdisjoint(parts.parts[:-1]):
        return True
    return _STARTED.search(content) is not None
