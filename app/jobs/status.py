"""What a job is doing: the conditions on its columns, each written once.

What a job is doing follows from its state and these columns; `-` is empty or false, `any` does not matter:

    status               state              waiting_for    ready  due     owner  handed_over  active_key
    waits for its base   worked on          -              -      any     -      -            set
    waits for PRs        queued             pull_requests  any    any     -      -            set
    waits for a worker   worked on          -              yes    past    -      -            set
    postponed            worked on          - or budget    yes    future  -      -            set
    in progress          worked on          -              yes    any     set    -            set
    being published      publishing         -              yes    any     any    yes          set
    waits for people     awaiting_approval  -              yes    any     any    -            set
    at a limit           paused             - or money     yes    any     any    -            set
    asked a question     needs_input        -              yes    any     any    -            -
    rest waits           published          rest           yes    any     -      yes          -
    rest in progress     published          rest           yes    any     set    yes          -
    rest ended           published          rest_ended     yes    any     -      yes          -
    ended                final              -              any    any     any    any          -

Worked on: queued to publishing; published: pr_opened, pr_updated; budget: daily_budget. An owner holds a job while
`lease_until` is in the future; after that it counts as none. One that is left over from a finished job is removed when
its process has ended.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

import sqlalchemy as sa

from app.core.job import JobState
from app.jobs.leases import Lease
from app.jobs.tables import job_contexts, jobs

WaitingFor = Literal["", "money", "daily_budget", "pull_requests", "rest", "rest_ended"]
"""What a job is waiting for: nothing, a higher budget of its own, room in a daily budget, or fewer open pull requests.

A published job: that a worker runs the `rest` of its suite, or, once that has ended, that this is published.
"""
WORKED_ON: Final[tuple[JobState, ...]] = ("queued", "planning", "working", "verifying", "publishing")
"""States in which a job wants a worker, until it is handed over to the publisher."""
BOTH: Final = jobs.join(job_contexts, job_contexts.c.job == jobs.c.id)
"""Jobs with their contexts; a job from the command line has none."""
JOB_LEASE: Final = Lease(
    BOTH, job_contexts.c.job, jobs.c.owner, job_contexts.c.lease_until, claimed=jobs.c.owner.is_not(None)
)
AHEAD = timedelta(minutes=30)
"""How much earlier a job seems to have been requested for each step of its priority. So a job that waits long enough
comes before every newer one, whatever their priorities."""
IN_TURN: Final = (job_contexts.c.created_at + job_contexts.c.priority * AHEAD.total_seconds(), jobs.c.id)
"""The order in which waiting jobs are claimed."""

ACTIVE: Final = job_contexts.c.active_key > ""
"""The unfinished job of its issue. Not just `IS NOT NULL`, which SQLite reads the whole table for."""
_FOR_PULL_REQUESTS: Final = job_contexts.c.waiting_for == "pull_requests"
WAITS_FOR_PULL_REQUESTS: Final = sa.and_(
    _FOR_PULL_REQUESTS, jobs.c.state.in_(WORKED_ON), jobs.c.stop_requested.is_(False)
)
WAITS_FOR_BASE: Final = sa.and_(
    job_contexts.c.ready.is_(False), jobs.c.state.in_(WORKED_ON), sa.not_(_FOR_PULL_REQUESTS)
)
"""True for a job whose base commit has not been fetched yet."""
BEING_PUBLISHED: Final = sa.and_(jobs.c.state == "publishing", job_contexts.c.handed_over.is_(True))
"""True for a job whose work is done and whose effects are being published."""
HAS_REST: Final = job_contexts.c.waiting_for == "rest"
"""True for a published job of which the rest of the suite is still to be run."""
REST_ENDED: Final = job_contexts.c.waiting_for == "rest_ended"
"""True for a published job of which the rest of the suite has ended, and this is still to be published."""

_LATER = job_contexts.alias("later")
PLAN_WAITS: Final = sa.and_(
    jobs.c.state == "answered",
    job_contexts.c.context["aim"].as_string() == "plan",
    sa.not_(
        sa.exists().where(
            _LATER.c.repository == job_contexts.c.repository,
            _LATER.c.number == job_contexts.c.number,
            _LATER.c.job > job_contexts.c.job,
        )
    ),
)
"""True for a job that only made a plan, if no later job of its issue has replaced it: it can still be approved."""


def needs_worker(now: datetime) -> sa.ColumnElement[bool]:
    """True for a job that needs a worker and has none, whatever it is waiting for."""
    return sa.and_(jobs.c.state.in_(WORKED_ON), job_contexts.c.handed_over.is_(False), JOB_LEASE.free(now))


def waits_for_worker(now: datetime) -> sa.ColumnElement[bool]:
    """True for a job that a worker could claim now, if all limits allowed it."""
    may_begin = (job_contexts.c.ready.is_(True), job_contexts.c.due <= now.timestamp(), sa.not_(_FOR_PULL_REQUESTS))
    return sa.and_(needs_worker(now), *may_begin, jobs.c.stop_requested.is_(False))


def rest_waits(now: datetime) -> sa.ColumnElement[bool]:
    """True for a published job of which a worker could run the rest of the suite now."""
    return sa.and_(HAS_REST, JOB_LEASE.free(now), job_contexts.c.due <= now.timestamp())
