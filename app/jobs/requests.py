"""Requests of programs and of the dashboard for jobs: stored at once, once for each Idempotency-Key, for the publisher.

    API ─► job_requests + a queued job without a context + a delivery ─► publisher ─► the job gets its context, or ends

The receiver cannot ask GitHub anything, so the publisher finds out whether the request can be carried out.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.core.failpoints import failpoint
from app.core.job import FINAL, Budget, Job, JobState, new_job_id
from app.core.money import MicroUSD
from app.core.record import Record
from app.core.task import Issue, Task, TaskKind
from app.core.text import one_line, visible
from app.jobs.inbox import Delivery, insert_delivery
from app.jobs.tables import TableStore, deliveries, idempotency_keys, job_contexts, job_requests, jobs, writing

PROGRAM_EVENT: Final = "api:request"
"""The event name of deliveries that the API makes. A webhook cannot have it, because of the colon."""
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
    """`id` names what the request creates, also if it is repeated after a crash; `answer` is set if there was one."""

    key: str
    id: str
    answer: dict[str, Any] | None = None


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
            row = db.execute(idempotency_keys.select().where(mine).with_for_update()).mappings().first()
            if row is None:
                db.execute(idempotency_keys.insert().values(key=name, request=digest, id=new, at=now))
                return RememberedRequest(name, new)
            if row["request"] != digest:
                raise KeyReused("This Idempotency-Key was used for another request.")
            if row["answer"] is None:
                if row["at"] > now - IN_PROGRESS.total_seconds():
                    raise StillInProgress("The first request with this Idempotency-Key has not been answered yet.")
                db.execute(idempotency_keys.update().where(mine).values(at=now))
        return RememberedRequest(name, row["id"], row["answer"])

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
