"""What people want: `fix`, a message without a command's name, a review that requests changes, and `ask`.

Each starts a job. The first three are messages instead if a job is active, and a message may also answer its question.
"""

import asyncio

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.text import clip, count, one_line
from app.publish import replies
from app.triggers.commands import asks_for_opinion
from app.triggers.decisions import Decision, EventFacts, Ignored, Reply, RequestAim, TriggerAnswer
from app.triggers.handlers.base import (
    CommandCall,
    CommandHandler,
    Outcome,
    refuse_beside_a_job,
    refuse_options,
    refuse_while_paused,
    refused,
    when_idle,
)
from app.triggers.handlers.reproduce import fix_reproduced, reproduction_of
from app.triggers.handlers.resume import resume
from app.triggers.job_creator import RetryLater
from app.triggers.prompt_context import asking_comments, comments_in, is_about, refs_of, review_of

MAX_MESSAGE = 20_000
"""Characters of one message to a job."""


def _aim(facts: EventFacts) -> RequestAim:
    return "steer" if facts.state.working else "fix"


def _aim_of_message(facts: EventFacts) -> RequestAim:
    return "answer" if facts.state.job_state == "needs_input" else _aim(facts)


def _aim_of_review(facts: EventFacts) -> RequestAim:
    return "steer" if facts.state.working else "revise"


def _refuse(facts: EventFacts) -> Decision | None:
    if refusal := refuse_while_paused(facts) or refuse_beside_a_job(facts):
        return refusal
    # What is written while a job is published goes to the next job.
    takes_messages = facts.state.working and not (facts.job and facts.job.handed_over)
    return refuse_options(facts) if takes_messages else None


def _refuse_message(facts: EventFacts) -> Decision | None:
    word = asks_for_opinion(facts.command.text) if facts.command else ""
    if word and facts.pull is not None and not facts.is_our_pull_request and not facts.state.working:
        text = (
            f"`/agent {word} …` asks for an opinion, so nothing is changed. `/agent fix {word} …` changes the branch."
        )
        return Reply(rule="asks_for_opinion", text=text, suggestion="/agent verify")
    return refuse_options(facts, "budget") if facts.state.job_state == "needs_input" else _refuse(facts)


async def _run(call: CommandCall) -> Outcome:
    match call.request.aim:
        case "steer":
            return await _send(call)
        case "answer":
            return await asyncio.to_thread(resume, call, "answer", await _message(call))
        case "ask":
            return await call.job_creator.start(call.request, call.context, aim="ask")
        case "revise":
            return await call.job_creator.start(call.request, call.context, aim="revise")
    if reproduction := reproduction_of(call.context.facts):
        return await fix_reproduced(call, reproduction)
    return await call.job_creator.start(call.request, call.context)


async def _send(call: CommandCall) -> Outcome:
    """Store a message: the agent gets it at its next turn, or when a paused job resumes."""
    job = call.job
    if job.handed_over:
        raise RetryLater("The job is publishing its result and no longer reads messages.")
    text = await _message(call)
    if not text:
        return TriggerAnswer("skip busy", replies.refused("A job is already working on it."))
    await asyncio.to_thread(_store, call, text)
    outcome = f"steer {job.job.id}"
    if job.row.state == "awaiting_approval":
        return TriggerAnswer(outcome, replies.message_noted())
    await asyncio.to_thread(call.stores.triggers.record, call.context.trigger, outcome, job.job.id)
    return outcome


def _store(call: CommandCall, text: str) -> None:
    trigger = call.context.trigger
    call.stores.messages.add(call.job.job.id, "steer", key=trigger.key, who=trigger.login, text=text)
    call.acknowledge()


async def _message(call: CommandCall) -> str:
    """The message, with the lines of the diff it is about; the job will reply in those threads too."""
    request, context, job = call.request, call.context, call.job
    review = review_of(request)
    if request.thread is None and not review:
        return request.text
    threads = await context.repo.reader.review_threads(
        context.trigger.number, context.trigger.at, including=asking_comments(request), review=review
    )
    refs = refs_of(each for each in threads if not each.resolved and is_about(request, each))
    if refs and job.job_context.publish_target != "nowhere":
        await asyncio.to_thread(call.stores.job_queries.join_threads, job.job.id, refs)
    if request.thread is not None:
        return _on_line(request.text, request.thread.path, request.thread.end)
    lines = [_on_line(text, thread.path, thread.line) for thread, text in comments_in(threads, review)]
    return clip("\n\n".join(text for text in (request.text, *lines) if text.strip()), MAX_MESSAGE)


def _on_line(text: str, path: str, line: int | None) -> str:
    where = f"{one_line(path)}:{line}" if line is not None else one_line(path)
    return f"(about {where})\n{text}" if text.strip() else ""


def _ignore_review(facts: EventFacts) -> Decision | None:
    """Follow up on a review without a command, as often as the repository allows; ignore others."""
    if reason := _why_not_revise(facts):
        return Ignored(rule="review", reason=reason)
    most = facts.config.iterate.max if isinstance(facts.config, RepoConfig) else 0
    if facts.state.working or facts.state.follow_ups < most:
        return None
    rounds = count(most, "round")
    return refused("reviews_cap", f"A review requests changes again after {rounds}; reply `/agent …` to continue.")


def _why_not_revise(facts: EventFacts) -> str | None:
    config, issue = facts.config, facts.issue
    if isinstance(config, ConfigError):
        return "the configuration is invalid"
    reasons = {
        "the configuration turns it off": not config.iterate.reviews or config.iterate.max == 0,
        "it is not on a pull request of the bot": not facts.is_our_pull_request,
        "the pull request is closed or locked": issue is None or not issue.open or issue.locked,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


FIX = CommandHandler(_run, aim=_aim, starts=when_idle, refuse=_refuse, asks_for_work=True)
STEER = CommandHandler(_run, aim=_aim_of_message, starts=when_idle, refuse=_refuse_message, asks_for_work=True)
REVISE = CommandHandler(_run, aim=_aim_of_review, ignore=_ignore_review, refuse=_refuse, asks_for_work=True)
ASK = CommandHandler(_run)
