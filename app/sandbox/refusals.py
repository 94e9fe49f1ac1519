"""Decides which changed files may become part of a patch: pure rules over names, kinds, modes and sizes."""

import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from app.core.patch import RefusedFile
from app.sandbox.ignored_paths import Ignored
from app.sandbox.listing import ListedFile

NAME_BYTES = 4_000
SPECIAL_BITS = 0o7000
SAMPLE = ".sample"
KINDS = {
    "d": "a directory that cannot be read",
    "p": "a FIFO",
    "s": "a socket",
    "b": "a device",
    "c": "a device",
}


@dataclass(frozen=True, slots=True)
class SortedFiles:
    """`files` are to be read; `refused` paths are removed when the tree is restored."""

    files: tuple[ListedFile, ...]
    refusals: tuple[RefusedFile, ...]
    refused: tuple[str, ...]


def sort_files(fresh: Iterable[ListedFile], tracked: Collection[str], ignored: Ignored) -> SortedFiles:
    """Files that count, and the others with the reason why they stay in the sandbox."""
    files, refusals, refused = [], [], []
    repositories: dict[str, list[str]] = {}
    for record in fresh:
        root = repository(record.path)
        known = record.path in tracked  # whatever its name: it may only have been touched
        problem = (None if known else name_problem(record.path)) or kind_problem(record)
        if root is not None:
            repositories.setdefault(root, []).append(record.path)
        elif not known and ignored(record.path):
            continue
        elif problem:
            refusals.append(RefusedFile(path=escaped(record.path), reason=problem))
            refused.append(record.path)
        else:
            files.append(record)
    for root, paths in repositories.items():
        refusals.extend(_repository_refusals(root, paths))
        refused.append(root)
    return SortedFiles(tuple(files), tuple(refusals), tuple(refused))


def repository(path: str) -> str | None:
    """The path up to its first part that is `.git` in any case; None if there is none."""
    parts = path.split("/")
    for at, part in enumerate(parts):
        if part.casefold() == ".git":
            return "/".join(parts[: at + 1])
    return None


def name_problem(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "a name that is not UTF-8"
    if len(encoded) > NAME_BYTES:
        return f"a name of {len(encoded):,} bytes; the limit is {NAME_BYTES:,}"
    if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        return "a name that leads out of the tree"
    if any(unicodedata.category(letter) == "Cc" for letter in path):
        return "a control character in the name"
    return None


def kind_problem(record: ListedFile) -> str | None:
    if record.kind not in {"f", "l"}:
        return KINDS.get(record.kind, "no file")
    if record.kind == "f" and record.mode & SPECIAL_BITS:
        return f"mode {record.mode:04o}: setuid, setgid or sticky"
    return None


def _repository_refusals(root: str, paths: list[str]) -> Iterable[RefusedFile]:
    """Hooks are named one by one; the rest of a `git init` is one line."""
    hooks = [path for path in paths if "/hooks/" in path[len(root) :] and not path.endswith(SAMPLE)]
    for path in hooks[:20]:
        yield RefusedFile(path=escaped(path), reason="a git hook made in the work tree; it is never run or exported")
    others = len(paths) - len(hooks[:20])
    if others:
        yield RefusedFile(
            path=escaped(root), reason=f"a git directory made in the work tree ({others:,} files); it is never exported"
        )


def escaped(path: str) -> str:
    """The path as printable text, shortened if it is very long."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    shown = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return shown if len(shown) <= 300 else f"{shown[:200]}…{shown[-80:]}"
