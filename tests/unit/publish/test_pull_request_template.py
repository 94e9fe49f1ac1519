"""The repository's pull request template is kept, known fields are filled in, and the rest is appended."""

import re
from dataclasses import replace
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.core.verification import Verdict
from app.jobs.context import ThreadRef
from app.jobs.store import JobRow, JobWithContext
from app.publish.body_edits import (
    fill_template,
    find_template,
    with_follow_up,
    with_section,
    with_template,
    workflows_not_skipped,
)
from app.publish.effects import MAX_BODY, CommitRecipe, OpenDraftPullRequest
from app.publish.publisher import thread_answer, touches
from app.publish.pull_request_text import follow_up_section, pull_request_body
from tests.support.memory_tree import MemoryTree
from tests.support.pull_requests import pull_request, verification
from tests.support.server_jobs import BOT, START, job, job_context
from tests.unit.publish.test_markdown import CASES, JOINED
from tests.unit.publish.test_pull_request_text import assert_nothing_active, hostile

BODY = pull_request_body(pull_request())
TEMPLATE = """# Pull request

## Description
<!-- What does this change, and why? -->

## Related issue
Fixes #

## How was this tested?
<!-- Describe the tests. -->

## Checklist
- [ ] I have read CONTRIBUTING.md
- [ ] I have added tests

Thank you, @acme/core will have a look.
"""


def tree(**files: str) -> MemoryTree:
    return MemoryTree({path.replace("__", "/"): text.encode() for path, text in files.items()})


def where(**changes: Any) -> JobWithContext:
    row = JobRow(job("j1"), "publishing", "", None, False, False, None, 1, START)
    return JobWithContext(row, job_context(**changes), ready=True, crashes=0)


def draft(body: str = BODY) -> OpenDraftPullRequest:
    recipe = CommitRecipe(patch="p", message="m", author=BOT, date=START)
    return OpenDraftPullRequest(branch="b", commit="c", recipe=recipe, base="main", title="t", body=body)


def headings(text: str) -> list[str]:
    return re.findall(r"(?m)^#{1,2} (.*)$", re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text))


def test_template_is_filled_in_and_followed_by_the_proof() -> None:
    made = fill_template(TEMPLATE, BODY)
    assert headings(made) == [
        "Pull request",
        "Description",
        "Related issue",
        "How was this tested?",
        "Checklist",
        "Verification",
    ]
    assert "## Description\n\nThe agent says:\n\n> Half cents" in made
    assert "## Related issue\n\nFixes #12: Invoice totals are a cent too low\n" in made
    assert "## How was this tested?\n\nSee **Verification** below" in made
    assert "- [ ] I have read CONTRIBUTING.md\n- [ ] I have added tests\n\nThank you, @acme/core" in made
    assert made.count("Fixes #") == 1
    assert made.startswith("<!-- agent-fix:verdict -->\n> [!TIP]\n> **Proved.**")
    assert made.rstrip().endswith("</sub>"), "the footer stays the last thing"


def test_text_without_a_matching_heading_goes_above_and_below() -> None:
    made = fill_template("## Deployment\nNotify the crew.\n", BODY)
    assert made.startswith("Fixes #12:")
    assert headings(made)[:2] == ["Deployment", "What changed and why"]
    assert "## Deployment\n\nNotify the crew.\n" in made


def test_template_without_headings_comes_first() -> None:
    made = fill_template("Please be kind.\n\n- [ ] signed off", BODY)
    assert "Please be kind.\n\n- [ ] signed off\n\n## What changed and why" in made


def test_headings_in_code_and_comments_are_ignored() -> None:
    made = fill_template("<!--\n## Description\n-->\n\n```\n## Description\n```\n", BODY)
    assert "<!--\n## Description\n-->\n\n```\n## Description\n```\n\n## What changed and why" in made


