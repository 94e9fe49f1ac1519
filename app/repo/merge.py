"""Merges two commits over a common base in the trusted repository into one commit, with conflicts marked.

It uses plumbing with a temporary index and only the three commits' files: no history, no work tree, no merge driver,
and no attributes are obeyed. If two sides exclude each other, one is kept and the conflict is reported.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from app.core.scratch import scratch
from app.core.task import Person
from app.core.text import count
from app.repo.git_command import LONG_TIMEOUT, Git, GitError, git_message
from app.repo.git_format import (
    GITLINK,
    IndexStage,
    MergeSides,
    RemovedPaths,
    parse_batch,
    parse_removed,
    parse_stages,
    path_bytes,
    shown_path,
)
from app.repo.git_store import GitStore

_LINK = "120000"
_KINDS = {GITLINK: "a submodule", _LINK: "a symbolic link"}
KEEP_OURS_NOTE = "the branch's version is kept"


class MergeDecision(NamedTuple):
    """What a path becomes after the merge.

    `entry` is None if it is removed. `blobs` are to be merged line by line: base, ours, theirs, or only the latter two.
    A `reason` means a conflict.
    """

    entry: IndexStage | None
    reason: str = ""
    blobs: tuple[str, ...] = ()


def decide(sides: MergeSides) -> MergeDecision:
    """Prefer keeping work to losing it, and our side to theirs; report a conflict if that was a choice."""
    base, ours, theirs = sides
    if theirs in (ours, base) or ours == base:
        return MergeDecision(theirs if ours == base else ours)
    if ours is None:
        return MergeDecision(theirs, "deleted on the branch, changed on the other side: the changed version is kept")
    if theirs is None:
        return MergeDecision(ours, "changed on the branch, deleted on the other side: the changed version is kept")
    if _kind(ours) != _kind(theirs):
        return MergeDecision(ours, f"{_kind(ours)} on the branch, {_kind(theirs)} on the other side: {KEEP_OURS_NOTE}")
    if ours.mode in _KINDS:
        return MergeDecision(ours, f"{_kind(ours)} with different targets: {KEEP_OURS_NOTE}")
    return _files(base if base and _kind(base) == _kind(ours) else None, ours, theirs)


def _files(base: IndexStage | None, ours: IndexStage, theirs: IndexStage) -> MergeDecision:
    """Decide mode and content separately: one side may have changed the mode and the other the content."""
    reason = "" if base or ours.mode == theirs.mode else f"executable on one side only: {KEEP_OURS_NOTE}"
    mode = theirs.mode if base and ours.mode == base.mode else ours.mode
    if ours.oid == theirs.oid or (base and theirs.oid == base.oid):
        return MergeDecision(IndexStage(mode, ours.oid), reason)
    if base and ours.oid == base.oid:
        return MergeDecision(IndexStage(mode, theirs.oid), reason)
    blobs = (base.oid, ours.oid, theirs.oid) if base else (ours.oid, theirs.oid)
    return MergeDecision(IndexStage(mode, ours.oid), reason, blobs)


def _kind(stage: IndexStage) -> str:
    return _KINDS.get(stage.mode, "a file")


def follow_renames(
    entries: Mapping[str, IndexStage], unmerged: Mapping[str, MergeSides], ours: RemovedPaths, theirs: RemovedPaths
) -> tuple[dict[str, IndexStage], dict[str, MergeSides]]:
    """If one side renamed a file that the other changed, move the change to the new name.

    A new name that both sides use stays as it was.
    """
    merged, open_ = dict(entries), dict(unmerged)
    for path, sides in unmerged.items():
        renamed = (theirs if sides.theirs is None else ours).renamed
        there = merged.get(renamed.get(path, ""))
        if sides.base is None or there is None or (sides.ours is None) == (sides.theirs is None):
            continue
        del open_[path], merged[renamed[path]]
        open_[renamed[path]] = MergeSides(sides.base, sides.ours or there, sides.theirs or there)
    return merged, open_


def renamed_and_removed(ours: RemovedPaths, theirs: RemovedPaths) -> dict[str, str]:
    """New names of files that the other side deleted or renamed too: they are kept, with a reason to check them."""
    kept = "deleted on one side, renamed on the other: the renamed file is kept"
    reasons = {}
    for one, other in ((ours, theirs), (theirs, ours)):
        for old, new in one.renamed.items():
            if old in other.deleted:
                reasons[new] = kept
            elif other.renamed.get(old, new) != new:
                reasons[new] = (
                    f"renamed from {shown_path(old)} on one side, and to another name on the other: both are kept"
                )
    return reasons


def paths_that_are_also_folders(entries: Collection[str], ours: Collection[str]) -> tuple[str, ...]:
    """Paths to leave out because a name is both a file and a folder; never one of ours."""
    folders = {folder for path in entries for folder in _folders(path)}
    files = {path for path in entries if path in folders}
    kept = {path for path in files if path in ours}
    below = {path for path in entries if not kept.isdisjoint(_folders(path))} if kept else set()
    return tuple(sorted(below | (files - kept)))


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


MAX_MERGED_SIZE = 10_000_000
"""Bytes of a file that is still merged line by line."""
_MARKER = re.compile(rb"(?m)^(?:<{7}|\|{7}|>{7})(?: .*)?\r?$")


class SideNames(NamedTuple):
    """The names of the two sides in the conflict markers: branch names."""

    ours: str = "ours"
    theirs: str = "theirs"


OURS_AND_THEIRS = SideNames()


class MergeResult(NamedTuple):
    """A merge commit. Without conflicts it can be published as it is; otherwise it is the base for resolving them."""

    commit: str
    conflicts: tuple[str, ...]
    """A path and a short reason for each, by path."""
    paths: tuple[str, ...] = ()
    """The paths of these conflicts, as the commit's tree spells them; some may be missing from it."""


