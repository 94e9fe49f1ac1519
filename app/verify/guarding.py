"""Tests for a fix that is there already: their proof is that they fail where the fix is taken back."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from app.patch import Patch
from app.tree import Tree
from app.verify.facts import Reproduction
from app.verify.overlay import Overlay
from app.verify.reproduction import Borrow, Subject, reproduce, reproduce_on_head
from app.verify.taken_back import TakenBack

UNKNOWN = (
    "No fix is known that could be taken back, so nothing shows that these tests would fail without one: "
    "they only pass with the code as it is."
)


@dataclass(frozen=True)
class Guarded:
    """What the tests of this task are to guard; without a commit, just the code as it is."""

    commit: str = ""
    find: Callable[[], TakenBack] | None = None
    """Blocking, and asked once for each reproduction."""


async def guard(
    subject: Subject,
    patch: Patch,
    tree: Tree,
    borrow: Borrow,
    guarded: Guarded,
    *,
    timeout: float,
    failing_before: frozenset[str] = frozenset(),
) -> Reproduction:
    """Run on the base without the fix, and on the head; on the head alone where there is no fix to take back."""
    taken = await asyncio.to_thread(guarded.find) if guarded.find else None
    if taken is None or taken.patch is None:
        found = await reproduce_on_head(subject, patch, tree, borrow, timeout=timeout)
        note = UNKNOWN if taken is None else f"The fix {guarded.commit[:10]} cannot be taken back: {taken.reason}."
        return found.model_copy(update={"note": f"{found.note} {note}".strip()})
    without = Overlay(tree, taken.patch)
    found = await reproduce(
        subject, patch, without, borrow, timeout=timeout, failing_before=failing_before, beneath=taken.patch
    )
    return found.model_copy(update={"without": guarded.commit})
