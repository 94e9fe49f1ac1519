"""What people and programs do with jobs: start, approve, answer, continue, retry, cancel; for dashboard and API.

Each action takes an `id`: that of the job or message that it creates. Repeated with the same id, it does nothing more.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.config.repository import NO_DEFAULTS, OperatorDefaults
from app.core.clock import moment
from app.core.failpoints import failpoint
from app.core.job import FINAL, HIGHEST_BUDGET, Budget, Job, JobState, new_job_id
from app.core.model_usage import DOLLAR, MicroUSD
from app.core.plan import Plan, render_plan_file
from app.core.record import Record
from app.core.task import Issue, Task, TaskKind
from app.core.text import one_line, visible
from app.jobs.inbox import PROGRAM_EVENT, Delivery, insert_delivery
from app.jobs.queue import JobQueue, QueuePlace
from app.jobs.store import JobQueries, JobStore, JobWithContext
from app.jobs.tables import (
    TableStore,
    deliveries,
    idempotency_keys,
    insert_into,
    job_contexts,
    job_requests,
    jobs,
    plan_versions,
    writing,
)
from app.jobs.trigger_log import JobMessage, JobMessages, MessageKind

GIVEN_UP: Final = "The request failed several times and was given up; the publisher's log says why."


class ProgramRequest(Record):
    """What a program asked for, in one of `number`, `text` and `search`.

    `text` becomes a new issue; each issue that `search` finds becomes a request of its own. `by` names the key, or the
    person on the dashboard.
    """

    job: str
    by: str
    user: int = 0
    """The numeric id of the person on the dashboard, to whom the rules for commands on GitHub apply. 0 for keys and
    operators, who may do everything."""
    repository: str
    """OWNER/NAME."""
    repository_id: int = 0
    """The repository that has to have this name. 0 if only the name was given."""
    number: int | None = None
    text: str = ""
    search: str = ""
    most: int = 0
    """How many issues of a search are taken."""
    verb: Literal["fix", "plan", "approve", "retry"] = "fix"
    instructions: str = ""
    model: str | None = None
    runner: str | None = None
    budget: MicroUSD | None = None
    kind: TaskKind | None = None
    attempts: int | None = None
    base: str | None = None
    urgent: bool = False
    at: datetime


class JobRequests(TableStore):
    """Requests of programs, in short transactions."""

    def add(self, *requests: ProgramRequest) -> None:
        """Store requests and their queued jobs in one transaction. One that is stored already is left as it is."""
        with writing(self._engine) as db:
            for request in requests:
                self._add(db, request)
        failpoint("request.stored")

    def _add(self, db: Connection, request: ProgramRequest) -> None:
        if db.execute(sa.select(jobs.c.id).where(jobs.c.id == request.job)).first() is not None:
            return
        now, body = self._clock(), request.model_dump_json()
        row = {"id": request.job, "key": f"request {request.job}", "state": "queued", "job": _promised(request)}
        db.execute(jobs.insert().values(**row, created_at=now, updated_at=now))
        stored = request.model_dump(mode="json")
        db.execute(job_requests.insert().values(job=request.job, request=stored, at=now.timestamp()))
        insert_delivery(db, Delivery(f"api-{request.job}", PROGRAM_EVENT, body.encode()), now)

    def get(self, job_id: str) -> ProgramRequest | None:
        with self._engine.connect() as db:
            found = db.execute(sa.select(job_requests.c.request).where(job_requests.c.job == job_id)).scalar()
        return ProgramRequest.model_validate(found) if found else None

    def is_open(self, job_id: str) -> bool:
        """True if the requested job has neither begun nor ended."""
        with self._engine.connect() as db:
            return db.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id, *_OPEN)).first() is not None

    def describe(self, request: ProgramRequest) -> None:
        """Store a request with what was found out about it meanwhile, such as the number of its new issue."""
        stored = request.model_dump(mode="json")
        with writing(self._engine) as db:
            db.execute(job_requests.update().where(job_requests.c.job == request.job).values(request=stored))
            db.execute(jobs.update().where(jobs.c.id == request.job, *_OPEN).values(job=_promised(request)))

    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        """End a requested job that has not begun; False if it has begun or ended."""
        with writing(self._engine) as db:
            # The lock is waited for first: a statement that waits does not see the context that was admitted meanwhile.
            db.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
            mine = jobs.update().where(jobs.c.id == job_id, *_OPEN)
            return db.execute(mine.values(state=state, reason=reason, updated_at=self._clock())).rowcount == 1

    def end_given_up(self) -> int:
        """End requested jobs whose delivery was given up; returns how many."""
        dead = sa.exists().where(
            deliveries.c.event == PROGRAM_EVENT, deliveries.c.id == "api-" + jobs.c.id, deliveries.c.state == "dead"
        )
        with writing(self._engine) as db:
            mine = jobs.update().where(jobs.c.key == "request " + jobs.c.id, *_OPEN, dead)
            values = {"state": "error", "reason": GIVEN_UP, "updated_at": self._clock()}
            return db.execute(mine.values(values)).rowcount


_OPEN: Final = (
    jobs.c.state.not_in(FINAL),
    sa.exists().where(job_requests.c.job == jobs.c.id),
    sa.not_(sa.exists().where(job_contexts.c.job == jobs.c.id)),
)


def _promised(request: ProgramRequest) -> dict[str, object]:
    """The job as it is listed until the publisher knows more."""
    if request.search:
        title = f"Issues that match: {request.search}"
    else:
        title = request.text.strip().partition("\n")[0].lstrip("# ") or f"Issue #{request.number}"
    issue = Issue(title=one_line(visible(title).text)[:256], body="", number=request.number)
    task = Task(repository=request.repository, issue=issue, base="", base_ref="", slug="")
    budget = Budget() if request.budget is None else Budget(usd=request.budget)
    job = Job(id=request.job, task=task, branch="", budget=budget, model=request.model or "", created_at=request.at)
    return job.model_dump(mode="json")


KEPT_FOR: Final = timedelta(days=2)
IN_PROGRESS: Final = timedelta(seconds=30)
"""How long the first request is waited for; after that its process has died, and a repetition does its work."""


class KeyReused(Exception):  # noqa: N818  # an answer, not a fault
    """The key was used for another request."""


class StillInProgress(Exception):  # noqa: N818  # an answer, not a fault
    """The first request with this key has no answer yet."""


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """`id` names what the request creates, also if it is repeated after a crash; `answer` is set if there was one.

    `repeated` without an answer: the first request may have been carried out.
    """

    key: str
    id: str
    answer: dict[str, Any] | None = None
    repeated: bool = False


class IdempotencyKeys(TableStore):
    """The remembered requests, in short transactions."""

    def begin(self, caller: str, key: str, request: str) -> RememberedRequest:
        """Remember a request before it is carried out. Raises KeyReused or StillInProgress.

        Without a key, nothing is remembered.
        """
        new, now = new_job_id(), self._clock().timestamp()
        if not key:
            return RememberedRequest("", new)
        name, digest = _digest(f"{caller}\0{key}"), _digest(request)
        mine = idempotency_keys.c.key == name
        with writing(self._engine) as db:
            old = idempotency_keys.c.at < now - KEPT_FOR.total_seconds()
            db.execute(idempotency_keys.delete().where(old))
            first = insert_into(db, idempotency_keys).values(key=name, request=digest, id=new, at=now)
            if db.execute(first.on_conflict_do_nothing().returning(idempotency_keys.c.key)).first() is not None:
                return RememberedRequest(name, new)
            row = db.execute(idempotency_keys.select().where(mine).with_for_update()).mappings().first()
            if row is not None and row["request"] != digest:
                raise KeyReused("This Idempotency-Key was used for another request.")
            if row is None or (row["answer"] is None and row["at"] > now - IN_PROGRESS.total_seconds()):
                raise StillInProgress("The first request with this Idempotency-Key has not been answered yet.")
            if row["answer"] is None:
                db.execute(idempotency_keys.update().where(mine).values(at=now))
        return RememberedRequest(name, row["id"], row["answer"], repeated=True)

    def finish(self, remembered: RememberedRequest, answer: dict[str, Any]) -> None:
        """Store the answer for repetitions."""
        if remembered.key:
            mine = idempotency_keys.update().where(idempotency_keys.c.key == remembered.key)
            with writing(self._engine) as db:
                db.execute(mine.values(answer=answer))

    def forget(self, remembered: RememberedRequest) -> None:
        """Forget a request that was refused and changed nothing, so that it may be tried again."""
        if remembered.key:
            with writing(self._engine) as db:
                db.execute(idempotency_keys.delete().where(idempotency_keys.c.key == remembered.key))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


AGENT = "agent-fix"
"""The author of the plans that a model made."""


@dataclass(frozen=True, slots=True)
class PlanVersion:
    version: int
    plan: Plan
    who: str
    at: datetime


class PlanConflict(Exception):  # noqa: N818  # an answer, not a fault
    """The plan cannot be edited, or another version is the newest by now, which it names."""

    def __init__(self, message: str, newest: PlanVersion | None = None) -> None:
        super().__init__(message)
        self.newest = newest


class PlanVersions(TableStore):
    """The versions of plans, in short transactions."""

    def of(self, job_id: str) -> tuple[PlanVersion, ...]:
        """All versions of a job's plan, oldest first."""
        with self._engine.connect() as db:
            return _versions(db, job_id)

    def record(self, job_id: str, plan: Plan, who: str = AGENT) -> None:
        """Store a plan as the newest version, unless it is that already, or the one that a model made before.

        A job that goes on makes its plan again, which does not replace what people have edited since.
        """
        with writing(self._engine) as db:
            known = _versions(db, job_id)
            again = who == AGENT and any(each.who == AGENT and each.plan == plan for each in known)
            if not again and (not known or known[-1].plan != plan):
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
                newest = known[-1] if known else None
                named = f", which is {newest.version}, by {newest.who}" if newest else ""
                raise PlanConflict(f"Version {version} of the plan is not the newest one{named}.", newest)
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


