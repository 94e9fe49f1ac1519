"""The pages: the list of jobs with its filter, one job with its plan, proof, log and cost, and the operators'."""

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from app.core.job import new_job_id
from app.core.model_usage import usd
from app.core.plan import (
    EXAMPLES,
    FIELDS,
    LIST_FIELDS,
    Plan,
    PlanError,
    parse_examples,
    parse_plan_file,
    plan_from_fields,
    render_examples_file,
    render_plan_file,
)
from app.core.state_words import GROUP_NAMES, WORDS, in_group
from app.core.text import plain
from app.core.verification import Verdict
from app.jobs.job_actions import JobActions, StalePlan, UnknownJob, WrongState, may_be_approved
from app.jobs.operations import SLOW, TOO_LONG
from app.jobs.outcomes import outcome_totals
from app.jobs.queries import DayCost, JobFilter, JobPage, SortOrder
from app.jobs.trigger_log import AuditLog
from app.publish.pull_request_text import describe_attempts
from app.publish.result_view import about_rest, printed_text, view_of
from app.server.context import ServerContext
from app.server.web import formatting, metrics
from app.server.web.access import visitor_of
from app.server.web.api_models import micro
from app.server.web.sign_in import Visitor, client_of, form_fields, single_fields

STATES: Final[Mapping[str, str]] = {words.name: state for state, words in reversed(WORDS.items())}
"""The state that stands for all with the same name, by that name."""
VERDICTS: Final[tuple[str, ...]] = get_args(Verdict)
SORTS: Final[Mapping[str, str]] = {
    "needs_you": "Those that need you first",
    "newest": "Newest first",
    "oldest": "Oldest first",
    "changed": "Last changed first",
    "cost": "Most expensive first",
}
MAX_PAGE: Final = 100_000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What the address asks for; values that mean nothing are left out."""

    state: str = ""
    repository: str = ""
    person: str = ""
    verdict: str = ""
    q: str = ""
    since: str = ""
    until: str = ""
    sort: SortOrder = "needs_you"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "ListQuery":
        state, verdict, sort, page = (query.get(name, "") for name in ("state", "verdict", "sort", "page"))
        return cls(
            state=state if in_group(state) else "",
            repository=query.get("repository", "")[:300],
            person=query.get("person", "").strip().removeprefix("@")[:100],
            verdict=verdict if verdict in VERDICTS else "",
            q=query.get("q", "").strip()[:200],
            since=_day(query.get("since", "")),
            until=_day(query.get("until", "")),
            sort=sort if sort in get_args(SortOrder) else "needs_you",  # type: ignore[arg-type]  # it was just looked up
            page=min(int(page), MAX_PAGE) if page.isascii() and page.isdigit() and len(page) < 16 and int(page) else 1,
        )

    @property
    def filters(self) -> bool:
        """True if anything is filtered."""
        return replace(self, sort="needs_you", page=1) != ListQuery()

    def job_filter(self, repository: int | None, visible: frozenset[int] | None) -> JobFilter:
        since, until = (date.fromisoformat(day) if day else None for day in (self.since, self.until))
        return JobFilter(in_group(self.state), repository, self.person, self.verdict, self.q, since, until, visible)

    def address(self, **changes: str | int) -> str:
        """The URL of the same list with some values changed; it begins at the first page unless told."""
        query = {name: getattr(self, name) for name in self.__slots__} | {"page": 1} | changes
        given = {name: value for name, value in query.items() if value and (name, value) not in _IMPLIED}
        return f"/?{urlencode(given)}" if given else "/"


_IMPLIED: Final = {("sort", "needs_you"), ("page", 1)}


def _day(text: str) -> str:
    """A date as the page's own fields write it, else nothing."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return ""
    return found.isoformat() if 2000 <= found.year < 2100 else ""


