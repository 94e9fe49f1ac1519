"""Exports a work tree as a patch: changes against the base commit, as bytes, with everything unusual refused.

Everything is done by commands inside the sandbox, so that it is the same for each kind of sandbox, and no host program
ever walks a tree that project code can write.
"""

import hashlib
import io
import tarfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from app.core.errors import SandboxError
from app.core.globs import has_too_many_stars
from app.core.patch import FileChange, Mode, Patch, RefusedFile, Tree, TreeEntry
from app.core.text import words
from app.repo.git_format import path_bytes, path_text, refused_changes, shown_path
from app.sandbox.base import BASE_LISTING, LIST_COMMAND, CompletedCommand, OnOutput, Sandbox

LISTED_BYTES = 64 * 1024**2
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
    script = f"/bin/cat {BASE_LISTING}; printf '=\\0'; exec \"$@\""
    output = _LimitedOutput()
    done = await _run_quietly(sandbox, find, script=script, on_output=output.add)
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
        present=frozenset(path_text(line.split(b" ", 5)[5]) for line in now),
    )


def _record(line: bytes) -> ListedFile:
    _, _, mode, size, kind, path = line.split(b" ", 5)
    return ListedFile(int(mode, 8), int(size), kind.decode(), path_text(path))


async def directories(sandbox: Sandbox, *, prune: Sequence[str]) -> list[str]:
    """Every directory down to the fourth level, for trees that are too large to list."""
    output = _LimitedOutput()
    depth = ("-mindepth", "1", "-maxdepth", "4")
    find = [*LIST_COMMAND[:2], *depth, *_pruned(prune, ()), "-type", "d", "-printf", r"%P\0"]
    await _run_quietly(sandbox, find, on_output=output.add)
    return [path_text(path) for path in bytes(output.content).split(b"\0")[:-1]]


async def _run_quietly(
    sandbox: Sandbox, argv: Sequence[str], *, on_output: OnOutput, script: str = 'exec "$@"', stdin: bytes = b""
) -> CompletedCommand:
    """Run a command for its output alone: errors about single files must not get in between."""
    shell = ["/bin/sh", "-c", f"exec 2> /dev/null; {script}", "sh", *argv]
    return await sandbox.exec(shell, timeout=SECONDS, stdin=stdin, on_output=on_output)


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


LITTER_DIRECTORIES = words("""
    __pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis .ipynb_checkpoints .tox .nox .eggs .venv htmlcov
    node_modules .npm .nyc_output .parcel-cache .turbo .gradle
""")
LITTER = GitIgnoreSpec.from_lines(
    [f"{name}/" for name in sorted(LITTER_DIRECTORIES)]
    + ["*.py[co]", "*.egg-info/", ".coverage", ".coverage.*", ".DS_Store", "*.swp", "*~", ".nfs*"]
)

MAX_IGNORE_LINES = 2_000
"""Lines of one .gitignore; the rest is not read, and paths that it names count as changes."""

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
    lines = content.decode(errors="replace").split("\n")[:MAX_IGNORE_LINES]
    return GitIgnoreSpec.from_lines([line for line in (one.removesuffix("\r") for one in lines) if _usable(line)])


def _usable(line: str) -> bool:
    """False for patterns that git ignores too, or that would keep a regular expression busy for minutes."""
    if has_too_many_stars(line):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


