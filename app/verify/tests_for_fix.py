"""Checks tests for a fix that is in the base already, with the fix reverted, and describes how tests are written."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.patch import Patch, Tree
from app.core.task import Person
from app.core.verification import Reproduction
from app.repo.git_command import GitError
from app.repo.git_store import GitStore
from app.repo.merge import merge
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.overlay import Overlay, difference
from app.verify.reproduction import BorrowSandbox, ReproductionSubject, reproduce, reproduce_on_head
from app.verify.test_paths import is_test_file, is_test_path

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


UNKNOWN = (
    "No fix is known that could be reverted, so nothing shows that these tests fail without it: "
    "they only pass on the current code."
)


@dataclass(frozen=True)
class FixUnderTest:
    """What the tests of this task must guard; without a commit, just the code as it is."""

    commit: str = ""
    find: Callable[[], RevertedFix] | None = None
    """Finds the patch that removes the fix. Blocking."""

    @cached_property
    def taken(self) -> RevertedFix | None:
        """The patch that removes the fix from the base; None if no fix is known."""
        return self.find() if self.find else None


async def check_tests_for_fix(
    subject: ReproductionSubject,
    patch: Patch,
    tree: Tree,
    borrow: BorrowSandbox,
    guarded: FixUnderTest,
    *,
    timeout: float,
    failing_before: frozenset[str] = frozenset(),
) -> Reproduction:
    """Run on the base without the fix, and on the head; on the head alone if there is no fix to revert."""
    taken = await asyncio.to_thread(lambda: guarded.taken)
    if taken is None or taken.patch is None:
        found = await reproduce_on_head(subject, patch, tree, borrow, timeout=timeout)
        note = UNKNOWN if taken is None else f"The fix {guarded.commit[:10]} cannot be reverted: {taken.reason}."
        return found.model_copy(update={"note": f"{found.note} {note}".strip()})
    without = Overlay(tree, taken.patch)
    found = await reproduce(
        subject, patch, without, borrow, timeout=timeout, failing_before=failing_before, reference_patch=taken.patch
    )
    return found.model_copy(update={"without": guarded.commit})


MAX_LISTED = 15
_IDS: dict[FrameworkName, str] = {
    "pytest": "`path/test_x.py::test_name`, or `path/test_x.py::TestClass::test_name`",
    "unittest": "`package.test_x.TestClass.test_name`, as `python -m unittest` takes them",
    "node": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "jest": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "vitest": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "mocha": "`path/x.js::suite title`, all titles with spaces between them",
    "go": "`module/package::TestName`, the package by its import path",
    "cargo": "`tests/x.rs::name`; only integration tests, in `tests/`",
}


def test_layout(tree: Tree, suite: SuiteCommand) -> str:
    """A few lines; paths are from the top of the repository."""
    files = sorted(path for path in tree.entries() if is_test_file(path))
    directories = Counter(str(PurePosixPath(path).parent) for path in files)
    lines = [f"The suite is executed with: {suite.command}", f"Ids of tests: {_IDS.get(suite.framework, 'none')}"]
    if suite.directory:
        lines.append(f"The project stands in {suite.directory}/.")
    if files:
        found = ", ".join(f"{directory}/ ({count})" for directory, count in directories.most_common(MAX_LISTED))
        lines += [f"Test files by directory: {found}", f"Some of them: {', '.join(files[:MAX_LISTED])}"]
    else:
        lines.append("There are no test files yet.")
    return "\n".join(lines)