class StalePlan(WrongState):
    """An older version of the plan was edited; nobody's words are lost: both plans are named."""

    def __init__(self, message: str, newest: Plan, edited: Plan) -> None:
        super().__init__(message)
        self.texts = {"the newest plan": render_plan_file(newest), "your edit": render_plan_file(edited)}


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
        self._requests = JobRequests(engine, clock)
        self._messages = JobMessages(engine, clock)
        self.plans = PlanVersions(engine, clock)

    def start(self, request: ProgramRequest) -> None:
        """Promise a job; the publisher looks for its repository and its issue."""
        self._requests.add(request)

    def approve(self, job_id: str, *, id: str, who: str, user: int, version: int | None = None) -> str:  # noqa: A002
        """Approve the newest plan; returns the id of the job that works by it.

        With `version`, only if that is the newest one. `user` is the person's numeric id, whose permission counts.
        """
        job = self._job(job_id)
        if self._is_stored(job_id, id):
            return job_id
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
        if self._is_stored(job_id, id):
            return
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
        if self._is_stored(job_id, id):
            return
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

    def cancel(self, job_id: str, reason: str, *, repeated: bool = False) -> Literal["stopped", "stopping"]:
        """Stop a job: `stopping` if its process must end first. A repeated request finds that it is stopped."""
        row = self._store.get(job_id)
        if row is None:
            raise UnknownJob(job_id)
        found = self._job_queries.get(job_id)
        if repeated and (row.state, row.reason) == ("stopped", reason):
            return "stopped"
        if row.state in FINAL and (found is None or found.waiting_for != "rest"):
            raise WrongState("The job has already ended.")
        if self._requests.end(job_id, "stopped", reason):
            return "stopped"
        if self._job_queries.get(job_id) is None:  # read again: it may have been admitted while `end` waited
            raise WrongState("The job has already ended, or belongs to the command line.")
        return "stopped" if self._queue.stop(job_id, reason) else "stopping"

    def edit_plan(self, job_id: str, version: int, plan: Plan, *, who: str) -> PlanVersion:
        """Store an edit of this version of the plan."""
        self._job(job_id)
        try:
            return self.plans.edit(job_id, version, plan, who)
        except PlanConflict as conflict:
            if conflict.newest is not None:
                raise StalePlan(str(conflict), conflict.newest.plan, plan) from None
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
        stored = JobMessage(kind, _message_key(message), who, text)
        changed = job.job.model_copy(update={"budget": budget}) if budget is not None else None
        if not self._queue.resume(job.job.id, changed, messages=[stored]):
            raise WrongState("The job has continued or ended in the meantime.")

    def _is_stored(self, job_id: str, message: str) -> bool:
        """True if the action was carried out already, by a process that died before it answered."""
        return self._messages.has(job_id, _message_key(message))

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


def _message_key(message: str) -> str:
    return f"api:{message}"


def raised_budget(job: JobWithContext, usd: MicroUSD | None, extra: MicroUSD | None) -> Budget:
    """The limits of a job that continues: the requested money, and always a new job's minutes and turns."""
    budget, fresh = job.job.budget, job.job_context.config.budget.over(Budget())
    wanted = usd if usd is not None else budget.usd + (extra or 0)
    more = {"minutes": budget.minutes + fresh.minutes, "steps": budget.steps + fresh.steps}
    return budget.model_copy(update={"usd": min(wanted, HIGHEST_BUDGET * DOLLAR), **more})
