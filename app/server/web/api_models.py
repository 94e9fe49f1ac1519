"""The requests and answers of the API, and its errors as problem+json (RFC 9457).

Money is a decimal number of US dollars in a string, times are ISO 8601.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, Self

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.config.value_rules import base_branch
from app.core.examples import Example
from app.core.job import MAX_ATTEMPTS, JobState, ProgressKind
from app.core.model_usage import DOLLAR, MicroUSD
from app.core.state_words import Group
from app.core.task import TaskKind
from app.core.verification import Verdict, Verification

MAX_TEXT = 60_000
_EXAMPLE_JOB = "t1m8x2kq4z"


def _whole(value: object) -> object:
    """JSON has one kind of number: 7.0 is an integer, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The bounds come first: after a validator, the description would not show them.
Number = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1), BeforeValidator(_whole)]
_NOT_BLANK = r"^[^\x00]*[^\x00\s][^\x00]*$"
_WITHOUT_NUL = r"^[^\x00]*$"
_AMOUNT = r"^(10000(\.0{1,6})?|[1-9][0-9]{0,3}(\.[0-9]{1,6})?|0\.[0-9]{0,5}[1-9]0*)$"

Money = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]{2,6}$", description="US dollars.", examples=["2.50"])]
Amount = Annotated[
    str,
    Field(
        pattern=_AMOUNT, max_length=14, description="US dollars: more than 0, at most 10,000.", examples=["2.50", "3"]
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=_NOT_BLANK)]
Line = Annotated[str, Field(max_length=4_000, pattern=_WITHOUT_NUL)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9./:_@-]{0,199}$")]
JobId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,40}$", examples=[_EXAMPLE_JOB])]
RepositoryName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100}$", examples=["octo-org/invoices"])
]


class ApiBody(BaseModel):
    """A request or an answer; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str = "about:blank"
    title: str = Field(examples=["Conflict"])
    status: int = Field(examples=[409])
    detail: str = Field(default="", examples=["The job has already ended."])
    errors: list[dict[str, Any]] = Field(default=[], description="What is wrong with which part of the request.")


class NewJob(ApiBody):
    """What is to be done, in exactly one of `issue`, `text` and `search`; and options, as in a comment."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"repository": "octo-org/invoices", "issue": 7},
                {
                    "repository": "octo-org/invoices",
                    "text": "Totals are a cent too low\n\nRound half up.",
                    "budget": "3",
                },
                {"repository": "octo-org/invoices", "search": "label:bug", "limit": 10},
            ],
            "oneOf": [{"required": ["issue"]}, {"required": ["text"]}, {"required": ["search"]}],
        }
    )

    repository: RepositoryName
    issue: Number = Field(default_factory=int, description="The number of an issue or a pull request.")
    text: Text = Field(
        default_factory=str, description="A new issue's title, in the first line, and body. It is opened first."
    )
    search: Annotated[str, Field(min_length=1, max_length=200, pattern=_NOT_BLANK)] = Field(
        default_factory=str, description="GitHub's search: each open issue that it finds becomes a job of its own."
    )
    limit: Annotated[int, Field(strict=True, ge=1, le=100), BeforeValidator(_whole)] = Field(
        default=20, description="How many issues of a search are taken."
    )
    plan_only: bool = Field(default=False, strict=True, description="Make a plan, and wait for its approval.")
    instructions: Line = Field(default="", description="What is wanted, in addition to the issue.")
    model: Name | None = None
    runner: Name | None = None
    budget: Amount | None = None
    kind: TaskKind | None = None
    attempts: Annotated[int, Field(strict=True, ge=1, le=MAX_ATTEMPTS), BeforeValidator(_whole)] | None = None
    base: Annotated[Name, AfterValidator(base_branch)] | None = Field(
        default=None, description="The branch to start from and to open the pull request against."
    )
    urgent: bool = Field(default=False, strict=True, description="Before jobs that are not urgent.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set & {"issue", "text", "search"}) != 1:
            raise ValueError("exactly one of issue, text and search is needed")
        return self


class Approval(ApiBody):
    """Approves a plan; with `version`, only if that is the newest one."""

    version: Number | None = None


class Answer(ApiBody):
    """The answer to a job's questions."""

    text: Text = Field(examples=["Round half up, as in the invoices of 2025."])


class Continuation(ApiBody):
    """More money for a paused job: a new `budget` in all, or `extra` beside the present one."""

    budget: Amount | None = None
    extra: Amount | None = Field(default=None, description="Counts only without `budget`.", examples=["3"])
    text: Line = ""


class Started(ApiBody):
    """The id of the job, which exists from now on."""

    id: JobId


class Stopped(ApiBody):
    """`stopping`: its process has to end first, within seconds."""

    status: Literal["stopped", "stopping"]


PlanItems = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=4_000, pattern=_NOT_BLANK)]], Field(max_length=30)
]


class PlanJson(ApiBody):
    """A plan: only the summary is required."""

    summary: Annotated[str, Field(min_length=1, max_length=4_000, pattern=_NOT_BLANK)]
    candidate_files: PlanItems = []
    steps: PlanItems = []
    questions: PlanItems = []
    examples: Annotated[list[Example], Field(max_length=12)] = []


class PlanEdit(ApiBody):
    """An edited plan, and the version that was edited."""

    version: Number
    plan: PlanJson


class PlanAuthor(ApiBody):
    """Who wrote a version, and when: `agent-fix`, a login on GitHub, or the name of an API key."""

    version: int
    who: str
    at: datetime


