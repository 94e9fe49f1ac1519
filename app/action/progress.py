"""The progress step: edits the status comment in a process of its own, which holds the token, beside the solve step."""

import asyncio
import ctypes
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
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

EVERY: Final = 30.0
"""Seconds between two edits, at least: all workflows of a repository share 1,000 requests an hour."""
LOOK: Final = 1.0
AT_MOST: Final = 6 * 3_600.0
"""Seconds; no job of a workflow lives longer."""
_PR_SET_DUMPABLE: Final = 4


async def show_progress(workflow: Workflow) -> int:
    """Ends when the job is no longer worked on, or the publish step has begun."""
    keep_environment_private()
    ended = publishing_mark(workflow.settings)
    async with open_workflow(workflow) as action_context:
        publisher_context = action_context.publisher_context
        post = partial(post_once, publisher_context.status_updater, publisher_context.publisher)
        await follow(post, lambda: ended.exists() or is_over(job_of_this_run(publisher_context)))
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
    """Edit the comment if there is news. Nothing else is published, because the job is not handed over yet."""
    if await status_updater.post_due():
        while await publisher.publish_next() is not None:
            pass


def is_over(found: JobWithContext | None) -> bool:
    """True if the job waits, or the publish step does the rest."""
    return found is None or found.row.final or found.handed_over or found.row.state in WAITING


def publishing_mark(settings: Settings) -> Path:
    """The file that the publish step leaves, so that only one process publishes from then on."""
    return settings.state / "publishing"


def keep_environment_private() -> None:
    """Other processes of this user cannot read this one's environment, where the token is, from /proc."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
