"""The jobs table: each job is created once per trigger, has one owner at a time, and always has a visible state."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final, cast, get_args

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.clock import in_utc
from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.core.job import FINAL, PUBLISHED, STREAMED, Job, JobResult, JobState, Progress, ProgressKind
from app.core.processes import is_alive, this_process
from app.core.redaction import ANYBODYS, Redactor
from app.core.verification import EarlierProof
from app.jobs.context import JobContext, ThreadRef, paid_by
from app.jobs.status import (
    ACTIVE,
    BEING_PUBLISHED,
    BOTH,
    HAS_REST,
    IN_TURN,
    REST_ENDED,
    WAITS_FOR_BASE,
    WAITS_FOR_PULL_REQUESTS,
    WaitingFor,
)
from app.jobs.tables import TableStore, blobs, job_contexts, jobs, progress, verdict_of, writing
from app.verify.verdict import earlier_proof

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with what changes about it: its state, its owner, and how often the owner changed."""

    job: Job
    state: JobState
    reason: str
    result: dict[str, Any] | None
    reported: bool
    stop_requested: bool
    owner: str | None
    epoch: int
    updated_at: datetime

    @property
    def rest_pending(self) -> bool:
        """True for a published job of which the rest of the suite has not ended."""
        verification = (self.result or {}).get("verification") or {}
        rest = verification.get("rest") if isinstance(verification, dict) else None
        return self.state in PUBLISHED and isinstance(rest, dict) and rest.get("state") == "pending"

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def error_code(self) -> int | None:
        """The exit code of the error that the job ended or was paused with, if it is known."""
        return (self.result or {}).get("error_code")

    @property
    def live_owner(self) -> str | None:
        return self.owner if self.owner and is_alive(self.owner) else None

    @property
    def unattended(self) -> bool:
        """True if no live process other than perhaps this one works on it."""
        return self.live_owner in {None, this_process()}


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """One line of a job's log."""

    seq: int
    at: datetime
    kind: ProgressKind
    text: str


