"""Commands on a pull request with the real packages: a question, a change of the branch, conflicts to resolve."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.fix import FixOptions, find_or_create
from app.cli.local_context import LocalContext
from app.config.settings import settings_from
from app.core.job import Job
from app.core.plan import Plan
from app.core.task import MAX_ISSUE_BODY, TaskOrigin, TaskSection
from app.pipeline.wiring.job_runner import JobRunner
from tests.support.memory_journal import MemoryJournal
from tests.support.recorded_answers import RecordedAnswers, bash, edit, view, write
from tests.support.recorded_progress import ListProgress
from tests.support.repositories import git, make_repository

PULL = TaskOrigin(installation=1, repository=2, number=9, is_pull_request=True, actor=3)
RIGHT = "def double(number):\n    return number + number\n"
OTHER = "def double(number):\n    return 2 * number\n"
CONFLICT = f"<<<<<<< agent-fix/issue-7\n{RIGHT}=======\n{OTHER}>>>>>>> main\n"
TEST = (
    "import unittest\nfrom maths import double\n\n\n"
    "class TestDouble(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(double(2), 4)\n"
)


class Site:
    """A repository, a job on a pull request of it, and what its model was asked."""

    def __init__(self, place: Path, maths: str) -> None:
        self.place = place
        self.repository = make_repository(place / "repo", {"maths.py": maths, "test_maths.py": TEST})
        self.progress = ListProgress()
        self.harness: JobRunner

    def sit_down(
        self, recording: RecordedAnswers, *, request: str, sections: tuple[TaskSection, ...] = (), **job: object
    ) -> None:
        issue = self.place / "issue.md"
        issue.write_text("# Doubling is slow\n\nFixes #7\n")
        model = f"recorded/{recording.save(self.place / 'answers.jsonl')}"
        local_context = LocalContext(settings_from({"PATH": os.environ["PATH"]}, self.place / "state"))
        options = FixOptions(repo=self.repository, issue=issue, model=model, out=self.place / "out", plan_mode="none")
        order = find_or_create(options, local_context)
        asked = {"origin": PULL, "request": request, "sections": sections}
        task = order.job.task.model_copy(update=asked)
        order = replace(order, job=Job.model_validate({**dict(order.job), "task": task, **job}))
        self.harness = local_context.runner(order, self.progress, _agree)


async def _agree(plan: Plan) -> Plan:
    return plan


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, RIGHT)


async def test_a_question_is_answered_and_leaves_nothing(site: Site) -> None:
    refs = git(site.repository, "for-each-ref")
    recording = RecordedAnswers().turn(
        "Try.", write("maths.py", OTHER), bash("python3 -m unittest -q"), view("maths.py")
    )
    site.sit_down(recording.submit("It adds: `maths.py:2`."), request="How does it double?", aim="ask")
    result = await site.harness.work(MemoryJournal())
    assert (result.exit_status, result.summary) == ("answered", "It adds: `maths.py:2`.")
    assert site.progress.texts("observation")[1].startswith("exit 0")
    assert (result.branch, result.verification) == ("", None)
    assert git(site.repository, "for-each-ref") == refs
    assert not list((site.place / "state" / "sandboxes").glob("*.work"))
    assert not site.progress.texts("verification"), "no suite is run for a question"


async def test_a_change_of_the_branch_is_verified_against_the_branch(site: Site) -> None:
    more = TEST + "\n    def test_words(self):\n        self.assertEqual(double('a'), 'aa')\n"
    worse = TEST + "\n    def test_half(self):\n        self.assertRaises(TypeError, double, None)\n"
    thread = TaskSection(
        title="Review thread on maths.py, line 2", text="+    return number + number\n\nUse a product."
    )
    recording = (
        RecordedAnswers()
        .turn("Change.", edit("maths.py", "number + number", "2 * number"), write("test_maths.py", more))
        .submit("A product.", "python3 -m unittest test_maths")
        .turn("Another test.", write("test_maths.py", worse))
        .submit("A product.", "python3 -m unittest test_maths")
    )
    site.sit_down(recording, request="Use a product.", sections=(thread,))
    result = await site.harness.work(MemoryJournal())
    assert result.exit_status == "pr_opened"
    assert result.verification is not None
    assert result.verification.verdict == "unproved", "what it does has not changed: nothing was red"
    assert git(site.repository, "show", f"{result.branch}:maths.py").strip() == OTHER.strip()


async def test_conflicts_are_resolved_before_anything_is_published(tmp_path: Path) -> None:
    site = Site(tmp_path, CONFLICT)
    recording = (
        RecordedAnswers()
        .turn("Look.", view("maths.py"), write("notes.txt", "resolve maths.py\n"))
        .submit("Done.")
        .turn("Resolve.", write("maths.py", OTHER), bash("rm notes.txt && python3 -m unittest -q"))
        .submit("Kept main's side.")
    )
    site.sit_down(recording, request="", conflicts=("maths.py",))
    result = await site.harness.work(MemoryJournal())
    verdicts = site.progress.texts("verification")
    assert any("broken: conflicts: maths.py:1: contains a conflict marker" in said for said in verdicts)
    assert result.exit_status == "pr_opened"
    assert git(site.repository, "show", f"{result.branch}:maths.py").strip() == OTHER.strip()


def test_a_long_issue_says_how_much_the_agent_saw(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo", {"maths.py": RIGHT})
    local_context = LocalContext(settings_from({"PATH": os.environ["PATH"]}, tmp_path / "state"))
    issue = tmp_path / "issue.md"
    options = FixOptions(repo=repository, issue=issue, model="recorded/nothing", out=tmp_path / "out")
    told = {}
    for size in (MAX_ISSUE_BODY, MAX_ISSUE_BODY + 1):
        issue.write_text("# Long\n\n" + "y" * size)
        told[size] = find_or_create(options, local_context).notes
    assert told[MAX_ISSUE_BODY] == ()
    assert told[MAX_ISSUE_BODY + 1] == (
        "The issue has 65,537 characters; the agent was shown 65,536 from its beginning and end.",
    )
