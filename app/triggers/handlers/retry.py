"""`retry`: publish what could not be published, or start again from scratch.

`allow`: start again with a protected path that this job may change.
"""

import asyncio

from app.config.repository import RepoConfig
from app.triggers.commands import CommandOptions
from app.triggers.decisions import EventFacts, Reply
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, early_draft, when_idle
from app.triggers.handlers.ci import start_ci
from app.triggers.handlers.rebase import merge_base_branch
from app.triggers.handlers.verify import verify
from app.triggers.job_creator import as_before
from app.verify.gates.paths import is_configured


async def _retry(call: CommandCall) -> Outcome:
    repository, number = call.context.repo.repository.id, call.context.trigger.number
    if call.context.facts.job is None and call.stores.job_queries.verification(repository, number) is not None:
        return await verify(call)  # never a fix of somebody's pull request in its place
    return early_draft(call.context) or await asyncio.to_thread(_publish_again, call) or await _restart(call)


def _publish_again(call: CommandCall) -> Outcome:
    """Publish the verified change of a job that failed only then, for nothing; empty if there is none. Blocking.

    Instructions and options ask for other work.
    """
    former, request, trigger = call.context.facts.job, call.request, call.context.trigger
    if former is None or request.text or request.options != CommandOptions() or call.context.promised_job:
        return ""
    outcome = f"publish {former.job.id}"
    if call.stores.queue.publish_again(former.job.id, trigger=trigger, outcome=outcome):
        call.acknowledge()
        return outcome
    return "decided before" if call.stores.triggers.decided(trigger.key) else ""


async def _restart(call: CommandCall) -> Outcome:
    """Create the same job again, in place of the current one. With a path that may be changed, a plan is carried out.

    A job that a review started becomes an ordinary follow-up, because now a person asks.
    """
    request, context, former = call.request, call.context, call.context.facts.job
    if former is None:
        return await call.job_creator.start(request, context)
    request, aim = as_before(request, former.job), former.job_context.aim
    match aim:
        case "conflicts":
            return await merge_base_branch(request, context, call.job_creator, former=former)
        case "ci":
            return await start_ci(call, former=former)
        case "fix_checks":
            return await call.job_creator.start(request, context, aim="fix_checks", former=former)
    aim = aim if aim in {"plan", "reproduce"} and not request.options.allow else "fix"
    text = request.text or former.job.task.request
    return await call.job_creator.start(request, context, aim=aim, text=text, former=former)


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
ALLOW = CommandHandler(_restart, starts=when_idle, refuse=_refuse_to_allow, asks_for_work=True, replaces=True)
