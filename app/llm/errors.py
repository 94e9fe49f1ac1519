"""The errors of model calls, by what can be done about them, and which of them each failure is."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor
from app.llm.base import Usage

logger = logging.getLogger(__name__)
ModelErrorKind = Literal["retry", "wait", "shrink", "give_up"]


class ModelError(AgentFixError):
    """A failed call. `kind` says what may be done about it:

    - `retry`: transient (5xx, a cut stream, connection lost); again with back-off
    - `wait`: rate limited; again after `retry_after` seconds
    - `shrink`: the request does not fit the window; again only if it becomes smaller
    - `give_up`: never again without a change (bad key, unknown model, refused content, dead endpoint)

    `reason` is a stable slug for tests and metrics, such as `rate_limited` or `no_key`.
    `usage` is what the provider has probably charged for the failed call, if it may have charged anything.
    """

    exit_code = ExitCode.MODEL

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        reason: str,
        retry_after: float | None = None,
        hint: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: ModelErrorKind = kind
        self.reason = reason
        self.retry_after = retry_after
        self.usage = usage

    @property
    def final(self) -> bool:
        """True for `shrink`: repeating the same request cannot help. Every other error may be retried later."""
        return self.kind == "shrink"


class BudgetError(AgentFixError):
    """The next call could exceed the job's cap; nothing was sent, and a person must decide whether to raise the cap."""

    exit_code = ExitCode.LIMIT_REACHED
    repeatable = True
    """With a larger budget the same step continues."""


class DayBudgetError(BudgetError):
    """The next call could exceed a daily cap that several jobs share; money becomes available again by itself."""


OUTAGES = frozenset({"unreachable", "quota"})
"""Reasons to give a model up that another model may not share."""
BECAUSE: Mapping[str, str] = {
    "unreachable": "was unreachable",
    "connection_lost": "kept losing the connection",
    "timeout": "took too long to answer",
    "deadline": "took too long to answer",
    "stream_cut": "kept breaking off",
    "server_error": "kept failing",
    "bad_response": "gave no usable answer",
    "overloaded": "was overloaded",
    "rate_limited": "limited the rate for too long",
    "quota": "had no credit left",
    "unavailable": "had failed too often",
}


def is_outage(error: ModelError) -> bool:
    """True if another model may succeed: the failure is not about the request, the key or the content."""
    return error.kind in ("retry", "wait") or error.reason in OUTAGES


CONTEXT = re.compile(
    r"context_length_exceeded|context length|context window|maximum context|prompt is too long|input is too long"
    r"|input length and `?max_tokens`? exceed|exceeds? the (model's )?maximum number of tokens"
    r"|maximum allowed number of input tokens|reduce the length of the (messages|prompt|input)"
    r"|request too large for|exceed_context_size|input token count.{0,40}exceeds",
    re.IGNORECASE,
)
TOO_MANY_TOKENS = re.compile(r"too many (input )?tokens", re.IGNORECASE)
"""In one request, or with status 429 in a period (Bedrock)."""
QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|insufficient balance|credit balance|billing|out of credits"
    r"|payment required",
    re.IGNORECASE,
)
NO_WAIT = re.compile(r"insufficient_quota|PerDay|limit: 0(?!\.?\d)")
"""A quota that is not free again soon, whatever delay is named; the last two are Gemini's."""
REFUSED = re.compile(
    r"content_filter|content_policy|content management policy|content policy|safety system|usage polic"
    r"|flagged|moderation",
    re.IGNORECASE,
)
NO_TOOLS = re.compile(
    r"(does not|doesn't|do not) support (tools|tool use|function)|tool use is not supported", re.IGNORECASE
)
MESSAGE = re.compile(r'^b?["\']?\{.*?"(?:message|error)": ?"((?:[^"\\]|\\.)+)"')
"""The words in a body that LiteLLM shows whole."""
AGAIN_IN = re.compile(r"(?:try again|retry) (?:in|after) (?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)", re.IGNORECASE)
UNREACHABLE = frozenset({"ConnectError", "ConnectTimeout", "gaierror", "ConnectionRefusedError"})


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """The details of a LiteLLM exception and its causes, read without importing LiteLLM."""

    names: frozenset[str]
    status: int
    text: str
    headers: Mapping[str, str]


def read(error: BaseException) -> FailureDetails:
    """Read the chain of causes: LiteLLM's own status is often 500 although the provider's was another."""
    links = list(_chain(error))
    statuses = [status for link in links if isinstance(status := getattr(link, "status_code", None), int)]
    return FailureDetails(
        names=frozenset(cls.__name__ for link in links for cls in type(link).__mro__),
        status=next((status for status in reversed(statuses) if status != 500), 500 if statuses else 0),
        text="\n".join(dict.fromkeys(str(link)[:2_000] for link in links if str(link))),
        headers=_headers(links),
    )


