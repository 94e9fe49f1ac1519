"""Verification of a resolved merge: it is compared with the branch as it was before."""

import textwrap
from collections.abc import Callable

from tests.support.sandbox_projects import patch_of
from tests.support.verifier_trial import (
    FIXED,
    NEW_TEST,
    REPRODUCTION,
    UNITTEST,
    Trial,
)

BEFORE = textwrap.dedent(UNITTEST["money.py"])
MARKED = f"<<<<<<< branch\n{BEFORE}=======\nZERO = 0\n>>>>>>> main\n"


async def test_a_resolved_merge_is_compared_with_the_branch_before_it(trial: Callable[..., Trial]) -> None:
    """On the merge itself nothing can be run: its markers are no code."""
    before = patch_of({"money.py": BEFORE})
    settings = {"conflicts": ("money.py",), "find_before": lambda: before, "wants_red": False}
    subject = trial(UNITTEST | {"money.py": MARKED}, **settings)
    known = await subject.verifier.baseline()
    assert "2 passed, 1 failed" in known.brief
    resolved = await subject.verify({"money.py": f"{BEFORE}\nZERO = 0\n"}, known=known)
    assert resolved.verdict == "tested"
    wrong = await subject.verify({"money.py": f"{BEFORE}\nZERO = 0\n".replace("a + a", "a")}, known=known)
    assert wrong.verdict == "broken"
    assert "tests.test_money.TestMoney.test_twice" in wrong.reasons[0]


async def test_a_reproduction_of_a_merge_runs_on_the_branch_before_it(trial: Callable[..., Trial]) -> None:
    before = patch_of({"money.py": BEFORE})
    subject = trial(UNITTEST | {"money.py": MARKED}, conflicts=("money.py",), find_before=lambda: before)
    found = await subject.verify({"money.py": FIXED, "tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert "The agent's own test fails on the base and passes on the change." in found.reasons


async def test_nothing_is_run_while_a_conflict_is_left(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST | {"money.py": MARKED}, conflicts=("money.py",))
    known = await subject.verifier.baseline()
    opened = len(subject.workspaces.opened)
    found = await subject.verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert found.reasons == ("conflicts: money.py:1: contains a conflict marker.",)
    assert len(subject.workspaces.opened) == opened
