"""Exports a work tree as a patch: changes against the base commit, as bytes, with everything unusual refused.

Everything is done by commands inside the sandbox, so that it is the same for each kind of sandbox, and no host program
ever walks a tree that project code can write.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from app.core.patch import FileChange, Patch, RefusedFile
from app.core.tree import TreeEntry
from app.sandbox.archive import ArchiveItem, read_files
from app.sandbox.base import Sandbox
from app.sandbox.baseline import Baseline, baseline, changes_against, removed_paths
from app.sandbox.listing import ListedFile, TreeChanges
from app.sandbox.refusals import SortedFiles, escaped, name_problem, sort_files
from app.sandbox.restore import mode_of, restore

__all__ = ["Baseline", "baseline", "export", "restore"]

FILE_BYTES = 5 * 1024**2
TOTAL_BYTES = 50 * 1024**2
MAX_CHANGES = 10_000
TOUCHED_BYTES = 1024**3
BATCH_BYTES = 24 * 1024**2
HASH_SECONDS = 300.0


async def export(sandbox: Sandbox, base: Baseline) -> Patch:
    """The patch of the work tree against the base. Files that were not written since are not read."""
    changes_in_tree = await changes_against(sandbox, base)
    if changes_in_tree.overflow:
        return _refused(base, "the work tree has too many files to list")
    found = sort_files(changes_in_tree.fresh, base.tree.entries(), base.ignored)
    reason = _over_limits(base, found)
    if reason:
        return _refused(base, reason)
    found = await _without_large_files(sandbox, base, found)
    changes, refusals, total = await _changed(sandbox, base, found.files)
    if total > TOTAL_BYTES:
        return _refused(base, f"over {TOTAL_BYTES:,} bytes in changed files, which is the limit")
    deleted, refused_deletions = _deleted(base, changes_in_tree)
    return Patch(
        base=base.tree.commit,
        changes=tuple(sorted([*changes, *deleted], key=lambda change: change.path)),
        refusals=tuple(sorted([*found.refusals, *refusals, *refused_deletions], key=lambda refusal: refusal.path)),
    )


def _over_limits(base: Baseline, found: SortedFiles) -> str:
    entries = base.tree.entries()
    written = sum(record.size for record in found.files if record.size <= FILE_BYTES or _same_size(record, entries))
    if len(found.files) > MAX_CHANGES:
        return f"{len(found.files):,} files were written; the limit is {MAX_CHANGES:,}"
    if written > TOUCHED_BYTES:
        return f"{written:,} bytes in files that were written; the limit is {TOUCHED_BYTES:,}"
    return ""


def _refused(base: Baseline, reason: str) -> Patch:
    return Patch(base=base.tree.commit, refusals=(RefusedFile(path=".", reason=reason),))


def _deleted(base: Baseline, changes_in_tree: TreeChanges) -> tuple[list[FileChange], list[RefusedFile]]:
    changes, refusals = [], []
    for path, entry in removed_paths(base, changes_in_tree).items():
        problem = name_problem(path)
        if problem:
            refusals.append(RefusedFile(path=escaped(path), reason=problem))
        else:
            changes.append(FileChange(path=path, mode=mode_of(entry), content=None))
    return changes, refusals


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
