"""Counts open pull requests, and active jobs that will open one, against a repository's limit."""

from collections.abc import Iterable

from app.github.models import PullRequest
from app.jobs.context import JobContext
from app.jobs.job_queries import JobQueries

OPENS: frozenset[str] = frozenset({"new_branch", "sibling"})
"""Targets for which a pull request is opened."""


def branches_in_use(
    job_queries: JobQueries,
    repository: int,
    pulls: Iterable[PullRequest],
    bot: int,
    *,
    waiting: bool = True,
    except_issue: int = 0,
) -> frozenset[str]:
    """The branches of the bot's open pull requests, and of active jobs that will open one.

    `waiting`: also of jobs that wait themselves; `except_issue` leaves out the jobs of an issue.
    """
    active = (
        each.job.branch
        for each in job_queries.active_jobs(repository=repository)
        if each.job_context.publish_target in OPENS
        and each.job_context.issue_ref.number != except_issue
        and (waiting or each.waiting_for != "pull_requests")
    )
    return frozenset({*(each.head_branch for each in pulls if each.author == bot), *active})


def is_full(job_context: JobContext, in_use: int) -> bool:
    """True if a new job cannot open its pull request yet."""
    most = job_context.config.max_open_pull_requests
    return most is not None and job_context.publish_target in OPENS and in_use >= most


def limit_reached(job_context: JobContext) -> str:
    """What stands in a new job's way, for people."""
    most = job_context.config.max_open_pull_requests
    are = "1 agent-fix pull request is" if most == 1 else f"{most} agent-fix pull requests are"
    return f"{are} already open or in progress, which is the limit for this repository."
