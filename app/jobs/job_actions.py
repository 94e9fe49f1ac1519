"""What people and programs do with jobs: start, approve, answer, continue, retry, cancel; for dashboard and API.

Each action takes an `id`: that of the job or message that it creates. Repeated with the same id, it does nothing more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.config.repository import NO_DEFAULTS, OperatorDefaults
from app.core.clock import moment
from app.core.job import FINAL, HIGHEST_BUDGET, Budget
from app.core.money import DOLLAR, MicroUSD
from app.core.plan import Plan, render_plan_file
from app.jobs.job_queries import JobQueries, JobWithContext
from app.jobs.queue import JobQueue, QueuePlace
from app.jobs.requests import JobRequests, ProgramRequest
from app.jobs.store import JobStore
from app.jobs.tables import TableStore, job_contexts, jobs, plan_versions, writing
from app.jobs.triggers import JobMessages, MessageKind

AGENT = "agent-fix"
"""The author of the plans that a model made."""


@dataclass(frozen=True, slots=True)
class PlanVersion:
    version: int
    plan: Plan
    who: str
    at: datetime


class PlanConflict(Exception):  # noqa: N818  # an answer, not a fault
    """The plan cannot be edited, or another version is the newest by now."""


class PlanVersions(TableStore):
    """The versions of plans, in short transactions."""

    def of(self, job_id: str) -> tuple[PlanVersion, ...]:
        """All versions of a job's plan, oldest first."""
        with self._engine.connect() as db:
            return _versions(db, job_id)

    def record(self, job_id: str, plan: Plan, who: str = AGENT) -> None:
        """Store a plan as the newest version, unless it is that already."""
        with writing(self._engine) as db:
            known = _versions(db, job_id)
            if not known or known[-1].plan != plan:
                self._insert(db, job_id, plan, who)

    def edit(self, job_id: str, version: int, plan: Plan, who: str) -> PlanVersion:
        """Store an edit of this version. Raises PlanConflict if it is not the newest, or not waiting for approval."""
        with writing(self._engine) as db:
            query = sa.select(jobs.c.state, jobs.c.result, job_contexts.c.context).where(jobs.c.id == job_id)
            of_job = query.join_from(jobs, job_contexts, job_contexts.c.job == jobs.c.id).with_for_update()
            row = db.execute(of_job).mappings().first()
            if row is None or not may_be_approved(row["state"], row["context"]["aim"]):
                raise PlanConflict("The plan is not waiting for approval.")
            known = _versions(db, job_id)
            if not known or known[-1].version != version:
                newest = known[-1].version if known else 0
                raise PlanConflict(f"Version {version} is not the newest one, which is {newest}.")
            result = {**(row["result"] or {}), "plan": plan.model_dump(mode="json")}
            db.execute(jobs.update().where(jobs.c.id == job_id).values(result=result, updated_at=self._clock()))
            return self._insert(db, job_id, plan, who)

    def edited_text(self, job_id: str) -> str:
        """The newest version as the text of an edited plan; empty if nobody edited the model's plan."""
        known = self.of(job_id)
        return render_plan_file(known[-1].plan) if known and known[-1].who != AGENT else ""

    def _insert(self, db: Connection, job_id: str, plan: Plan, who: str) -> PlanVersion:
        newest = sa.select(sa.func.coalesce(sa.func.max(plan_versions.c.version), 0))
        version = int(db.execute(newest.where(plan_versions.c.job == job_id)).scalar_one()) + 1
        now = self._clock()
        row = {"job": job_id, "version": version, "plan": plan.model_dump(mode="json"), "who": who[:80]}
        db.execute(plan_versions.insert().values(**row, at=now.timestamp()))
        return PlanVersion(version, plan, who[:80], now)


def may_be_approved(state: str, aim: str) -> bool:
    """True for a job that waits for its plan's approval, or that only made a plan."""
    return state == "awaiting_approval" or (state == "answered" and aim == "plan")


def _versions(db: Connection, job_id: str) -> tuple[PlanVersion, ...]:
    query = plan_versions.select().where(plan_versions.c.job == job_id).order_by(plan_versions.c.version)
    return tuple(
        PlanVersion(row["version"], Plan.model_validate(row["plan"]), row["who"], moment(row["at"]))
        for row in db.execute(query).mappings()
    )


class UnknownJob(Exception):  # noqa: N818  # an answer, not a fault
    """There is no job with this id."""


class WrongState(Exception):  # noqa: N818  # an answer, not a fault
    """The job's state does not allow the action."""


