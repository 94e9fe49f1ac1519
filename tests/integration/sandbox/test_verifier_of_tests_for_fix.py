"""Verification of tests for a fix that the base already has."""

import textwrap
from collections.abc import Callable

import pytest

from app.verify.feedback import feedback
from app.verify.project import FixUnderTest, RevertedFix
from tests.support.sandbox_projects import patch_of
from tests.support.verifier_trial import (
    FIXED,
    NEW_TEST,
    REPRODUCTION,
    UNITTEST,
    Trial,
)

GUARDED = {**UNITTEST, "money.py": UNITTEST["money.py"].replace("a - b", "a + b")}
FIX = "f" * 40


def reverted_fix(content: str = UNITTEST["money.py"]) -> FixUnderTest:
    return FixUnderTest(FIX, lambda: RevertedFix(patch_of({"money.py": textwrap.dedent(content)})))


async def test_tests_that_fail_without_the_fix_are_tested(trial: Callable[..., Trial]) -> None:
    found = await trial(GUARDED, guarded=reverted_fix()).verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert "The agent's own test fails on the base without ffffffffff and passes on the change." in found.reasons
    assert found.reproduction is not None
    assert found.reproduction.without == FIX
    assert found.reproduction.base is not None
    assert "AssertionError: -1 != 3" in found.reproduction.base.excerpt


async def test_tests_that_pass_without_the_fix_show_nothing(trial: Callable[..., Trial]) -> None:
    useless = NEW_TEST.replace("money.add(1, 2), 3", "money.add(1, 0), 1")
    found = await trial(GUARDED, guarded=reverted_fix()).verify({"tests/test_add.py": useless}, REPRODUCTION)
    assert found.verdict == "unproved"
    assert "The agent's own test already passes on the base without ffffffffff, so it shows nothing." in found.reasons


async def test_tests_that_need_a_name_of_the_fix_show_nothing(trial: Callable[..., Trial]) -> None:
    named = "import unittest\nfrom money import twice\n\nclass T(unittest.TestCase):\n    def test_it(self): twice(1)\n"
    without = reverted_fix("def add(a, b):\n    return a - b\n")
    found = await trial(GUARDED, guarded=without).verify({"tests/test_add.py": named}, REPRODUCTION)
    assert found.verdict == "unproved"
    assert found.reproduction is not None
    assert found.reproduction.on_base == "was_not_there"


@pytest.mark.parametrize(
    ("guarded", "said"),
    [
        (FixUnderTest(), "No fix is known"),
        (
            FixUnderTest(FIX, lambda: RevertedFix(None, "it is the first commit of its repository")),
            "The fix ffffffffff cannot be reverted: it is the first commit of its repository.",
        ),
    ],
)
async def test_without_a_fix_tests_are_tested_at_most(
    trial: Callable[..., Trial], guarded: FixUnderTest, said: str
) -> None:
    subject = trial(GUARDED, guarded=guarded)
    found = await subject.verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert (found.reproduction.on_base, found.reproduction.on_head) == ("not_run", "green")
    assert said in found.reproduction.note
    assert "reproduction-base" not in subject.workspaces.opened


async def test_tests_that_fail_as_it_is_are_broken(trial: Callable[..., Trial]) -> None:
    wrong = NEW_TEST.replace("3)", "4)")
    found = await trial(GUARDED, guarded=FixUnderTest()).verify({"tests/test_add.py": wrong}, REPRODUCTION)
    assert found.verdict == "broken"


async def test_a_job_that_writes_tests_cannot_change_sources(trial: Callable[..., Trial]) -> None:
    subject = trial(GUARDED, guarded=reverted_fix())
    found = await subject.verify({"tests/test_add.py": NEW_TEST, "money.py": FIXED + "\n"}, REPRODUCTION)
    assert found.verdict == "broken"
    assert "tests alone: money.py: is not a test" in found.reasons[0]
    assert "→ Put these back with `restore`" in feedback(found)
    assert not any(name.startswith("reproduction") for name in subject.workspaces.opened)