WIDTH: Final = 300
HEIGHT: Final = 84
LABEL: Final = 76
"""How wide the words beside horizontal bars are."""
ROW: Final = HEIGHT // len(VERDICTS)
BASELINE: Final = HEIGHT - 16
"""Below it are the days."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar in pixels; `name` and `value` are what it says."""

    x: float
    y: float
    width: float
    height: float
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`summary` says what the picture shows, for people who do not see it."""

    bars: tuple[Bar, ...]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT


def verdict_chart(counts: Mapping[str, int]) -> Chart:
    """One horizontal bar for each verdict, the best first."""
    most = max(counts.values(), default=0)
    longest = WIDTH - LABEL - 44
    bars = tuple(
        Bar(LABEL, ROW * row + 3, _part(counts.get(name, 0), most) * longest, ROW - 7, name, f"{counts.get(name, 0):,}")
        for row, name in enumerate(VERDICTS)
    )
    return Chart(bars, ", ".join(f"{bar.name}: {bar.value}" for bar in bars))


def day_chart(costs: Sequence[DayCost]) -> Chart:
    """One vertical bar for each day, the oldest first."""
    most = max((each.cost for each in costs), default=0)
    step = WIDTH / max(len(costs), 1)
    bars = []
    for number, each in enumerate(costs):
        height = _part(each.cost, most) * (BASELINE - 2)
        value = usd(each.cost)
        bars.append(Bar(step * number + 2, BASELINE - height, step - 4, height, f"{each.day:%d %b}", value))
    return Chart(tuple(bars), ", ".join(f"{bar.name}: {bar.value}" for bar in bars))


def _part(value: int, most: int) -> float:
    return value / most if most else 0.0


log = logging.getLogger(__name__)

HERE = Path(__file__).parent
ASSETS: Final[Mapping[str, str]] = {
    "style.css": "text/css",
    "live.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
CALLS_SHOWN = 200


def environment() -> Environment:
    """Everything is escaped unless a template says otherwise, and none does."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"plan_file": render_plan_file, "examples_file": render_examples_file, "money": usd}
    made.filters |= {"describe_attempts": describe_attempts, "printed_text": printed_text}
    made.filters |= dict(inspect.getmembers(formatting, inspect.isfunction))
    return made


async def asset(request: Request) -> Response:
    name = request.url.path.removeprefix("/")
    return FileResponse(HERE / "static" / name, media_type=ASSETS[name])


