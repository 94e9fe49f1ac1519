"""The comparison of the suite on base and head."""

import pytest

from app.core.verification import ExistingTestChange, SuiteComparison
from app.verify.verdict import without_outdated

OLD = "tests/test_areas.py::test_dotted_names"


@pytest.mark.parametrize(
    ("outdated", "removed", "left"),
    [
        ((OLD,), "test_dotted_names", ()),
        ((), "test_dotted_names", (OLD,)),
        ((OLD,), "test_other", (OLD,)),
        (("tests/test_areas.py::test_other",), "test_dotted_names", (OLD,)),
    ],
)
def test_a_renamed_test_that_the_issue_contradicts_is_not_newly_failing(
    outdated: tuple[str, ...], removed: str, left: tuple[str, ...]
) -> None:
    changed = ExistingTestChange(path="tests/test_areas.py", removed=(removed,), diff="")
    suite = SuiteComparison(command="pytest", newly_failing=(OLD,), changed_tests=(changed,))
    assert without_outdated(suite, outdated).newly_failing == left
