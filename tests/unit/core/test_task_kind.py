"""What kind of task it is: from labels, titles and words as people write them."""

import pytest

from app.core.task import STRUCTURAL, Issue, Task, TaskKind, TaskSignals, WorkType, kind_of, note_of
from tests.support.golden_prompts import examples

TITLES: list[tuple[str, TaskKind]] = [
    ("Sum is wrong", "bug"),
    ("fix: rounding of half cents", "bug"),
    ("[Bug] export", "bug"),
    ("Rename fails when the target exists", "bug"),
    ("Add button crashes the page", "bug"),
    ("Update the documentation", "bug"),
    ("TypeError: unsupported operand", "bug"),
    ("feat: invoices since a date", "feature"),
    ("feat(report)!: invoices since a date", "feature"),
    ("[Feature Request] dark mode", "feature"),
    ("Feature request: dark mode", "feature"),
    ("Support Python 3.14", "feature"),
    ("Please add a --since option", "feature"),
    ("Add a regression test for #41", "tests"),
    ("Write unit tests for the parser", "tests"),
    ("Add a regression test for the crash of #12", "tests"),
    ("Add a test and then fix the crash", "bug"),
    ("Add missing test coverage for money.py", "tests"),
    ("Write test results to a file", "bug"),
    ("Add test data generator", "feature"),
    ("Add tests to the nightly build", "feature"),
    ("test: cover round_cents", "tests"),
    ("refactor: one table of currencies", "refactoring"),
    ("Rename Basket to Cart", "refactoring"),
    ("Extract the pricing rules into a module", "refactoring"),
    ("Extract dates from titles", "bug"),
    ("Rename files on upload", "bug"),
    ("Deduplicate search results", "bug"),
    ("Bump lxml from 4.9.3 to 5.2.1", "dependencies"),
    ("chore(deps): bump lxml", "dependencies"),
    ("build(deps-dev): bump pytest", "dependencies"),
    ("Upgrade Django to 5.0", "dependencies"),
    ("Update dependencies", "dependencies"),
    ("Update timeout to 30", "bug"),
    ("Bump limit from 10 to 20", "bug"),
    ("ci: the nightly build is red", "ci"),
    ("", "bug"),
]


@pytest.mark.parametrize(("title", "kind"), TITLES)
def test_title_decides_the_kind(title: str, kind: TaskKind) -> None:
    assert kind_of(TaskSignals(title)).kind == kind


LABELS: list[tuple[tuple[str, ...], TaskKind]] = [
    (("bug",), "bug"),
    (("C-enhancement", "enhancement"), "feature"),
    (("type: Feature",), "feature"),
    (("kind/feature",), "feature"),
    (("type: enhancement", "bug"), "bug"),
    (("dependencies", "python"), "dependencies"),
    (("Tech-Debt",), "refactoring"),
    (("needs-tests",), "tests"),
    (("flaky test",), "ci"),
    (("tests", "ci"), "bug"),
    (("agent-fix",), "bug"),
]


@pytest.mark.parametrize(("labels", "kind"), LABELS)
def test_label_decides_the_kind(labels: tuple[str, ...], kind: TaskKind) -> None:
    """A label that names a place, not a sort of work, decides nothing."""
    assert kind_of(TaskSignals("The report", labels=labels)).kind == kind


@pytest.mark.parametrize(
    ("work", "kind"), [("merge", "conflict"), ("checks", "ci"), ("pull request", "review"), ("issue", "feature")]
)
def test_kind_of_work_precedes_labels_and_title(work: WorkType, kind: TaskKind) -> None:
    assert kind_of(TaskSignals("feat: x", labels=("bug",) if work != "issue" else (), work=work)).kind == kind


def test_requested_kind_wins_except_for_a_merge() -> None:
    assert kind_of(TaskSignals("x", work="checks", requested_kind="tests")).kind == "tests"
    assert kind_of(TaskSignals("x", work="merge", requested_kind="tests")).kind == "conflict"


def test_request_text_precedes_the_title() -> None:
    assert kind_of(TaskSignals("Sum is wrong", request="Add a test for it")).kind == "tests"


def test_reason_completes_a_sentence_and_contains_no_foreign_markup() -> None:
    assert kind_of(TaskSignals("x", labels=("type: `bug",))).kind == "bug"
    assert kind_of(TaskSignals("feat: x")).reason == "its title begins with `feat:`"
    assert kind_of(TaskSignals("Sum")).reason == ""
    assert all(not example.kinded.reason.endswith(".") for example in examples())


def test_failing_test_is_expected_for_some_kinds_only() -> None:
    task = Task.model_validate(
        {"repository": "r", "issue": {"title": "t", "body": ""}, "base": "0", "base_ref": "main", "slug": "t"}
    )
    assert task.expects_red
    assert not task.model_copy(update={"kind": "tests"}).expects_red
    assert task.model_copy(update={"kind": "tests", "fixed_by": "1" * 40}).expects_red
    assert not any(task.model_copy(update={"kind": kind}).expects_red for kind in (*STRUCTURAL, "conflict"))


@pytest.mark.parametrize(
    ("kind", "reason", "fix", "said"),
    [
        ("bug", "it has the label `bug`", "", ""),
        ("review", "it is about a pull request that is open", "", ""),
        ("feature", "", "", ""),
        ("feature", "it has the label `x`", "", "Worked on as a feature, because it has the label `x`."),
        ("refactoring", "so", "", "Worked on as a refactoring, because so. So nothing had to fail before"),
        ("tests", "so", "", "because so. No fix is known for them."),
        ("tests", "so", "a" * 40, "because so. The fix that they are for: `aaaaaaaaaa`."),
    ],
)
def test_status_note_names_the_chosen_kind(kind: TaskKind, reason: str, fix: str, said: str) -> None:
    issue = Issue(title="t", body="")
    task = Task(repository="r", issue=issue, base="0", base_ref="main", slug="t", kind=kind, kind_reason=reason)
    note = note_of(task.model_copy(update={"fixed_by": fix}))
    assert said in note
    assert bool(said) is bool(note)


@pytest.mark.parametrize(
    ("request_text", "kind"),
    [
        ("rename half to halve", "refactoring"),
        ("Extract the rounding into a function", "refactoring"),
        ("rename half to halve and round down", "review"),
        ("rename half to halve. It should round down.", "review"),
        ("rename half to halve\nround down", "review"),
        ("add a test for zero", "review"),
        ("fix: renaming crashes", "review"),
    ],
)
def test_request_on_a_pull_request_is_a_refactoring_if_it_is_that_alone(request_text: str, kind: TaskKind) -> None:
    assert kind_of(TaskSignals("It breaks", request=request_text, work="pull request")).kind == kind
