"""However deliveries are repeated, reordered or brought side by side, the same comes of them (R3, R5, R16)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pytest

from app.jobs.triggers import Decided, Triggers
from app.payload import read
from app.reception.desk import Desk
from app.reception.doors import Doors
from tests.fakes.github.world import Issue, User
from tests.front_desk import DEFAULTS, FrontDesk, front_desk

STORIES = {
    "wanted": ("label", "words", "edit", "words", "reopen"),
    "stopped": ("label", "words", "edit", "words", "stop"),
    "wanted again": ("label", "stop", "words", "edit", "words"),
    "called off": ("label", "words", "edit", "words", "unlabel"),
    "called off, and wanted again": ("label", "words", "unlabel", "words", "edit"),
    "closed": ("label", "words", "edit", "words", "close"),
    "closed for a while": ("label", "close", "words", "reopen", "edit"),
}
THOROUGHLY = ("called off, and wanted again",)
"""All 120 orders of it; some of the others, and with --full all of all."""
KINDS = ("label", "unlabel", "words", "words", "stop", "edit", "close", "reopen")


class Outcome(NamedTuple):
    """What people would find in the end: whether a job lives, and whether it has all the words that count."""

    living: bool
    heard: bool


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def act(desk: FrontDesk, who: User, issue: Issue, kind: str, number: int) -> None:
    place = (desk.repo, desk.ground.installation, who, issue)
    desk.world.tick(2)
    match kind:
        case "label" if "agent-fix" not in issue.labels:
            await desk.hooks.labeled(*place, "agent-fix")
        case "unlabel" if "agent-fix" in issue.labels:
            await desk.hooks.unlabeled(*place, "agent-fix")
        case "words":
            await desk.says(f"/agent mind {number}", issue, who)
        case "stop":
            await desk.says("/agent stop", issue, who)
        case "edit":
            await desk.hooks.edited(*place, f"Edited {number}.")
        case "close" | "reopen":
            await desk.hooks.turned(*place, "closed" if kind == "close" else "open")


async def tell(
    desk: FrontDesk, kinds: tuple[str, ...], order: list[int] | None = None, *, straight: bool = False
) -> Outcome:
    """It happens on an issue of its own; then its webhooks arrive in some order, or come straight to the desk."""
    issue = desk.world.open_issue(desk.repo, desk.owner, "It breaks")
    who = desk.person(f"writer-{issue.number}")
    desk.hooks.held = True
    for number, kind in enumerate(kinds):
        await act(desk, who, issue, kind, number)
    held = [delivery for delivery in desk.world.deliveries if delivery.status == 0]
    if straight:
        for place in order or range(len(held)):
            held[place].status = 202
            event = read(held[place].event, held[place].payload).event
            if event is not None:
                await desk.reception.desk.handle(event)
    else:
        await desk.deliver(*([place for place in order if place < len(held)] if order else []))
    job = desk.books.roster.living(desk.repo.id, issue.number)
    texts = [said.text for said in desk.said(job)] + [job.job.task.request] if job else []
    return Outcome(job is not None, all(f"mind {number}" in texts for number in _still_meant(kinds)) or job is None)


def _still_meant(kinds: tuple[str, ...]) -> list[int]:
    """Words that were said after everything by which work was called off."""
    ends = [number for number, kind in enumerate(kinds) if kind in {"stop", "unlabel", "close"}]
    return [number for number, kind in enumerate(kinds) if kind == "words" and number > max(ends, default=-1)]


@pytest.mark.parametrize("story", STORIES)
async def test_every_order_of_five_events_ends_the_same(desk: FrontDesk, story: str) -> None:
    kinds = STORIES[story]
    in_order = await tell(desk, kinds)
    assert in_order == (story not in {"stopped", "called off", "closed"}, True)
    orders = list(permutations(range(len(kinds))))
    if story not in THOROUGHLY:
        orders = random.Random(story).sample(orders, 12)
    for order in orders:
        assert await tell(desk, kinds, list(order), straight=True) == in_order, order


@pytest.mark.full
@pytest.mark.parametrize("story", STORIES)
async def test_every_order_of_every_story_ends_the_same(desk: FrontDesk, story: str) -> None:
    in_order = await tell(desk, STORIES[story])
    for order in permutations(range(len(STORIES[story]))):
        assert await tell(desk, STORIES[story], list(order), straight=True) == in_order, order


@pytest.mark.parametrize("seed", range(50))
async def test_twenty_events_in_a_random_order_end_as_in_theirs(desk: FrontDesk, seed: int) -> None:
    chance = random.Random(seed)
    kinds = tuple(chance.choice(KINDS) for _ in range(20))
    in_order = await tell(desk, kinds)
    order = list(range(20))
    chance.shuffle(order)
    assert await tell(desk, kinds, order) == in_order, (kinds, order)


async def test_a_hundred_times_the_same_delivery_is_one_job(desk: FrontDesk) -> None:
    """R3: side by side under one id, and with new ids, which stand outside the signature."""
    desk.hooks.held = True
    await desk.labels()
    (delivery,) = desk.world.deliveries
    desk.hooks.held = False
    await asyncio.gather(*(desk.hooks.attempt(delivery) for _ in range(100)))
    for number in range(100):
        delivery.guid = f"another-{number}"
        await desk.hooks.attempt(delivery)
    await desk.settle()
    assert len(desk.jobs()) == 1


async def test_a_hundred_deliveries_of_one_label_are_one_job(desk: FrontDesk) -> None:
    """Their bodies differ, as redeliveries after an upgrade of the sender may; the label's moment does not."""
    desk.hooks.held = True
    await desk.labels()
    (delivery,) = desk.world.deliveries
    desk.hooks.held = False
    for number in range(100):
        delivery.guid, delivery.payload = f"another-{number}", {**delivery.payload, "number": number}
        await desk.hooks.attempt(delivery)
    await desk.settle()
    assert len(desk.jobs()) == 1
    assert desk.decided() == [f"job {desk.job.job.id}"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_fifty_desks_at_one_issue_begin_one_job(tmp_path: Path, dialect: str) -> None:
    """R16: each has another comment in its hands; one begins a job, the others speak to it."""
    async with front_desk(tmp_path, dialect=dialect) as desk:
        desk.hooks.held = True
        for number in range(50):
            await desk.says(f"/agent mind {number}", by=desk.person(f"u{number}"))
        desks = [Desk(Doors(desk.app), desk.books, DEFAULTS) for _ in range(50)]
        events = [read(delivery.event, delivery.payload).event for delivery in desk.world.deliveries]
        outcomes = await asyncio.gather(
            *(each.handle(event) for each, event in zip(desks, events, strict=True) if event)
        )
        assert len(desk.jobs()) == 1
        assert sorted(outcome.split()[0] for outcome in outcomes) == ["job"] + ["steer"] * 49
        assert len(desk.said()) == 49


class Meanwhile(Triggers):
    """The first that asks for a trigger hears that it is undecided, and then it is decided by somebody else."""

    def __init__(self, desk: FrontDesk, decide: Callable[[], object]) -> None:
        super().__init__(desk.engine, desk.books.clock)
        self.decide: Callable[[], object] | None = decide

    def decided(self, key: str) -> Decided | None:
        found = super().decided(key)
        if decide := self.decide:
            self.decide = None
            decide()
        return found


async def test_what_is_brought_by_both_ways_at_once_is_no_obstacle_to_itself(desk: FrontDesk) -> None:
    desk.hooks.held = True
    await desk.labels()
    (event,) = (read(delivery.event, delivery.payload).event for delivery in desk.world.deliveries)
    assert event is not None
    loop, other = asyncio.get_running_loop(), Desk(Doors(desk.app), desk.books, DEFAULTS)
    meanwhile = Meanwhile(desk, lambda: asyncio.run_coroutine_threadsafe(other.handle(event), loop).result(30))
    slow = Desk(Doors(desk.app), replace(desk.books, triggers=meanwhile), DEFAULTS)
    assert await slow.handle(event) == f"decided before: job {desk.job.job.id}"
    assert len(desk.jobs()) == 1
    assert desk.answers() == []


async def test_two_repositories_go_side_by_side_and_each_in_order(desk: FrontDesk) -> None:
    other = desk.world.add_repo(desk.owner, "other", {"a.txt": "a\n"})
    desk.ground.installation.repositories.add(other.id)
    about = desk.world.open_issue(other, desk.owner, "Another")
    desk.hooks.held = True
    for number in range(5):
        await desk.says(f"/agent mind {number}")
        desk.world.tick()
        comment = desk.world.comment(other, about, desk.owner, f"/agent mind {number}")
        await desk.hooks.commented(other, desk.ground.installation, desk.owner, about, comment)
    desk.hooks.held = False
    for delivery in desk.world.deliveries:
        await desk.hooks.attempt(delivery)
    assert await desk.reception.next() == 10
    for job in desk.jobs():
        assert job.job.task.request == "mind 0"
        assert [said.text for said in desk.said(job)] == [f"mind {number}" for number in range(1, 5)]
