"""A job that failed at first leaves a lesson for the next: real sandbox, suite and git; only answers are recorded."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cli.fix import FixOptions, find_or_create
from app.cli.local_context import LocalContext, LocalJob
from app.cli.run_local import pull_request
from app.config.settings import settings_from
from app.core.job import JobResult
from app.core.lessons import Lesson
from app.core.plan import Plan
from app.pipeline.wiring.job_runner import JobRunner
from tests.support import wallet_project
from tests.support.memory_journal import MemoryJournal
from tests.support.recorded_answers import RecordedAnswers, edit, write
from tests.support.recorded_progress import ListProgress

TUPLE = wallet_project.RIGHT.replace(
    "return [share + 1] * extra + [share] * (people - extra)", "return (share + extra,)"
)
SAID = "wallet/shares.py: `split` gets whole cents and returns a list, one share for each of the people."
FIRST = (
    RecordedAnswers()
    .turn("A tuple will do.", edit(wallet_project.SOURCE, wallet_project.WRONG, TUPLE), wallet_project.ADD_TEST)
    .submit("A tuple.", wallet_project.REPRODUCTION)
    .turn("A list, then.", edit(wallet_project.SOURCE, TUPLE, wallet_project.RIGHT))
    .submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION, SAID)
)
NEXT_ISSUE = (
    "# A bill for nobody fails\n\n`bill(100, [])` divides by zero in split; the shares of nobody are an empty dict.\n"
)
NOBODY = edit("wallet/bill.py", "    return dict", "    if not names:\n        return {}\n    return dict")
NOBODYS_TEST = write(
    "tests/test_bill.py",
    "import unittest\n\nfrom wallet.bill import bill\n\n\nclass BillTest(unittest.TestCase):\n"
    "    def test_nobody(self):\n        self.assertEqual(bill(100, []), {})\n",
)
SECOND = (
    RecordedAnswers()
    .turn("Nobody pays nothing.", NOBODY, NOBODYS_TEST)
    .submit("Nobody pays nothing.", "python3 -m unittest tests.test_bill.BillTest.test_nobody")
)


class Site:
    """A repository, and one job after the other on it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repository = wallet_project.make_wallet(place / "wallet")
        self.local_context = LocalContext(settings_from({"PATH": os.environ["PATH"]}, place / "state"))
        self.order: LocalJob
        self.harness: JobRunner
        self.progress = ListProgress()

    def sit_down(self, recording: RecordedAnswers, issue: str) -> None:
        path = self.place / "issue.md"
        path.write_text(issue)
        model = f"recorded/{recording.save(self.place / 'answers.jsonl')}"
        options = FixOptions(repo=self.repository, issue=path, model=model, out=self.place / "out", plan_mode="none")
        self.order = find_or_create(options, self.local_context)
        self.harness = self.local_context.runner(self.order, self.progress, _agree)

    async def work(self, recording: RecordedAnswers, issue: str) -> JobResult:
        self.sit_down(recording, issue)
        try:
            result = await self.harness.work(MemoryJournal())
        finally:
            print(*self.progress.said, sep="\n")  # a failure shows which step went another way
        self.local_context.store.mark_reported(self.order.job.id)
        return result

    @property
    def brief(self) -> str:
        """As the model was shown it."""
        return self.harness.services().assignment(None, None, ()).brief

    @property
    def lessons(self) -> Sequence[Lesson]:
        return self.local_context.lessons(self.repository.resolve()).all()

    def notes(self, result: JobResult) -> str:
        assert result.verification is not None
        body = pull_request(self.order, result, result.verification).body
        return re.split(r"\d notes?</summary>", body)[-1].partition("\n</details>")[0]


async def _agree(plan: Plan) -> Plan:
    return plan


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_lessons_of_one_job_are_shown_to_the_next(site: Site) -> None:
    first = await site.work(FIRST, wallet_project.ISSUE)
    assert first.exit_status == "pr_opened"
    (said,) = site.lessons
    assert (said.text, said.author) == (SAID.partition(": ")[2], "agent")
    assert "1 lesson learned: (1)" in site.notes(first)
    assert "`agent-fix lessons forget 1` deletes it" in site.notes(first)
    assert "earlier jobs" not in site.brief

    second = await site.work(SECOND, NEXT_ISSUE)
    assert second.exit_status == "pr_opened"
    assert "# What earlier jobs here learned, to be checked before it is relied on\n\n<data-" in site.brief
    assert f"- 1 (trap, wallet/shares.py): {said.text}" in site.brief
    assert "Used 1 lesson of earlier jobs here:" in site.notes(second)
    assert "learned:" not in site.notes(second)
    assert [each.uses for each in site.lessons] == [1]