class JobStore:
    """Reads and writes our own tables; each call is one short transaction.

    `log` is another engine on the same database, for logs that may be lost in a power cut. With `fence`, jobs of
    another epoch are not changed: another process has taken them over. Everything that people may read is redacted
    here, because only the process that works on a job knows the values of its secrets.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        log: Engine | None = None,
        fence: int | None = None,
        redactor: Redactor = ANYBODYS,
    ) -> None:
        self.engine = engine
        self.redactor = redactor
        self._clock = clock
        self._log = log or engine
        self._fence = sa.true() if fence is None else jobs.c.epoch == fence

    def create(self, job: Job, key: str) -> None:
        now = self._clock()
        row = {
            "id": job.id,
            "key": key,
            "state": "queued",
            "job": job.model_dump(mode="json"),
            "created_at": now,
            "updated_at": now,
        }
        with self.engine.begin() as db:
            db.execute(jobs.insert().values(row))

    def forget(self, job_id: str) -> None:
        """Delete a job that was refused before it began."""
        with self.engine.begin() as db:
            for table in (progress, blobs):
                db.execute(table.delete().where(table.c.job == job_id))
            db.execute(jobs.delete().where(jobs.c.id == job_id))

    def get(self, job_id: str) -> JobRow | None:
        with self.engine.connect() as db:
            row = db.execute(jobs.select().where(jobs.c.id == job_id)).mappings().first()
        return job_row(row) if row else None

    def find(self, prefix: str) -> JobRow:
        """Find a job by a prefix of its id. Raises an error if none or several match."""
        with self.engine.connect() as db:
            query = jobs.select().where(jobs.c.id.startswith(prefix, autoescape=True)).limit(2)
            rows = db.execute(query).mappings().all()
        if len(rows) != 1:
            what = "No job has" if not rows else "Several jobs have"
            raise AgentFixError(f"{what} an id that begins with {prefix!r}.", hint="`agent-fix jobs` lists them.")
        return job_row(rows[0])

    def unfinished(self, key: str) -> JobRow | None:
        """The newest job of this key that is not final yet, or whose result nobody was shown."""
        with self.engine.connect() as db:
            query = jobs.select().where(jobs.c.key == key).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(1)
            found = db.execute(query).mappings().first()
        row = job_row(found) if found else None
        if row is None or (row.final and (row.reported or row.state == "stopped")):
            return None
        return row

    def newest(self, limit: int) -> tuple[JobRow, ...]:
        with self.engine.connect() as db:
            rows = db.execute(jobs.select().order_by(jobs.c.created_at.desc()).limit(limit)).mappings().all()
        return tuple(job_row(row) for row in rows)

    def acquire(self, job_id: str) -> int:
        """Make this process the job's owner and return the new epoch. Raises an error if a live process owns it."""
        with self.engine.begin() as db:
            row = job_row(db.execute(jobs.select().where(jobs.c.id == job_id).with_for_update()).mappings().one())
            if row.live_owner and row.live_owner != this_process():
                raise AgentFixError(
                    f"Job {job_id} is being worked on by process {row.live_owner.split(':')[-2]}.",
                    code=ExitCode.BUSY,
                    hint=f"Watch it with `agent-fix jobs logs -f {job_id}`.",
                )
            claimed = db.execute(
                jobs.update()
                .where(jobs.c.id == job_id, jobs.c.epoch == row.epoch)
                .values(owner=this_process(), epoch=row.epoch + 1, updated_at=self._clock())
            )
            if claimed.rowcount != 1:
                raise AgentFixError(f"Job {job_id} was just taken by another process.", code=ExitCode.BUSY)
            return row.epoch + 1

    def release(self, job_id: str) -> None:
        self._update(job_id, owner=None)

    def enter(self, job_id: str, state: JobState, reason: str = "", *, waiting_for: WaitingFor = "") -> None:
        """Set the job's state. `waiting_for` is what it is waiting for, if a command can provide that."""
        self._update(job_id, waiting_for, state=state, reason=reason)

    def finish(
        self, job_id: str, state: JobState, reason: str, result: dict[str, Any], *, waiting_for: WaitingFor = ""
    ) -> None:
        self._update(job_id, waiting_for, state=state, reason=reason, result=result)

    def store_result(self, job_id: str, result: dict[str, Any]) -> None:
        """Store the job's result so far, for people who look at it while it waits for them."""
        self._update(job_id, result=result)

    def mark_reported(self, job_id: str) -> None:
        """Record that the result was shown and written out: from now on the same command starts a new job."""
        self._update(job_id, reported=True, owner=None)

    def request_stop(self, job_id: str) -> None:
        self._update(job_id, stop_requested=True)

    def stop(self, job_id: str, reason: str) -> bool:
        """Make `stopped` the final state. False if the job is already final or its branch is being created."""
        kept = (*FINAL, "publishing")
        with self.engine.begin() as db:
            stopped = db.execute(
                jobs.update()
                .where(jobs.c.id == job_id, jobs.c.state.not_in(kept), self._fence)
                .values(state="stopped", reason=reason, owner=None, updated_at=self._clock())
            )
            _release_issue(db, job_id)
        return stopped.rowcount == 1

    def replace(self, job: Job) -> None:
        """Store a job with new limits."""
        self._update(job.id, job=job.model_dump(mode="json"))

    def stop_requested(self, job_id: str) -> bool:
        with self.engine.connect() as db:
            return bool(db.execute(sa.select(jobs.c.stop_requested).where(jobs.c.id == job_id)).scalar())

    def _update(self, job_id: str, waiting_for: WaitingFor = "", **values: Any) -> None:
        values |= {name: self.redactor.redact_all(values[name]) for name in ("reason", "result") if name in values}
        with self.engine.begin() as db:
            mine = jobs.update().where(jobs.c.id == job_id, self._fence)
            if "result" in values:
                values["verdict"] = verdict_of(values["result"])
            found = db.execute(mine.values(updated_at=self._clock(), **values)).rowcount
            if waiting_for and found:
                db.execute(job_contexts.update().where(job_contexts.c.job == job_id).values(waiting_for=waiting_for))
            if values.get("state") in FINAL:
                _release_issue(db, job_id)

    def add_progress(self, job_id: str, kind: ProgressKind, text: str) -> None:
        row = {"job": job_id, "at": self._clock(), "kind": kind, "text": self.redactor.redact(text)}
        with self._log.begin() as db:
            db.execute(progress.insert().values(row))

    def progress_since(
        self, job_id: str, after: int = 0, limit: int | None = None, *, streamed: bool = True
    ) -> Iterator[ProgressRow]:
        """The job's log in order, from after a given `seq`; with `streamed`, also what the model wrote as it came."""
        query = progress.select().where(progress.c.job == job_id, progress.c.seq > after)
        if not streamed:
            query = query.where(progress.c.kind.not_in(STREAMED))
        with self.engine.connect() as db:
            for row in db.execute(query.order_by(progress.c.seq).limit(limit)):
                yield progress_row(row)

    def recent_progress(self, job_id: str, limit: int, *kinds: ProgressKind) -> tuple[ProgressRow, ...]:
        """The last log lines of these kinds, in order; without kinds, of all but what the model wrote as it came."""
        wanted = progress.c.kind.in_(kinds) if kinds else progress.c.kind.not_in(STREAMED)
        query = progress.select().where(progress.c.job == job_id, wanted)
        with self.engine.connect() as db:
            rows = db.execute(query.order_by(progress.c.seq.desc()).limit(limit)).all()
        return tuple(progress_row(row) for row in reversed(rows))