NAME_BYTES = 4_000
SPECIAL_BITS = 0o7000
SAMPLE = ".sample"
UNUSUAL_KINDS = {
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
        return UNUSUAL_KINDS.get(record.kind, "no file")
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
    shown = shown_path(path)
    return shown if len(shown) <= 300 else f"{shown[:200]}…{shown[-80:]}"


SECONDS = 120.0
PACK = ("/usr/bin/tar", "--create", "--format=gnu", "--no-recursion", "--hard-dereference", "--null")
FROM_LIST = ("--verbatim-files-from", "--no-unquote", "--files-from=-")
UNPACK = ("/usr/bin/tar", "--extract", "--touch", "--no-same-owner", "--preserve-permissions", "--absolute-names")


class ArchiveItem(NamedTuple):
    """A file, or (mode 120000) a link whose `content` is its target."""

    path: str
    mode: Mode
    content: bytes


async def read_files(sandbox: Sandbox, paths: Sequence[str], *, max_bytes: int) -> dict[str, ArchiveItem]:
    """Files by path, without those that are gone, unreadable, or no longer a plain file or link.

    Accepts at most `max_bytes` bytes in all; the caller knows the sizes.
    """
    received = bytearray()
    space = max_bytes + (len(paths) + 20) * 8 * tarfile.BLOCKSIZE  # heads, long names and padding

    def receive(chunk: bytes) -> None:
        if len(received) < space:
            received.extend(chunk)

    names = b"".join(path_bytes(path) + b"\0" for path in paths)
    done = await _run_quietly(sandbox, [*PACK, "--file=-", *FROM_LIST], on_output=receive, stdin=names)
    if done.timed_out or len(received) >= space:
        raise SandboxError("Files of the work tree changed while they were read.")
    return {item.path: item for item in _unpack(bytes(received))}


def _unpack(stream: bytes) -> Iterable[ArchiveItem]:
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                if member.issym():
                    yield ArchiveItem(member.name, "120000", path_bytes(member.linkname))
                elif member.isreg():
                    body = archive.extractfile(member)
                    mode: Mode = "100755" if member.mode & 0o111 else "100644"
                    yield ArchiveItem(member.name, mode, body.read() if body is not None else b"")
    except tarfile.ReadError as error:
        if stream.strip(b"\0"):
            raise SandboxError("Files of the work tree could not be read.") from error


async def write_files(sandbox: Sandbox, items: Iterable[ArchiveItem]) -> None:
    """Create the files in the work tree with the current time. Existing paths must have been removed."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w:", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for item in items:
            member = tarfile.TarInfo(item.path)
            if item.mode == "120000":
                member.type, member.linkname = tarfile.SYMTYPE, path_text(item.content)
                archive.addfile(member)
            else:
                member.mode, member.size = int(item.mode[-3:], 8), len(item.content)
                archive.addfile(member, io.BytesIO(item.content))
    done = await sandbox.exec([*UNPACK, "--file=-"], stdin=buffer.getvalue(), timeout=SECONDS)
    if not done.ok:
        raise SandboxError(f"The work tree could not be written: {done.output.decode(errors='replace')[-500:].strip()}")


EXTRA_PRUNED = 1_000


@dataclass(frozen=True, slots=True)
class Baseline:
    """`excluded` are directories of the set-up, and `prune` names of directories, that are not searched."""

    tree: Tree
    ignored: Ignored
    excluded: tuple[str, ...] = ()
    prune: tuple[str, ...] = ()


def baseline(tree: Tree, *, besides: Sequence[str] = ()) -> Baseline:
    """The ignore rules come from the base commit, so that an agent cannot change them. `besides` are what the set-up
    has created (`Sandbox.created`): nothing there is a change, but a tracked file always may be one."""
    paths = tree.entries()
    rules = tree.read_many(path for path in paths if path.rpartition("/")[2] == ".gitignore")
    tracked = {name for path in paths for name in path.split("/")}
    ignored = ignored_by(rules, (path.rstrip("/") for path in besides))
    prune = tuple(sorted(name for name in LITTER_DIRECTORIES - tracked if ignored(f"{name}/x")))
    holding = {path[: at + 1] for path in paths for at, letter in enumerate(path) if letter == "/"}
    excluded = [path.rstrip("/") for path in besides if path.endswith("/") and path not in holding]
    return Baseline(tree, ignored, tuple(excluded[:EXTRA_PRUNED]), prune)


async def changes_against(sandbox: Sandbox, base: Baseline) -> TreeChanges:
    """The current changes of the work tree."""
    changes = await find_changes(sandbox, prune=base.prune, besides=base.excluded)
    if not changes.overflow:
        return changes
    # A build may have filled an ignored directory with more names than can be read; skip such directories.
    tracked = tuple(base.tree.entries())
    ignored = [
        path
        for path in await directories(sandbox, prune=base.prune)
        if base.ignored(f"{path}/x") and not any(name.startswith(f"{path}/") for name in tracked)
    ]
    return await find_changes(sandbox, prune=base.prune, besides=(*base.excluded, *ignored[:EXTRA_PRUNED]))


def removed_paths(base: Baseline, changes: TreeChanges) -> Mapping[str, TreeEntry]:
    """Tracked files that no longer exist, except in unreadable directories."""
    hidden = tuple(f"{record.path}/" for record in changes.fresh if record.kind == "d")
    return {
        path: entry
        for path, entry in base.tree.entries().items()
        if path not in changes.present and not path.startswith(hidden)
    }


ROUNDS = 32
"""How many nested unreadable directories are opened."""
# Directories without write permission would protect their contents. Paths are removed by name first; then parents that
# are empty now and not in the base.
REMOVE = r"""
exec 2> /dev/null
/usr/bin/find . -type d ! -perm -u=rwx -exec /bin/chmod u+rwx {} +
exec /usr/bin/xargs -0 -r /bin/rm -rf --
"""
REMOVE_EMPTY = r"exec 2> /dev/null; /usr/bin/xargs -0 -r /bin/rmdir -p --ignore-fail-on-non-empty --; exit 0"


async def restore_path(sandbox: Sandbox, base: Baseline, path: str) -> tuple[str, ...]:
    """Make a file, or everything in a directory, what it was in the base; returns the restored paths, for people.

    `path` may be one that `escaped` shows.
    """

    def meant(found: str) -> bool:
        return any(each == path or each.startswith(f"{path}/") for each in (found, escaped(found)))

    change = await export(sandbox, base)
    changed = {*map(escaped, change.paths()), *(refusal.path for refusal in change.refusals)}
    restored = tuple(sorted(each for each in changed if meant(each)))
    if restored:
        await restore(sandbox, base, Patch(base=base.tree.commit), meant)
    return restored


async def restore(sandbox: Sandbox, base: Baseline, patch: Patch, only: Callable[[str], bool] = lambda _: True) -> None:
    """Make every path that is not ignored equal to base plus patch. Ignored files stay."""
    seen = await _readable(sandbox, base)
    entries = base.tree.entries()
    found = sort_files(seen.fresh, entries, base.ignored)
    wanted = {change.path: change for change in patch.changes}
    wrong = {*(record.path for record in found.files), *found.refused, *removed_paths(base, seen), *wanted}
    wrong = {path for path in wrong if only(path)}
    if not wrong:
        return
    await _each(sandbox, REMOVE, sorted(wrong))
    old = sorted((wrong & entries.keys()) - wanted.keys())
    items = [ArchiveItem(path, mode_of(entries[path]), content) for path, content in base.tree.read_many(old).items()]
    items += [ArchiveItem(one.path, one.mode, one.content) for one in patch.changes if one.content is not None]
    if items:
        await write_files(sandbox, sorted(items))
    left = {path.rpartition("/")[0] for path in wrong} - {""}
    await _each(sandbox, REMOVE_EMPTY, sorted(left))


def mode_of(entry: TreeEntry) -> Mode:
    modes: dict[str, Mode] = {"100755": "100755", "120000": "120000"}
    return modes.get(entry.mode, "100644")


async def _readable(sandbox: Sandbox, base: Baseline) -> TreeChanges:
    """The changes of the whole tree, after unreadable directories were opened."""
    for _ in range(ROUNDS):
        seen = await changes_against(sandbox, base)
        if seen.overflow:
            raise SandboxError("The work tree has too many files to be restored.")
        closed = [record.path for record in seen.fresh if record.kind == "d"]
        if not closed:
            return seen
        await _each(sandbox, "exec /usr/bin/xargs -0 -r /bin/chmod u+rwx --", closed)
    raise SandboxError("The work tree has directories that cannot be read.")


async def _each(sandbox: Sandbox, script: str, paths: Sequence[str]) -> None:
    """Run the script with the paths, each starting with ./ and ended by NUL, on its standard input."""
    names = b"".join(path_bytes(f"./{path}") + b"\0" for path in paths)
    if names:
        await sandbox.exec(["/bin/sh", "-c", script], stdin=names, timeout=SECONDS)


FILE_BYTES = 5 * 1024**2
TOTAL_BYTES = 50 * 1024**2
MAX_CHANGES = 10_000
TOUCHED_BYTES = 1024**3
BATCH_BYTES = 24 * 1024**2
HASH_SECONDS = 300.0


async def export(sandbox: Sandbox, base: Baseline) -> Patch:
    """The patch of the work tree against the base. Files that were not written since are not read."""

    def refused(reason: str) -> Patch:
        return Patch(base=base.tree.commit, refusals=(RefusedFile(path=".", reason=reason),))

    changes_in_tree = await changes_against(sandbox, base)
    if changes_in_tree.overflow:
        return refused("the work tree has too many files to list")
    entries = base.tree.entries()
    found = sort_files(changes_in_tree.fresh, entries, base.ignored)
    if len(found.files) > MAX_CHANGES:
        return refused(f"{len(found.files):,} files were written; the limit is {MAX_CHANGES:,}")
    written = sum(record.size for record in found.files if record.size <= FILE_BYTES or _same_size(record, entries))
    if written > TOUCHED_BYTES:
        return refused(f"{written:,} bytes in files that were written; the limit is {TOUCHED_BYTES:,}")
    found = await _without_large_files(sandbox, base, found)
    changes, refusals, total = await _changed(sandbox, base, found.files)
    if total > TOTAL_BYTES:
        return refused(f"over {TOTAL_BYTES:,} bytes in changed files, which is the limit")
    for path, entry in removed_paths(base, changes_in_tree).items():
        if problem := name_problem(path):
            refusals.append(RefusedFile(path=escaped(path), reason=problem))
        else:
            changes.append(FileChange(path=path, mode=mode_of(entry), content=None))
    impossible = refused_changes(changes, base.tree)
    refusals += (RefusedFile(path=escaped(path), reason=reason) for path, reason in impossible.items())
    changes = [change for change in changes if change.path not in impossible]
    return Patch(
        base=base.tree.commit,
        changes=tuple(sorted(changes, key=lambda change: change.path)),
        refusals=tuple(sorted([*found.refusals, *refusals], key=lambda refusal: refusal.path)),
    )


async def _without_large_files(sandbox: Sandbox, base: Baseline, found: SortedFiles) -> SortedFiles:
    """Drop files over the size limit: unchanged ones silently, others with a refusal, without reading them."""
    entries = base.tree.entries()
    refusals = list(found.refusals)
    for record in found.files:
        if record.size <= FILE_BYTES:
            continue
        same = _same_size(record, entries) and await _hash_inside(sandbox, record) == entries[record.path].oid
        if not same:
            reason = f"{record.size:,} bytes; the limit for a file is {FILE_BYTES:,}"
            refusals.append(RefusedFile(path=escaped(record.path), reason=reason))
    files = tuple(record for record in found.files if record.size <= FILE_BYTES)
    return SortedFiles(files, tuple(refusals), found.refused)


def _same_size(record: ListedFile, entries: Mapping[str, TreeEntry]) -> bool:
    return record.path in entries and entries[record.path].size == record.size


async def _hash_inside(sandbox: Sandbox, record: ListedFile) -> str:
    """The blob id of a file that is too large to read."""
    script = 'exec 2> /dev/null; { printf "blob %s\\0" "$1"; /bin/cat -- "$2"; } | /usr/bin/sha1sum'
    argv = ["/bin/sh", "-c", script, "sh", str(record.size), f"./{record.path}"]
    done = await sandbox.exec(argv, timeout=HASH_SECONDS)
    return done.output.decode(errors="replace").partition(" ")[0]


async def _changed(
    sandbox: Sandbox, base: Baseline, records: Sequence[ListedFile]
) -> tuple[list[FileChange], list[RefusedFile], int]:
    """Of the written files, those that differ from the base commit, and their total size."""
    entries = base.tree.entries()
    changes: list[FileChange] = []
    refusals = []
    total = 0
    for batch in _batches(records):
        read = await read_files(sandbox, [one.path for one in batch], max_bytes=sum(one.size for one in batch))
        for record in batch:
            item = read.get(record.path)
            if item is not None and _same(item, entries.get(record.path)):
                continue
            problem = name_problem(record.path)
            if item is None or problem:
                refusals.append(RefusedFile(path=escaped(record.path), reason=problem or "could not be read"))
            else:
                changes.append(FileChange(path=record.path, mode=item.mode, content=item.content))
                total += len(item.content)
        if total > TOTAL_BYTES:
            break
    return changes, refusals, total


def _batches(records: Sequence[ListedFile]) -> Iterable[list[ListedFile]]:
    batch: list[ListedFile] = []
    size = 0
    for record in records:
        if batch and size + record.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record.size
    if batch:
        yield batch


def _same(item: ArchiveItem, entry: TreeEntry | None) -> bool:
    blob = b"blob %d\0" % len(item.content) + item.content
    return (
        entry is not None
        and entry.mode == item.mode
        and entry.oid == hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    )
