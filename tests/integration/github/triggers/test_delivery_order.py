"""Repeated, reordered or parallel deliveries have the same result (R3, R5, R16)."""

import asyncio
import random
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pytest

from app.jobs.trigger_log import TriggerDecision, TriggerLog
from app.triggers.event_handler import EventHandler
from app.triggers.events import read
from app.triggers.github_clients import GitHubClients
from app.triggers.stores import Stores
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness
from tests.support.github.world import Issue, User

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

    active: bool
    heard: bool


async def act(harness: EventHarness, who: User, issue: Issue, kind: str, number: int) -> None:
    place = (harness.repo, harness.fake_github.installation, who, issue)
    harness.world.tick(2)
    match kind:
        case "label" if "agent-fix" not in issue.labels:
            await harness.hooks.labeled(*place, "agent-fix")
        case "unlabel" if "agent-fix" in issue.labels:
            await harness.hooks.unlabeled(*place, "agent-fix")
        case "words":
            await harness.says(f"/agent mind {number}", issue, who)
        case "stop":
            await harness.says("/agent stop", issue, who)
        case "edit":
            await harness.hooks.edited(*place, f"Edited {number}.")
        case "close" | "reopen":
            await harness.hooks.turned(*place, "closed" if kind == "close" else "open")


async def tell(
    harness: EventHarness, kinds: tuple[str, ...], order: list[int] | None = None, *, straight: bool = False
) -> Outcome:
    """It happens on an issue of its own; then its webhooks arrive in some order, or come straight to the handler."""
    issue = harness.world.open_issue(harness.repo, harness.owner, "It breaks")
    who = harness.person(f"writer-{issue.number}")
    harness.hooks.held = True
    for number, kind in enumerate(kinds):
        await act(harness, who, issue, kind, number)
    held = [delivery for delivery in harness.world.deliveries if delivery.status == 0]
    if straight:
        for place in order or range(len(held)):
            held[place].status = 202
            event = read(held[place].event, held[place].payload)
            if not isinstance(event, str):
                await harness.trigger_loops.handler.handle(event)
    else:
        await harness.deliver(*([place for place in order if place < len(held)] if order else []))
    job = harness.stores.job_queries.active(harness.repo.id, issue.number)
    texts = [said.text for said in harness.said(job)] + [job.job.task.request] if job else []
    return Outcome(job is not None, all(f"mind {number}" in texts for number in _still_meant(kinds)) or job is None)


def _still_meant(kinds: tuple[str, ...]) -> list[int]:
    """Words that were said after everything by which work was called off."""
    ends = [number for number, kind in enumerate(kinds) if kind in {"stop", "unlabel", "close"}]
    return [number for number, kind in enumerate(kinds) if kind == "words" and number > max(ends, default=-1)]


@pytest.mark.parametrize("story", STORIES)
async def test_every_order_of_five_events_ends_the_same(harness: EventHarness, story: str) -> None:
    kinds = STORIES[story]
    in_order = await tell(harness, kinds)
    assert in_order == (story not in {"stopped", "called off", "closed"}, True)
    orders = list(permutations(range(len(kinds))))
    if story not in THOROUGHLY:
        orders = random.Random(story).sample(orders, 12)
    for order in orders:
        assert await tell(harness, kinds, list(order), straight=True) == in_order, order


@pytest.mark.full
@pytest.mark.parametrize("story", STORIES)
async def test_every_order_of_every_story_ends_the_same(harness: EventHarness, story: str) -> None:
    in_order = await tell(harness, STORIES[story])
    for order in permutations(range(len(STORIES[story]))):
        assert await tell(harness, STORIES[story], list(order), straight=True) == in_order, order


@pytest.mark.parametrize("seed", range(50))
async def test_twenty_events_in_a_random_order_end_as_in_theirs(harness: EventHarness, seed: int) -> None:
    chance = random.Random(seed)
    kinds = tuple(chance.choice(KINDS) for _ in range(20))
    in_order = await tell(harness, kinds)
    order = list(range(20))
    chance.shuffle(order)
    assert await tell(harness, kinds, order) == in_order, (kinds, order)


