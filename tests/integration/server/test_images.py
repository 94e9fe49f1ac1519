"""An image beside an issue, or attached to it, becomes words in the brief: real repository, real ledger."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from app.cli.fix import FixOptions, PlanMode, find_or_create, work_key
from app.cli.local_context import LocalContext, LocalJob
from app.config.settings import settings_from
from app.core.job import WaitingForUser
from app.core.plan import Plan
from app.jobs.store import JobBlobs
from app.pipeline.wiring.job_runner import JobRunner
from app.pipeline.wiring.prompts import ASK_FOR_WORDS
from tests.support import wallet_project
from tests.support.event_harness import EventHarness, event_harness
from tests.support.image_bytes import png
from tests.support.memory_journal import MemoryJournal
from tests.support.recorded_answers import RecordedAnswers, edit
from tests.support.recorded_progress import ListProgress

SEEN = "Image 1: a bill of 0.10 EUR for three people, who pay 0.03 EUR each."
ISSUE = f"{wallet_project.ISSUE}\n![bill](shots/bill.png)\n\n![elsewhere](https://images.example/a.png)\n"
ASSET = str(UUID(int=7))


async def _agree(plan: Plan) -> Plan:
    return plan


class Terminal:
    """One machine with a repository and an issue that has a screenshot beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repository = wallet_project.make_wallet(place / "wallet")
        (place / "shots").mkdir()
        (place / "shots" / "bill.png").write_bytes(png(640, 480))
        (place / "issue.md").write_text(ISSUE)
        self.local_context = LocalContext(settings_from({"PATH": os.environ["PATH"]}, place / "state"))

    def order(self, recording: RecordedAnswers, *, images: bool | None, plan: PlanMode | None = "none") -> LocalJob:
        model = f"recorded/{recording.save(self.place / 'answers.jsonl')}"
        issue, out = self.place / "issue.md", self.place / "out"
        options = FixOptions(
            repo=self.repository, issue=issue, model=model, out=out, plan_mode=plan, images=images, restart=True
        )
        return find_or_create(options, self.local_context)

    def harness(self, order: LocalJob) -> JobRunner:
        return self.local_context.runner(order, ListProgress(), _agree)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def mended() -> RecordedAnswers:
    return (
        RecordedAnswers()
        .sees(SEEN)
        .turn(
            "Whole cents.",
            edit(wallet_project.SOURCE, wallet_project.WRONG, wallet_project.RIGHT),
            wallet_project.ADD_TEST,
        )
        .submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION)
    )


async def test_a_screenshot_of_the_issue_is_described_in_the_task(terminal: Terminal) -> None:
    order = terminal.order(mended(), images=True)
    harness, journal = terminal.harness(order), MemoryJournal()
    result = await harness.work(journal)
    assert result.exit_status == "pr_opened"
    assert journal.executed[0] == "images.answer"
    assert "as a model described them\n\n<data-" in harness.services().assignment(None, None, ()).brief
    assert SEEN in harness.services().assignment(None, None, ()).brief
    assert "1 image of the issue went to a model, and the agent was given its description." in result.notes
    assert (
        "Image 2 of the issue was not shown to a model: only files next to the issue's file are read." in result.notes
    )
    assert terminal.local_context.totals(order.job.id).calls == 4, "the images, two turns, the reviewer"


async def test_unwanted_images_are_neither_read_nor_sent_and_a_note_says_so(terminal: Terminal) -> None:
    order = terminal.order(mended(), images=False)
    assert order.job.task.images == ()
    assert order.job.task.images_left_out == ("Images 1, 2 of the issue were not shown to a model: `images` is false.",)
    harness, journal = terminal.harness(order), MemoryJournal()
    await harness.image_describer.describe(journal, ListProgress())
    assert journal.executed == []
    seen = terminal.order(mended(), images=None)
    assert work_key(seen.job) != work_key(order.job), "with its images it is other work"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path, git=True) as made:
        made.world.attachments[ASSET] = png(640, 480)
        yield made


def attach(harness: EventHarness) -> None:
    site = harness.app.host.server_url
    harness.issue.body = f"![bill]({site}/user-attachments/assets/{ASSET})\n\n![x](http://169.254.169.254/{ASSET})\n"


async def test_an_attachment_is_at_hand_before_the_worker_begins(harness: EventHarness) -> None:
    attach(harness)
    await harness.labels()
    assert await harness.trigger_loops.fetch_base_commits() == 1
    assert harness.job.ready
    task = harness.job.job.task
    (image,) = task.images
    assert JobBlobs(harness.engine, harness.job.job.id).get(image.digest) == png(640, 480)
    assert task.images_left_out == (
        "Image 2 of the issue was not shown to a model: only GitHub attachments are fetched.",
    )


async def test_a_repository_that_turns_images_off_has_nothing_fetched(harness: EventHarness) -> None:
    harness.configure("images: false\n")
    attach(harness)
    await harness.labels()
    await harness.trigger_loops.fetch_base_commits()
    assert harness.job.ready
    task = harness.job.job.task
    assert task.images == ()
    assert task.images_left_out == ("Images 1, 2 of the issue were not shown to a model: `images` is false.",)
    assert not [call for call in harness.fake_github.github.calls if "user-attachments" in call.path]


async def test_usual_descriptions_of_images_are_no_hidden_text(harness: EventHarness) -> None:
    site = harness.app.host.server_url
    harness.issue.body = f"![Screenshot of the bill]({site}/user-attachments/assets/{ASSET})"
    await harness.labels()
    await harness.trigger_loops.fetch_base_commits()
    assert len(harness.job.job.task.images) == 1
    assert not any("hidden" in note for note in harness.job.job_context.notes)


async def test_an_image_that_came_with_an_edit_is_not_looked_at(harness: EventHarness) -> None:
    harness.configure("images: true\n")
    await harness.labels()
    attach(harness)
    await harness.trigger_loops.fetch_base_commits()
    assert harness.job.ready
    assert harness.job.job.task.images == ()
    assert not [call for call in harness.fake_github.github.calls if "user-attachments" in call.path]


@pytest.mark.parametrize("body", ["![image](shots/bill.png)", '<img alt="Fix it" src="shots/bill.png">'])
async def test_issue_that_is_only_an_image_without_a_seeing_model_is_asked_about(tmp_path: Path, body: str) -> None:
    terminal = Terminal(tmp_path)
    (tmp_path / "issue.md").write_text(f"# Look at this\n\n{body}\n")
    order = terminal.order(RecordedAnswers(), images=False, plan=None)
    with pytest.raises(WaitingForUser) as waits:
        await terminal.harness(order).work(MemoryJournal())
    assert ASK_FOR_WORDS in waits.value.message
    assert terminal.local_context.totals(order.job.id).calls == 0