class DashboardPages:
    """Answers in HTML."""

    def __init__(self, server_context: ServerContext, actions: JobActions) -> None:
        self._server_context = server_context
        self._overview = server_context.overview
        self._actions = actions
        self._templates = environment()

    async def jobs(self, request: Request) -> Response:
        return await asyncio.to_thread(self._jobs, ListQuery.of(request.query_params), visitor_of(request))

    async def job(self, request: Request) -> Response:
        job = request.path_params["job"]
        page = await asyncio.to_thread(self._overview.details, job)
        if page is None:
            return await self.missing(request)
        change = await asyncio.to_thread(self._overview.change, job)
        visitor, form_id = visitor_of(request), new_job_id()
        return self.render(
            "job.html",
            visitor=visitor,
            page=page,
            may_act=not visitor.refusal(page.job_context),
            seal=visitor.seal(f"{page.listed.id} {form_id}"),
            form_id=form_id,
            versions=await asyncio.to_thread(self._actions.plans.of, job),
            approvable=may_be_approved(page.listed.state, page.listed.aim),
            place=await asyncio.to_thread(self._actions.place, job) if page.waits else None,
            why=await asyncio.to_thread(self._server_context.operations.why_waiting, [job]),
            rest=about_rest(page.result.rest if page.result else None),
            proof=view_of(page.result.verification) if page.result and page.result.verification else None,
            links=self._links(page),
            change=(change or b"").decode("utf-8", "replace"),
            model_calls=await asyncio.to_thread(self._overview.model_calls, job, CALLS_SHOWN),
        )

    async def log(self, request: Request) -> Response:
        job = request.path_params["job"]
        if await asyncio.to_thread(self._overview.one, job) is None:
            return await self.missing(request)
        return StreamingResponse(self._whole_log(job), media_type="text/plain; charset=utf-8")

    async def change(self, request: Request) -> Response:
        """The job's change as a file, whatever its outcome."""
        kept = await asyncio.to_thread(self._overview.change, request.path_params["job"])
        if kept is None:
            return await self.missing(request)
        named = {"content-disposition": 'attachment; filename="change.patch"'}
        return Response(kept, media_type="text/plain; charset=utf-8", headers=named)

    async def no_database(self, _: Request, error: Exception) -> Response:
        log.error("a page could not be rendered: %s", type(error).__name__)
        return self.message(
            503, "The database is not responding", "Try again in a moment. /readyz shows when it is back."
        )

    async def missing(self, _: Request, __: Exception | None = None) -> Response:
        return self.message(404, "Page not found", "Check the job's id. The job may also be in another database.")

    def refusal(self, headers: Headers, status: int, title: str, text: str) -> Response:
        """A page for browsers, a line of text for programs."""
        if "text/html" in headers.get("accept", ""):
            return self.message(status, title, text)
        return PlainTextResponse(f"{title}. {text}\n", status)

    def _jobs(self, list_query: ListQuery, visitor: Visitor) -> Response:
        repositories = self._overview.repositories(visitor.visible)
        wanted = list_query.repository
        chosen = self._overview.repository(wanted, visitor.visible) if wanted else None
        if wanted and chosen is None:
            return self.message(404, "This repository has no jobs", "")
        if chosen is not None:
            repositories.setdefault(chosen, wanted)
        job_filter = list_query.job_filter(chosen, visitor.visible)
        counts = self._overview.counts(job_filter)
        listed = self._overview.page(job_filter, list_query.sort, list_query.page)
        return self.render(
            "jobs.html",
            visitor=visitor,
            list_query=list_query,
            listed=listed,
            why=self._server_context.operations.why_waiting([job.id for job in listed.jobs if job.state == "queued"]),
            counts=counts,
            groups=GROUP_NAMES,
            total=sum(counts.values()),
            states=STATES,
            verdicts=VERDICTS,
            sorts=SORTS,
            repositories=repositories,
            chosen=chosen,
            figures=self._server_context.operations.figures() if visitor.operator else None,
            too_long=TOO_LONG.total_seconds(),
            slow=SLOW.total_seconds(),
            verdict_chart=verdict_chart(self._overview.verdicts(job_filter)),
            day_chart=day_chart(self._overview.day_costs(job_filter)),
        )

    async def _whole_log(self, job: str) -> AsyncIterator[str]:
        after = 0
        while lines := await asyncio.to_thread(self._overview.log, job, after):
            yield "".join(f"{formatting.moment(line.at)}  {line.kind:<12}  {plain(line.text)}\n" for line in lines)
            after = lines[-1].seq

    def _links(self, page: JobPage) -> "JobLinks":
        """GitHub URLs, built only from values that GitHub itself sent."""
        server, job_context = f"{self._server_context.settings.github_url}/", page.job_context
        issue = commit = ""
        if job_context is not None:
            place = job_context.issue_ref
            repository = f"{server}{formatting.path_of(place.owner)}/{formatting.path_of(place.name)}"
            issue = f"{repository}/{'pull' if page.listed.is_pull_request else 'issues'}/{place.number}"
            if page.result is not None and page.result.commit:
                commit = f"{repository}/commit/{formatting.path_of(page.result.commit)}"
        return JobLinks(
            issue=issue,
            commit=commit,
            pull_request=page.listed.url if page.listed.url.startswith(server) else "",
            effects={effect.key: effect.url for effect in page.effects if effect.url.startswith(server)},
        )

    def message(self, status: int, title: str, text: str) -> Response:
        return self.render("message.html", status, title=title, text=text)

    def render(self, name: str, status: int = 200, *, visitor: Visitor | None = None, **values: Any) -> Response:
        now: datetime = self._overview.clock()
        shown = self._templates.get_template(name).render(now=now, status=status, visitor=visitor, **values)
        return HTMLResponse(shown, status_code=status)