class JobBlobs:
    """A job's blobs, in the same database as its other durable data."""

    def __init__(self, engine: Engine, job_id: str) -> None:
        self._engine = engine
        self._job = job_id

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        with self._engine.begin() as db:
            known = sa.select(blobs.c.digest).where(blobs.c.job == self._job, blobs.c.digest == digest)
            if db.execute(known).first() is None:
                db.execute(blobs.insert().values(job=self._job, digest=digest, content=content))
        return digest

    def get(self, digest: str) -> bytes:
        with self._engine.connect() as db:
            query = sa.select(blobs.c.content).where(blobs.c.job == self._job, blobs.c.digest == digest)
            content = db.execute(query).scalar()
        if content is None:
            raise KeyError(digest)
        return bytes(content)


def _release_issue(db: sa.Connection, job_id: str) -> None:
    """Allow another job for the same issue once this one is final."""
    ended = sa.exists().where(jobs.c.id == job_id, jobs.c.state.in_(FINAL))
    db.execute(job_contexts.update().where(job_contexts.c.job == job_id, ended).values(active_key=None))


def job_row(row: sa.RowMapping) -> JobRow:
    return JobRow(
        job=Job.model_validate(row["job"]),
        state=cast("JobState", row["state"]),
        reason=row["reason"],
        result=row["result"],
        reported=row["reported"],
        stop_requested=row["stop_requested"],
        owner=row["owner"],
        epoch=row["epoch"],
        updated_at=row["updated_at"],
    )


def progress_row(row: sa.Row[Any]) -> ProgressRow:
    return ProgressRow(row.seq, in_utc(row.at), row.kind, row.text)


STATES: frozenset[str] = frozenset(get_args(JobState)) - FINAL
"""What a job that is worked on says of itself; how it ended is decided elsewhere."""

PART_SECONDS = 0.5
MAX_PART = 4_000
"""A model's text is stored in parts, each of at most PART_SECONDS seconds or MAX_PART characters."""
STREAMED_FOR = timedelta(hours=1)
"""How long what a model streamed is kept after the job has ended; the log and the trajectory stay."""


def prune_streamed(engine: Engine, now: datetime) -> int:
    """Delete what models streamed in jobs that ended a while ago; returns how many parts."""
    ended = sa.select(jobs.c.id).where(jobs.c.state.in_(FINAL), jobs.c.updated_at < now - STREAMED_FOR)
    with writing(engine) as db:
        found = progress.delete().where(progress.c.kind.in_(STREAMED), progress.c.job.in_(ended))
        return db.execute(found).rowcount


class StoredProgress:
    """Passes progress on to another Progress and stores it in the job's log, without fragments.

    A reported state becomes the job's state. With `streams`, what a model writes is stored too, in parts that end
    between words, so that no secret is stored in halves.
    """

    def __init__(self, store: JobStore, job_id: str, watcher: Progress, *, streams: bool = False) -> None:
        self._store = store
        self._job = job_id
        self._watcher = watcher
        self._streams = streams
        self._text = ""
        self._stored_at = 0.0

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind == "text" and self._streams:
            self._add_text(text)
        elif kind not in STREAMED:
            self._store_text(len(self._text))
            text = self._store.redactor.redact(text)
            self._store.add_progress(self._job, kind, text)
        if kind == "state" and text in STATES:
            self._store.enter(self._job, cast("JobState", text))
        self._watcher.report(kind, text)
        failpoint(f"said.{kind}")

    def _add_text(self, text: str) -> None:
        self._text += text
        if monotonic() - self._stored_at >= PART_SECONDS or len(self._text) >= MAX_PART:
            self._store_text(max(self._text.rfind(" "), self._text.rfind("\n")) + 1)

    def _store_text(self, length: int) -> None:
        if length:
            self._store.add_progress(self._job, "text", self._text[:length])
        self._text, self._stored_at = self._text[length:], monotonic()


