"""What the authors of tests are told of how and where tests are written."""

from app.verify.frameworks import SuiteCommand
from app.verify.reproduction import MAX_LISTED, layout_of_tests
from tests.support.memory_tree import MemoryTree

TREE = MemoryTree({f"tests/test_{number:02}.py": b"" for number in range(30)})
SUITE = SuiteCommand("pytest -q", "pytest")
FIRST = "The suite is executed with: pytest -q\nIds of tests: `path/test_x.py::test_name`"


def test_some_test_files_are_listed() -> None:
    told = layout_of_tests(TREE, SUITE)
    assert told.startswith(FIRST)
    assert "tests/ (30)" in told
    assert told.count(".py,") == MAX_LISTED - 1 + FIRST.count(".py,")


def test_no_files_are_listed_for_an_author_who_sees_tests() -> None:
    told = layout_of_tests(TREE, SUITE, listed=0)
    assert told.startswith(FIRST)
    assert len(told.splitlines()) == 2


def test_project_without_tests_says_so() -> None:
    assert "no test files yet" in layout_of_tests(MemoryTree({}), SUITE, listed=0)
