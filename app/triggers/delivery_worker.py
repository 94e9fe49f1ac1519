"""Processes deliveries from the inbox: repositories in parallel, each in order, and no failure stops the loop."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.core.errors import AgentFixError
from app.github.errors import RateLimited, TemporaryFailure
from app.jobs.inbox import LEASE, ClaimedDelivery, Inbox, InboxError
from app.jobs.requests import PROGRAM_EVENT, ProgramRequest
from app.triggers.events import Event, InstallationChanged
from app.triggers.job_creator import RetryLater
from app.triggers.webhook_parser import IgnoredReason, decode, read

AT_ONCE = 4
"""Repositories."""
MAX_CLAIMED = 40
RETRY_UNCOUNTED_FOR = timedelta(days=1)
"""For so long a delivery waits for a forge that is down; after it attempts are counted."""
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=5)
AFTER_A_FAULT = timedelta(seconds=30)

logger = logging.getLogger(__name__)

Handle = Callable[[Event], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ParsedDelivery:
    """A claimed delivery with its event, or with a program's request, or the reason why it is ignored."""

    claimed: ClaimedDelivery
    event: Event | None
    ignored: IgnoredReason | None = None
    request: ProgramRequest | None = None
    """A program's request through our API, which no webhook can make."""


class DeliveryWorker:
    """Claims due deliveries and passes each event to the handler."""

    def __init__(
        self,
        inbox: Inbox,
        handle: Handle,
        clock: Callable[[], datetime],
        owner: str,
        *,
        carry_out: Callable[[ProgramRequest], Awaitable[str]] | None = None,
        renew_every: float = LEASE.total_seconds() / 3,
    ) -> None:
        self._inbox = inbox
        self._handle = handle
        self._carry_out = carry_out
        self._clock = clock
        self._owner = owner
        self._renew_every = renew_every
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def next(self) -> int:
        """Process the deliveries that are due; returns how many."""
        claimed = await asyncio.to_thread(self._inbox.claim, self._owner, MAX_CLAIMED)
        if not claimed:
            return 0
        rows: dict[int, list[ParsedDelivery]] = defaultdict(list)
        for arrived in await asyncio.to_thread(lambda: [_arrived(each) for each in claimed]):
            rows[_row(arrived)].append(arrived)
        renewing = asyncio.create_task(self._renew(claimed))
        try:
            await asyncio.gather(*(self._in_order(row) for row in rows.values()))
        finally:
            renewing.cancel()
        return len(claimed)

    async def _in_order(self, row: Iterable[ParsedDelivery]) -> None:
        async with self._slots:
            for arrived in row:
                await self._deal_with(arrived)

    async def _deal_with(self, arrived: ParsedDelivery) -> None:
        claimed = arrived.claimed
        if arrived.request is not None and self._carry_out is not None:
            work = self._carry_out(arrived.request)
        elif arrived.event is not None:
            work = self._handle(arrived.event)
        else:
            await asyncio.to_thread(self._inbox.finish, claimed, f"ignored: {arrived.ignored}")
            return
        (outcome,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(outcome, str):
            kind = arrived.event.kind if arrived.event else "request"
            logger.info("%s: %s", kind, outcome, extra={"delivery": claimed.delivery.id})
            await asyncio.to_thread(self._inbox.finish, claimed, outcome)
        elif isinstance(outcome, AgentFixError):
            await asyncio.to_thread(self._later, claimed, outcome)
        elif isinstance(outcome, Exception):
            logger.error("delivery %s failed", claimed.delivery.id, exc_info=outcome)
            reason = f"{type(outcome).__name__}"
            await asyncio.to_thread(self._inbox.put_back, claimed, reason, AFTER_A_FAULT)
        else:
            raise outcome

    def _later(self, claimed: ClaimedDelivery, error: AgentFixError) -> None:
        """Retry a temporary failure with growing delays; finish the delivery if the failure is permanent."""
        now = self._clock()
        waited = now - claimed.received_at
        pause = min(max(waited / 2, SHORTEST), LONGEST)
        match error:
            case RateLimited():
                pause = max(error.until - now, SHORTEST)
            case RetryLater():
                pause = max(pause, error.after)
            case TemporaryFailure() | InboxError():
                pass
            case _:
                logger.warning("delivery %s: %s", claimed.delivery.id, error.message)
                self._inbox.finish(claimed, f"refused: {error.message}")
                return
        self._inbox.put_back(claimed, error.message, pause, counts=waited > RETRY_UNCOUNTED_FOR)

    async def _renew(self, claimed: Iterable[ClaimedDelivery]) -> None:
        """Extend the leases of deliveries that are still being processed."""
        while True:
            await asyncio.sleep(self._renew_every)
            for each in claimed:
                with suppress(InboxError):
                    await asyncio.to_thread(self._inbox.renew, each)


def _arrived(claimed: ClaimedDelivery) -> ParsedDelivery:
    if claimed.delivery.event == PROGRAM_EVENT:
        return ParsedDelivery(claimed, None, request=ProgramRequest.model_validate_json(claimed.delivery.body))
    try:
        payload = decode(claimed.delivery.body)
    except ValueError:
        return ParsedDelivery(claimed, None, "not_an_object")
    reading = read(claimed.delivery.event, payload)
    return ParsedDelivery(claimed, reading.event, reading.ignored)


def _row(arrived: ParsedDelivery) -> int:
    """The key within which order matters: a repository, an installation, or nothing."""
    event = arrived.event
    if arrived.request is not None:
        return hash(arrived.request.repository.casefold())
    if event is None:
        return 0
    return -event.installation if isinstance(event, InstallationChanged) else event.repository.id
