"""The API for programs: jobs with their plans, logs and results, and everything that can be done with them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Security
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.core.job import FINAL, JobState
from app.core.plan import Plan
from app.core.state_words import Group, in_group
from app.core.text import plain
from app.core.verification import Verdict
from app.jobs.accounts import ApiCaller
from app.jobs.job_actions import (
    IdempotencyKeys,
    JobActions,
    KeyReused,
    PlanVersion,
    ProgramRequest,
    RememberedRequest,
    StalePlan,
    StillInProgress,
    UnknownJob,
    WrongState,
)
from app.jobs.queries import JobFilter, JobOverview, JobPage, JobSummary
from app.jobs.queue import QueuePlace
from app.jobs.store import ProgressRow
from app.jobs.trigger_log import AuditLog
from app.server.web import api_models as models
from app.server.web import formatting
from app.server.web.access import visitor_of
from app.server.web.api_models import RepositoryName, dollars, error_responses, micro, problem
from app.server.web.sign_in import OPERATOR, client_of

MAX_FOLLOWERS = 200
MAX_OF_ONE = 10
"""Streams of one person or key. The password's holder, who is the operator, may open all."""
MAX_LINES = 1_000
"""Lines that one read of a log returns."""
LOOK_SECONDS = 1.0
MAX_LOOKS = 300
"""Streams end after five minutes; the browser reconnects at its position."""
LOOKS_PER_CHECK = 5
"""How often a stream looks for news before it checks again that its reader may see the job."""
MayRead = Callable[[], Awaitable[bool]]


class LogStreams:
    """Sends lines, then states; `Last-Event-ID` or `offset` say where to continue."""

    def __init__(
        self, overview: JobOverview, *, ending: Callable[[], bool] = lambda: False, pause: float = LOOK_SECONDS
    ):
        self._overview = overview
        self._ending = ending
        self._pause = pause
        self._followers = Counter[str]()
        """Number of open streams for each caller; the password's holder has the empty name."""

    async def events(self, request: Request, may_read: MayRead) -> Response:
        """For the dashboard: whole lines only."""
        offset = request.headers.get("last-event-id") or request.query_params.get("offset", "0")
        if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
            return problem(422, "offset must be a line's number")
        visitor = visitor_of(request)
        who = f"user {visitor.user}" if visitor.user else ""
        return await self.answer(request.path_params["job"], int(offset), may_read, who=who)

    async def answer(self, job: str, offset: int, may_read: MayRead, *, who: str, streamed: bool = False) -> Response:
        """The stream for `who`, empty for the password's holder; with `streamed`, also of what the model writes.

        It ends once `may_read` is false.
        """
        if await asyncio.to_thread(self._overview.one, job) is None:
            return problem(404, "There is no such job.")
        if self._followers.total() >= MAX_FOLLOWERS or (who and self._followers[who] >= MAX_OF_ONE):
            return problem(503, "Too many streams are open.", headers={"retry-after": "30"})
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(
            self._follow(job, offset, may_read, who, streamed=streamed), media_type="text/event-stream", headers=headers
        )

    async def _follow(self, job: str, after: int, may_read: MayRead, who: str, *, streamed: bool) -> AsyncIterator[str]:
        self._followers[who] += 1
        last_state = ""
        try:
            for look in range(MAX_LOOKS):
                if look % LOOKS_PER_CHECK == LOOKS_PER_CHECK - 1 and not await may_read():
                    return
                # The state is read before the log, so that no line written before the job's end is missed.
                listed = await asyncio.to_thread(self._overview.one, job)
                lines = await asyncio.to_thread(self._overview.log, job, after, MAX_LINES, streamed=streamed)
                for line in lines:
                    after = line.seq
                    yield _line(line)
                if listed is None or self._ending():
                    return
                if len(lines) == MAX_LINES:  # there may be more
                    continue
                words = listed.words
                state: dict[str, str | int] = {"state": listed.state, "name": words.name, "group": words.group}
                state |= {"kind": words.kind, "unsent": self._overview.unsent(job)}
                if (new_state := json.dumps(state)) != last_state:
                    last_state = new_state
                    yield f"event: state\ndata: {new_state}\n\n"
                if listed.state in FINAL and not state["unsent"] and listed.waiting_for != "rest":
                    yield "event: end\ndata: {}\n\n"
                    return
                await asyncio.sleep(self._pause)
                yield ": still here\n\n"
        finally:
            self._followers[who] -= 1
            self._followers += Counter()  # forgets whoever has none left


