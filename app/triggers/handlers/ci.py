"""`ci`: an empty commit on our pull request's branch, so that CI starts. No model is used."""

from dataclasses import replace

from app.jobs.store import JobWithContext
from app.publish.body_edits import FORK_MARK
from app.triggers.decisions import EventFacts, Reply
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, early_draft, refuse_pull_requests_of_others


def _refuse(facts: EventFacts) -> Reply | None:
    return refuse_pull_requests_of_others(facts) or _refuse_commits_of_a_fork(facts)


def _refuse_commits_of_a_fork(facts: EventFacts) -> Reply | None:
    """CI on a branch here gets this repository's secrets, so only a person may start it for a fork's code."""
    if facts.pull is None or FORK_MARK not in facts.pull.body:
        return None
    text = (
        "This branch has commits from a fork, and CI would run on it with this repository's secrets. Review all its "
        "commits first. Then start CI with a commit of your own, even an empty one: `git commit --allow-empty`."
    )
    return Reply(rule="commits_of_a_fork", text=text)


async def _run(call: CommandCall) -> Outcome:
    return early_draft(call.context) or await start_ci(call)


async def start_ci(call: CommandCall, *, former: JobWithContext | None = None) -> Outcome:
    """Create the job that starts CI, in place of the former one. Raises ValueError for an issue."""
    pull = call.context.facts.pull
    if pull is None:
        raise ValueError("CI is started on pull requests only")
    draft = call.job_creator.draft(call.request, call.context, aim="ci", base=pull.head)
    return await call.job_creator.admit(replace(draft, former=former))


CI = CommandHandler(_run, refuse=_refuse)