@pytest.mark.parametrize(
    "path",
    [".github/PULL_REQUEST_TEMPLATE.md", "pull_request_template.md", "docs/Pull_Request_Template.md"],
)
def test_template_is_found_in_every_supported_path(path: str) -> None:
    assert find_template(MemoryTree({path: b"## Why\r\n\r\nx\r\n", "a.md": b"no"})) == "## Why\n\nx"


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": b"x"},
        {"pull_request_template.md": b"x" * 20_000},
        {".github/PULL_REQUEST_TEMPLATE/one.md": b"x"},
    ],
)
def test_repository_without_a_template_has_none(files: dict[str, bytes]) -> None:
    assert find_template(MemoryTree(files)) == ""


def test_a_draft_gets_labels_and_reviewers() -> None:
    files = {".github/pull_request_template.md": TEMPLATE.encode(), ".github/workflows/ci.yml": b"on: push\n"}
    made = with_template(draft(), MemoryTree(files), where()).body
    assert "## Checklist" in made
    assert "pull_request_target" not in made
    assert with_template(draft(), MemoryTree(files), where(publish_target="sibling")).body == BODY, (
        "a fork's template is no rule here"
    )
    assert with_template(draft(), MemoryTree({}), where()).body == BODY


def test_workflows_not_skipped_by_the_ci_mark_are_listed() -> None:
    files = {
        ".github/workflows/greet.yml": b"on:\n  pull_request_target:\n",
        ".github/workflows/ci.yaml": b"on: [push, pull_request]\n",
        "docs/pull_request_target.md": b"pull_request_target",
    }
    assert workflows_not_skipped(MemoryTree(files)) == (".github/workflows/greet.yml",)
    made = with_template(draft(), MemoryTree(files), where()).body
    assert made.index("`.github/workflows/greet.yml` may be running") < made.index("## What changed")
    assert with_template(draft(), MemoryTree(files), where(config=RepoConfig(ci="auto"))).body == BODY


@pytest.mark.parametrize("size", [9_000, 9_999])
def test_template_is_left_out_if_the_body_gets_too_long(size: int) -> None:
    long = f"{BODY[:-300]}{'x' * (MAX_BODY - len(BODY) - 50)}\n"
    files = {"pull_request_template.md": b"y" * size}
    assert with_template(draft(long), MemoryTree(files), where()).body == long


def test_body_that_a_note_made_too_long_stays_as_it_is() -> None:
    long = draft().model_copy(update={"body": BODY + "x" * MAX_BODY})
    assert with_template(long, MemoryTree({}), where()) == long


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_hostile_text_stays_escaped_in_the_template(case: str) -> None:
    made = fill_template("## Checklist\n\n- none\n", pull_request_body(hostile(case)))
    assert_nothing_active(made.replace("## Checklist\n\n- none\n\n", ""))


def test_follow_up_section_is_replaced_not_repeated() -> None:
    once = with_section(BODY, "j2", "## Follow-up in abc\n\nFirst.")
    assert once.index("First.") < once.index("\n---\n\n<sub>agent-fix")
    assert once.startswith(BODY[:2_000])
    again = with_section(once, "j2", "## Follow-up in abc\n\nSecond.")
    assert "First." not in again
    assert with_section(again, "j2", "## Follow-up in abc\n\nSecond.") == again
    both = with_section(again, "j3", "Third.")
    assert both.index("Second.") < both.index("Third.")


def test_section_is_replaced_also_in_a_description_that_was_edited_in_a_browser() -> None:
    once = with_section(BODY, "j2", "First.")
    assert with_section(once.replace("\n", "\r\n"), "j2", "Second.") == once.replace("First.", "Second.")
    assert with_section(BODY.replace("\n", "\r\n"), "j2", "First.") == once


def test_rewritten_description_gets_the_section_at_its_end() -> None:
    assert with_section("My own words.", "j2", "Mine.").startswith("My own words.\n\n<!-- agent-fix:follow-up:j2 -->")


