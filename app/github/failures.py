"""Maps GitHub's error responses, by status and message, to the four kinds of `app.github.errors`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import httpx
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import ValidationError

from app.core.redaction import mask_tokens
from app.github.errors import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure

MAX_WORDS = 300
DEFAULT_WAIT = timedelta(seconds=60)
"""GitHub's documentation requires this if a limit names no time."""


class NotSeenYet(NeedsHumanAction):
    """GitHub reads from a replica that does not have our last write yet. Nothing was done; try again soon."""


class NoDrafts(NeedsHumanAction):
    """The repository's plan has no drafts. No call tells this in advance."""


class AlreadyThere(NeedsHumanAction):
    """The thing to be created exists."""


_INSTALL = (
    "Check that the App's installation includes this repository and that its new permissions are accepted; "
    "in a workflow, that the job's `permissions:` include it."
)
_MAY_OPEN = (
    "Allow it under Settings, Actions, General, Workflow permissions: "
    "“Allow GitHub Actions to create and approve pull requests”. If the switch is greyed out, the organisation has "
    "turned it off in the same place of its own settings. Alternatively, give the Action an App."
)


class FailureRule(NamedTuple):
    """A status (0: any), a part of the message in lower case, and the error that they become."""

    status: int
    words: str
    kind: Callable[..., ForgeError]
    hint: str = ""


RULES = (
    FailureRule(401, "", NoAccess),
    FailureRule(403, "archived", NoAccess, "The repository is archived and cannot be changed."),
    FailureRule(403, "suspended", NoAccess, "The App's installation is suspended."),
    FailureRule(403, "not permitted to create or approve pull requests", NoAccess, _MAY_OPEN),
    FailureRule(403, "locked", NeedsHumanAction, "The conversation is locked."),
    FailureRule(403, "", NoAccess, _INSTALL),
    FailureRule(404, "", NoAccess, _INSTALL),
    FailureRule(408, "", TemporaryFailure),
    FailureRule(409, "is empty", NeedsHumanAction, "The repository has no commit yet."),
    FailureRule(409, "", TemporaryFailure),
    FailureRule(410, "", NoAccess, "It was deleted, or issues are turned off."),
    FailureRule(422, "a pull request already exists", AlreadyThere),
    FailureRule(422, "draft pull requests are not supported", NoDrafts),
    FailureRule(422, "head invalid", NotSeenYet),
    FailureRule(422, "sha can't be blank", NotSeenYet),
    FailureRule(422, "no commits between", NotSeenYet),
    FailureRule(422, "not all refs are readable", NotSeenYet, "Check that the App may read contents."),
    FailureRule(422, "could not resolve to a node", NotSeenYet),
    FailureRule(422, "permissions requested are not granted", NoAccess, _INSTALL),
    FailureRule(422, "not accessible to the parent installation", NoAccess, _INSTALL),
    FailureRule(423, "", NoAccess, "The repository is locked, for example during a migration."),
    FailureRule(451, "", NoAccess, "The repository is blocked for legal reasons."),
)
GRAPHQL = {
    "RATE_LIMIT": RateLimited,
    "RATE_LIMITED": RateLimited,
    "FORBIDDEN": NoAccess,
    "INSUFFICIENT_SCOPES": NoAccess,
    "NOT_FOUND": NoAccess,
    "SERVICE_UNAVAILABLE": TemporaryFailure,
    "INTERNAL": TemporaryFailure,
}


def failure_of(error: GitHubException, now: datetime) -> ForgeError:
    """The error for an exception of githubkit, which also wraps errors of a token request."""
    while isinstance(error, RequestError) and isinstance(error.exc, GitHubException):
        error = error.exc
    if isinstance(error, RequestFailed):
        return refusal_of(error.response.raw_response, now)
    cause = error.exc if isinstance(error, RequestError) else error
    if isinstance(cause, httpx.HTTPError | OSError):
        return TemporaryFailure(f"{_server(cause)} could not be reached: {_short(str(cause) or type(cause).__name__)}")
    if isinstance(cause, ValidationError):  # a page instead of a token, or half a token
        return TemporaryFailure("GitHub's answer could not be read.")
    return NoAccess(f"No token for GitHub: {_short(str(cause) or type(cause).__name__)}", hint=_INSTALL)


def _server(error: httpx.HTTPError | OSError) -> str:
    """GitHub, with the host that was asked, as far as it is known."""
    request = getattr(error, "_request", None)  # httpx raises an error if the public property is unset
    return f"GitHub ({request.url.host})" if isinstance(request, httpx.Request) else "GitHub"


def refusal_of(response: httpx.Response, now: datetime) -> ForgeError:
    """The error for a response that is not a success."""
    words = message_of(response)
    status = response.status_code
    text = f"GitHub answered {status}: {words}" if words else f"GitHub answered {status}."
    if until := silence_until(response, words, now):
        return RateLimited(text, until=until)
    if status in {301, 302, 307, 308}:
        return NoAccess("The repository has moved: GitHub redirected the request.", hint=_INSTALL)
    if status >= 500:
        return TemporaryFailure(text)
    for rule in RULES:
        if rule.status == status and rule.words in words.lower():
            return rule.kind(text, hint=rule.hint)
    return NeedsHumanAction(text)


def graphql_failure(kind: str, words: str, now: datetime) -> ForgeError:
    """The error for one entry of `errors` in a GraphQL answer."""
    text = f"GitHub answered {kind or 'an error'}: {_short(words)}"
    cls = GRAPHQL.get(kind, NeedsHumanAction)
    return RateLimited(text, until=now + DEFAULT_WAIT) if cls is RateLimited else cls(text)


def silence_until(response: httpx.Response, words: str, now: datetime) -> datetime | None:
    """Until when a rate limit forbids requests; None if the answer is about something else."""
    status, headers = response.status_code, response.headers
    if "retry-after" in headers and (status in {403, 429} or status >= 500):
        return now + _seconds(headers["retry-after"])
    if status not in {403, 429}:
        return None
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
        return datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
    limited = status == 429 or "rate limit" in words.lower() or "abuse detection" in words.lower()
    return now + DEFAULT_WAIT if limited else None


def message_of(response: httpx.Response) -> str:
    """GitHub's message; empty if the body is not JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    details = [detail.get("message") or _coded(detail) for detail in _dicts(body.get("errors"))]
    return _short(": ".join(str(part) for part in (body.get("message"), *details) if part))


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _coded(detail: dict[str, object]) -> str:
    """Such as `head invalid`, if GitHub gives no message."""
    return " ".join(str(detail[key]) for key in ("field", "code") if detail.get(key))


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=min(int(text), 86_400)) if text.isdigit() else DEFAULT_WAIT


def _short(text: str) -> str:
    return mask_tokens(" ".join(text.split()))[:MAX_WORDS]
