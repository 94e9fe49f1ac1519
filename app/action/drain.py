"""The publisher's tasks inside a workflow step: run them in turn until nothing is due or time is up."""

import asyncio
import time
from collections.abc import Callable

from app.core.errors import AgentFixError, ExitCode
from app.jobs.job_queries import JobWithContext
from app.server.wiring.publisher import PublisherContext

AFTER_A_RESET = 120.0
"""Seconds for what waited until GitHub took requests again."""


class DrainLimits:
    """Paces a loop for this many seconds, or longer if GitHub has named a time to continue."""

    def __init__(
        self, seconds: float, *, at_most: float = 0.0, pause: float = 0.2, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`at_most` are the seconds that may be waited in all for a moment that GitHub named."""
        self._now = now
        self._until = now() + seconds
        self._last = now() + at_most
        self._pause = pause

    @property
    def over(self) -> bool:
        return self._now() >= self._until

    def wait_for(self, seconds: float) -> None:
        """What is due in so many seconds is waited for, and a little longer, unless it is too far away."""
        then = self._now() + seconds
        if then <= self._last:
            self._until = max(self._until, then + AFTER_A_RESET)

    async def wait(self) -> None:
        if self.over:
            raise AgentFixError(
                "GitHub did not answer in time.", code=ExitCode.INTERNAL, hint="Run the workflow again."
            )
        await asyncio.sleep(self._pause)


async def drain(publisher_context: PublisherContext, limits: DrainLimits, *, everything: bool = False) -> None:
    """Publish, finalize and post until nothing is due; with `everything`, until nothing is open."""
    server_context = publisher_context.server_context
    while True:
        done = (
            int(await publisher_context.publisher.publish_next() is not None)
            + await publisher_context.finalizer.finalize()
        )
        if await asyncio.to_thread(_needs_update, publisher_context):
            done += await publisher_context.status_updater.post_due()
        if done:
            continue
        waiting = await asyncio.to_thread(server_context.outbox.next_due)
        if not everything or (
            waiting is None and not await asyncio.to_thread(server_context.job_queries.handed_over_jobs)
        ):
            return
        if waiting is not None:
            limits.wait_for((waiting - server_context.clock()).total_seconds())
        await limits.wait()


def _needs_update(publisher_context: PublisherContext) -> bool:
    """True if the status comment does not show the job's state. Elapsed time alone needs no update when a step ends."""
    found = the_job(publisher_context)
    return found is not None and found.posted_state != found.row.state


def the_job(publisher_context: PublisherContext) -> JobWithContext | None:
    """The job of this workflow run, if there is one."""
    newest = publisher_context.server_context.store().newest(1)
    return publisher_context.server_context.job_queries.get(newest[0].job.id) if newest else None
