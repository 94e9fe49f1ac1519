"""Restores a work tree from a patch: every relevant path equals base plus patch afterwards."""

from collections.abc import Sequence

from app.core.errors import SandboxError
from app.core.patch import Mode, Patch
from app.core.tree import TreeEntry
from app.sandbox.archive import ArchiveItem, write_files
from app.sandbox.base import Sandbox
from app.sandbox.baseline import Baseline, changes_against, removed_paths
from app.sandbox.listing import TreeChanges
from app.sandbox.refusals import sort_files

ROUNDS = 32
"""How many nested unreadable directories are opened."""
SECONDS = 120.0
# Directories without write permission would protect their contents. Paths are removed by name first; then parents that
# are empty now and not in the base.
REMOVE = r"""
exec 2> /dev/null
/usr/bin/find . -type d ! -perm -u=rwx -exec /bin/chmod u+rwx {} +
exec /usr/bin/xargs -0 -r /bin/rm -rf --
"""
REMOVE_EMPTY = r"exec 2> /dev/null; /usr/bin/xargs -0 -r /bin/rmdir -p --ignore-fail-on-non-empty --; exit 0"


async def restore(sandbox: Sandbox, base: Baseline, patch: Patch) -> None:
    """Make every path that is not ignored equal to base plus patch. Ignored files stay."""
    seen = await _readable(sandbox, base)
    entries = base.tree.entries()
    found = sort_files(seen.fresh, entries, base.ignored)
    wanted = {change.path: change for change in patch.changes}
    wrong = {*(record.path for record in found.files), *found.refused, *removed_paths(base, seen), *wanted}
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
    names = b"".join(f"./{path}".encode("utf-8", "surrogateescape") + b"\0" for path in paths)
    if names:
        await sandbox.exec(["/bin/sh", "-c", script], stdin=names, timeout=SECONDS)
