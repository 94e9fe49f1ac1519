"""Altered copies of Python tests fail, and what needs no framework is called without it."""

import ast
from random import Random

import pytest

from app.verify.launcher.python_copies import FunctionLocation, PythonCopies
from app.verify.launcher.replay_text import ReplayedTests, needs_own_file, replayed

EITHER = """\
def test_either():
    try:
        found = list(refused())
    except ValueError:
        return
    assert found == []
"""
MIXED = '''\
"""Nothing is skipped; no fixture, no __name__, no __file__ is needed."""
import logging
from unittest import TestCase, skip

import pytest

log = logging.getLogger(__name__)


@pytest.fixture
def given():
    return 1


def of_fixture():
    return given


def test_plain():
    assert log.name


def test_given(given):
    assert given


def test_through_another():
    assert of_fixture()


@pytest.mark.skipif(False, reason="never")
def test_marked():
    assert log.name


class Cases(TestCase):
    def test_skipping(self):
        self.skipTest("here")

    def test_in_class(self):
        self.assertTrue(log.name)
'''


def refused() -> list[int]:
    raise ValueError


@pytest.mark.parametrize("seed", range(5))
def test_the_altered_copy_of_a_test_that_may_end_early_fails(seed: int) -> None:
    made = PythonCopies(True, "", {"test_x.py": EITHER.encode()}, Random(seed))
    copies = made.made(("test_x.py::test_either",), in_place=True)
    altered = next(file.content for file in copies.files if file.path == "test_x.py")
    names: dict[str, object] = {"refused": refused}
    exec(compile(altered or b"", "test_x.py", "exec"), names)
    test = names["test_either"]
    assert callable(test)
    with pytest.raises(AssertionError):
        test()


def replay(text: str, *names: str) -> ReplayedTests:
    places = {
        name: FunctionLocation("tests/test_x.py", tuple(name.split(".")[:-1]), name.split(".")[-1]) for name in names
    }
    return replayed(places, {"tests/test_x.py": text.encode()}, "", "")


def test_only_the_tests_that_need_their_framework_are_left_to_it() -> None:
    names = ("test_plain", "test_given", "test_through_another", "test_marked")
    found = replay(MIXED, *names, "Cases.test_skipping", "Cases.test_in_class")
    assert found.ids == ("test_plain", "Cases.test_in_class")
    assert not {"given", "of_fixture", "test_marked", "test_skipping"} & {
        node.name for node in ast.walk(ast.parse(found.files[0]["text"])) if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize(
    "line", ["pytestmark = pytest.mark.skipif(False, reason='never')", "@pytest.fixture(autouse=True)\ndef all(): 1"]
)
def test_marks_of_all_tests_of_a_file_leave_them_to_their_framework(line: str) -> None:
    assert replay(f"import pytest\n\n{line}\n\ndef test_a():\n    assert 1\n", "test_a").ids == ()


@pytest.mark.parametrize(
    ("name", "own"), [("test_given", True), ("test_marked", True), ("test_client", False), ("test_missing", True)]
)
def test_whether_a_test_needs_what_stands_in_its_own_file(name: str, own: bool) -> None:
    text = f"{MIXED}\n\ndef test_client(client):\n    assert client\n"
    assert needs_own_file(FunctionLocation("tests/test_x.py", (), name), text.encode()) == own
