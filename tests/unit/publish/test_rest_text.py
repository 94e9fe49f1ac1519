"""What people read of the rest of a long suite where the head is worse, although no test newly fails by its name."""

import pytest

from app.core.verification import RestOfSuite, TestCount
from app.publish.pull_request_text import banner
from app.publish.result_view import about_rest
from app.publish.status_updater import notification
from app.publish.verification_text import Caps, verification_section
from app.verify.verdict import with_verdict
from tests.support.pull_requests import pull_request, verification
from tests.unit.publish.test_status_text import result, view

REST = RestOfSuite(
    state="finished",
    files=40,
    minutes=30,
    command="pytest",
    parts=1,
    looked_at=40,
    compared=20,
    base=TestCount(passed=5),
)
WORSE = {"worse": "The suite finishes on the base but not on the head."}
MISSING = {"missing": ("t::a", "t::b")}
MISSED = "2 tests that passed on the base did not run with the change."
RAN = "The remaining tests: 20 of 40 test files further from the change ran on the base and with the change, and "


@pytest.mark.parametrize(
    ("update", "told", "numbers"),
    [
        (WORSE, f"the results are worse with the change. {WORSE['worse']}", "newly failing 0 · worse with the change"),
        (
            MISSING,
            MISSED,
            "newly failing 0 · 2 did not run with the change",
        ),
        (
            {"newly_failing": ("t::x",), **MISSING, **WORSE},
            f"a test newly fails; the results are worse with the change; {MISSED} {WORSE['worse']}",
            "newly failing 1 · 2 did not run with the change · worse with the change",
        ),
    ],
    ids=["worse", "missing", "all"],
)
def test_all_that_is_worse_is_named(update: dict[str, object], told: str, numbers: str) -> None:
    found = with_verdict(verification(rest=REST.model_copy(update=update)))
    assert about_rest(found.rest) == f"{RAN}{told}"
    assert numbers in banner(pull_request(verification=found))
    (row,) = (
        line for line in verification_section(found, "b", "h", Caps(400, 8, 400)).split("\n") if "Remaining" in line
    )
    assert row.split("|")[2:4] == [" 🟢 5 passed ", " 🔴 no tests "]


@pytest.mark.parametrize("state", ["stopped", "given_up"])
def test_nothing_in_a_reason_acts_on_github(state: str) -> None:
    rest = REST.model_copy(update={"state": state, "reason": "`make deps` failed:\n# **Proved** by @grace"})
    made = verification_section(verification(rest=rest), "b", "h", Caps(400, 8, 400))
    assert "finish. `make deps` failed: # \\*\\*Proved\\*\\* by `@grace` Until" in made


def test_a_rest_that_is_not_worse_says_so() -> None:
    assert about_rest(REST) == f"{RAN}nothing newly fails."


@pytest.mark.parametrize(
    ("update", "headline"),
    [({}, "🚀 A draft pull request is open"), (WORSE, "🔴 The draft did not pass the remaining tests")],
)
def test_a_second_notification_says_that_the_verdict_became_broken(update: dict[str, object], headline: str) -> None:
    found = with_verdict(verification(rest=REST.model_copy(update=update)))
    ended = result("pr_opened").model_copy(update={"verification": found})
    assert notification(view("pr_opened", result=ended), "webhook").title.startswith(f"{headline}: ")
