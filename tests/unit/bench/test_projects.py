"""Every project without a comparable suite is told with the reason and a repair."""

import json

import pytest

from bench.project_figures import KEPT, checked, mark, page, plain, repair


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("It did not end in time.", "suite_minutes"),
        ("manifests: The suite was stopped at its limit of 120 s, before it reported any result.", "suite_minutes"),
        ("Only its exit code is known. package.json, runner: the runner behind `npm test`", "`test:`"),
        ("manifests: pytest is not installed in the sandbox.", "`setup:`"),
        ("manifests: 7 of 9 tests fail: No module named 'x'", "`setup:`"),
        ("The set-up command `npm ci` ended with exit code 1.", "`network:`"),
        ("manifests: The tests end with exit code 2: usage", "its CI"),
    ],
)
def test_every_reason_has_a_repair(reason: str, words: str) -> None:
    assert words in repair(reason)


def test_the_page_names_reason_and_repair_of_each_failure() -> None:
    failed = [name for name, found in json.loads(KEPT.read_text("utf-8")).items() if not found["comparable"]]
    told = [line for line in page().splitlines() if line.startswith("- ") and "*Repair*: " in line]
    assert len(told) == len(failed)


def test_no_directory_of_the_machine_is_kept() -> None:
    assert plain("see /tmp/a/b.log:\n  failed") == "see PATH: failed"


@pytest.mark.parametrize(("passed", "comparable"), [(40, False), (49, True)])
def test_a_suite_of_which_little_ran_is_not_comparable(passed: int, *, comparable: bool) -> None:
    found = checked({"comparable": True, "passed": passed, "failed": 1, "written": 100, "reasons": ["tox.ini"]})
    assert found["comparable"] is comparable
    assert (found["reasons"][0] == "Only 41 of 100 tests in the text ran.") is not comparable


@pytest.mark.parametrize(
    ("stopped", "comparable", "shown"),
    [(False, True, "yes"), (True, True, "first tests"), (True, False, "no"), (False, False, "no")],
)
def test_first_tests_of_a_suite_that_was_stopped_are_no_plain_yes(stopped: bool, comparable: bool, shown: str) -> None:
    found = {"comparable": comparable, "stopped": stopped, "passed": 90, "written": 100, "reasons": ["a: stopped"]}
    assert mark(checked(found)) == shown
    assert checked(found)["comparable"] is (shown == "yes")
    assert checked(found)["reasons"] == ["a: stopped"]
