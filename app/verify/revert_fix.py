"""Reverts a fix on its base, so that new tests for that fix have something to fail on."""

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.patch import Patch
from app.core.task import Person
from app.repo.git_command import GitError
from app.repo.git_store import GitStore
from app.repo.merge import merge
from app.verify.overlay import difference
from app.verify.test_paths import is_test_path

NOBODY = Person(name="agent-fix", email="agent-fix@users.noreply.invalid")
_NEVER = datetime(2000, 1, 1, tzinfo=UTC)
_PROSE = frozenset({".md", ".rst", ".txt", ".adoc", ""})
"""Files whose conflicts are only about words: they stay as in the base. Changelogs always conflict."""
MAX_NAMED_CONFLICTS = 3


class RevertedFix(NamedTuple):
    """The patch that removes the fix from the base; or why there is none, as the end of a sentence."""

    patch: Patch | None
    reason: str = ""


def revert_fix(store: GitStore, base: str, fix: str) -> RevertedFix:
    """Revert a commit on a base, except for its tests. Both, and the fix's first parent, are in the store. Blocking.

    Later changes elsewhere are kept: this is a merge of the fix's parent, with the fix as the merge base.
    """
    before = store.parents(fix)
    if not before:
        return RevertedFix(None, "it is the first commit of its repository")
    try:
        merged = merge(
            store, base=fix, ours=base, theirs=before[0], identity=NOBODY, date=_NEVER, message="Without the fix\n"
        )
    except GitError as error:
        return RevertedFix(None, str(error))
    open_paths = [path for path in merged.paths if not is_test_path(path)]
    code = [path for path in open_paths if PurePosixPath(path).suffix not in _PROSE]
    if code:
        return RevertedFix(None, f"its lines were changed again later ({', '.join(code[:MAX_NAMED_CONFLICTS])})")
    whole = difference(store.tree(base), store.tree(merged.commit))
    kept = tuple(each for each in whole.changes if each.path not in open_paths and not is_test_path(each.path))
    if not kept:
        return RevertedFix(None, "only its tests are left in the base")
    return RevertedFix(whole.model_copy(update={"changes": kept}))