def _line(line: ProgressRow) -> str:
    entry = {"at": formatting.clock(line.at), "kind": line.kind, "text": formatting.block(line.text)}
    return f"id: {line.seq}\nevent: line\ndata: {json.dumps(entry)}\n\n"


STOPPED_BY_API = "Stopped through the API by {who}."
ID = r"^[a-z0-9]{1,40}$"
CHANGES = error_responses(400, 404, 409, 413)
TOKEN = "The value of AGENT_FIX_WEB_TOKEN, or a key that `agent-fix keys create` made."  # noqa: S105  # a sentence


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the routes work with."""

    overview: JobOverview
    actions: JobActions
    audit: AuditLog
    once: IdempotencyKeys
    streams: LogStreams

    def page(self, job: str, lines: int = 0) -> JobPage:
        page = self.overview.details(job, lines=lines)
        if page is None:
            raise HTTPException(404, "There is no such job.")
        return page


def _parts(request: Request) -> ApiParts:
    found: ApiParts = request.app.state.api
    return found


def caller(
    request: Request,
    scopes: SecurityScopes,
    _: Annotated[object, Security(HTTPBearer(auto_error=False, description=TOKEN))] = None,
) -> ApiCaller:
    """Whoever the password or the key belongs to. Raises 403 if the key lacks a scope."""
    found: ApiCaller = request.state.caller
    if missing := set(scopes.scopes) - found.scopes:
        raise HTTPException(403, f"The key {found.name} lacks the scope {', '.join(sorted(missing))}.")
    return found


NO_JOB = "There is no such job."
Reader = Annotated[ApiCaller, Security(caller, scopes=["read"])]
Writer = Annotated[ApiCaller, Security(caller, scopes=["write"])]
Admin = Annotated[ApiCaller, Security(caller, scopes=["admin"])]
Parts = Annotated[ApiParts, Depends(_parts)]
JobName = Annotated[str, Path(alias="job", pattern=ID, description="The job's id.")]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1, description="The `seq` of the last line that is known.")]
LastEvent = Annotated[
    str, Header(alias="Last-Event-ID", pattern="^[0-9]{0,9}$", description="Counts instead of `offset`.")
]
Once = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern="^[!-~]*$",
        description="A repeated request with the same key gets the first one's answer, for two days.",
    ),
]


@dataclass(frozen=True, slots=True)
class Change:
    """A request that changes something: by whom, and under which Idempotency-Key."""

    request: Request
    parts: Parts
    who: Writer
    key: Once = ""

    def once(self, body: object, act: Callable[[RememberedRequest], dict[str, Any]]) -> dict[str, Any]:
        """Carry the request out and record it, with the id for what it creates; repetitions get the same answer."""
        what = json.dumps([self.request.method, self.request.url.path, body], sort_keys=True)
        try:
            known = self.parts.once.begin(self.who.name, self.key, what)
        except KeyReused as error:
            raise HTTPException(422, str(error)) from None
        except StillInProgress as error:
            raise HTTPException(409, str(error)) from None
        if known.answer is not None:
            return known.answer
        try:
            answer = act(known)
        except (UnknownJob, WrongState) as error:
            self.parts.once.forget(known)
            raise _refusal(error) from None
        self.parts.once.finish(known, answer)
        job, action = self.request.path_params.get("job"), self.request.url.path.rpartition("/")[2]
        made = (action if job else "start", job or answer["id"])
        self.parts.audit.record(self.who.name, "api", *made, address=client_of(self.request))
        return answer


def _refusal(error: UnknownJob | WrongState) -> HTTPException:
    return HTTPException(409, str(error)) if isinstance(error, WrongState) else HTTPException(404, NO_JOB)


Changing = Annotated[Change, Depends(Change)]
router = APIRouter(prefix="/api", tags=["jobs"])


@router.get("/jobs", responses=error_responses(), summary="List jobs, newest first")
def list_jobs(
    *,
    _: Reader,
    parts: Parts,
    repository: Annotated[RepositoryName | None, Query()] = None,
    number: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Of the issue or pull request.")] = None,
    state: Annotated[JobState | Group | None, Query(description="A state, or a group of states.")] = None,
    verdict: Annotated[Verdict | None, Query()] = None,
    before: Annotated[str | None, Query(pattern=ID)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> models.JobListBody:
    job_filter = JobFilter(
        states=in_group(state or ""),
        named=repository or "",
        number=number,
        verdict=verdict or "",
        before=before or "",
    )
    page = parts.overview.page(job_filter, limit=limit)
    return models.JobListBody(jobs=[listed(job) for job in page.jobs], before=page.jobs[-1].id if page.more else None)


@router.get("/audit", responses=error_responses(), summary="Who did what, newest first")
def audit_log(
    *,
    _: Admin,
    parts: Parts,
    before: Annotated[int | None, Query(ge=1, le=2**53 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> models.AuditBody:
    found = parts.audit.newest(limit + 1, before or 0)
    entries = [models.AuditEntryJson(**asdict(each)) for each in found[:limit]]
    return models.AuditBody(entries=entries, before=entries[-1].seq if len(found) > limit else None)


@router.post("/jobs", status_code=202, responses=error_responses(400, 409, 413), summary="Start a job")
def start(change: Changing, new: models.NewJob) -> models.Started:
    """The answer does not wait for GitHub. The job is `queued` until its repository and issue are found.

    It ends as `no_access` if the App is not installed there or there is no such issue, and as `stopped` with a reason
    where a label would be refused. A `search` ends as `answered`, and names the jobs that it started.
    """

    def act(known: RememberedRequest) -> dict[str, Any]:
        change.parts.actions.start(requested(new, known.id, change))
        return {"id": known.id}

    return models.Started(**change.once(new.model_dump(exclude_unset=True), act))


@router.get("/jobs/{job}", responses=error_responses(404), summary="Show a job")
def show(_: Reader, parts: Parts, job: JobName) -> models.JobDetails:
    page = parts.page(job)
    return details(page, parts.actions.place(job) if page.waits else None)


@router.get("/jobs/{job}/log", responses=error_responses(404), summary="Read a job's log")
def log(
    *,
    _: Reader,
    parts: Parts,
    job: JobName,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = MAX_LINES,
) -> models.LogPage:
    parts.page(job)
    lines = parts.overview.log(job, offset, limit)
    return models.LogPage(lines=[line(each) for each in lines], offset=lines[-1].seq if lines else offset)


@router.get(
    "/jobs/{job}/events",
    response_class=Response,
    responses={
        **error_responses(404),
        200: {
            "description": "Events `line`, `state` and `end`, for about five minutes: reconnect with `Last-Event-ID` "
            "until `end`. A line's id is its offset. Lines of the kind `text` are what the model writes, as it comes.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
    summary="Follow a job",
)
async def events(
    *, request: Request, who: Reader, parts: Parts, job: JobName, offset: Offset = 0, last_event_id: LastEvent = ""
) -> Response:
    async def may_read() -> bool:
        now: ApiCaller | None = await request.state.authenticate()
        return now is not None and "read" in now.scopes

    name = "" if who == OPERATOR else f"key {who.name}"
    return await parts.streams.answer(job, int(last_event_id or offset), may_read, who=name, streamed=True)


@router.get("/jobs/{job}/plan", responses=error_responses(404), summary="Read a job's plan")
def plan(_: Reader, parts: Parts, job: JobName) -> models.PlanAnswer:
    known = parts.actions.plans.of(parts.page(job).listed.id)
    if not known:
        raise HTTPException(404, "The job has no plan yet.")
    return newest_plan(known)


@router.put(
    "/jobs/{job}/plan",
    responses=CHANGES,
    response_model=models.PlanAnswer,
    summary="Edit a plan before its approval",
)
def edit_plan(
    request: Request, who: Writer, parts: Parts, job: JobName, edit: models.PlanEdit
) -> models.PlanAnswer | Response:
    """409 unless `version` is the newest version, and the plan waits for approval. For an older version, `errors` has
    the newest plan and your edit."""
    edited = Plan.model_validate(edit.plan.model_dump(mode="json"))
    try:
        version = parts.actions.edit_plan(job, edit.version, edited, who=who.name).version
    except StalePlan as stale:
        texts = [{"where": where, "problem": text} for where, text in stale.texts.items()]
        return problem(409, str(stale), texts)
    except (UnknownJob, WrongState) as error:
        raise _refusal(error) from None
    parts.audit.record(who.name, "api", "plan", job, detail=f"version {version}", address=client_of(request))
    return newest_plan(parts.actions.plans.of(job))


@router.post("/jobs/{job}/approve", status_code=202, responses=CHANGES, summary="Approve a plan")
def approve(change: Changing, job: JobName, body: models.Approval | None = None) -> models.Started:
    """Approves the newest version. The id is a new one if the job only had to make a plan."""
    version = body.version if body else None

    def act(known: RememberedRequest) -> dict[str, Any]:
        return {"id": change.parts.actions.approve(job, id=known.id, who=change.who.name, user=0, version=version)}

    return models.Started(**change.once(version, act))


@router.post("/jobs/{job}/answer", status_code=202, responses=CHANGES, summary="Answer a job's questions")
def answer(change: Changing, job: JobName, body: models.Answer) -> models.Started:
    def act(known: RememberedRequest) -> dict[str, Any]:
        change.parts.actions.answer(job, body.text, id=known.id, who=change.who.name)
        return {"id": job}

    return models.Started(**change.once(body.model_dump(), act))


@router.post("/jobs/{job}/continue", status_code=202, responses=CHANGES, summary="Continue a paused job")
def proceed(change: Changing, job: JobName, body: models.Continuation | None = None) -> models.Started:
    wanted = body or models.Continuation()
    budget, extra = (micro(amount) if amount else None for amount in (wanted.budget, wanted.extra))

    def act(known: RememberedRequest) -> dict[str, Any]:
        money = {"budget": budget, "extra": extra}
        change.parts.actions.proceed(job, id=known.id, who=change.who.name, text=wanted.text, **money)
        return {"id": job}

    return models.Started(**change.once(wanted.model_dump(), act))


@router.post("/jobs/{job}/retry", status_code=202, responses=error_responses(404, 409), summary="Start a job again")
def retry(change: Changing, job: JobName) -> models.Started:
    """The id is the new job's."""

    def act(known: RememberedRequest) -> dict[str, Any]:
        change.parts.actions.retry(job, id=known.id, who=change.who.name, user=0)
        return {"id": known.id}

    return models.Started(**change.once(None, act))


