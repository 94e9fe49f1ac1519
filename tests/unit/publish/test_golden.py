"""What people read on GitHub and in the terminal, compared with files.

`python -m tests.unit.publish.test_golden` writes the files again; look at their diff before you commit it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from app.cli.result_screen import finding_lines, side_lines
from app.core.errors import ExitCode
from app.core.examples import Because, JudgedExample, PlanExamples, ProgramRun, Review
from app.core.job import JobState
from app.core.lessons import Lesson
from app.core.verification import (
    Execution,
    RestOfSuite,
    TestCount,
    Verdict,
    Verification,
)
from app.jobs.context import ThreadRef
from app.publish import replies
from app.publish.body_edits import marked_part, with_parts
from app.publish.effects import MAX_BODY
from app.publish.publisher import sibling_answer, thread_answer
from app.publish.pull_request_text import (
    commit_message,
    follow_up_section,
    pull_request_body,
    pull_request_title,
    update_verdict,
)
from app.publish.result_view import about_rest, view_of
from app.publish.status_text import render_status, step_summary
from app.verify.verdict import with_verdict
from tests.support.pull_requests import HEAD, TRACE, pull_request, suite, task, verification
from tests.support.server_jobs import job
from tests.unit.publish.test_status_text import result, view

GOLDEN = Path(__file__).with_name("golden")
HELP = {"/agent fix [what]": "start; on a pull request: change it", "/agent …": "guide the running job, or start one"}
"""A list of commands; the real one changes with each command."""


def examples(printed: str = "0.13") -> PlanExamples:
    shown, hidden, unchanged = (
        JudgedExample(
            name=str(number),
            behaviour=behaviour,
            because=Because(quote="Half cents go up.", source="issue"),
            kind="keeps" if kept else "shows",
            run="python",
            program=f'from invoices.money import total\nprint(total("{value}"))\n',
            stdout=f"{expected}\n",
            hidden=number > 1,
            quoted=not kept,
            base=(ProgramRun(stdout=f"{today}\n"),) * 2,
            change=(ProgramRun(stdout=f"{after}\n"),) * 2,
        )
        for number, (behaviour, kept, value, today, expected, after) in enumerate(
            (
                ("A total with half a cent is rounded up.", False, "0.125", "0.12", "0.13", printed),
                ("Half cents of other totals go up, too.", False, "1.435", "1.43", "1.44", "1.44"),
                ("A total without a part of a cent stays.", True, "0.12", "0.12", "0.12", "0.12"),
            ),
            1,
        )
    )
    return PlanExamples(examples=(shown, hidden, unchanged))


REVIEW = Review(nothing="Every rounding goes through one function.", model="anthropic/planner", turns=1, tokens=8_086)


def verified(verdict: Verdict) -> Verification:
    match verdict:
        case "proved":
            return verification(examples=examples(), review=REVIEW)
        case "tested":
            return verification(verdict=verdict, reasons=("There are no examples.",))
        case "unproved":
            return verification(verdict=verdict, reproduction=None, reasons=("Nothing failed on the base.",))
        case "broken":
            failing = suite(newly_failing=("tests.test_dates.Leap.test_year",))
            reasons = ("A test newly fails.",)
            return verification(verdict=verdict, examples=examples("0.12"), suite=failing, reasons=reasons)


RESTS: Mapping[str, RestOfSuite] = {
    "running": RestOfSuite(files=472, minutes=30, command="python -m unittest"),
    "finished": RestOfSuite(
        state="finished",
        files=472,
        minutes=30,
        command="python -m unittest",
        parts=12,
        looked_at=472,
        compared=470,
        base=TestCount(passed=3_210, failed=2, skipped=14),
        head=TestCount(passed=3_210, failed=2, skipped=14),
        notes=("tests.test_dates.Leap.test_zone failed in one of two runs on the head: flaky, not counted.",),
        seconds=1_270,
    ),
    "broken": RestOfSuite(
        state="out_of_time",
        files=472,
        minutes=30,
        command="python -m unittest",
        parts=9,
        looked_at=300,
        compared=300,
        base=TestCount(passed=2_100),
        head=TestCount(passed=2_099, failed=1),
        newly_failing=("tests.test_report.Report.test_total",),
        recheck=Execution(
            command="python -m unittest tests.test_report.Report.test_total", exit_code=1, seconds=0.4, excerpt=TRACE
        ),
        seconds=1_799.5,
    ),
    "stopped": RestOfSuite(
        state="stopped",
        files=472,
        minutes=30,
        command="python -m unittest",
        parts=1,
        looked_at=20,
        compared=20,
        base=TestCount(passed=140),
        head=TestCount(passed=140),
        seconds=61,
        reason="Stopped by ada.",
    ),
}


def with_rest(rest: RestOfSuite) -> Verification:
    """A verdict by the nearest tests, with the rest of the suite as far as it is."""
    return with_verdict(verification(examples=examples(), review=REVIEW).model_copy(update={"rest": rest}))


def all_replies() -> Iterator[str]:
    kept = datetime(2026, 1, 1, tzinfo=UTC)
    lesson = Lesson.model_validate(
        {
            "number": 3,
            "kind": "remembered",
            "text": "Run `make fixtures` before the tests.",
            "author": "ada",
            "created": kept,
            "expires": kept.replace(month=6),
        }
    )
    yield replies.unclear_command("There is no command `aprove`.", "/agent approve", commands=HELP)
    yield replies.broken_config("line 3: budget.usd must be a number", ".github/agent-fix.yml")
    yield replies.refused("The issue is closed.")
    yield from (replies.status("j1", state, "Because.", "https://github.example/1") for state in get_args(JobState))
    yield replies.no_job()
    yield replies.message_noted()
    yield replies.unknown_runner("kilroy", frozenset({"kilo", "native"}))
    yield replies.unreadable_plan("line 2: steps is missing")
    yield replies.plan_edited_since()
    yield replies.plan_edited_by_stranger("mallory")
    yield replies.forge_refusal("The base branch is gone.", "Restore it.")
    yield replies.no_commits()
    yield replies.remembered(lesson)
    yield replies.not_remembered("The text is empty.")
    yield replies.too_many_lessons(50)
    yield replies.forgotten(3)
    yield replies.unknown_lesson(9, [lesson])
    yield replies.lesson_list([])
    yield replies.lesson_list([lesson])


def threads() -> Iterator[str]:
    about = ThreadRef(comment=5, thread="T1", path="money.py", start=3, end=5)
    for touched, changed in ((True, True), (False, True), (False, False)):
        yield thread_answer(about, commit=HEAD, touched=touched, changed=changed, summary="Rounds half up.")
    yield sibling_answer("https://github.example/ada/sample/pull/13")


def texts() -> Iterator[tuple[str, str]]:
    """Each golden file's name and text."""
    yield "replies.md", "\n---\n\n".join(all_replies())
    yield "threads.md", "\n\n---\n\n".join(threads()) + "\n"
    for state in get_args(JobState):
        reason = "Because." if state in {"paused", "error", "no_access", "limit_reached"} else ""
        yield f"status-{state}.md", render_status(view(state, result=result(state), reason=reason))
        yield f"run-{state}.md", step_summary(job("j1"), state, reason, result(state))
    for verdict in get_args(Verdict):
        facts = pull_request(verification=verified(verdict))
        yield f"pull-request-{verdict}.md", pull_request_body(facts)
        yield f"follow-up-{verdict}.md", follow_up_section(facts, "ada").section
        seen = view_of(facts.verification)
        lines = (*side_lines(seen), *finding_lines(seen))
        yield f"terminal-{verdict}.txt", "".join(f"{line}\n" for line in lines)
    for name, rest in RESTS.items():
        found = with_rest(rest)
        yield f"pull-request-rest-{name}.md", pull_request_body(pull_request(verification=found))
        published = result("pr_opened").model_copy(update={"verification": found})
        yield f"status-rest-{name}.md", render_status(view("pr_opened", result=published))
        yield (
            f"terminal-rest-{name}.txt",
            "".join(f"{line}\n" for line in (about_rest(found.rest), *finding_lines(view_of(found)))),
        )
    yield "commit.txt", f"{pull_request_title(task())}\n\n{commit_message(task(), 'Rounds half up.')}"
    yield "exit-codes.txt", "".join(f"{code.value:3} {code.name}\n" for code in ExitCode)


