"""`verify`: somebody's pull request is judged; nothing is pushed or approved.

The base is where its branch left the base branch; the intent is that of the issue that it closes, else its own.
"""

import asyncio
import re
from typing import Final

from app.config.repository import RepoConfig
from app.core.examples import FrozenExamples
from app.core.issue_file import issue_of
from app.core.job import WAITING, JobResult
from app.core.task import Issue
from app.jobs.store import JobQueries, JobWithContext
from app.jobs.trigger_log import Trigger
from app.publish import replies
from app.triggers.decisions import (
    Decision,
    EventFacts,
    IssueState,
    JobRequest,
    Reply,
    TriggerAnswer,
    TriggerContext,
)
from app.triggers.events import PullRequestChanged
from app.triggers.github_clients import RepositoryContext, if_accessible
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, refused
from app.triggers.job_creator import JobCreator, RetryLater
from app.triggers.neighbours import without_code
from app.triggers.stores import Stores

_CLOSES: Final = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+#([0-9]{1,9})\b", re.IGNORECASE)
MAX_COMMITS: Final = 30
"""Whose messages say what a pull request is for, if nothing else does."""


def _find_job(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    return queries.verification(repository, number)


def _refuse(facts: EventFacts) -> Decision | None:
    if facts.pull is None:
        text = "`/agent verify` judges a pull request, and this is none."
        return Reply(rule="only_pull_request", text=text, suggestion="/agent reproduce")
    if not facts.is_open:
        return refused("closed", "It is closed; reopen it first.")
    return refused("busy", "It is being verified already.") if facts.state.working else None


async def _run(call: CommandCall) -> Outcome:
    return await verify(call)


async def verify(call: CommandCall) -> Outcome:
    """Create the job. Raises ValueError for an issue."""
    pull, reader = call.context.facts.pull, call.context.repo.reader
    if pull is None:
        raise ValueError("only pull requests are verified")
    tip = await reader.head(pull.base_branch) or pull.base
    base = await if_accessible(reader.merge_base(tip, pull.head))
    if base is None or base == pull.head:
        text = "It has no commits that its base does not have." if base else "It has no common history with its base."
        return TriggerAnswer("reply no_base", replies.refused(text))
    return await call.job_creator.verify(call.request, call.context, base=base, intent=await _intent(call.context))


async def _intent(context: TriggerContext) -> Issue:
    """What the pull request is for, in people's words."""
    pull, reader, number = context.facts.pull, context.repo.reader, context.trigger.number
    if pull is None:
        raise ValueError("only pull requests are verified")
    own = issue_of(
        pull.title, pull.body, number=number, labels=context.facts.issue.labels if context.facts.issue else ()
    )
    if closes := closed_issue(pull.body):
        issue = await if_accessible(reader.issue(closes))
        if issue is not None and not issue.pull_request:
            body = f"{issue.body}\n\n# The pull request: {pull.title}\n\n{pull.body}"
            return issue_of(issue.title, body, number=number, labels=own.labels)
    if own.body:
        return own
    messages = [each.message for each in (await reader.commits(number))[:MAX_COMMITS]]
    return issue_of(pull.title, "\n\n".join(messages), number=number, labels=own.labels)


def closed_issue(body: str) -> int | None:
    """The issue that a pull request's description says it closes, as its readers see it."""
    found = _CLOSES.search(without_code(body))
    return int(found[1]) if found else None


async def verify_again(
    event: PullRequestChanged, repo: RepositoryContext, stores: Stores, job_creator: JobCreator, config: RepoConfig
) -> str | TriggerAnswer:
    """Have a verified pull request's examples run on its new commit; empty if there is nothing to do.

    No model is asked. Raises RetryLater while an earlier commit is being verified.
    """
    repository, number, reader = repo.repository.id, event.subject.number, repo.reader
    former = await asyncio.to_thread(stores.job_queries.verification, repository, number)
    known = JobResult.read(former.row.result) if former is not None else None
    if former is not None and not former.row.final and former.row.state not in WAITING:
        raise RetryLater("An earlier commit is being verified.")
    pull = await if_accessible(reader.pull_request(number))
    if former is None or known is None or known.verification is None or pull is None or not pull.open:
        return ""
    trigger = Trigger(
        f"r{repository}/verify:{number}/{pull.head[:20]}", repository, number, repo.ours.user, "verify", stores.clock()
    )
    base = await if_accessible(reader.merge_base(await reader.head(pull.base_branch) or pull.base, pull.head))
    if base is None or pull.head in {base, former.job.change}:
        return ""
    if await asyncio.to_thread(stores.triggers.decided, trigger.key):
        return ""
    request = JobRequest(
        aim="verify", subject=event.subject, trigger=f"pushed:{pull.head[:20]}", destination="same_branch"
    )
    facts, examples = EventFacts(event, None, repo.ours, IssueState(), config, pull=pull), known.verification.examples
    review = known.verification.review
    frozen = former.job.frozen or FrozenExamples(
        author=examples.examples if examples else (), reviewer=review.examples if review else ()
    )
    context, intent = TriggerContext(repo, trigger, facts), former.job.task.issue
    return await job_creator.verify(request, context, base=base, intent=intent, frozen=frozen)


VERIFY = CommandHandler(_run, refuse=_refuse, find_job=_find_job, asks_for_work=True)
