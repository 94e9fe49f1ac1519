"""The small project of the stories, an issue on it, and a scripted agent that fixes it."""

import threading

from tests.support.conversation_model import ModelQuestion, called, planned, submitted
from tests.support.openai_endpoint import Reply
from tests.support.written_examples import example

TIMEOUT = 400.0
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


_QUOTE = "two halves are never less than the whole"
_IMPORTS = "from money import half"
EXAMPLES = (
    example("half(5)", "3", "Half of the reported amount is rounded up.", _QUOTE, _IMPORTS),
    example("half(1_000_001)", "500001", "Half of any odd amount is rounded up.", _QUOTE, _IMPORTS),
    example("half(357)", "179", "So is half of an amount of three digits.", _QUOTE, _IMPORTS),
    example("half(2468)", "1234", "Half of an even amount stays.", imports=_IMPORTS),
)


def fixes(asked: ModelQuestion) -> Reply:
    """The mind of an agent that does what the issue asks."""
    if asked.wants_a_plan:
        return planned("Integer division rounds down.", "Add a failing test", "Round half up", examples=EXAMPLES)
    if asked.turn == 1:
        return called(("edit", FIX), ("write", {"path": "test_money.py", "content": CHECK + ODD}))
    return submitted("Half a cent is rounded up now.", REPRODUCTION)


def think(asked: ModelQuestion) -> Reply:
    """The mind of an agent that does what the issue asks, and a review after it; its words are untrusted."""
    if asked.wants_a_plan:
        return planned("Integer division rounds down.", "Add a failing test", "Round half up", examples=EXAMPLES)
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
