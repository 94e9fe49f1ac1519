"""A project of two modules with a bug in one of them, the issue about it, and answers that fix it."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.recorded_answers import RecordedAnswers, bash, edit, view
from tests.support.repositories import make_repository

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


SPECIFICATION: Mapping[str, str] = {
    "tests/test_spec_example.py": (
        "import unittest\n\nfrom wallet.shares import split\n\n\n"
        "class Example(unittest.TestCase):\n"
        "    def test_reported(self):\n"
        '        """The reported sum is shared without losing a cent."""\n'
        "        self.assertEqual(split(100, 3), [34, 33, 33])\n"
    ),
    "tests/test_spec_more.py": (
        "import unittest\n\nfrom wallet.bill import bill\nfrom wallet.shares import split\n\n\n"
        "class More(unittest.TestCase):\n"
        "    def test_several_cents(self):\n"
        '        """The first people pay one cent more each."""\n'
        "        self.assertEqual(split(11, 4), [3, 3, 3, 2])\n\n"
        "    def test_bill(self):\n"
        '        """What each has to pay comes to the total."""\n'
        '        self.assertEqual(bill(5, ["a", "b"]), {"a": 3, "b": 2})\n\n'
        "    def test_nothing(self):\n"
        '        """Of nothing everybody has nothing."""\n'
        "        self.assertEqual(split(0, 2), [0, 0])\n"
    ),
}
SPECIFIED = (
    "tests.test_spec_example.Example.test_reported",
    *(f"tests.test_spec_more.More.test_{name}" for name in ("several_cents", "bill", "nothing")),
)


SECOND_TESTS: Mapping[str, str] = {
    "tests/test_change.py": (
        "import unittest\n\nfrom wallet.shares import split\n\n\n"
        "class Change(unittest.TestCase):\n"
        "    def test_more_people(self):\n"
        '        """More people than cents get a cent each until none is left."""\n'
        "        self.assertEqual(split(2, 3), [1, 1, 0])\n\n"
        "    def test_debt(self):\n"
        '        """A debt that can be shared evenly is shared evenly."""\n'
        "        self.assertEqual(split(-100, 2), [-50, -50])\n"
    ),
}
"""The second author's."""


def make_wallet(path: Path, more: Mapping[str, str | bytes] | None = None) -> Path:
    return make_repository(path, {**FILES, **(more or {})})


def planned() -> RecordedAnswers:
    """A recording that begins with a plan and with independent tests."""
    planned = RecordedAnswers().plan(
        "The remainder of the division is dropped.",
        hypotheses=["Integer division in split()."],
        candidate_files=[SOURCE],
        steps=["Add a failing test.", "Give the remainder to the first people.", "Run the suite."],
        reproduce=REPRODUCTION,
        verify="python3 -m unittest",
    )
    return planned.specify(SPECIFICATION, *SPECIFIED)


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
        .test_change(SECOND_TESTS, "tests.test_change.Change.test_more_people", "tests.test_change.Change.test_debt")
    )