@dataclass(frozen=True, slots=True)
class JobLinks:
    """GitHub URLs; empty if there is none. `effects` has one for each receipt, by the effect's key."""

    issue: str
    commit: str
    pull_request: str
    effects: Mapping[str, str]


AUDIT_SHOWN: Final = 100
SEAL: Final = "operators"


class OperatorPages:
    """Answers operators only (`app.server.web.access`)."""

    def __init__(
        self,
        server_context: ServerContext,
        audit: AuditLog,
        render: Callable[..., Response],
        answers: Mapping[str, int],
    ) -> None:
        self._server_context = server_context
        self._audit = audit
        self._render = render
        self._answers = answers

    async def page(self, request: Request) -> Response:
        visitor = visitor_of(request)
        return self._render(
            "operators.html",
            visitor=visitor,
            seal=visitor.seal(SEAL),
            operations=await asyncio.to_thread(self._server_context.operations.now),
            figures=await asyncio.to_thread(self._server_context.operations.figures),
        )

    async def metrics(self, _: Request) -> Response:
        figures, totals = await asyncio.gather(
            asyncio.to_thread(self._server_context.operations.figures),
            asyncio.to_thread(outcome_totals, self._server_context.engine),
        )
        text = metrics.render(figures, self._answers, totals)
        return PlainTextResponse(text, headers={"content-type": metrics.CONTENT_TYPE})

    async def audit(self, request: Request) -> Response:
        """Who did what, newest first; `before` is the number of the last entry on the page before."""
        given = request.query_params.get("before", "")
        before = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
        found = await asyncio.to_thread(self._audit.newest, AUDIT_SHOWN + 1, before)
        entries, more = found[:AUDIT_SHOWN], len(found) > AUDIT_SHOWN
        return self._render("audit.html", visitor=visitor_of(request), entries=entries, more=more, before=before)

    async def retry(self, request: Request) -> Response:
        """Give a dead letter another try."""
        visitor = visitor_of(request)
        form = await single_fields(request)
        kind, name, seal = (form.get(field, "") for field in ("kind", "id", "seal"))
        if not visitor.sealed(SEAL, seal):
            text = "Reload the page and try again."
            return self._render("message.html", 403, title="This form has expired", text=text, visitor=visitor)
        if not await asyncio.to_thread(self._server_context.operations.retry, kind, name):
            text = "It has already been retried or deleted."
            return self._render("message.html", 404, title="There is nothing to retry", text=text, visitor=visitor)
        record = partial(self._audit.record, detail=f"{kind} {name}", address=client_of(request))
        await asyncio.to_thread(record, visitor.name, "dashboard", "retry letter")
        return RedirectResponse("/operators#letters", 303)


STOPPED_HERE: Final = "Stopped on the dashboard by {who}."
ACTIONS: Final = ("stop", "retry", "plan", "approve", "answer", "continue")
_AMOUNT = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,2})?")


class WrongForm(Exception):  # noqa: N818  # an answer
    """A field has a value that cannot be used."""


