"""Decides which untracked paths a patch ignores: the base commit's .gitignore files, and well-known build results."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from pathspec import GitIgnoreSpec

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