def test_a_body_with_running_tests_becomes_the_one_with_their_result() -> None:
    running = pull_request_body(pull_request(verification=with_rest(RESTS["running"])))
    edited = running.replace("## What changed", "A person's words.\n\n## What changed")
    for name in ("finished", "broken", "stopped"):
        facts = pull_request(verification=with_rest(RESTS[name]))
        update = update_verdict(facts)
        texts = (update.verification, *update.shorter)
        told = with_parts(running, verdict=update.banner, verification=texts)
        assert told == pull_request_body(facts)
        assert with_parts(told, verdict=update.banner, verification=texts) == told
        kept = with_parts(edited, verdict=update.banner, verification=texts)
        assert kept == told.replace("## What changed", "A person's words.\n\n## What changed"), (
            "what people wrote stays"
        )


@pytest.mark.parametrize(("others", "ends"), [(20_000, "all"), (56_000, "less"), (59_200, "no place")])
def test_verification_that_is_too_long_for_a_body_gets_shorter_and_never_stays_as_it_was(
    others: int, ends: str
) -> None:
    loud = RESTS["broken"].model_copy(
        update={
            "newly_failing": tuple(f"tests/test_{number}.py::test_{'x' * 150}" for number in range(100)),
            "recheck": Execution(command="x", exit_code=1, seconds=1.0, excerpt="output " * 600),
        }
    )
    update = update_verdict(pull_request(verification=with_rest(loud)))
    marks = marked_part("verdict", "Tested."), marked_part("verification", "still running")
    body = "\n\n".join((marks[0], "p" * others, marks[1]))
    told = with_parts(body, verdict=update.banner, verification=(update.verification, *update.shorter))
    assert len(told) <= MAX_BODY
    assert "**Broken.**" in told
    assert "still running" not in told
    assert (update.verification in told) == (ends == "all")
    assert any(text in told for text in update.shorter) == (ends == "less")
    assert ("would be too long" in told) == (ends == "no place")


