"""The progress step: edits the status comment in a process of its own, which holds the token, beside the solve step."""

import asyncio
import os
import select
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app.action.context import job_of_this_run, open_workflow
from app.config.settings import Settings
from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.job import WAITING
from app.jobs.job_queries import JobWithContext
from app.publish.publisher import Publisher
from app.publish.status_updater import StatusUpdater
from app.server.wiring.context import ServerContext

EVERY: Final = 30.0
"""Seconds between two edits, at least: all workflows of a repository share 1,000 requests an hour."""
LOOK: Final = 1.0
AT_MOST: Final = 6 * 3_600.0
"""Seconds; no job of a workflow lives longer."""
SHOWN: Final = ("status_comment", "label", "reaction")
"""The kinds of effects that show a job's progress."""
RUNNER: Final = "Runner.Worker"
"""The program that executes one job of a workflow and then ends."""


async def show_progress(workflow: Workflow) -> int:
    """Ends when the job is no longer worked on, the publish step has begun, or the runner is done with the workflow's
    job: it may have been cancelled before the publish step."""
    if workflow.settings.sandbox == "none":  # nothing would keep the project's code from this process
        return ExitCode.OK
    mark, gone = publishing_mark(workflow.settings), replaced(workflow.settings.state)
    left = runner_ended(workflow.runner)
    server_context = ServerContext(workflow.settings)

    async def post() -> None:
        async with open_workflow(workflow) as action_context:  # with a new token, because an App's ends after an hour
            publisher_context = action_context.publisher_context
            await post_once(publisher_context.status_updater, publisher_context.publisher)

    await follow(post, lambda: mark.exists() or gone() or left() or is_over(job_of_this_run(server_context)))
    return ExitCode.OK


async def follow(
    post: Callable[[], Awaitable[None]], ended: Callable[[], bool], *, every: float = EVERY, look: float = LOOK
) -> None:
    started = last = time.monotonic()
    while time.monotonic() < started + AT_MOST and not await asyncio.to_thread(ended):
        if time.monotonic() >= last + every:
            with suppress(AgentFixError):  # GitHub does not answer: the next edit, or the publish step, shows it
                await post()
            last = time.monotonic()
        await asyncio.sleep(look)


async def post_once(status_updater: StatusUpdater, publisher: Publisher[Any]) -> None:
    """Edit the comment if there is news. The change is left to the publish step, also if it is handed over just now."""
    if await status_updater.post_due():
        while await publisher.publish_next(SHOWN) is not None:
            pass


def is_over(found: JobWithContext | None) -> bool:
    """True if the job waits, or the publish step does the rest."""
    return found is None or found.row.final or found.handed_over or found.row.state in WAITING


def publishing_mark(settings: Settings) -> Path:
    """The file that the publish step leaves, so that only one process publishes from then on."""
    return settings.state / "publishing"


def replaced(directory: Path) -> Callable[[], bool]:
    """Whether the directory is deleted, or another one has its path, as of the runner's next job."""
    descriptor = os.open(directory, os.O_RDONLY)  # while it is open, no other directory gets its number

    def differs() -> bool:
        try:
            return not os.path.samestat(os.fstat(descriptor), directory.stat())
        except FileNotFoundError:
            return True

    return differs


def runner_ended(process: int) -> Callable[[], bool]:
    """Whether this process has ended, if it is the runner's; in containers it is not seen, and ends them with the job.

    The runner ends processes that were left behind by a variable in their environment, but it cannot read ours.
    """
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        descriptor = os.pidfd_open(process) if name == RUNNER else None
    except OSError:
        descriptor = None
    return lambda: descriptor is not None and bool(select.select([descriptor], [], [], 0)[0])