def merge(
    store: GitStore,
    *,
    base: str,
    ours: str,
    theirs: str,
    identity: Person,
    date: datetime,
    message: str,
    names: SideNames = OURS_AND_THEIRS,
) -> MergeResult:
    """Merge three commits of the store; the same arguments give the same commit, on any machine.

    The commit's parents are `ours` and `theirs`. A patch that resolves its conflicts is committed with the same parents
    (`GitStore.commit`), so that a commit with markers is never an ancestor. Raises GitError if a tree is one that git
    would not check out.
    """
    for commit in (base, ours, theirs):
        if not store.keeps(commit):
            raise GitError(f"{commit} is not in {store.path.name}, so it cannot be merged")
    tree, reasons = _MergeRun(store, names).tree(base, ours, theirs)
    commit = store.commit_tree(tree, (ours, theirs), message=message, author=identity, date=date)
    store.keep(commit)
    paths = tuple(sorted(reasons, key=path_bytes))
    return MergeResult(commit, tuple(f"{shown_path(path)}: {reasons[path]}" for path in paths), paths)


def markers_left(contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """The remaining conflict markers, as `path:line`, the first of each file.

    A line of seven `=` alone does not count: it underlines headings more often than it is left behind.
    """
    found = ((path, content, _MARKER.search(content)) for path, content in contents.items())
    return tuple(
        f"{shown_path(path)}:{content.count(10, 0, match.start()) + 1}" for path, content, match in found if match
    )


class _MergeRun:
    """The state of one merge."""

    def __init__(self, store: GitStore, names: SideNames) -> None:
        self._store = store
        self._names = names
        self._git = Git(f"--git-dir={store.path}")

    def tree(self, base: str, ours: str, theirs: str) -> tuple[str, dict[str, str]]:
        """The merged tree's id, and the conflicts' reasons by path."""
        entries, unmerged = self._read(base, ours, theirs)
        removed = self._removed(base, ours), self._removed(base, theirs)
        entries, unmerged = follow_renames(entries, unmerged, *removed)
        decided = {path: decide(sides) for path, sides in unmerged.items()}
        entries |= {path: each.entry for path, each in decided.items() if each.entry is not None}
        reasons = renamed_and_removed(*removed) | {path: each.reason for path, each in decided.items() if each.reason}
        contents = self._contents(decided, reasons)
        blobs = self._store.write_blobs(contents)
        entries |= {path: IndexStage(entries[path].mode, blob) for path, blob in blobs.items()}
        for path in paths_that_are_also_folders(entries, self._store.tree(ours).entries()):
            del entries[path]
            reasons[path] = "left out: a folder on one side, a file on the other"
        return self._write(entries), reasons

    def _read(self, base: str, ours: str, theirs: str) -> tuple[dict[str, IndexStage], dict[str, MergeSides]]:
        """Split the paths into those that git can merge by comparing whole files, and the others."""
        with scratch("merge") as place:
            env = {"GIT_INDEX_FILE": f"{place}/index"}
            self._git("read-tree", "-i", "-m", "--aggressive", base, ours, theirs, env=env, timeout=LONG_TIMEOUT)
            return parse_stages(self._git("ls-files", "-s", "-z", env=env))

    def _write(self, entries: Mapping[str, IndexStage]) -> str:
        lines = [f"{each.mode} {each.oid}\t".encode() + path_bytes(path) + b"\0" for path, each in entries.items()]
        with scratch("merge") as place:
            env = {"GIT_INDEX_FILE": f"{place}/index"}
            self._git("update-index", "-z", "--index-info", stdin=b"".join(lines), env=env, timeout=LONG_TIMEOUT)
            return self._git("write-tree", env=env).decode("ascii").strip()

    def _removed(self, base: str, side: str) -> RemovedPaths:
        words = ("-r", "-z", "-M", "--diff-filter=DR", "--name-status", "--no-ext-diff", "--no-textconv")
        return parse_removed(self._git("diff-tree", *words, base, side, timeout=LONG_TIMEOUT))

    def _contents(self, decided: Mapping[str, MergeDecision], reasons: dict[str, str]) -> dict[str, bytes]:
        """The merged contents of the files that both sides changed; adds a reason for each conflict."""
        merged = {}
        wanted_blobs = {path: each.blobs for path, each in decided.items() if each.blobs}
        blob_ids = sorted({blob for blobs in wanted_blobs.values() for blob in blobs})
        request = "".join(f"{blob}\n" for blob in blob_ids).encode()
        output = self._git("cat-file", "--batch-check=%(objectsize)", stdin=request)
        sizes = dict(zip(blob_ids, map(int, output.split()), strict=True))
        for path, blobs in wanted_blobs.items():
            if max(sizes[blob] for blob in blobs) > MAX_MERGED_SIZE:
                reasons[path] = f"too large to merge, and changed on both sides: {KEEP_OURS_NOTE}"
                continue
            merged[path], reason = self._merge_file(*self._read_blobs(blobs))
            if reason:
                reasons[path] = reason
        return merged

    def _merge_file(self, base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, str]:
        """The merged content, and why it conflicts. A file is binary if git says so: a NUL near the beginning."""
        if any(b"\0" in content[:8_000] for content in (base, ours, theirs)):
            return ours, f"binary, and changed on both sides: {KEEP_OURS_NOTE}"
        labels = ("-L", self._names.ours, "-L", "base", "-L", self._names.theirs)
        with scratch("merge") as place:
            files = [Path(place, name) for name in ("ours", "base", "theirs")]
            for file, content in zip(files, (ours, base, theirs), strict=True):
                file.write_bytes(content)
            style = ("--diff3",) if base else ()  # without a base, diff3 would mark the whole file
            places, content, error = self._git.attempt("merge-file", "-p", "-q", *style, *labels, *map(str, files))
        if not 0 <= places <= 127:
            return ours, f"git cannot merge it ({git_message(error)}): {KEEP_OURS_NOTE}"
        return content, f"both sides changed the same lines, in {count(places, 'place')}" if places else ""

    def _read_blobs(self, blobs: Sequence[str]) -> tuple[bytes, ...]:
        """Base, ours and theirs; the base is empty if both sides added the file."""
        found = parse_batch(self._git("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs).encode()))
        return (b"", *found) if len(blobs) == 2 else tuple(found)