class JobForms:
    """Carries a form out once, however often it is sent; `message` makes a page of a status, a title and a text."""

    def __init__(self, actions: JobActions, audit: AuditLog, message: Callable[[int, str, str], Response]) -> None:
        self._actions = actions
        self._audit = audit
        self._message = message

    async def act(self, request: Request) -> Response:
        """The seal proves that the form and its id came from our page."""
        job, action = request.path_params["job"], request.url.path.rpartition("/")[2]
        found = await form_fields(request)
        form = {name: values[0] for name, values in found.items()}
        visitor = visitor_of(request)
        if not visitor.sealed(f"{job} {form.get('id', '')}", form.get("seal", "")):
            return self._message(403, "This form has expired", "Reload the job's page and try again.")
        try:
            edited = _edited_plan(found) if action in {"plan", "approve"} else None
            target = await asyncio.to_thread(self._carry_out, job, action, form, edited, visitor)
        except (UnknownJob, WrongState, WrongForm, PlanError) as error:
            return self._refused(error)
        extra = form.get("extra", "").strip() if action == "continue" else ""
        detail = f"as {target}" if target != job else extra
        record = partial(self._audit.record, detail=detail, address=client_of(request))
        await asyncio.to_thread(record, visitor.name, "dashboard", action, job)
        return RedirectResponse(f"/jobs/{formatting.path_of(target)}", 303)

    def _refused(self, error: UnknownJob | WrongState | WrongForm | PlanError) -> Response:
        match error:
            case UnknownJob():
                hint = "Check the job's id. The job may also be in another database."
                return self._message(404, "Page not found", hint)
            case StalePlan():
                texts = "\n\n".join(f"{where.capitalize()}:\n\n{text}" for where, text in error.texts.items())
                return self._message(409, "Somebody else has edited this plan", f"{error}\n\n{texts}")
            case WrongState():
                return self._message(409, "This cannot be done now", str(error))
            case PlanError():
                return self._message(422, "The plan cannot be used", f"{error.message} {error.hint}")
            case _:
                return self._message(422, "This cannot be used", str(error))

    def _carry_out(self, job: str, action: str, form: dict[str, str], edited: Plan | None, visitor: Visitor) -> str:
        """Returns the id of the job whose page is shown next."""
        new, who, user = form["id"], visitor.name, visitor.asks_as
        match action:
            case "stop":
                self._actions.cancel(job, STOPPED_HERE.format(who=who))
            case "retry":
                self._actions.retry(job, id=new, who=who, user=user)
                return new
            case "plan":
                self._edit(job, form, edited, who)
            case "approve":
                version = self._edit(job, form, edited, who)
                return self._actions.approve(job, id=new, who=who, user=user, version=version)
            case "answer":
                if not (text := form.get("text", "").strip()):
                    raise WrongForm("The answer is empty.")
                self._actions.answer(job, text, id=new, who=who)
            case "continue":
                amount = form.get("extra", "").strip()
                if amount and not (_AMOUNT.fullmatch(amount) and micro(amount)):
                    raise WrongForm("Enter an amount in dollars, such as 3 or 2.50.")
                self._actions.proceed(job, id=new, who=who, extra=micro(amount) if amount else None)
            case _:
                raise UnknownJob(job)
        return job

    def _edit(self, job: str, form: dict[str, str], plan: Plan | None, who: str) -> int | None:
        """Store the form's plan if it was changed; returns the version that the form is about."""
        known, version = self._actions.plans.of(job), form.get("version", "")
        if not version.isdecimal() or len(version) > 6 or plan is None:
            return None
        shown = next((each for each in known if each.version == int(version)), None)
        if shown is not None and plan in (shown.plan, parse_plan_file(render_plan_file(shown.plan))):
            return int(version)
        return self._actions.edit_plan(job, int(version), plan, who=who).version


def _edited_plan(form: Mapping[str, list[str]]) -> Plan | None:
    """The plan that a form has, as text or in fields; None without one. Raises PlanError."""
    if "text" in form:
        return parse_plan_file(form["text"][0])
    if "summary" not in form:
        return None
    given = {name: [text.replace("\r\n", "\n").strip() for text in form.get(name, [])] for name in FIELDS}
    texts = {name: given[name][0] if given[name] else "" for name in ("summary",)}
    lists = {name: [text for text in given[name] if text] for name in LIST_FIELDS}
    return plan_from_fields({**texts, **lists, EXAMPLES: parse_examples("\n".join(given[EXAMPLES]))})
