"""A project of two modules with a bug in one of them, the issue about it, and answers that fix it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.recorded_answers import RecordedAnswers, bash, edit, view
from tests.support.repositories import make_repository
from tests.support.written_examples import example

FILES: Mapping[str, str] = {
    "README.md": "# wallet\n\nShares sums among people.\n",
    "wallet/__init__.py": '"""Sums of money, in cents."""\n',
    "wallet/shares.py": (
        '"""Shares a sum."""\n\n\ndef split(total, people):\n    share = total // people\n    return [share] * people\n'
    ),
    "wallet/bill.py": (
        '"""What each has to pay."""\n\nfrom wallet.shares import split\n\n\n'
        "def bill(total, names):\n    return dict(zip(names, split(total, len(names)), strict=True))\n"
    ),
    "tests/__init__.py": "",
    "tests/test_shares.py": (
        "import unittest\n\nfrom wallet.shares import split\n\n\n"
        "class SplitTest(unittest.TestCase):\n"
        "    def test_even(self):\n        self.assertEqual(split(100, 4), [25, 25, 25, 25])\n\n"
        "    def test_alone(self):\n        self.assertEqual(split(7, 1), [7])\n"
    ),
}
ISSUE = """# Splitting a bill loses cents

`split(100, 3)` gives `[33, 33, 33]`: one cent is lost.
The shares must sum up to the total; the first people pay the extra cents.
"""
BRANCH = "agent-fix/splitting-a-bill-loses-cents"
SOURCE, TEST = "wallet/shares.py", "tests/test_shares.py"
WRONG = "    return [share] * people\n"
RIGHT = "    extra = total - share * people\n    return [share + 1] * extra + [share] * (people - extra)\n"
FIX = edit(SOURCE, WRONG, RIGHT)
NEW_TEST = "\n    def test_remainder(self):\n        self.assertEqual(split(100, 3), [34, 33, 33])\n"
ADD_TEST = edit(TEST, "split(7, 1), [7])\n", f"split(7, 1), [7])\n{NEW_TEST}")
REPRODUCTION = "python3 -m unittest tests.test_shares.SplitTest.test_remainder"
SUMMARY = "The remainder of the division was dropped; the first people now pay one cent more each."


_QUOTE = "The shares must sum up to the total; the first people pay the extra cents."
_SPLIT, _BILL = "from wallet.shares import split", "from wallet.bill import bill"
EXAMPLES = (
    example("split(100, 3)", "[34, 33, 33]", "The reported sum is shared without losing a cent.", _QUOTE, _SPLIT),
    example("split(1111, 4)", "[278, 278, 278, 277]", "The first people pay one cent more each.", _QUOTE, _SPLIT),
    example(
        'sorted(bill(575, ["ann", "bob"]).items())',
        "[('ann', 288), ('bob', 287)]",
        "What each has to pay comes to the total.",
        _QUOTE,
        _BILL,
    ),
    example("split(0, 2)", "[0, 0]", "Of nothing everybody has nothing.", imports=_SPLIT),
)
COUNTER = (
    example("split(2, 3)", "[1, 1, 0]", "More people than cents get a cent each until none is left.", _QUOTE, _SPLIT),
    example("split(-100, 2)", "[-50, -50]", "A debt that can be shared evenly is shared evenly.", imports=_SPLIT),
)
"""The reviewer's."""


def make_wallet(path: Path, more: Mapping[str, str | bytes] | None = None) -> Path:
    return make_repository(path, {**FILES, **(more or {})})


def planned(examples: Sequence[Mapping[str, object]] = EXAMPLES) -> RecordedAnswers:
    """A recording that begins with a plan and its examples."""
    return RecordedAnswers().plan(
        "The remainder of the division is dropped.",
        examples=examples,
        files=[SOURCE],
        steps=["Add a failing test.", "Give the remainder to the first people.", "Run the suite."],
    )


def mended() -> RecordedAnswers:
    """The shortest way to a proved change."""
    return planned().turn("Mend it, and test it.", FIX, ADD_TEST).submit(SUMMARY, REPRODUCTION)


def worked_on() -> RecordedAnswers:
    """The same as a careful model does it."""
    return (
        planned()
        .turn("Let me look.", view(SOURCE), bash("ls && python3 -m unittest"))
        .turn("A failing test first.", ADD_TEST, bash(REPRODUCTION))
        .turn("Now the change.", FIX)
        .turn("The whole suite.", bash("python3 -m unittest"))
        .submit(SUMMARY, REPRODUCTION)
        .counter(*COUNTER)
    )
