"""Writes a patch as a unified diff for `git apply`, for people who only have the change's file."""

from datetime import UTC, datetime

from app.core.patch import Patch
from app.core.task import Person
from app.repo.git_command import LONG_TIMEOUT, Git
from app.repo.git_store import GitStore

_AUTHOR = Person(name="nobody", email="nobody@invalid")
_ANY_DATE = datetime(2000, 1, 1, tzinfo=UTC)


def unified_diff(store: GitStore, patch: Patch, *, base: str = "") -> bytes:
    """The unified diff from the patch's own base, or from another commit of the store; includes binary files.

    Raises GitError if git refuses the patch.
    """
    commit = store.commit(patch, message="A change\n", author=_AUTHOR, date=_ANY_DATE)
    words = ("-r", "-p", "--binary", "--full-index", "-M", "--no-color", "--no-ext-diff", "--no-textconv")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    return Git(f"--git-dir={store.path}")(
        "diff-tree", *words, *prefixes, base or patch.base, commit, timeout=LONG_TIMEOUT
    )
