"""The publisher's chores as a step of a workflow does them: in turn, until nothing is due, within bounds."""

import asyncio
import time

from app.core.errors import AgentFixError, ExitCode
from app.jobs.job_queries import JobWithContext
from app.server.wiring.publisher import PublisherContext


class DrainLimits:
    """Looks again and again, for so many seconds together."""

    def __init__(self, seconds: float, *, pause: float = 0.2) -> None:
        self._until = time.monotonic() + seconds
        self._pause = pause

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

    async def wait(self) -> None:
        if self.over:
            raise AgentFixError("GitHub did not answer for too long.", code=ExitCode.INTERNAL, hint="Run it again.")
        await asyncio.sleep(self._pause)


async def drain(publisher_context: PublisherContext, limits: DrainLimits, *, everything: bool = False) -> None:
    """Publish, settle and tell until nothing is due; with `everything` until nothing is open either."""
    server_context = publisher_context.server_context
    while True:
        done = (
            int(await publisher_context.publisher.publish_next() is not None)
            + await publisher_context.finalizer.finalize()
        )
        if await asyncio.to_thread(_untold, publisher_context):
            done += await publisher_context.status_updater.post_due()
        if done:
            continue
        waiting = await asyncio.to_thread(server_context.outbox.next_due)
        if not everything or (
            waiting is None and not await asyncio.to_thread(server_context.job_queries.publisher_context)
        ):
            return
        await limits.wait()


def _untold(publisher_context: PublisherContext) -> bool:
    """Whether a job is in a state that people were not told of: time alone is no news at the end of a step."""
    found = the_job(publisher_context)
    return found is not None and found.posted_state != found.row.state


def the_job(publisher_context: PublisherContext) -> JobWithContext | None:
    """The one job of this workflow's run, if there is one."""
    newest = publisher_context.server_context.store().newest(1)
    return publisher_context.server_context.job_queries.get(newest[0].job.id) if newest else None
