"""Reception dies before or after any write: the delivery comes again, and people see what they would have seen."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.events import Event
from app.jobs.messages import Messages
from app.jobs.queue import Queue
from app.jobs.triggers import Triggers
from app.payload import read
from app.publish.intents import Intents
from app.reception.books import Books
from app.reception.desk import Desk
from app.reception.doors import Doors
from tests.front_desk import DEFAULTS, FrontDesk, front_desk


class Died(Exception):  # noqa: N818  # what happened
    """The process is gone at this point."""


class Fuse:
    """Blows at the n-th write, before it happens or after."""

    def __init__(self, nth: int, *, after: bool) -> None:
        self._left = nth
        self._after = after

    def through(self, write: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Died
        result = write(*args, **options)
        if self._left == 0:
            raise Died
        return result

    @property
    def blown(self) -> bool:
        return self._left <= 0


class FusedQueue(Queue):
    fuse: Fuse

    def admit(self, *args: Any, **options: Any) -> str:
        admitted: str = self.fuse.through(super().admit, *args, **options)
        return admitted

    def resume(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().resume, *args, **options))

    def stop(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().stop, *args, **options))


class FusedMessages(Messages):
    fuse: Fuse

    def add(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().add, *args, **options))


class FusedTriggers(Triggers):
    fuse: Fuse

    def record(self, *args: Any, **options: Any) -> bool:
        return bool(self.fuse.through(super().record, *args, **options))


class FusedIntents(Intents):
    fuse: Fuse

    def want(self, *args: Any, **options: Any) -> str:
        key: str = self.fuse.through(super().want, *args, **options)
        return key


def fused(desk: FrontDesk, fuse: Fuse) -> Books:
    engine, clock = desk.engine, desk.books.clock
    queue, messages = FusedQueue(engine, clock), FusedMessages(engine, clock)
    triggers, intents = FusedTriggers(engine, clock), FusedIntents(engine, clock)
    queue.fuse = messages.fuse = triggers.fuse = intents.fuse = fuse
    return replace(desk.books, queue=queue, messages=messages, triggers=triggers, intents=intents)


async def ground(desk: FrontDesk, state: str) -> None:
    if state:
        await desk.labels()
        if state != "queued":
            desk.put(state, reason="100 turns were taken.")


async def event_of(desk: FrontDesk, text: str) -> Event:
    desk.hooks.held = True
    await desk.says(text)
    event = read("issue_comment", desk.world.deliveries[-1].payload).event
    assert event is not None
    return event


def seen(desk: FrontDesk) -> dict[str, object]:
    """Everything that people or a worker would find. A new job's greeting is the herald's too, by the same name."""
    jobs = [(job.commission.aim, job.row.state, job.row.stop_requested, job.job.budget) for job in desk.jobs()]
    said = [(each.kind, each.text) for job in desk.jobs() for each in desk.said(job)]
    greeting = [wish for job, wish in desk.wishes() if wish.kind == "reaction" and not job.startswith("d-")]
    wishes = sorted(wish.kind for _, wish in desk.wishes() if wish not in greeting)
    return {"jobs": sorted(map(str, jobs)), "said": said, "wishes": wishes}


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
async def test_whenever_it_dies_the_end_is_the_same(tmp_path: Path, state: str, text: str, after: bool) -> None:
    async with front_desk(tmp_path / "whole") as whole:
        await ground(whole, state)
        event = await event_of(whole, f"/agent {text}")
        await whole.reception.desk.handle(event)
        wanted = seen(whole)
    for nth in range(1, 9):
        async with front_desk(tmp_path / f"{nth}") as desk:
            await ground(desk, state)
            event = await event_of(desk, f"/agent {text}")
            fuse = Fuse(nth, after=after)
            with suppress(Died):
                await Desk(Doors(desk.app), fused(desk, fuse), DEFAULTS).handle(event)
            for _ in range(2):
                await Desk(Doors(desk.app), desk.books, DEFAULTS).handle(event)
            assert seen(desk) == wanted, (nth, after)
            if not fuse.blown:
                return
    raise AssertionError("more writes than were tried")
