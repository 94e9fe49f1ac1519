"""An image beside an issue, or attached to it, comes to words in the brief: real repository, real books."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from app.bootstrap.local import House, LocalDesk, Order
from app.entrypoints.local import FixOptions, find_or_create, work_key
from app.jobs.store import JobBlobs
from app.plan import Plan
from app.settings import settings_from
from app.verify.facts import Known
from tests.fakes import wallet
from tests.fakes.memory_journal import MemoryJournal
from tests.fakes.progress import ListProgress
from tests.fakes.recording import Recording, edit
from tests.front_desk import FrontDesk, front_desk
from tests.pixels import png

SEEN = "Image 1: a bill of 0.10 EUR for three people, who pay 0.03 EUR each."
ISSUE = f"{wallet.ISSUE}\n![bill](shots/bill.png)\n\n![elsewhere](https://images.example/a.png)\n"
ASSET = str(UUID(int=7))


async def _agree(plan: Plan) -> Plan:
    return plan


class Terminal:
    """One machine with a repository and an issue that has a screenshot beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repository = wallet.make_wallet(place / "wallet")
        (place / "shots").mkdir()
        (place / "shots" / "bill.png").write_bytes(png(640, 480))
        (place / "issue.md").write_text(ISSUE)
        self.house = House(settings_from({"PATH": os.environ["PATH"]}, place / "state"))

    def order(self, recording: Recording, *, images: bool) -> Order:
        model = f"recorded/{recording.save(self.place / 'answers.jsonl')}"
        issue, out = self.place / "issue.md", self.place / "out"
        options = FixOptions(
            repo=self.repository, issue=issue, model=model, out=out, plan_mode="none", images=images, restart=True
        )
        return find_or_create(options, self.house)

    def desk(self, order: Order) -> LocalDesk:
        return self.house.desk(order, ListProgress(), _agree)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def mended() -> Recording:
    return (
        Recording()
        .sees(SEEN)
        .turn("Whole cents.", edit(wallet.SOURCE, wallet.WRONG, wallet.RIGHT), wallet.ADD_TEST)
        .submit(wallet.SUMMARY, wallet.REPRODUCTION)
    )


async def test_a_screenshot_beside_the_issue_comes_to_words_in_the_brief(terminal: Terminal) -> None:
    order = terminal.order(mended(), images=True)
    desk, journal = terminal.desk(order), MemoryJournal()
    result = await desk.work(journal)
    assert result.exit_status == "pr_opened"
    assert journal.executed[0] == "images.answer"
    assert "as a model described them\n\n<data-" in desk.bench().brief(None, Known(), ())
    assert SEEN in desk.bench().brief(None, Known(), ())
    assert "1 image of the issue went to a model, whose description the agent was given." in result.notes
    assert "Image 2 of the issue is shown to no model: only files beside the issue's are read." in result.notes
    assert terminal.house.totals(order.job.id).calls == 3


async def test_by_default_no_image_is_read_or_sent(terminal: Terminal) -> None:
    order = terminal.order(mended(), images=False)
    assert (order.job.task.images, order.job.task.images_left_out) == ((), ())
    desk, journal = terminal.desk(order), MemoryJournal()
    await desk.sight.look(journal, ListProgress())
    assert journal.executed == []
    seen = terminal.order(mended(), images=True)
    assert work_key(seen.job) != work_key(order.job), "with its images it is other work"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path, git=True) as made:
        made.world.attachments[ASSET] = png(640, 480)
        yield made


def attach(desk: FrontDesk) -> None:
    site = desk.app.host.server_url
    desk.issue.body = f"![bill]({site}/user-attachments/assets/{ASSET})\n\n![x](http://169.254.169.254/{ASSET})\n"


async def test_an_attachment_is_at_hand_before_the_worker_begins(desk: FrontDesk) -> None:
    desk.configure("images: true\n")
    attach(desk)
    await desk.labels()
    assert await desk.reception.stock() == 1
    assert desk.job.ready
    task = desk.job.job.task
    (image,) = task.images
    assert JobBlobs(desk.engine, desk.job.job.id).get(image.digest) == png(640, 480)
    assert task.images_left_out == (
        "Image 2 of the issue is shown to no model: only attachments of the forge itself are fetched.",
    )


async def test_a_repository_that_did_not_ask_has_nothing_fetched(desk: FrontDesk) -> None:
    attach(desk)
    await desk.labels()
    await desk.reception.stock()
    assert desk.job.ready
    assert desk.job.job.task.images == ()
    assert not [call for call in desk.ground.github.calls if "user-attachments" in call.path]


async def test_an_image_that_came_with_an_edit_is_not_looked_at(desk: FrontDesk) -> None:
    desk.configure("images: true\n")
    await desk.labels()
    attach(desk)
    await desk.reception.stock()
    assert desk.job.ready
    assert desk.job.job.task.images == ()
    assert not [call for call in desk.ground.github.calls if "user-attachments" in call.path]