@pytest.mark.parametrize("edited", [str, lambda body: body.replace("\n", "\r\n")], ids=["as made", "in a browser"])
def test_a_mark_in_a_title_or_a_plan_does_not_begin_a_part(edited: Callable[[str], str]) -> None:
    fakes = "`<!-- agent-fix:verification -->` and `<!-- agent-fix:verdict -->`"
    facts = pull_request(verification=with_rest(RESTS["running"]), task=task(title=f"Crash {fakes}"), summary=fakes)
    update = update_verdict(replace(facts, verification=with_rest(RESTS["broken"])))
    body = edited(pull_request_body(facts))
    told = with_parts(body, verdict=update.banner, verification=(update.verification,))
    assert told == pull_request_body(replace(facts, verification=with_rest(RESTS["broken"])))


def test_without_our_marks_a_body_stays_as_it_is() -> None:
    update = update_verdict(pull_request(verification=with_rest(RESTS["broken"])))
    for body in ("", "A person's own text.", "<!-- agent-fix:verdict -->\nno end"):
        assert with_parts(body, verdict=update.banner, verification=(update.verification,)) == body


def test_an_output_cannot_end_the_part_that_it_stands_in() -> None:
    loud = RESTS["broken"].model_copy(
        update={"recheck": Execution(command="x", exit_code=1, seconds=1.0, excerpt="<!-- /agent-fix:verification -->")}
    )
    body = pull_request_body(pull_request(verification=with_rest(loud)))
    assert body.count("<!-- /agent-fix:verification -->") == 1


MADE = dict(texts())


@pytest.mark.parametrize("name", MADE)
def test_published_text_matches_its_golden_file(name: str) -> None:
    assert MADE[name] == (GOLDEN / name).read_text()


def test_every_golden_file_is_used() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(MADE)


if __name__ == "__main__":
    for old in GOLDEN.iterdir():
        old.unlink()
    for name, text in MADE.items():
        (GOLDEN / name).write_text(text)