class PlanAnswer(PlanAuthor):
    """The newest version of a plan, and who wrote all of them."""

    plan: PlanJson
    versions: list[PlanAuthor]


class QueuePosition(ApiBody):
    """A waiting job's place, from 1, and since when it waits. A job gains priority with age.

    One that waits for `pull_requests` goes on when one of its repository is merged or closed.
    """

    place: int
    of: int
    waiting_seconds: int
    urgent: bool
    waiting_for: Literal["worker", "pull_requests"]


class ListedJob(ApiBody):
    id: JobId
    state: JobState
    status: str = Field(description="The state in words, as on all pages.", examples=["waiting for approval"])
    group: Group
    needs_you: bool = Field(description="It goes on only if a person decides something.")
    reason: str
    repository: str
    number: int | None
    title: str
    is_pull_request: bool
    aim: str
    requested_by: str
    verdict: Verdict | None
    pull_request: str | None = Field(description="The URL of the pull request.")
    model: str
    runner: str
    cost: Money
    budget: Money
    created_at: datetime
    updated_at: datetime
    at_work: bool
    stop_requested: bool
    waiting_for: Literal["money", "daily_budget", "pull_requests", "rest"] | None = Field(
        description="What it is waiting for: a higher budget, room in a daily budget, or fewer open pull requests."
        " `rest`: it is published, and its remaining tests are being run."
    )


class JobListBody(ApiBody):
    jobs: list[ListedJob]
    before: JobId | None = Field(description="Where the next page begins; null on the last.")


class AuditEntryJson(ApiBody):
    """One action of a person or a program."""

    seq: Number
    at: datetime
    who: str = Field(description="A login, or a key's name.")
    way: Literal["dashboard", "api", "github", "terminal"]
    address: str = Field(description="Where a request came from; empty for GitHub and a terminal.")
    action: str
    job: str = Field(description="Empty where it is about none.")
    detail: str


class AuditBody(ApiBody):
    entries: list[AuditEntryJson]
    before: Number | None = Field(description="Where the next page begins; null on the last.")


class UsageJson(ApiBody):
    """All model calls of a job so far."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Money


class LimitsJson(ApiBody):
    usd: Money
    minutes: float
    steps: int


class ResultJson(ApiBody):
    """How a job ended, or what it found so far."""

    exit_status: JobState
    reason: str
    hint: str
    summary: str
    branch: str
    commit: str
    url: str
    turns: int
    seconds: float
    verification: Verification | None
    notes: list[str]
    warnings: list[str]
    has_patch: bool
    has_trajectory: bool


class MessageJson(ApiBody):
    seq: int
    kind: str
    who: str
    text: str
    at: datetime


class EffectJson(ApiBody):
    """A change on GitHub that the job requested."""

    kind: str
    state: str
    reason: str
    attempts: int
    url: str | None
    at: datetime | None


class JobDetails(ListedJob):
    """One job with everything about it."""

    base: str
    branch: str
    models: dict[str, str] = Field(description="By kind of work: `code`, and each other kind with a model of its own.")
    fallbacks: list[str]
    limits: LimitsJson
    usage: UsageJson
    plan: str = Field(description="The plan in force, as text.")
    plan_version: int = Field(description="Its version; 0 without a plan.")
    result: ResultJson | None
    messages: list[MessageJson]
    effects: list[EffectJson]
    attempts: int
    crashes: int = Field(description="Deaths of its own process since the last finished step.")
    worker_deaths: int = Field(description="Deaths of its worker since the last finished step.")
    queue: QueuePosition | None = Field(description="Null for a job that does not wait for its turn.")


class LogLine(ApiBody):
    seq: int
    at: datetime
    kind: ProgressKind
    text: str


class LogPage(ApiBody):
    lines: list[LogLine]
    offset: int = Field(description="Where the next page begins.")


def dollars(amount: MicroUSD) -> str:
    """An amount as a decimal string, with at least cents."""
    whole, fraction = divmod(amount, DOLLAR)
    return f"{whole}.{f'{fraction:06}'.rstrip('0').ljust(2, '0')}"


def micro(amount: str) -> MicroUSD:
    return int(Decimal(amount) * DOLLAR)


PROBLEM_JSON: Final = "application/problem+json"
_DESCRIPTIONS: Final = {
    400: "The request is not valid JSON.",
    401: "There is no valid token.",
    403: "The key lacks the scope, or the request came from another site.",
    404: "There is no such job, or it has no such part.",
    409: "The job's state does not allow it, or the same Idempotency-Key is in use.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is malformed, or its Idempotency-Key was used for another request.",
    429: "Too many wrong tokens came from this address.",
    503: "The database does not answer, or too many streams are open.",
}


def problem(
    status: int,
    detail: str = "",
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer to a request that failed."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors or [])
    return JSONResponse(body.model_dump(), status, headers, media_type=PROBLEM_JSON)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for OpenAPI, with those that every route has."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {PROBLEM_JSON: schema}}
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }


def invalid(error: RequestValidationError) -> Response:
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return problem(400, "The body is not valid JSON.")
    parts = [{"where": _where(each["loc"]), "problem": each["msg"].removeprefix("Value error, ")} for each in found]
    return problem(422, "The request is malformed.", parts)


def _where(loc: tuple[int | str, ...]) -> str:
    """The part of the request, without the alternatives of its type that were tried."""
    return ".".join(str(part) for part in (loc if loc[0] == "body" else loc[:2]))


def problem_of_exception(error: HTTPException) -> Response:
    detail = "" if error.detail == HTTPStatus(error.status_code).phrase else error.detail
    return problem(error.status_code, detail, headers=error.headers)
