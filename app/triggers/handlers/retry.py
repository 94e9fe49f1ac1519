"""`retry`: start again from scratch; and `allow`: do so with a protected path that this job may change."""

import asyncio

from app.config.repository import RepoConfig
from app.core.job import PUBLISHED
from app.triggers.decisions import EventFacts, Reply
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, early_draft, when_idle
from app.triggers.job_creator import RetryLater, as_before
from app.verify.gates.paths import is_configured


async def _retry(call: CommandCall) -> Outcome:
    return early_draft(call.context) or await _restart(call)


async def _restart(call: CommandCall) -> Outcome:
    """Stop the current job, then create the same one again."""
    request, former = call.request, call.context.facts.job
    if former is None:
        return await call.job_creator.start(request, call.context, text=request.text)
    if not former.row.final:
        reason = "The job was started again from scratch."
        if not await asyncio.to_thread(call.stores.queue.stop, former.job.id, reason):
            raise RetryLater("Wait until the current job ends.")
    kept = former.row.state not in PUBLISHED and not call.defaults.operator.locks("protected_paths")
    return await call.job_creator.start(
        as_before(request, former.job),
        call.context,
        text=request.text or former.job.task.request,
        formerly_allowed=former.job.task.allowed_paths if kept else (),
    )


def _refuse_to_allow(facts: EventFacts) -> Reply | None:
    if facts.state.working:
        text = "A job is already running, and its permissions cannot change. Stop it first."
        return Reply(rule="busy", text=text, suggestion="/agent stop")
    path, config = facts.command.options.allow if facts.command else None, facts.config
    if path is not None and isinstance(config, RepoConfig) and not is_configured(path, config.protected_paths):
        text = f"`{path}` is not protected here, so nothing has to be allowed."
        return Reply(rule="nothing_to_act_on", text=text, suggestion="/agent retry")
    return None


RETRY = CommandHandler(_retry, starts=lambda _: True, asks_for_work=True, replaces=True)
ALLOW = CommandHandler(_restart, starts=when_idle, refuse=_refuse_to_allow, asks_for_work=True)