class JobActions:
    """The actions. Each raises UnknownJob or WrongState if it cannot be done, and has changed nothing then."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], datetime],
        queue: JobQueue,
        operator: OperatorDefaults = NO_DEFAULTS,
    ) -> None:
        self._clock = clock
        self._operator = operator
        self._queue = queue
        self._store = JobStore(engine, clock)
        self._job_queries = JobQueries(engine, clock)
        self._messages = JobMessages(engine, clock)
        self._requests = JobRequests(engine, clock)
        self.plans = PlanVersions(engine, clock)

    def start(self, request: ProgramRequest) -> None:
        """Promise a job; the publisher looks for its repository and its issue."""
        self._requests.add(request)

    def approve(self, job_id: str, *, id: str, who: str, user: int, version: int | None = None) -> str:  # noqa: A002
        """Approve the newest plan; returns the id of the job that works by it.

        With `version`, only if that is the newest one. `user` is the person's numeric id, whose permission counts.
        """
        job = self._job(job_id)
        if not may_be_approved(job.row.state, job.job_context.aim):
            raise WrongState("No plan is waiting for approval.")
        known = self.plans.of(job_id)
        if version is not None and (not known or known[-1].version != version):
            raise WrongState(f"Version {version} of the plan is not the newest one.")
        if job.row.state == "awaiting_approval":
            self._resume(job, "approve", self.plans.edited_text(job_id), id, who)
            return job_id
        self._promise(self._request(job, "approve", id, who, user))
        return id

    def answer(self, job_id: str, text: str, *, id: str, who: str) -> None:  # noqa: A002
        job = self._job(job_id)
        if job.row.state != "needs_input":
            raise WrongState("The job has asked nothing.")
        self._resume(job, "answer", text, id, who)

    def proceed(
        self,
        job_id: str,
        *,
        id: str,  # noqa: A002
        who: str,
        budget: MicroUSD | None = None,
        extra: MicroUSD | None = None,
        text: str = "",
    ) -> None:
        """Resume a paused job, with a higher budget if that is what it waits for."""
        job = self._job(job_id)
        if job.row.state != "paused":
            raise WrongState("The job is not paused.")
        if (budget or extra) and self._operator.locks("budget.usd"):
            raise WrongState("The operator has locked `budget.usd`; continue without changing the budget.")
        if job.waiting_for == "money" and budget is None and extra is None:
            raise WrongState("Its budget is spent: say how much more it may cost.")
        self._resume(job, "continue", text, id, who, budget=raised_budget(job, budget, extra))

    def retry(self, job_id: str, *, id: str, who: str, user: int) -> None:  # noqa: A002
        """Stop the job if it is active, and promise the same one again."""
        earlier = self._requests.get(job_id)
        if earlier is not None and self._job_queries.get(job_id) is None:
            if self._requests.is_open(job_id):
                raise WrongState("The job has not begun yet.")
            again = {"job": id, "by": who, "user": user, "at": self._clock()}
            self._promise(earlier.model_copy(update=again))
            return
        self._promise(self._request(self._job(job_id), "retry", id, who, user))

    def cancel(self, job_id: str, reason: str) -> Literal["stopped", "stopping"]:
        """Stop a job: `stopping` if its process must end first."""
        row = self._store.get(job_id)
        if row is None:
            raise UnknownJob(job_id)
        found = self._job_queries.get(job_id)
        if row.state in FINAL and (found is None or found.waiting_for != "rest"):
            raise WrongState("The job has already ended.")
        if self._requests.end(job_id, "stopped", reason):
            return "stopped"
        if found is None:
            raise WrongState("The job belongs to the command line.")
        return "stopped" if self._queue.stop(job_id, reason) else "stopping"

    def edit_plan(self, job_id: str, version: int, plan: Plan, *, who: str) -> PlanVersion:
        """Store an edit of this version of the plan."""
        self._job(job_id)
        try:
            return self.plans.edit(job_id, version, plan, who)
        except PlanConflict as conflict:
            raise WrongState(str(conflict)) from None

    def place(self, job_id: str) -> QueuePlace | None:
        return self._queue.place(job_id)

    def _job(self, job_id: str) -> JobWithContext:
        job = self._job_queries.get(job_id)
        if job is None:
            if self._store.get(job_id) is None:
                raise UnknownJob(job_id)
            raise WrongState("The job has not begun, or belongs to the command line.")
        return job

    def _resume(
        self, job: JobWithContext, kind: MessageKind, text: str, message: str, who: str, *, budget: Budget | None = None
    ) -> None:
        self._messages.add(job.job.id, kind, key=f"api:{message}", who=who, text=text)
        changed = job.job.model_copy(update={"budget": budget}) if budget is not None else None
        if not self._queue.resume(job.job.id, changed):
            raise WrongState("The job has continued or ended in the meantime.")

    def _promise(self, request: ProgramRequest) -> None:
        """Store a request unless it is stored already. Raises WrongState if its id is another job's."""
        self._requests.add(request)
        stored = self._requests.get(request.job)
        later = {"at", "number"} if request.text else {"at"}  # a text's issue gets its number later
        if stored is None or stored.model_dump(exclude=later) != request.model_dump(exclude=later):
            raise WrongState("This id belongs to another job.")

    def _request(
        self, job: JobWithContext, verb: Literal["approve", "retry"], new_job: str, who: str, user: int
    ) -> ProgramRequest:
        place = job.job_context.issue_ref
        return ProgramRequest(
            job=new_job,
            by=who,
            user=user,
            repository=f"{place.owner}/{place.name}",
            repository_id=place.repository,
            number=place.number,
            verb=verb,
            at=self._clock(),
        )


def raised_budget(
    job: JobWithContext, usd: MicroUSD | None, extra: MicroUSD | None, defaults: Budget | None = None
) -> Budget:
    """The limits of a job that continues: the requested money, and always a new job's minutes and turns."""
    budget, fresh = job.job.budget, job.job_context.config.budget.over(defaults or Budget())
    wanted = usd if usd is not None else budget.usd + (extra or 0)
    more = {"minutes": budget.minutes + fresh.minutes, "steps": budget.steps + fresh.steps}
    return budget.model_copy(update={"usd": min(wanted, HIGHEST_BUDGET * DOLLAR), **more})
