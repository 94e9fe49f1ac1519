"""Lists the work tree, finds what changed since `fill` without reading a file, and which new paths a patch ignores.

A listing taken right after `fill` has each file's inode and change time, which no program inside can set. A file with
the same line today has the same bytes; only the others are examined.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from app.core.errors import SandboxError
from app.sandbox.base import BASE_LISTING, LIST_COMMAND, Sandbox

LISTED_BYTES = 64 * 1024**2
SECONDS = 120.0
FORMAT = LIST_COMMAND[-1]


class ListedFile(NamedTuple):
    """One line: `kind` as find's %y (f, l, d for an unreadable directory, p, s, b, c), `mode` with all twelve bits."""

    mode: int
    size: int
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class TreeChanges:
    """`fresh` are files that changed since `fill`, `present` all existing paths."""

    fresh: tuple[ListedFile, ...]
    present: frozenset[str]
    overflow: bool = False
    """True if there are too many names to read; nothing else is known then."""


async def find_changes(sandbox: Sandbox, *, prune: Sequence[str], besides: Sequence[str]) -> TreeChanges:
    """`prune` are directory names and `besides` paths that are not entered."""
    find = [*LIST_COMMAND[:2], "-mindepth", "1", *_unreadable(), *_pruned(prune, besides), *LIST_COMMAND[4:]]
    # The words before find's own are the shell's: the old listing, a line `=`, and the current listing.
    script = f"exec 2> /dev/null; /bin/cat {BASE_LISTING}; printf '=\\0'; exec \"$@\""
    output = _LimitedOutput()
    done = await sandbox.exec(["/bin/sh", "-c", script, "sh", *find], timeout=SECONDS, on_output=output.add)
    if output.overflow:
        return TreeChanges((), frozenset(), overflow=True)
    if done.timed_out or b"=\0" not in output.content:
        raise SandboxError(f"The work tree could not be listed (exit code {done.exit_code}).")
    return compare(bytes(output.content))


def compare(text: bytes) -> TreeChanges:
    """From the old and the new listing, with `=` between them."""
    lines = text.split(b"\0")
    middle = lines.index(b"=")
    before, now = frozenset(lines[:middle]), [line for line in lines[middle + 1 :] if line]
    return TreeChanges(
        fresh=tuple(_record(line) for line in now if line not in before),
        present=frozenset(_path(line) for line in now),
    )


async def directories(sandbox: Sandbox, *, prune: Sequence[str]) -> list[str]:
    """Every directory down to the fourth level, for trees that are too large to list."""
    output = _LimitedOutput()
    find = [
        *LIST_COMMAND[:2],
        "-mindepth",
        "1",
        "-maxdepth",
        "4",
        *_pruned(prune, ()),
        "-type",
        "d",
        "-printf",
        r"%P\0",
    ]
    await sandbox.exec(
        ["/bin/sh", "-c", 'exec 2> /dev/null; exec "$@"', "sh", *find], timeout=SECONDS, on_output=output.add
    )
    return [_text(path) for path in bytes(output.content).split(b"\0")[:-1]]


class _LimitedOutput:
    """Collects output up to a size beyond the sandbox's own limit."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.overflow = False

    def add(self, chunk: bytes) -> None:
        if len(self.content) + len(chunk) > LISTED_BYTES:
            self.overflow = True
        else:
            self.content += chunk


def _unreadable() -> list[str]:
    """Files in an unreadable directory are not gone; the directory itself is listed instead."""
    return ["-type", "d", "!", "(", "-readable", "-executable", ")", "-printf", FORMAT, "-prune", "-o"]


def _pruned(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    tests = [("-name", _literal(name)) for name in names] + [("-path", f"./{_literal(path)}") for path in paths]
    if not tests:
        return []
    joined = [word for test in tests for word in ("-o", *test)][1:]
    return ["(", *joined, ")", "-prune", "-o"]


def _literal(text: str) -> str:
    """As a pattern of find that matches only itself."""
    return "".join(f"\\{letter}" if letter in r"\*?[" else letter for letter in text)


def _record(line: bytes) -> ListedFile:
    _, _, mode, size, kind, path = line.split(b" ", 5)
    return ListedFile(int(mode, 8), int(size), kind.decode(), _text(path))


def _path(line: bytes) -> str:
    return _text(line.split(b" ", 5)[5])


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


LITTER_DIRECTORIES = frozenset(
    {
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".tox",
        ".nox",
        ".eggs",
        ".venv",
        "htmlcov",
        "node_modules",
        ".npm",
        ".nyc_output",
        ".parcel-cache",
        ".turbo",
        ".gradle",
    }
)
LITTER = GitIgnoreSpec.from_lines(
    [f"{name}/" for name in sorted(LITTER_DIRECTORIES)]
    + ["*.py[co]", "*.egg-info/", ".coverage", ".coverage.*", ".DS_Store", "*.swp", "*~", ".nfs*"]
)

LINES = 2_000
"""Lines of one .gitignore; the rest is not read, and paths that it names count as changes."""
STARS = 3
"""Stars in one part of a pattern: pathspec's regular expressions take time that grows with this power of a name."""

Ignored = Callable[[str], bool]


def ignored_by(files: Mapping[str, bytes], extra: Iterable[str] = ()) -> Ignored:
    """A rule over paths, from the contents of .gitignore files by path; `extra` are further directories or files.

    As in git: deeper files outweigh higher ones, the last matching line of a file decides, and nothing below an ignored
    directory is included again.
    """
    specs = {path.removesuffix(".gitignore"): _spec(content) for path, content in files.items()}
    besides = frozenset(extra)

    def decided(path: str) -> bool:
        """The rules' decision for one path by itself; a directory's path ends with a slash."""
        if path.rstrip("/") in besides:
            return True
        for place in _places(path):
            include = specs[place].check_file(path[len(place) :]).include if place in specs else None
            if include is not None:
                return include
        return bool(LITTER.match_file(path))

    @lru_cache(maxsize=65_536)
    def directory_ignored(directory: str) -> bool:
        parent = directory.rpartition("/")[0]
        return (bool(parent) and directory_ignored(parent)) or decided(f"{directory}/")

    def ignored(path: str) -> bool:
        parent = path.rpartition("/")[0]
        return (bool(parent) and directory_ignored(parent)) or decided(path)

    return ignored


def _places(path: str) -> Iterable[str]:
    """Directories whose .gitignore applies to the path, nearest first, each with its slash; the root is empty."""
    at = path.rstrip("/").rpartition("/")[0]
    while at:
        yield f"{at}/"
        at = at.rpartition("/")[0]
    yield ""


def _spec(content: bytes) -> GitIgnoreSpec:
    lines = content.decode(errors="replace").split("\n")[:LINES]
    return GitIgnoreSpec.from_lines([line for line in (one.removesuffix("\r") for one in lines) if _usable(line)])


def _usable(line: str) -> bool:
    """False for patterns that git ignores too, or that would keep a regular expression busy for minutes."""
    parts = line.split("/")
    if line.count("**") > STARS or any(len(re.findall(r"\*+", part)) > STARS for part in parts):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
