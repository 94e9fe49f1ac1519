"""Pure functions that parse and write the data of git's plumbing commands, which `app.repo.git_store` executes."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from app.core.errors import ExitCode, RepositoryError
from app.core.patch import LINK, FileChange, FileStat, Tree, TreeEntry

GITLINK = "160000"
NULL_OID = "0" * 40
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_FULL_ID = re.compile(r"[0-9a-f]{40}")
_STATUS: Mapping[str, Literal["added", "modified", "deleted", "renamed"]] = {
    "A": "added",
    "D": "deleted",
    "R": "renamed",
}


class IndexStage(NamedTuple):
    """One side's entry for a path in a merge."""

    mode: str
    oid: str


class MergeSides(NamedTuple):
    """The three sides' entries for a path in a merge; None if a side has no such path."""

    base: IndexStage | None
    ours: IndexStage | None
    theirs: IndexStage | None


class RemovedPaths(NamedTuple):
    """Paths that one side of a merge removed: renamed ones with their new names, and deleted ones."""

    renamed: dict[str, str]
    deleted: set[str]


class TreeListing(NamedTuple):
    """A commit's files, the commit ids of its gitlinks (submodules, not files), and the files with missing contents."""

    entries: dict[str, TreeEntry]
    gitlinks: dict[str, str]
    missing: tuple[str, ...]


def is_full_id(text: str) -> bool:
    """True for a complete SHA-1 object id, as opposed to a name that git would have to interpret."""
    return _FULL_ID.fullmatch(text) is not None


def base_ref(commit: str) -> str:
    """Our own ref to a commit with all its files."""
    return f"refs/agent-fix/base/{commit}"


def log_ref(commit: str) -> str:
    """Our own ref to a stored log of a commit's history."""
    return f"refs/agent-fix/log/{commit}"


def signed_ref(commit: str) -> str:
    """Our own ref to the signed commit that is published in the place of this one."""
    return f"refs/agent-fix/signed/{commit}"


class CommitParts(NamedTuple):
    """A commit object, taken apart."""

    tree: str
    parents: tuple[str, ...]
    author: bytes
    """Name, address and time, as git stores them."""
    message: bytes

    @classmethod
    def of(cls, commit: bytes) -> "CommitParts":
        head, _, message = commit.partition(b"\n\n")
        lines = head.split(b"\n")
        author = next(line for line in lines if line.startswith(b"author "))
        return cls(lines[0].removeprefix(b"tree ").decode("ascii"), tuple(parents_of(commit)), author[7:], message)


def parents_of(commit: bytes) -> list[str]:
    """The parents that a commit object names, whether or not they are in the store."""
    head, _, _ = commit.partition(b"\n\n")
    return [line[7:].decode("ascii") for line in head.splitlines() if line.startswith(b"parent ")]


