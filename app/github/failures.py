"""What GitHub's refusals mean: one table from status and words to the four kinds of `app.github.errors`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import httpx
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import ValidationError

from app.core.redaction import mask_tokens
from app.github.errors import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure

MAX_WORDS = 300
WAIT_UNTOLD = timedelta(seconds=60)
"""What GitHub's documentation asks for where a limit names no time."""


class NotSeenYet(NeedsHumanAction):
    """GitHub reads from a copy that lags behind what was just written: nothing was done, and soon it may be."""


class NoDrafts(NeedsHumanAction):
    """The repository's plan has no drafts. No call tells that beforehand."""


class AlreadyThere(NeedsHumanAction):
    """What was to be made exists."""


_INSTALL = (
    "Look at the App's installation: is this repository in it, and are its new permissions accepted? "
    "In a workflow: does the job's `permissions:` have it?"
)
_MAY_OPEN = (
    "Allow it under Settings, Actions, General, Workflow permissions: "
    "“Allow GitHub Actions to create and approve pull requests”. Where that switch is grey, its organisation has "
    "turned it off, at the same place in the organisation's settings. Or give the Action an App."
)


class FailureRule(NamedTuple):
    """A status (0: any), a part of the message in lower case, and what the two mean."""

    status: int
    words: str
    kind: Callable[..., ForgeError]
    hint: str = ""


RULES = (
    FailureRule(401, "", NoAccess),
    FailureRule(403, "archived", NoAccess, "The repository is archived: nothing can be written to it."),
    FailureRule(403, "suspended", NoAccess, "The App's installation is suspended."),
    FailureRule(403, "not permitted to create or approve pull requests", NoAccess, _MAY_OPEN),
    FailureRule(403, "locked", NeedsHumanAction, "The conversation is locked."),
    FailureRule(403, "", NoAccess, _INSTALL),
    FailureRule(404, "", NoAccess, _INSTALL),
    FailureRule(408, "", TemporaryFailure),
    FailureRule(409, "is empty", NeedsHumanAction, "The repository has no commit yet."),
    FailureRule(409, "", TemporaryFailure),
    FailureRule(410, "", NoAccess, "It was deleted, or issues are switched off."),
    FailureRule(422, "a pull request already exists", AlreadyThere),
    FailureRule(422, "draft pull requests are not supported", NoDrafts),
    FailureRule(422, "head invalid", NotSeenYet),
    FailureRule(422, "sha can't be blank", NotSeenYet),
    FailureRule(422, "no commits between", NotSeenYet),
    FailureRule(422, "not all refs are readable", NotSeenYet, "May the App read contents?"),
    FailureRule(422, "could not resolve to a node", NotSeenYet),
    FailureRule(422, "permissions requested are not granted", NoAccess, _INSTALL),
    FailureRule(422, "not accessible to the parent installation", NoAccess, _INSTALL),
    FailureRule(423, "", NoAccess, "The repository is locked, as during a migration."),
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
    """The kind of an exception of githubkit, which wraps what happened while a token was asked for."""
    while isinstance(error, RequestError) and isinstance(error.exc, GitHubException):
        error = error.exc
    if isinstance(error, RequestFailed):
        return refusal_of(error.response.raw_response, now)
    cause = error.exc if isinstance(error, RequestError) else error
    if isinstance(cause, httpx.HTTPError | OSError):
        return TemporaryFailure(f"GitHub could not be reached: {_told(str(cause) or type(cause).__name__)}")
    if isinstance(cause, ValidationError):  # a page in the place of a token, or half a token
        return TemporaryFailure("GitHub's answer was not readable.")
    return NoAccess(f"No token for GitHub: {_told(str(cause) or type(cause).__name__)}", hint=_INSTALL)


def refusal_of(response: httpx.Response, now: datetime) -> ForgeError:
    """The kind of an answer that is not a success."""
    words = message_of(response)
    status = response.status_code
    text = f"GitHub answered {status}: {words}" if words else f"GitHub answered {status}."
    if until := silence_until(response, words, now):
        return RateLimited(text, until=until)
    if status in {301, 302, 307, 308}:
        return NoAccess("The repository has moved: GitHub answered with another address.", hint=_INSTALL)
    if status >= 500:
        return TemporaryFailure(text)
    for rule in RULES:
        if rule.status == status and rule.words in words.lower():
            return rule.kind(text, hint=rule.hint)
    return NeedsHumanAction(text)


def graphql_failure(kind: str, words: str, now: datetime) -> ForgeError:
    """The kind of one entry of `errors` in a GraphQL answer."""
    text = f"GitHub answered {kind or 'an error'}: {_told(words)}"
    cls = GRAPHQL.get(kind, NeedsHumanAction)
    return RateLimited(text, until=now + WAIT_UNTOLD) if cls is RateLimited else cls(text)


def silence_until(response: httpx.Response, words: str, now: datetime) -> datetime | None:
    """Until when a limit asks for silence; None where the answer is about something else."""
    status, headers = response.status_code, response.headers
    if "retry-after" in headers and (status in {403, 429} or status >= 500):
        return now + _seconds(headers["retry-after"])
    if status not in {403, 429}:
        return None
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
        return datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
    limited = status == 429 or "rate limit" in words.lower() or "abuse detection" in words.lower()
    return now + WAIT_UNTOLD if limited else None


def message_of(response: httpx.Response) -> str:
    """GitHub's own words; empty for a page that is not JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    details = [detail.get("message") or _coded(detail) for detail in _dicts(body.get("errors"))]
    return _told(": ".join(str(part) for part in (body.get("message"), *details) if part))


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _coded(detail: dict[str, object]) -> str:
    """Such as `head invalid`, where GitHub says no more."""
    return " ".join(str(detail[key]) for key in ("field", "code") if detail.get(key))


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=min(int(text), 86_400)) if text.isdigit() else WAIT_UNTOLD


def _told(text: str) -> str:
    return mask_tokens(" ".join(text.split()))[:MAX_WORDS]
