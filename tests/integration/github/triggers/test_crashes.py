"""The publisher dies before or after any write: the delivery is processed again, and people see the same."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.jobs.queue import JobQueue
from app.jobs.trigger_log import JobMessages, TriggerLog
from app.publish.outbox import Outbox
from app.triggers.event_handler import EventHandler
from app.triggers.events import Event, read
from app.triggers.github_clients import GitHubClients
from app.triggers.stores import Stores
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness


class ProcessDiedError(Exception):  # what happened
    """The process is gone at this point."""


class CrashAt:
    """Blows at the n-th write, before it happens or after."""

    def __init__(self, nth: int, *, after: bool) -> None:
        self._missing_likeness = nth
        self._after = after

    def through(self, write: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._missing_likeness -= 1
        if self._missing_likeness == 0 and not self._after:
            raise ProcessDiedError
        result = write(*args, **options)
        if self._missing_likeness == 0:
            raise ProcessDiedError
        return result

    @property
    def blown(self) -> bool:
        return self._missing_likeness <= 0


class FusedQueue(JobQueue):
    fuse: CrashAt

    def admit(self, *args: Any, **options: Any) -> str:
        admitted: str = self.fuse.through(super().admit, *args, **options)
        return admitted

    def resume(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().resume, *args, **options))

    def stop(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().stop, *args, **options))


class FusedMessages(JobMessages):
    fuse: CrashAt

    def add(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().add, *args, **options))


class FusedTriggers(TriggerLog):
    fuse: CrashAt

    def record(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().record, *args, **options))


class FusedIntents(Outbox):
    fuse: CrashAt

    def add(self, *args: Any, **options: Any) -> str:
        key: str = self.fuse.through(super().add, *args, **options)
        return key


def fused(harness: EventHarness, fuse: CrashAt) -> Stores:
    engine, clock = harness.engine, harness.stores.clock
    queue, messages = FusedQueue(engine, clock), FusedMessages(engine, clock)
    triggers, outbox = FusedTriggers(engine, clock), FusedIntents(engine, clock)
    queue.fuse = messages.fuse = triggers.fuse = outbox.fuse = fuse
    stores = Stores(engine, clock)
    stores.queue, stores.messages, stores.triggers, stores.outbox = queue, messages, triggers, outbox
    return stores


async def prepare(harness: EventHarness, state: str) -> None:
    if state:
        await harness.labels()
        if state != "queued":
            harness.put(state, reason="100 turns were taken.")


async def event_of(harness: EventHarness, text: str) -> Event:
    harness.hooks.held = True
    await harness.says(text)
    event = read("issue_comment", harness.world.deliveries[-1].payload)
    assert not isinstance(event, str)
    return event


def seen(harness: EventHarness) -> dict[str, object]:
    """All that people or a worker would find. A new job's first comment has the status updater's key."""
    jobs = [(job.job_context.aim, job.row.state, job.row.stop_requested, job.job.budget) for job in harness.jobs()]
    said = [(each.kind, each.text) for job in harness.jobs() for each in harness.said(job)]
    reactions = [effect for job, effect in harness.effects() if effect.kind == "reaction" and not job.startswith("d-")]
    effects = sorted(effect.kind for _, effect in harness.effects() if effect not in reactions)
    return {"jobs": sorted(map(str, jobs)), "said": said, "effects": effects}


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("", "fix it"),
        ("", "ask why?"),
        ("", "plan"),
        ("", "status"),
        ("", "help"),
        ("", "approve"),
        ("queued", "mind the tests"),
        ("queued", "stop"),
        ("queued", "status"),
        ("queued", "retry"),
        ("awaiting_approval", "approve"),
        ("awaiting_approval", "mind the tests"),
        ("needs_input", "half up"),
        ("paused", "continue --budget +3"),
    ],
)
@pytest.mark.parametrize("after", [False, True])
async def test_a_kill_at_any_time_gives_the_same_result(tmp_path: Path, state: str, text: str, after: bool) -> None:
    async with event_harness(tmp_path / "whole") as whole:
        await prepare(whole, state)
        event = await event_of(whole, f"/agent {text}")
        await whole.trigger_loops.handler.handle(event)
        wanted = seen(whole)
    for nth in range(1, 9):
        async with event_harness(tmp_path / f"{nth}") as harness:
            await prepare(harness, state)
            event = await event_of(harness, f"/agent {text}")
            fuse = CrashAt(nth, after=after)
            with suppress(ProcessDiedError):
                await EventHandler(GitHubClients(harness.app), fused(harness, fuse), DEFAULTS).handle(event)
            for _ in range(2):
                await EventHandler(GitHubClients(harness.app), harness.stores, DEFAULTS).handle(event)
            assert seen(harness) == wanted, (nth, after)
            if not fuse.blown:
                return
    raise AssertionError("more writes than were tried")
