"""The publisher: the only process that writes to the forge. It holds the App's key and the database.

Each of its tasks is level-triggered: it looks at rows, does what is due and may die at any point. No model library
is imported here.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode
from app.server.wiring.publisher import PublisherContext, open_publishing

PARALLEL_INSTALLATIONS = 3
"""Each is served one effect at a time, a slow one does not keep the others."""
MAX_PAUSE_LENGTH = 60.0
"""Seconds between two attempts of a task that fails."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that is repeated; `due` returns how much there was to do."""

    name: str
    due: Callable[[], Awaitable[int]]
    every: float
    """Seconds to wait if there was nothing to do."""


def periodic_tasks(publisher_context: PublisherContext) -> tuple[PeriodicTask, ...]:
    trigger_loops = publisher_context.trigger_loops

    async def reconcile() -> int:
        await trigger_loops.reconcile_when_due()
        return 0

    async def publish() -> int:
        return int(await publisher_context.publisher.publish_next() is not None)

    return (
        PeriodicTask("deliveries", trigger_loops.next_delivery, 0.1),
        PeriodicTask("base commits", trigger_loops.fetch_base_commits, 0.5),
        *(PeriodicTask(f"publishing {number}", publish, 0.2) for number in range(1, PARALLEL_INSTALLATIONS + 1)),
        PeriodicTask("waiting jobs", trigger_loops.release_waiting_jobs, 1.0),
        PeriodicTask("outcomes", trigger_loops.record_outcomes, 15.0),
        PeriodicTask("commit transfers", publisher_context.fill_commit_transfers, 2.0),
        PeriodicTask("finishing jobs", publisher_context.finalizer.finalize, 0.5),
        PeriodicTask("status comments", publisher_context.status_updater.post_due, 0.5),
        PeriodicTask("polling", reconcile, 10.0),
        PeriodicTask("GitHub's limits", publisher_context.store_limits, 15.0),
        PeriodicTask("pruning", publisher_context.prune, 3_600.0),
    )


async def run_forever(task: PeriodicTask, draining: asyncio.Event) -> None:
    """Repeat the task until draining. A failure is logged and retried with growing delays; other tasks continue."""
    failures = 0
    while not draining.is_set():
        (outcome,) = await asyncio.gather(task.due(), return_exceptions=True)
        if isinstance(outcome, BaseException):
            failures += 1
            _log_failure(task.name, outcome)
        else:
            failures = 0
            if outcome:
                continue
        pause = min(task.every + 2.0**failures - 1.0, max(MAX_PAUSE_LENGTH, task.every))
        with suppress(TimeoutError):
            await asyncio.wait_for(draining.wait(), pause)


def _log_failure(name: str, error: BaseException) -> None:
    if isinstance(error, AgentFixError):
        logger.warning("%s: %s", name, error.message)
    elif isinstance(error, SQLAlchemyError):
        logger.warning("%s: the database did not answer (%s)", name, type(error).__name__)
    else:
        logger.error("%s failed", name, exc_info=error)


def run_publisher(settings: Settings) -> int:
    """Run the publisher's process until SIGTERM or SIGINT."""
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    draining = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, draining.set)
    logger.info("publisher: asking GitHub at %s who we are", settings.github_url)
    async with open_publishing(settings) as publisher_context:
        logger.info("publisher ready, as %s at %s", publisher_context.login, settings.github_url)
        await asyncio.gather(*(run_forever(task, draining) for task in periodic_tasks(publisher_context)))
    return ExitCode.OK