async def test_a_delivery_sent_a_hundred_times_is_one_job(harness: EventHarness) -> None:
    """R3: side by side under one id, and with new ids, which stand outside the signature."""
    harness.hooks.held = True
    await harness.labels()
    (delivery,) = harness.world.deliveries
    harness.hooks.held = False
    await asyncio.gather(*(harness.hooks.attempt(delivery) for _ in range(100)))
    for number in range(100):
        delivery.guid = f"another-{number}"
        await harness.hooks.attempt(delivery)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1


async def test_a_hundred_deliveries_of_one_label_are_one_job(harness: EventHarness) -> None:
    """Their bodies differ, as redeliveries after an upgrade of the sender may; the label's moment does not."""
    harness.hooks.held = True
    await harness.labels()
    (delivery,) = harness.world.deliveries
    harness.hooks.held = False
    for number in range(100):
        delivery.guid, delivery.payload = f"another-{number}", {**delivery.payload, "number": number}
        await harness.hooks.attempt(delivery)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1
    assert harness.decided() == [f"job {harness.job.job.id}"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_fifty_concurrent_handlers_of_one_issue_start_one_job(tmp_path: Path, dialect: str) -> None:
    """R16: each has another comment in its hands; one begins a job, the others speak to it."""
    async with event_harness(tmp_path, dialect=dialect) as harness:
        harness.hooks.held = True
        for number in range(50):
            await harness.says(f"/agent mind {number}", by=harness.person(f"u{number}"))
        handlers = [EventHandler(GitHubClients(harness.app), harness.stores, DEFAULTS) for _ in range(50)]
        events = [read(delivery.event, delivery.payload) for delivery in harness.world.deliveries]
        outcomes = await asyncio.gather(
            *(each.handle(event) for each, event in zip(handlers, events, strict=True) if not isinstance(event, str))
        )
        assert len(harness.jobs()) == 1
        assert sorted(outcome.split()[0] for outcome in outcomes) == ["job"] + ["steer"] * 49
        assert len(harness.said()) == 49


class ConcurrentTriggerLog(TriggerLog):
    """The first that asks for a trigger hears that it is undecided, and then it is decided by somebody else."""

    def __init__(self, harness: EventHarness, decide: Callable[[], object]) -> None:
        super().__init__(harness.engine, harness.stores.clock)
        self.decide: Callable[[], object] | None = decide

    def decided(self, key: str) -> TriggerDecision | None:
        found = super().decided(key)
        if decide := self.decide:
            self.decide = None
            decide()
        return found


async def test_a_command_seen_by_webhook_and_poller_starts_one_job(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.labels()
    (event,) = (read(delivery.event, delivery.payload) for delivery in harness.world.deliveries)
    assert not isinstance(event, str)
    loop, other = asyncio.get_running_loop(), EventHandler(GitHubClients(harness.app), harness.stores, DEFAULTS)
    meanwhile = ConcurrentTriggerLog(
        harness, lambda: asyncio.run_coroutine_threadsafe(other.handle(event), loop).result(30)
    )
    stores = Stores(harness.engine, harness.stores.clock)
    stores.triggers = meanwhile
    slow = EventHandler(GitHubClients(harness.app), stores, DEFAULTS)
    assert await slow.handle(event) == f"decided before: job {harness.job.job.id}"
    assert len(harness.jobs()) == 1
    assert harness.answers() == []


async def test_two_repositories_go_side_by_side_and_each_in_order(harness: EventHarness) -> None:
    other = harness.world.add_repo(harness.owner, "other", {"a.txt": "a\n"})
    harness.fake_github.installation.repositories.add(other.id)
    about = harness.world.open_issue(other, harness.owner, "Another")
    harness.hooks.held = True
    for number in range(5):
        await harness.says(f"/agent mind {number}")
        harness.world.tick()
        comment = harness.world.comment(other, about, harness.owner, f"/agent mind {number}")
        await harness.hooks.commented(other, harness.fake_github.installation, harness.owner, about, comment)
    harness.hooks.held = False
    for delivery in harness.world.deliveries:
        await harness.hooks.attempt(delivery)
    assert await harness.trigger_loops.next_delivery() == 10
    for job in harness.jobs():
        assert job.job.task.request == "mind 0"
        assert [said.text for said in harness.said(job)] == [f"mind {number}" for number in range(1, 5)]