@router.post("/jobs/{job}/cancel", status_code=202, responses=error_responses(404, 409), summary="Stop a job for good")
def cancel(change: Changing, job: JobName) -> models.Stopped:
    def act(known: RememberedRequest) -> dict[str, Any]:
        reason = STOPPED_BY_API.format(who=change.who.name)
        return {"status": change.parts.actions.cancel(job, reason, repeated=known.repeated)}

    return models.Stopped(**change.once(None, act))


@router.get(
    "/jobs/{job}/patch",
    response_class=Response,
    responses={**error_responses(404), 200: {"content": {"text/x-diff": {"schema": {"type": "string"}}}}},
    summary="Download a job's change, for `git apply`",
)
def patch(_: Reader, parts: Parts, job: JobName) -> Response:
    return download(parts.overview.change(job), "change.patch", "text/x-diff; charset=utf-8")


@router.get(
    "/jobs/{job}/trajectory",
    response_class=Response,
    responses={**error_responses(404), 200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}},
    summary="Download a job's steps, one JSON object in a line",
)
def trajectory(_: Reader, parts: Parts, job: JobName) -> Response:
    return download(parts.overview.trajectory(job), "trajectory.jsonl", "application/jsonl; charset=utf-8")


def requested(new: models.NewJob, job: str, change: Change) -> ProgramRequest:
    return ProgramRequest(
        job=job,
        by=change.who.name,
        repository=new.repository,
        number=new.issue or None,
        text=new.text,
        search=new.search,
        most=new.limit if new.search else 0,
        verb="plan" if new.plan_only else "fix",
        instructions=new.instructions,
        model=new.model,
        runner=new.runner,
        budget=micro(new.budget) if new.budget else None,
        kind=new.kind,
        attempts=new.attempts,
        base=new.base,
        urgent=new.urgent,
        at=change.parts.overview.clock(),
    )


