"""What a work tree is compared with: the base commit's files, and the untracked paths to ignore."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.tree import Tree, TreeEntry
from app.sandbox.base import Sandbox
from app.sandbox.ignored_paths import LITTER_DIRECTORIES, Ignored, ignored_by
from app.sandbox.listing import TreeChanges, directories, find_changes

EXTRA_PRUNED = 1_000


@dataclass(frozen=True, slots=True)
class Baseline:
    """`besides` are paths of the set-up; `prune` are directory names that are not searched."""

    tree: Tree
    ignored: Ignored
    excluded: tuple[str, ...] = ()
    prune: tuple[str, ...] = ()


def baseline(tree: Tree, *, besides: Sequence[str] = ()) -> Baseline:
    """The ignore rules come from the base commit, so that an agent cannot change them. `besides` are
    SetupPlan.directories."""
    paths = tree.entries()
    rules = tree.read_many(path for path in paths if path.rpartition("/")[2] == ".gitignore")
    tracked = {name for path in paths for name in path.split("/")[:-1]}
    ignored = ignored_by(rules, besides)
    prune = tuple(sorted(name for name in LITTER_DIRECTORIES - tracked if ignored(f"{name}/x")))
    return Baseline(tree, ignored, tuple(besides), prune)


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
    not_listed = (*base.excluded, *(record.path for record in changes.fresh if record.kind == "d"))
    hidden = tuple(f"{path}/" for path in not_listed)
    return {
        path: entry
        for path, entry in base.tree.entries().items()
        if path not in changes.present and not path.startswith(hidden) and path not in base.excluded
    }
