"""Checks tests for an existing fix: they must fail where the fix is reverted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from app.core.patch import Patch
from app.core.tree import Tree
from app.core.verification import Reproduction
from app.verify.overlay import Overlay
from app.verify.reproduction import BorrowSandbox, ReproductionSubject, reproduce, reproduce_on_head
from app.verify.revert_fix import RevertedFix

UNKNOWN = (
    "No fix is known that could be reverted, so nothing shows that these tests fail without it: "
    "they only pass on the current code."
)


@dataclass(frozen=True)
class FixUnderTest:
    """What the tests of this task must guard; without a commit, just the code as it is."""

    commit: str = ""
    find: Callable[[], RevertedFix] | None = None
    """Blocking."""

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
