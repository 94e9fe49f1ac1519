"""Pure rules for paths that both sides of a merge changed; no git and no file contents."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from app.repo.git_format import GITLINK, IndexStage, MergeSides, RemovedPaths, shown_path

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
