"""The publisher's chores as a step of a workflow does them: in turn, until nothing is due, within bounds."""

import asyncio
import time

from app.bootstrap.publishing import Publishing
from app.errors import AgentFixError, ExitCode
from app.jobs.roster import Commissioned


class Patience:
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


async def carry_out_due(publishing: Publishing, patience: Patience, *, everything: bool = False) -> None:
    """Publish, settle and tell until nothing is due; with `everything` until nothing is open either."""
    premises = publishing.premises
    while True:
        done = int(await publishing.publisher.publish_next() is not None) + await publishing.settling.settle()
        if await asyncio.to_thread(_untold, publishing):
            done += await publishing.herald.tell()
        if done:
            continue
        waiting = await asyncio.to_thread(premises.intents.next_due)
        if not everything or (waiting is None and not await asyncio.to_thread(premises.roster.publishing)):
            return
        await patience.wait()


def _untold(publishing: Publishing) -> bool:
    """Whether a job is in a state that people were not told of: time alone is no news at the end of a step."""
    found = the_job(publishing)
    return found is not None and found.told != found.row.state


def the_job(publishing: Publishing) -> Commissioned | None:
    """The one job of this workflow's run, if there is one."""
    newest = publishing.premises.store().newest(1)
    return publishing.premises.roster.get(newest[0].job.id) if newest else None