def path_text(raw: bytes) -> str:
    """A path as text that `os.fsencode` turns into the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def shown_path(path: str) -> str:
    """A path as one printable line of text; characters that are invalid or not printable are escaped."""
    text = path_bytes(path).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def parse_listing(output: bytes) -> TreeListing:
    """Parse `git ls-tree -r -l -z`, which shows BAD as the size of a file with missing content."""
    entries: dict[str, TreeEntry] = {}
    gitlinks: dict[str, str] = {}
    missing: list[str] = []
    for record in output.split(b"\0"):
        if not record:
            continue
        head, _, name = record.partition(b"\t")
        mode, _, oid, size = head.decode("ascii").split()
        if mode == GITLINK:
            gitlinks[path_text(name)] = oid
        elif size == "BAD":
            missing.append(path_text(name))
        else:
            entries[path_text(name)] = TreeEntry(mode, oid, int(size))
    return TreeListing(entries, gitlinks, tuple(missing))


def parse_stages(output: bytes) -> tuple[dict[str, IndexStage], dict[str, MergeSides]]:
    """Parse `git ls-files -s -z` into merged entries and unmerged paths with up to three sides."""
    entries: dict[str, IndexStage] = {}
    unmerged: dict[str, dict[str, IndexStage]] = {}
    for record in filter(None, output.split(b"\0")):
        head, _, name = record.partition(b"\t")
        mode, oid, number = head.decode("ascii").split()
        if number == "0":
            entries[path_text(name)] = IndexStage(mode, oid)
        else:
            unmerged.setdefault(path_text(name), {})[number] = IndexStage(mode, oid)
    return entries, {
        path: MergeSides(found.get("1"), found.get("2"), found.get("3")) for path, found in unmerged.items()
    }


def parse_removed(output: bytes) -> RemovedPaths:
    """Parse `git diff-tree -M -z --diff-filter=DR --name-status`."""
    fields = map(path_text, output.split(b"\0"))
    removed = RemovedPaths({}, set())
    for status in filter(None, fields):
        if status[0] == "R":
            old = next(fields)
            removed.renamed[old] = next(fields)
        else:
            removed.deleted.add(next(fields))
    return removed


def parse_batch(output: bytes) -> Iterator[bytes]:
    """The contents in `git cat-file --batch`, in the requested order. Raises KeyError for a missing object."""
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        header = output[at:end].split()
        if len(header) != 3:
            raise KeyError(output[at:end].decode("ascii", "replace"))
        size = int(header[2])
        yield output[end + 1 : end + 1 + size]
        at = end + size + 2


def parse_stat(output: bytes) -> tuple[FileStat, ...]:
    """Parse `git diff-tree -r -M --raw --numstat -z`: all raw records first, then all counts, both in path order."""
    fields = iter(output.split(b"\0"))
    changes: list[tuple[list[str], bytes, bytes]] = []
    counts: dict[bytes, tuple[bytes, bytes]] = {}
    for field in fields:
        if field.startswith(b":"):
            head = field[1:].decode("ascii").split()
            old = next(fields)
            changes.append((head, old, next(fields) if head[4][0] in "RC" else old))
        elif field:
            added, deleted, name = field.split(b"\t", 2)
            if not name:  # a rename names both sides
                next(fields)
                name = next(fields)
            counts[name] = (added, deleted)
    return tuple(_stat(head, old, new, *counts.get(new, (b"0", b"0"))) for head, old, new in changes)


def _stat(head: list[str], old: bytes, new: bytes, added: bytes, deleted: bytes) -> FileStat:
    return FileStat(
        path=new.decode("utf-8", "backslashreplace"),
        status=_STATUS.get(head[4][0], "modified"),
        mode=head[1],
        old_mode=head[0],
        added=None if added == b"-" else int(added),
        deleted=None if deleted == b"-" else int(deleted),
        old_path=old.decode("utf-8", "backslashreplace") if old != new else "",
    )


def index_info(changes: Iterable[FileChange], blobs: Mapping[str, str]) -> bytes:
    """Lines for `git update-index -z --index-info`; removals first, so that a file can become a directory."""
    ordered = sorted(changes, key=lambda change: (not change.deleted, path_bytes(change.path)))
    lines = [
        f"0 {NULL_OID}\t".encode() if change.deleted else f"{change.mode} {blobs[change.path]}\t".encode()
        for change in ordered
    ]
    return b"".join(line + path_bytes(change.path) + b"\0" for line, change in zip(lines, ordered, strict=True))


def refused_changes(changes: Sequence[FileChange], tree: Tree) -> dict[str, str]:
    """The paths of a patch that cannot be committed on this tree, with the reasons.

    Whatever accepts a patch asks this, and so does the commit.
    """
    submodules = tree.gitlinks()
    above = {directory: submodule for submodule in submodules for directory in _directories(submodule)}
    refused = {}
    for change in changes:
        inside = next((each for each in (change.path, *_directories(change.path)) if each in submodules), None)
        inside = inside or above.get(change.path)
        if reason := unsafe_change(change):
            refused[change.path] = reason
        elif inside:
            refused[change.path] = f"{shown_path(inside)} is a submodule, whose files are in another repository"
    return refused | _conflicting(changes, tree)


def _conflicting(changes: Sequence[FileChange], tree: Tree) -> dict[str, str]:
    """New paths that are a file on one side and a directory on the other."""
    known = tree.entries()
    added = {change.path for change in changes if not change.deleted and change.path not in known}
    if not added:
        return {}
    kept = (known.keys() - {change.path for change in changes if change.deleted}) | added
    files = {path: each for path in added for each in _directories(path) if each in kept}
    folders = {each for path in kept for each in _directories(path)} & added
    reason = "it is a file, and a directory of other files"
    return {path: f"{shown_path(file)} is a file" for path, file in files.items()} | dict.fromkeys(folders, reason)


def _directories(path: str) -> Iterator[str]:
    """The directories above a path, nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


_SETTINGS_OF_GIT = re.compile(r"\.(?:gitmodules|gitattributes|gitignore|mailmap)|gitmod~[1-4]|gi7eb[0-9a-f]~\d")