ALL_JOBS_EVERY = timedelta(minutes=10)
"""Between two queries of all jobs for unposted changes; the others read only jobs that changed within twice that."""
NO_QUESTION: Final = sa.not_(sa.or_(jobs.c.key.like("%/ask:%"), jobs.c.key.like("%/verify")))
AFTER_REST: Final = "rest_ended"
"""The `posted_state` of a published job of which the remaining tests have ended: its status is posted again."""


@dataclass(frozen=True, slots=True)
class JobWithContext:
    """A job together with its JobContext."""

    row: JobRow
    job_context: JobContext
    ready: bool
    crashes: int
    worker_deaths: int = 0
    handed_over: bool = False
    posted_state: str = ""
    """The state that was last posted to GitHub."""
    posted_at: float = 0.0
    waiting_for: WaitingFor = ""
    """What a paused or queued job is waiting for."""

    @property
    def job(self) -> Job:
        return self.row.job


class JobQueries:
    """Queries for jobs with their contexts, and the few updates that belong to them."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._looked_at_all: datetime | None = None

    def get(self, job_id: str) -> JobWithContext | None:
        return self._first(jobs.c.id == job_id)

    def context(self, job_id: str) -> JobContext | None:
        """A job's context; None for a command-line job or one that has not started."""
        query = sa.select(job_contexts.c.context).where(job_contexts.c.job == job_id)
        with self._engine.connect() as db:
            found = db.execute(query).scalar()
        return JobContext.model_validate(found) if found else None

    def active(self, repository: int, number: int) -> JobWithContext | None:
        """The one unfinished job of this issue or pull request, not counting questions and verifications."""
        return self._first(job_contexts.c.active_key == f"{repository}#{number}")

    def verification(self, repository: int, number: int) -> JobWithContext | None:
        """The newest verification of a pull request."""
        return self._first(*_about(repository, number), jobs.c.key.like("%/verify"))

    def newest(self, repository: int, number: int) -> JobWithContext | None:
        """The newest job of an issue or pull request, not counting questions."""
        return self._first(*_about(repository, number), NO_QUESTION)

    def of_issue(self, repository: int, number: int, most: int) -> tuple[JobWithContext, ...]:
        """The newest jobs of an issue or pull request, newest first, not counting questions."""
        return self._all(*_about(repository, number), NO_QUESTION)[::-1][:most]

    def active_jobs(self, installation: int | None = None, repository: int | None = None) -> tuple[JobWithContext, ...]:
        """The unfinished jobs of a repository or an installation, or of the whole server."""
        found = self._all(ACTIVE, *(() if repository is None else (job_contexts.c.repository == repository,)))
        places = ((each, each.job_context.issue_ref) for each in found)
        return tuple(each for each, place in places if installation in {None, place.installation})

    def follow_up_count(self, repository: int, number: int) -> int:
        """How often the bot has followed up on this pull request without being asked."""
        return sum(each.job_context.is_round for each in self._all(*_about(repository, number)))

    def newest_results(self, repository: int, most: int) -> tuple[JobResult | None, ...]:
        """The results of those of a repository's newest jobs that have ended, not counting questions."""
        newest = sa.select(job_contexts.c.job).where(job_contexts.c.repository == repository)
        ended = (jobs.c.id.in_(newest.order_by(job_contexts.c.job.desc()).limit(most)), jobs.c.state.in_(FINAL))
        with self._engine.connect() as db:
            return tuple(map(JobResult.read, db.scalars(sa.select(jobs.c.result).where(*ended, NO_QUESTION))))

    def has_jobs_in(self, repository: int) -> bool:
        """True if the repository has ever had a job."""
        with self._engine.connect() as db:
            query = sa.select(job_contexts.c.job).where(job_contexts.c.repository == repository).limit(1)
            return db.execute(query).first() is not None

    def without_base_commit(self) -> tuple[JobWithContext, ...]:
        """Jobs whose base commit has not been fetched yet."""
        return self._all(WAITS_FOR_BASE)

    def waiting_for_pull_requests(self, repository: int | None = None) -> tuple[tuple[str, JobContext], ...]:
        """The jobs, in turn, that wait until fewer pull requests are open, in one repository or in all."""
        where = () if repository is None else (job_contexts.c.repository == repository,)
        query = sa.select(job_contexts.c.job, job_contexts.c.context).select_from(BOTH)
        with self._engine.connect() as db:
            rows = db.execute(query.where(WAITS_FOR_PULL_REQUESTS, *where).order_by(*IN_TURN)).all()
        return tuple((row.job, JobContext.model_validate(row.context)) for row in rows)

    def handed_over_jobs(self) -> tuple[JobWithContext, ...]:
        """Jobs whose work is done and whose effects are being published."""
        return self._all(BEING_PUBLISHED)

    def ended_rests(self) -> tuple[JobWithContext, ...]:
        """Published jobs whose remaining tests have ended, but whose status was not posted again yet."""
        return self._all(REST_ENDED)

    def with_rest(self, repository: int, number: int) -> JobWithContext | None:
        """The published job of an issue, or behind a pull request, of which the rest of the suite is being run."""
        here = sa.or_(job_contexts.c.number == number, _opened(number))
        return self._first(HAS_REST, job_contexts.c.repository == repository, here)

    def opened(self, repository: int, pull: int) -> JobWithContext | None:
        """The newest job that published this pull request, whichever issue it was started on."""
        return self._first(job_contexts.c.repository == repository, _opened(pull))

    def earlier_proof(self, job_context: JobContext, branch: str) -> EarlierProof | None:
        """What the newest verified commit of the pull request that a job follows up was proved by, if it is ours.

        Of one whose jobs are not in this database nothing is known, so that it is `tested` at best.
        """
        if job_context.pull is None or not job_context.continues_ours(branch):
            return None
        published = (jobs.c.state.in_(PUBLISHED), jobs.c.verdict != "", _opened(job_context.pull))
        found = self._first(job_contexts.c.repository == job_context.issue_ref.repository, *published)
        result = JobResult.read(found.row.result) if found is not None else None
        if result is None or result.verification is None:
            return EarlierProof(commit="", verdict="tested")
        return earlier_proof(result.commit, result.verification)

    def not_posted(self, at_least_every: timedelta) -> tuple[JobWithContext, ...]:
        """Jobs whose change was not posted yet, and unfinished ones that were not posted for that long."""
        now = self._clock()
        long_ago = (now - at_least_every).timestamp()
        active = self._all(ACTIVE)
        changed = self._all(job_contexts.c.posted_state != jobs.c.state, *self._changed_recently(now))
        found = {each.job.id: each for each in (*active, *changed)}
        return tuple(
            each
            for _, each in sorted(found.items())
            if each.posted_state != each.row.state or each.posted_at <= long_ago
        )

    def _changed_recently(self, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
        """Limit a query to recent changes, so that its cost depends on their number; now and then, include all jobs."""
        if self._looked_at_all is None or now - self._looked_at_all >= ALL_JOBS_EVERY:
            self._looked_at_all = now
            return ()
        return (jobs.c.updated_at >= now - 2 * ALL_JOBS_EVERY,)

    def mark_ready(self, job_id: str) -> None:
        with writing(self._engine) as db:
            db.execute(job_contexts.update().where(job_contexts.c.job == job_id).values(ready=True))
        failpoint("base.ready")

    def join_threads(self, job_id: str, threads: Sequence[ThreadRef]) -> None:
        """Add a review's threads to an existing job, which will reply in them too. Idempotent."""
        here = job_contexts.c.job == job_id
        with writing(self._engine) as db:
            kept = db.execute(sa.select(job_contexts.c.context).where(here).with_for_update()).scalar_one()
            job_context = JobContext.model_validate(kept)
            known = {each.comment for each in job_context.threads}
            joined = (*job_context.threads, *(each for each in threads if each.comment not in known))
            values = job_context.model_copy(update={"threads": joined}).model_dump(mode="json")
            db.execute(job_contexts.update().where(here).values(context=values))
        failpoint("review.joined")

    def published_rest(self, job_id: str, result: dict[str, Any]) -> None:
        """Store the final result of a job whose suite's rest has ended, and have its status posted again."""
        with writing(self._engine) as db:
            values = {"result": result, "verdict": verdict_of(result), "updated_at": self._clock()}
            values["reason"] = str(result.get("reason", ""))
            db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
            mine = job_contexts.update().where(job_contexts.c.job == job_id)
            db.execute(mine.values(waiting_for="", posted_state=AFTER_REST))
        failpoint("rest.published")

    def mark_posted(self, each: JobWithContext) -> None:
        """Record that a job's state is being posted, unless there has been more to tell since it was read."""
        with writing(self._engine) as db:
            values = {"posted_state": each.row.state, "posted_at": self._clock().timestamp()}
            same = (job_contexts.c.job == each.job.id, job_contexts.c.posted_state == each.posted_state)
            db.execute(job_contexts.update().where(*same).values(values))
        failpoint("status.posted")

    def _first(self, *where: sa.ColumnElement[bool]) -> JobWithContext | None:
        with self._engine.connect() as db:
            query = sa.select(jobs, job_contexts).select_from(BOTH).where(*where)
            row = db.execute(query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(1)).mappings().first()
        return _job_with_context(row) if row else None

    def _all(self, *where: sa.ColumnElement[bool]) -> tuple[JobWithContext, ...]:
        with self._engine.connect() as db:
            query = sa.select(jobs, job_contexts).select_from(BOTH).where(*where)
            found = [_job_with_context(row) for row in db.execute(query).mappings()]
        return tuple(sorted(found, key=lambda each: each.job.id))  # sorting in the database would read all jobs


def _about(repository: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (job_contexts.c.repository == repository, job_contexts.c.number == number)


def _opened(pull: int) -> sa.ColumnElement[bool]:
    address: sa.ColumnElement[str] = jobs.c.result["url"].as_string()
    return address.endswith(f"/pull/{pull}")


def _job_with_context(row: Mapping[Any, Any]) -> JobWithContext:
    return JobWithContext(
        row=job_row(cast("sa.RowMapping", row)),
        job_context=JobContext.model_validate(row["context"]),
        ready=row["ready"],
        crashes=row["crashes"],
        worker_deaths=row["worker_deaths"],
        handed_over=row["handed_over"],
        posted_state=row["posted_state"],
        posted_at=row["posted_at"],
        waiting_for=row["waiting_for"],
    )


class RecoveredJobQueries(JobQueries):
    """JobQueries for a server that lost its rows. `follow_ups` are the counts that the pull requests state."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        super().__init__(engine, clock)
        self.follow_ups: dict[int, int] = {}

    def follow_up_count(self, repository: int, number: int) -> int:
        return super().follow_up_count(repository, number) + self.follow_ups.get(number, 0)

    def has_jobs_in(self, repository: int) -> bool:
        return True


class RecoveredJobs(TableStore):
    """Writes the rows of recovered jobs."""

    def write(
        self,
        job: Job,
        job_context: JobContext,
        state: JobState,
        result: dict[str, Any] | None,
        *,
        reason: str = "",
        posted: bool,
    ) -> None:
        """Write a recovered job. `posted` means that its state was already posted, so it is not posted again."""
        now, key, place = self._clock(), job_context.active_key, job_context.issue_ref
        row = {"id": job.id, "key": key, "state": state, "job": job.model_dump(mode="json")}
        came_to = {"result": result, "reason": reason}
        there = {"repository": place.repository, "number": place.number, "active_key": None if state in FINAL else key}
        known = {"posted_state": state if posted else "", "posted_at": now.timestamp(), "created_at": now.timestamp()}
        with writing(self._engine) as db:
            db.execute(jobs.insert().values(**row, **came_to, created_at=now, updated_at=now))
            values = {"context": job_context.model_dump(mode="json"), "priority": 1, "ready": False}
            values["actor"] = paid_by(job, job_context)
            db.execute(job_contexts.insert().values(job=job.id, **there, **known, **values))

    def forget(self, job_id: str) -> None:
        """Delete a recovered job's rows."""
        with writing(self._engine) as db:
            db.execute(jobs.delete().where(jobs.c.id == job_id))
            db.execute(job_contexts.delete().where(job_contexts.c.job == job_id))