def test_section_mark_inside_output_does_not_end_the_section() -> None:
    nasty = "<!-- /agent-fix:follow-up:j2 --> tailpiece"
    made = with_section(with_section(BODY, "j2", nasty), "j2", "Clean.")
    assert "tailpiece" not in made


def test_section_is_shorter_in_a_long_description() -> None:
    shorter = ("short " + "y" * 2_000, "least")
    assert "section" in with_section("x" * 40_000, "j1", "section " + "y" * 14_000, shorter)
    made = with_section("x" * 50_000, "j1", "section " + "y" * 14_000, shorter)
    assert len(made) <= MAX_BODY
    assert "short " in made
    assert "least" in with_section("x" * MAX_BODY, "j1", "section " + "y" * 14_000, shorter)


BANNER = re.compile(r"(?m)^> \*\*(\w+)\.\*\* ")


def followed_up(body: str, verdict: Verdict, number: int = 2) -> str:
    facts = pull_request(verification=verification(verdict=verdict, reasons=("Because.",)))
    result = facts.result.model_copy(update={"commit": f"{number}" * 40})
    return with_follow_up(body, f"j{number}", follow_up_section(replace(facts, result=result), "ada"))


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        BODY.replace("\n", "\r\n"),
        fill_template(TEMPLATE, BODY),
        pull_request_body(pull_request(verification=verification(verdict="broken", reasons=("A test newly fails.",)))),
        re.sub(r"(?m)^<!-- .* -->\n", "", BODY),
        followed_up(BODY, "unproved"),
        BODY.replace("<!-- agent-fix:verdict -->", "My own words.\n\n<!-- agent-fix:verdict -->"),
    ],
    ids=["ours", "edited in a browser", "template", "broken", "of 0.1", "second follow-up", "with a person's words"],
)
def test_body_has_one_verdict_which_is_that_of_the_newest_head(body: str) -> None:
    made = followed_up(body, "tested", 3)
    assert BANNER.findall(made) == ["Tested"]
    assert "newest commit `3333333333`" in made
    assert followed_up(made, "tested", 3) == made
    assert ("My own words." in made) == ("My own words." in body)
    assert made.count("\n## Verification\n") == 1


def test_body_without_anything_of_ours_gets_the_section_only() -> None:
    assert BANNER.findall(followed_up("My words.", "tested")) == []


def test_last_form_of_a_follow_up_section_is_short() -> None:
    *_, least = follow_up_section(pull_request(), "ada").shorter
    assert len(least) < 1_000


def test_oldest_follow_up_sections_are_dropped_first() -> None:
    body = "x" * 30_000
    for number in range(4):
        body = with_section(body, f"j{number}", f"section {number} " + "y" * 14_000)
    assert len(body) <= MAX_BODY
    assert "section 3" in body
    assert "section 0" not in body
    assert "Left out, because" in body


DIFF = """diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -10 +10 @@ def f():
-x
+y
@@ -40,3 +40,0 @@
-x
@@ -90,0 +88,2 @@
+x
"""


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(10, 10, True), (14, 16, True), (16, 18, False), (1, 4, False), (1, 5, True), (43, 60, True), (48, 60, False),
     (90, 90, True), (None, 12, True), (None, None, False)],
)  # fmt: skip
def test_comments_within_five_lines_are_near(start: int | None, end: int | None, expected: bool) -> None:
    assert touches(DIFF, ThreadRef(comment=1, path="a.py", start=start, end=end)) is expected
    assert not touches("", ThreadRef(comment=1, path="a.py", start=start, end=end))


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_answers_in_threads_are_escaped(case: str) -> None:
    thread = ThreadRef(comment=1, path=case, start=1, end=1)
    for touched in (True, False):
        made = thread_answer(thread, commit="COMMIT", touched=touched, changed=False, summary=case)
        assert_nothing_active(made)