def unsafe_change(change: FileChange) -> str:
    """Why git must never get this change, or an empty text if it may."""
    if change.mode == LINK and _SETTINGS_OF_GIT.fullmatch(_as_other_systems_read(change.path.rpartition("/")[2])):
        return "a symbolic link in place of git's settings"
    return unsafe_path(change.path)


def unsafe_path(path: str) -> str:
    """Why git must never get this path, or an empty text: the last defence behind every other check.

    `.git` is recognised in any case, width and Unicode disguise, with invisible characters, as a Windows short name or
    stream, and behind backslashes, because the commit will be checked out on other systems.
    """
    parts = path.split("/")
    rules = (
        (not path, "an empty path"),
        ("\0" in path, "a path with a NUL"),
        (path.startswith("/"), "an absolute path"),
        (not {"", ".", ".."}.isdisjoint(parts), "a path with an empty, `.` or `..` component"),
        (len(path_bytes(path)) > 4_095, "a path longer than 4,095 bytes"),
        (any(len(path_bytes(part)) > 255 for part in parts), "a name longer than 255 bytes"),
        (any(_is_dot_git(part) for part in re.split(r"[/\\]", path)), "a path into `.git`"),
    )
    return next((reason for broken, reason in rules if broken), "")


def _is_dot_git(component: str) -> bool:
    return _as_other_systems_read(component) in {".git", "git~1"}


def _as_other_systems_read(component: str) -> str:
    """Without case, width, invisible characters, a stream's name, and dots and spaces at the end."""
    plain = unicodedata.normalize("NFKC", component)
    visible = "".join(char for char in plain if unicodedata.category(char) not in {"Cf", "Cc", "Mn"})
    return visible.casefold().partition(":")[0].rstrip(". ")


def unsafe_branch(name: str) -> str:
    """Why no branch may have this name even though git would accept it, or an empty text."""
    rules = (
        (name.startswith("-"), "it looks like an option"),
        (name in {"HEAD", "@"} or name.startswith("refs/") or is_full_id(name), "git gives it another meaning"),
        (any(unicodedata.category(each) in _INVISIBLE for each in name), "it contains invisible characters"),
    )
    return next((reason for broken, reason in rules if broken), "")


def free_name(branch: str, commit: str, taken: Mapping[str, str]) -> tuple[str, bool]:
    """A free name for a new branch, and whether a branch of that name already has this very commit.

    `taken` are the existing branches with their commits. Git accepts the returned name beside them.
    """
    if any(str(parent) in taken for parent in PurePosixPath(branch).parents):
        branch = branch.replace("/", "-")  # a branch `agent-fix` rules out any `agent-fix/…`
    names = [branch, *(f"{branch}-{number}" for number in range(2, len(taken) + 3))]
    for name in names:
        if taken.get(name) == commit:
            return name, True
    folders = {str(parent) for other in taken for parent in PurePosixPath(other).parents}
    return next(name for name in names if name not in taken and name not in folders), False


READ_TIMEOUT = 1_800.0
"""Seconds that reading many files may take."""


class GitTree:
    """One commit's files, read from the store (`app.core.patch.Tree`)."""

    def __init__(self, run: Callable[..., bytes], commit: str) -> None:
        self._run = run
        self._commit = commit
        self._listing: TreeListing | None = None

    @property
    def commit(self) -> str:
        return self._commit

    def entries(self) -> Mapping[str, TreeEntry]:
        return self._list().entries

    def gitlinks(self) -> Mapping[str, str]:
        return self._list().gitlinks

    def read(self, path: str) -> bytes:
        return self.read_many([path])[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        known = self.entries()
        wanted = [path for path in dict.fromkeys(paths) if path in known]
        if not wanted:
            return {}
        request = "".join(f"{known[path].oid}\n" for path in wanted).encode("ascii")
        output = self._run("cat-file", "--batch", stdin=request, timeout=READ_TIMEOUT)
        return dict(zip(wanted, parse_batch(output), strict=True))

    def _list(self) -> TreeListing:
        if self._listing is None:
            output = self._run("ls-tree", "-r", "-l", "-z", "--full-tree", self._commit)
            self._listing = parse_listing(output)
            if missing := self._listing.missing:
                which = f"{len(missing)} files of commit {self._commit[:10]}"
                raise RepositoryError(
                    f"The contents of {which} are missing, such as {shown_path(missing[0])}.",
                    code=ExitCode.UNSUPPORTED_REPOSITORY,
                    hint="You can delete a copy in the state directory's `mirrors`; it is created again.",
                )
        return self._listing
