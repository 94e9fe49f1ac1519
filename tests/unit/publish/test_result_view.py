"""What people see of a result: every fact that the record holds has a reader, and a reviewer sees one screen."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from app.cli.result_screen import finding_lines, side_lines
from app.core.examples import Because, JudgedExample, OutdatedTest, PlanExamples, ProgramRun, Review
from app.core.job import AttemptSummary, JobResult
from app.core.model_usage import Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.verification import (
    Execution,
    ExistingTestChange,
    GateResult,
    Reproduction,
    RestOfSuite,
    SuiteComparison,
    SuiteResult,
    Verification,
)
from app.publish.pull_request_text import (
    MAX_ALL,
    MAX_WORDS,
    PullRequestContent,
    banner,
    pull_request_body,
    seen_at_once,
    shortened,
    words_seen,
)
from app.publish.result_view import view_of
from app.publish.verification_text import Caps, verification_section
from app.verify.verdict import with_verdict
from tests.support.pull_requests import pull_request, suite, task, verification
from tests.unit.publish.test_golden import MADE
from tests.unit.publish.test_pull_request_text import hostile

EVERYTHING = Caps(output=2_000, items=50, text=2_000)
MAX_LINES = 40


def said(text: str) -> Execution:
    return Execution(command=f"run {text}", exit_code=1, seconds=1.0, excerpt=f"{text} said")


def results(name: str) -> SuiteResult:
    return SuiteResult(
        execution=said(f"execution.{name}"),
        failing=(f"failing.{name}", "fails.everywhere"),
        partial=f"partial.{name}",
        shared_cause=f"shared_cause.{name}",
        other_failures=(f"other_failures.{name}",),
    )


FACTS = Verification(
    verdict="broken",
    reasons=("reasons.verification",),
    examples=PlanExamples(
        examples=(
            JudgedExample(
                name="1",
                behaviour="Halves go up.",
                because=Because(quote="examples.quote", source="issue"),
                run="python",
                program="print('examples.program')",
                stdout="examples.expected",
                quoted=True,
                base=(ProgramRun(stdout="examples.before"),),
                change=(ProgramRun(stdout="examples.after"),),
                disputed="examples.disputed",
            ),
        ),
        refused=("examples.refused",),
        outdated=(OutdatedTest(test="examples.outdated", because="It says so."),),
    ),
    review=Review(absent="review.absent"),
    reproduction=Reproduction(
        command="reproduction.command",
        base=said("reproduction.base"),
        head=said("reproduction.head"),
        on_base="was_not_there",
        on_head="red",
        note="reproduction.note",
        unanswered="reproduction.unanswered",
    ),
    suite=SuiteComparison(
        command="suite.command",
        base=results("base"),
        head=results("head"),
        newly_failing=("suite.newly_failing",),
        fixed=("suite.fixed",),
        missing=("suite.missing",),
        own_tests=SuiteResult(execution=said("suite.own_tests")),
        changed_tests=(ExistingTestChange(path="suite.changed_tests", diff="-suite.diff"),),
        recheck=said("suite.recheck"),
        notes=("suite.notes: test_a is flaky",),
        not_run="suite.not_run",
        by_exit_code=True,
        nearest=("suite.nearest",),
    ),
    gates=(GateResult(name="gates.warned", outcome="warned", details=("gates.details",)),),
    rest=RestOfSuite(
        state="finished", files=9, minutes=1, newly_failing=("rest.newly_failing",), notes=("rest.notes",)
    ),
    submission=7,
)
READ: dict[str, tuple[str, ...]] = {
    "verdict": ("Broken", "At least one check failed"),
    "reasons": ("reasons.verification",),
    "examples": (
        *("Halves go up.", "examples.quote", "examples.program", "examples.expected", "examples.before"),
        *("examples.after", "examples.disputed", "examples.refused", "examples.outdated"),
    ),
    "review": ("review.absent",),
    "reproduction": ("reproduction.command", "reproduction.note", "reproduction.unanswered", "reproduction.head said"),
    "suite": ("suite.command",),
    "gates": ("gates.warned", "gates.details"),
    "rest": ("rest.newly_failing", "rest.notes"),
    "submission": ("This is submission 7 of the job",),
    "isolated": ("No sandbox.",),
    "sandbox": ("sandbox `none`",),
}
"""Each field of a Verification, and words by which a reader of a check run or a body learns of it."""
READ_OF_SUITE: dict[str, tuple[str, ...]] = {
    "command": ("suite.command",),
    "base": ("execution.base said", "partial.base", "shared_cause.base", "other_failures.base"),
    "head": ("execution.head said", "partial.head", "shared_cause.head", "other_failures.head"),
    "newly_failing": ("suite.newly_failing",),
    "fixed": ("suite.fixed",),
    "missing": ("suite.missing",),
    "own_tests": ("run suite.own_tests",),
    "changed_tests": ("suite.changed_tests", "suite.diff"),
    "recheck": ("suite.recheck said",),
    "notes": ("suite.notes", "is flaky"),
    "not_run": ("suite.not_run",),
    "by_exit_code": ("by its exit code only",),
    "nearest": ("suite.nearest",),
}
PLAN = Plan(
    summary="plan.summary",
    candidate_files=("plan.candidate_files",),
    steps=("plan.steps",),
    questions=("plan.questions",),
)
RESULT = JobResult(
    exit_status="pr_opened",
    plan=PLAN,
    verification=verification(),
    summary="result.summary",
    branch="result.branch",
    commit="c0ffee0123" * 4,
    changes=(FileStat(path="result.changes", status="added", mode="100644", old_mode="000000"),),
    usage=Totals(calls=3, cost=40_000),
    turns=17,
    seconds=61.0,
    attempts=(
        AttemptSummary(number=1, exit_status="error", reason="attempts.reason"),
        AttemptSummary(number=2, exit_status="pr_opened", verdict="proved", taken=True),
    ),
    notes=("result.notes",),
    warnings=("result.first", "result.warnings"),
)
READ_OF_RESULT: dict[str, tuple[str, ...]] = {
    "plan": tuple(f"plan.{name}" for name in Plan.model_fields if name != "examples"),
    "verification": ("Proved",),
    "summary": ("result.summary",),
    "commit": ("c0ffee0123",),
    "changes": ("result.changes",),
    "usage": ("3 calls, $0.04",),
    "turns": ("17 turns",),
    "seconds": ("1 min 1 s",),
    "attempts": ("attempts.reason",),
    "notes": ("result.notes",),
    "warnings": ("result.first", "result.warnings"),
}
ELSEWHERE = {
    "examples": "the verification, where they also ran with the change; the plan before it",
    "exit_status": "the status comment's headline",
    "reason": "the status comment",
    "hint": "the status comment",
    "branch": "the pull request itself, and the status comment if there is none",
    "url": "the status comment",
    "compare": "the status comment",
    "diff": "the status comment's diff, and change.patch on the page",
    "trajectory": "agent-fix view",
    "model": "the last line of a body has the models that answered",
    "error_code": "the exit code of the command line",
    "unpublished": "the ending of the command line, and the reply to `/agent retry`",
    "patch": "",
    "rest_order": "",
}
"""Fields of a result that its pull request does not show, and who does; empty for what only programs read."""
FOR_PROGRAMS = {"expects_red", "rules", "earlier", "tests_or_text_only", "of_others", "frozen"}
"""They decide how the verdict is worded, and its reasons say the same; earlier examples are shown like others."""


def told(facts: Verification) -> str:
    body = pull_request_body(pull_request(verification=facts.model_copy(update={"isolated": False, "sandbox": "none"})))
    return f"{verification_section(facts, 'b' * 40, 'c' * 40, EVERYTHING)}\n{body}"


@pytest.mark.parametrize(
    ("kind", "table", "others"),
    [(Verification, READ, FOR_PROGRAMS), (SuiteComparison, READ_OF_SUITE, ()), (JobResult, READ_OF_RESULT, ELSEWHERE)],
)
def test_every_field_has_a_reader(kind: type[BaseModel], table: dict[str, tuple[str, ...]], others: set[str]) -> None:
    assert set(kind.model_fields) == {*table, *others}
    assert not set(table) & set(others)
    made = (
        told(FACTS)
        if kind is not JobResult
        else pull_request_body(
            PullRequestContent(pull_request().job.model_copy(update={"attempts": 3}), RESULT, verification())
        )
    )
    missing = {(name, word) for name, words in table.items() for word in words if word not in made.replace("\\", "")}
    assert not missing


def test_the_terminal_names_what_failed_and_what_needs_a_look() -> None:
    lines = "\n".join([*side_lines(view_of(FACTS)), *finding_lines(view_of(FACTS))])
    for word in (
        "suite.newly_failing",
        "suite.notes",
        "suite.missing",
        "gates.details",
        "rest.notes",
    ):
        assert word in lines


def bodies() -> Iterator[tuple[str, str]]:
    yield from ((name, text) for name, text in MADE.items() if name.startswith("pull-request-"))
    long = "A long sentence that goes on about what was changed and why it had to be. " * 40
    many = tuple(f"{number}. {long}" for number in range(60))
    everything: dict[str, Any] = {"summary": long, "notes": many, "warnings": many, "model": "recorded/x.json"}
    loud = verification(
        verdict="broken",
        reasons=many,
        isolated=False,
        suite=suite(newly_failing=many, missing=many, notes=many, fixed=many),
        gates=tuple(GateResult(name=f"gate {n}", outcome="not_run", details=many) for n in range(20)),
    )
    yield "long", pull_request_body(pull_request(verification=loud, **everything))
    yield "lines", pull_request_body(pull_request(summary="- a\n" * 200, task=task(title="word " * 50)))
    yield "hostile", pull_request_body(hostile("`@a` <details> #1 " * 300))
    yield "facts", pull_request_body(pull_request(verification=FACTS))


@pytest.mark.parametrize(("name", "body"), list(bodies()), ids=lambda value: value if len(value) < 40 else "")
def test_a_body_is_one_screen(name: str, body: str) -> None:
    lines = [line for line in seen_at_once(body).splitlines() if line.strip()]
    assert words_seen(body) <= MAX_WORDS, (name, seen_at_once(body))
    assert len(lines) <= MAX_LINES
    assert len(body) <= MAX_ALL


def test_words_are_counted_as_they_are_seen() -> None:
    inner = "<details>\n<summary>two words</summary>\n\nnot these\n\n</details>"
    outer = f"One two\n\n<details>\n<summary>three four five</summary>\n\nnone of {inner} these\n\n</details>\n\nsix"
    assert words_seen(outer) == 6
    assert words_seen("| a | b |\n| --- | --- |\n| many words | here |\n<!-- hidden -->") == 0


@pytest.mark.parametrize(
    ("text", "words", "lines", "expected"),
    [
        ("one two three", 3, 1, "one two three"),
        ("one two three four five", 4, 1, "one two three four …"),
        ("one\ntwo\nthree", 9, 2, "one\ntwo …"),
        ("one two three four\n- five six seven eight nine", 5, 9, "one two three four …"),
        ("x" * 500, 3, 1, f"{'x' * 36} …"),
        ("", 3, 1, ""),
    ],
)
def test_a_text_is_shortened_at_words(text: str, words: int, lines: int, expected: str) -> None:
    assert shortened(text, words, lines) == expected


def judged(name: str, **changes: object) -> JudgedExample:
    one = FACTS.examples.examples[0] if FACTS.examples else None
    assert one is not None
    runs = {
        "base": (ProgramRun(stdout="one\ntwo\n"),),
        "change": (ProgramRun(stdout="right\n"),),
        "stdout": "right\n",
        "disputed": "",
    }
    return one.model_copy(update={"name": name, "program": f"print({name!r})\n" * 9, **runs, **changes})


def test_a_box_says_first_what_kept_the_change_from_being_proved() -> None:
    hidden = judged("2", hidden=True)
    found = suite().model_copy(
        update={"changed_tests": (ExistingTestChange(path="test_a.py", failing=("test_a.py::test", "test_a.py::b")),)}
    )
    facts = verification(examples=PlanExamples(examples=(judged("1"), hidden)), suite=found, review=Review(nothing="-"))
    box = banner(pull_request(verification=with_verdict(facts)))
    assert "no hidden example proves it" not in box
    assert "missing. The change also changes what existing tests check" in box
    assert ", 2 of them changed" in box


def test_a_table_shows_the_lines_of_an_output_below_each_other() -> None:
    facts = verification(examples=PlanExamples(examples=(judged("1"),)))
    body = pull_request_body(pull_request(verification=facts))
    assert "| `one`<br>`two` | `right` |" in body


def test_a_long_body_has_whole_programs_and_says_how_many_more_there_are() -> None:
    examples = tuple(judged(str(number)) for number in range(20))
    section = verification_section(verification(examples=PlanExamples(examples=examples)), "b", "h", Caps(300, 5, 160))
    whole = sum(one.program in section for one in examples)
    assert 0 < whole < 20
    assert f"and {20 - whole} more examples." in section


def test_all_that_the_agent_says_is_all() -> None:
    said_last = "And this is the end of it."
    summary = f"{'A sentence of the agent. ' * 40}{said_last}"
    assert said_last in pull_request_body(pull_request(summary=summary))
