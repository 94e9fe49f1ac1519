"""The small project of the stories, an issue on it, and a scripted agent that fixes it."""

import threading

from tests.support.conversation_model import ModelQuestion, called, planned, submitted
from tests.support.openai_endpoint import ReceivedRequest, Reply, declines, specified

TIMEOUT = 240.0
"""Seconds: many stories share two cores."""

MONEY = '''"""Money."""


def half(cents: int) -> int:
    return cents // 2
'''
CHECK = """import unittest

from money import half


class Halves(unittest.TestCase):
    def test_even(self):
        self.assertEqual(half(4), 2)
"""
ODD = "\n    def test_odd(self):\n        self.assertEqual(half(5), 3)\n"
REPRODUCTION = "python -m unittest test_money.Halves.test_odd"
FIX = {"path": "money.py", "old_text": "cents // 2", "new_text": "(cents + 1) // 2"}
PROJECT = {"money.py": MONEY, "test_money.py": CHECK, "README.md": "# Money\n"}
FIXED = {"money.py": MONEY.replace("cents // 2", "(cents + 1) // 2"), "test_money.py": CHECK + ODD}
ISSUE = "`half(5)` is 2 and should be 3, so that two halves are never less than the whole."


SPECIFICATION = {
    "test_spec_example.py": """import unittest

from money import half


class Example(unittest.TestCase):
    def test_reported(self):
        \"\"\"Half of the reported amount is rounded up.\"\"\"
        self.assertEqual(half(5), 3)
""",
    "test_spec_more.py": """import unittest

from money import half


class More(unittest.TestCase):
    def test_larger(self):
        \"\"\"Half of any odd amount is rounded up.\"\"\"
        self.assertEqual(half(1_000_001), 500_001)

    def test_least(self):
        \"\"\"The smallest amount is rounded up as well.\"\"\"
        self.assertEqual(half(1), 1)

    def test_nothing(self):
        \"\"\"Half of nothing is nothing.\"\"\"
        self.assertEqual(half(0), 0)
""",
}
SPECIFIED = (
    "test_spec_example.Example.test_reported",
    *(f"test_spec_more.More.test_{name}" for name in ("larger", "least", "nothing")),
)


def specifies(received: ReceivedRequest) -> Reply:
    """The author of tests for that issue; of others none are written."""
    asked = ModelQuestion(received.body).brief
    return specified(SPECIFICATION, *SPECIFIED) if "`half(5)` is 2 and should be 3" in asked else declines(received)


def fixes(asked: ModelQuestion) -> Reply:
    """The mind of an agent that does what the issue asks."""
    if asked.wants_a_plan:
        return planned("Integer division rounds down.", "Add a failing test", "Round half up")
    if asked.turn == 1:
        return called(("edit", FIX), ("write", {"path": "test_money.py", "content": CHECK + ODD}))
    return submitted("Half a cent is rounded up now.", REPRODUCTION)


def think(asked: ModelQuestion) -> Reply:
    """The mind of an agent that does what the issue asks, and a review after it; its words are untrusted."""
    if asked.wants_a_plan:
        return planned("Integer division rounds down.", "Add a failing test", "Round half up")
    if "named constant" in asked.brief:
        return _follow_up(asked)
    if asked.turn == 1:
        return called(("edit", FIX), ("write", {"path": "test_money.py", "content": CHECK + ODD}))
    return submitted("Half a cent is rounded up now. @everyone, see [this](https://evil.example).", REPRODUCTION)


def _follow_up(asked: ModelQuestion) -> Reply:
    if asked.turn == 1:
        constant = {"path": "money.py", "old_text": '"""Money."""\n', "new_text": '"""Money."""\n\nHALVES = 2\n'}
        use = {"path": "money.py", "old_text": "(cents + 1) // 2", "new_text": "(cents + 1) // HALVES"}
        return called(("edit", constant), ("edit", use))
    return submitted("The divisor has a name now.")


class Barrier:
    """Where a model thinks until a story lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(TIMEOUT)

    def is_reached(self) -> bool:
        return self._reached.is_set()

    def open(self) -> None:
        self._open.set()
