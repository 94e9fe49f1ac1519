"""Versions that a project states about itself, each one increased."""

import re
from pathlib import PurePosixPath

_PATTERNS = (
    (re.compile(r"^setup\.py$"), re.compile(rb"\bversion\s*=\s*[\"'](\d+(?:\.\d+)+[^\"'\n]*)[\"']")),
    (
        re.compile(r"\.py$"),
        re.compile(
            rb"^(?:__version__|VERSION|version)\s*(?::\s*\w+\s*)?=\s*[\"'](\d+(?:\.\d+)+[^\"'\n]*)[\"']", re.MULTILINE
        ),
    ),
    (re.compile(r"^pyproject\.toml$"), re.compile(rb"^version\s*=\s*\"(\d+(?:\.\d+)+[^\"\n]*)\"", re.MULTILINE)),
    (re.compile(r"^package\.json$"), re.compile(rb"^\s*\"version\"\s*:\s*\"(\d+(?:\.\d+)+[^\"\n]*)\"", re.MULTILINE)),
    (
        re.compile(r"\.(?:go|[cm]?[jt]s)$"),
        re.compile(rb"\b(?:VERSION|[vV]ersion)\s*(?:string\s*)?:?=\s*[\"'](v?\d+(?:\.\d+)+[^\"'\n]*)[\"']"),
    ),
)
_USUAL = re.compile(
    r"(?:__init__|__about__|__version__|_?version|setup)\.py$|pyproject\.toml$|package\.json$|version\.(?:go|[cm]?[jt]s)$"
)
_MAX_DEPTH = 4
_NUMBER = re.compile(rb"\d+")


def has_version(path: str) -> bool:
    """True for files in which projects state their version. Cargo's is left out: its lock file repeats it."""
    return path.count("/") < _MAX_DEPTH and _USUAL.search(PurePosixPath(path).name) is not None


def _pattern(path: str) -> re.Pattern[bytes] | None:
    name = PurePosixPath(path).name
    return next((pattern for names, pattern in _PATTERNS if names.search(name)), None)


def with_next_version(path: str, content: bytes, head: bytes | None) -> bytes | None:
    """The content with the head's version, or else with the next one; None if it states none."""
    pattern = _pattern(path)
    found = pattern.search(content) if pattern else None
    if pattern is None or found is None:
        return None
    later = pattern.search(head) if head is not None else None
    version = later[1] if later and later[1] != found[1] else _next(found[1])
    return content[: found.start(1)] + version + content[found.end(1) :]


def _next(version: bytes) -> bytes:
    """Increases the third number, or the last one if there are fewer."""
    numbers = list(_NUMBER.finditer(version))
    number = numbers[min(2, len(numbers) - 1)]
    return version[: number.start()] + str(int(number[0][:18]) + 1).encode() + version[number.end() :]