def classify(fault: FailureDetails, *, name: str, where: str, secrets: Iterable[str] = ()) -> ModelError:
    """Apply the first matching rule; `where` is what to check if nothing answers.

    The error's message, which is posted, has none of the provider's words: those may repeat the request with its key,
    in any encoding. They are logged, redacted.
    """
    logger.warning("%s answered %s: %s", name, fault.status or "nothing", excerpt(fault.text, secrets))
    for rule in (_account, _final, _limits, _connection):
        found = rule(fault, name, where)
        if found is not None:
            return found
    if fault.status >= 500:
        return ModelError(f"{name} failed ({fault.status}).", kind="retry", reason="server_error")
    if fault.status >= 400:
        message = f"{name} refused the request ({fault.status})."
        return ModelError(message, kind="give_up", reason="bad_request", hint=_IN_THE_LOG)
    return ModelError(f"{name} gave no usable answer.", kind="retry", reason="bad_response")


_IN_THE_LOG = "The process's log has the provider's words."


def _account(fault: FailureDetails, name: str, where: str) -> ModelError | None:
    """Problems with keys and money, which a person must fix."""
    if fault.status == 401 or "AuthenticationError" in fault.names:
        hint = "Check the API key in the environment."
        return ModelError(f"{name} rejected the API key.", kind="give_up", reason="bad_key", hint=hint)
    # with an empty account, waiting does not help; Gemini's limit per minute has the same words and a delay
    waits = fault.status == 429 and retry_after(fault) is not None and not NO_WAIT.search(fault.text)
    if fault.status == 402 or (fault.status in (400, 403, 429) and QUOTA.search(fault.text) and not waits):
        return ModelError(f"The account for {name} has no credit left.", kind="give_up", reason="quota")
    return None


def _final(fault: FailureDetails, name: str, where: str) -> ModelError | None:
    """Errors that a retry cannot fix."""
    if "ContentPolicyViolationError" in fault.names or (fault.status in (400, 403) and REFUSED.search(fault.text)):
        return ModelError(f"{name} refused this content.", kind="give_up", reason="refused", hint=_IN_THE_LOG)
    if fault.status == 403:
        hint = "Check the API key's permissions."
        return ModelError(f"The API key may not use {name}.", kind="give_up", reason="bad_key", hint=hint)
    if NO_TOOLS.search(fault.text):
        return ModelError(f"{name} cannot call tools, which an agent needs.", kind="give_up", reason="no_tools")
    if fault.status == 404:
        hint = f"Check the model's name and {where}."
        return ModelError(f"There is no model {name}.", kind="give_up", reason="unknown_model", hint=hint)
    return None


def _limits(fault: FailureDetails, name: str, where: str) -> ModelError | None:
    """Requests that are too large or too frequent.

    Only an error that mentions the context window counts as too large: a plain 429 must not shrink anything.
    """
    too_many = fault.status != 429 and TOO_MANY_TOKENS.search(fault.text)
    if fault.status == 413 or "ContextWindowExceededError" in fault.names or CONTEXT.search(fault.text) or too_many:
        return ModelError(f"The request is too large for {name}.", kind="shrink", reason="context_window")
    delay = retry_after(fault)
    if fault.status == 429 or "RateLimitError" in fault.names:
        return ModelError(f"{name} limits the request rate.", kind="wait", reason="rate_limited", retry_after=delay)
    if fault.status in (503, 529) and delay is not None:
        return ModelError(f"{name} is overloaded.", kind="wait", reason="overloaded", retry_after=delay)
    return None


def _connection(fault: FailureDetails, name: str, where: str) -> ModelError | None:
    if fault.names & UNREACHABLE:
        return ModelError(
            f"Nothing answers for {name}.",
            kind="retry",
            reason="unreachable",
            hint=f"Check the network and {where}.",
        )
    if "TimeoutError" in fault.names or "Timeout" in fault.names or fault.status == 408:
        return ModelError(f"{name} took too long to answer.", kind="retry", reason="timeout")
    if fault.names & {"TransportError", "APIConnectionError", "ConnectionError"}:
        return ModelError(f"The connection to {name} was lost.", kind="retry", reason="connection_lost")
    return None


def retry_after(fault: FailureDetails, now: datetime | None = None) -> float | None:
    """Seconds to wait, from the headers (`retry-after` in seconds or as a date) or from the text."""
    for header, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = fault.headers.get(header, "")
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) * scale
    try:
        until = parsedate_to_datetime(fault.headers.get("retry-after", ""))
    except ValueError:
        until = None
    if until is not None:
        zoned = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max(0.0, (zoned - (now or datetime.now(UTC))).total_seconds())
    match = AGAIN_IN.search(fault.text)
    if match is None:
        return None
    return int(match[1] or 0) * 60 + float(match[2]) * (0.001 if match[3].lower() == "ms" else 1.0)


def excerpt(text: str, secrets: Iterable[str] = ()) -> str:
    """A provider's message on one line, redacted, without LiteLLM's prefixes."""
    line = " ".join(Redactor(secrets).redact(text).partition("\n")[0].split())
    line = re.sub(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?::| -)\s*)+", "", line)
    found = MESSAGE.search(line)
    line = found[1].replace('\\"', '"') if found else line
    return line if len(line) <= 300 else line[:299] + "…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error's causes, outermost first; LiteLLM keeps the one it wrapped in `original_exception`."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "original_exception", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _headers(links: Iterable[BaseException]) -> dict[str, str]:
    for link in links:
        for holder in (link, getattr(link, "response", None)):
            headers = getattr(holder, "litellm_response_headers", None) or getattr(holder, "headers", None)
            if headers:
                return {str(name).lower(): str(value) for name, value in dict(headers).items()}
    return {}
