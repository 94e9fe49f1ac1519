"""A patch as the unified diff that `git apply` takes, for people to whom it is all that is left of a change."""

from datetime import UTC, datetime

from app.core.patch import Patch
from app.core.task import Person
from app.repo.git_command import LONG, Git
from app.repo.git_store import GitStore

_NOBODY = Person(name="nobody", email="nobody@invalid")
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def unified_diff(store: GitStore, patch: Patch, *, base: str = "") -> bytes:
    """What the patch changes against its own base, or against another commit of the store; binary files are in it.

    GitError where git would not take the patch.
    """
    commit = store.commit(patch, message="A change\n", author=_NOBODY, date=_NO_TIME)
    words = ("-r", "-p", "--binary", "--full-index", "-M", "--no-color", "--no-ext-diff", "--no-textconv")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    return Git(f"--git-dir={store.path}")("diff-tree", *words, *prefixes, base or patch.base, commit, timeout=LONG)