def newest_plan(known: tuple[PlanVersion, ...]) -> models.PlanAnswer:
    """The newest version, unchecked: a model's plan may be longer than an edited one."""
    authors = [models.PlanAuthor(version=each.version, who=each.who, at=each.at) for each in known]
    plan = models.PlanJson.model_construct(**known[-1].plan.model_dump(mode="json"))
    return models.PlanAnswer.model_construct(**authors[-1].model_dump(), plan=plan, versions=authors)


def listed(job: JobSummary) -> models.ListedJob:
    return models.ListedJob.model_validate(_listed(job))


def _listed(job: JobSummary) -> dict[str, Any]:
    """The fields of a ListedJob: most have the same name."""
    same = {name: value for name, value in asdict(job).items() if name in models.ListedJob.model_fields}
    return same | {
        "status": job.words.name,
        "group": job.words.group,
        "needs_you": job.words.needs_you,
        "aim": job.aim or "fix",
        "requested_by": job.login,
        "verdict": job.verdict or None,
        "pull_request": job.url or None,
        "cost": dollars(job.cost),
        "budget": dollars(job.budget),
        "at_work": job.owner is not None,
        "waiting_for": "rest" if job.waiting_for == "rest_ended" else job.waiting_for or None,
    }


def details(page: JobPage, queue: QueuePlace | None = None) -> models.JobDetails:
    found, totals, budget = page.result, page.totals, page.job.budget
    usage = totals.model_dump(include={"calls", "prompt_tokens", "cached_tokens", "completion_tokens"})
    result = None
    if found is not None:
        same = found.model_dump(include=set(models.ResultJson.model_fields) - {"verification"})
        kept = {"has_patch": bool(found.diff), "has_trajectory": bool(found.trajectory)}
        result = models.ResultJson.model_validate({**same, **kept, "verification": found.verification})
    position = None
    if queue is not None:
        seconds = int(queue.waiting.total_seconds())
        waits: Literal["pull_requests", "worker"] = (
            "pull_requests" if queue.waiting_for == "pull_requests" else "worker"
        )
        position = models.QueuePosition(
            place=queue.place, of=queue.of, waiting_seconds=seconds, urgent=queue.urgent, waiting_for=waits
        )
    return models.JobDetails(
        **_listed(page.listed),
        base=page.job.task.base,
        branch=page.job.branch,
        models={kind: name for kind, name in page.job.chosen if name},
        fallbacks=list(page.job_context.config.fallbacks) if page.job_context else [],
        limits=models.LimitsJson(usd=dollars(budget.usd), minutes=budget.minutes, steps=budget.steps),
        usage=models.UsageJson(**usage, cost=dollars(totals.cost)),
        plan=page.plan,
        plan_version=page.plan_version,
        result=result,
        messages=[models.MessageJson(**asdict(each)) for each in page.messages],
        effects=[
            models.EffectJson.model_validate({**asdict(each), "url": each.url or None}, extra="ignore")
            for each in page.effects
        ],
        attempts=page.attempts,
        crashes=page.crashes,
        worker_deaths=page.worker_deaths,
        queue=position,
    )


def line(row: ProgressRow) -> models.LogLine:
    return models.LogLine(seq=row.seq, at=row.at, kind=row.kind, text=plain(row.text))


def download(content: bytes | None, name: str, media_type: str) -> Response:
    if content is None:
        raise HTTPException(404, "There is none.")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)
