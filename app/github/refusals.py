"""What GitHub's refusals mean: one table of messages for its REST and GraphQL APIs and for git.

A rule decides whether waiting helps, and what a person can do. People read GitHub's own sentence first, ours after it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import httpx
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import ValidationError

from app.core.redaction import mask_secrets
from app.github.base import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure, WorkflowsMoved

MAX_MESSAGE: Final = 500
DEFAULT_WAIT: Final = timedelta(seconds=60)
"""GitHub's documentation requires this if a limit names no time."""


class NotSeenYet(NeedsHumanAction):
    """GitHub reads from a replica that does not have our last write yet. Nothing was done; try again soon."""


class NoDrafts(NeedsHumanAction):
    """The repository's plan has no drafts. No call tells this in advance."""


class AlreadyThere(NeedsHumanAction):
    """The thing to be created exists."""


class NotFoundOnGitHub(NoAccess):
    """A 404: it does not exist or we may not see it; GitHub does not say which."""


class FailureRule(NamedTuple):
    """Where it is found (`any`, a status, a type of GraphQL error, `push`, `git`), part of it, and what it becomes."""

    places: str
    part: str
    kind: Callable[..., ForgeError]
    hint: str = ""


_INSTALL: Final = (
    "Check that the App's installation includes this repository and that its new permissions are accepted; "
    "in a workflow, that the job's `permissions:` include it."
)
_MAY_OPEN: Final = (
    "Allow it under Settings, Actions, General, Workflow permissions: "
    "“Allow GitHub Actions to create and approve pull requests”. If the switch is greyed out, the organisation has "
    "turned it off in the same place of its own settings. Alternatively, give the Action an App."
)
TEAM_HINT: Final = (
    "Only an App with the organisation permission “Members: read” can ask a team for a review; a workflow's own token "
    "never has it."
)
_SIGN: Final = "Set `sign: true` in .github/agent-fix.yml, or sign with AGENT_FIX_SIGNING_KEY."
_EXEMPT: Final = "Exclude the branches below `agent-fix/` from that rule, or let the App bypass it."
_FOR_NOW: Final = (
    "submitted too quickly"  # of pull requests, issues and comments, for minutes up to an hour: cli/cli#4801
    "|blocked from content creation"
    "|heavy server load"  # of a diff
    "|something went wrong while executing your query"  # GraphQL's own time-out, without a type
    "|merge already in progress|base branch was modified"
    "|undergoing maintenance|being migrated"
)
RULES: Final = (
    FailureRule("401", "", NoAccess),
    FailureRule("any", _FOR_NOW, TemporaryFailure),
    FailureRule("any", "archived", NoAccess, "The repository is archived and cannot be changed."),
    FailureRule(
        "any",
        "ip allow list|ip address is not permitted",
        NoAccess,
        "Add the address of this machine to the organisation's IP allow list; GitHub-hosted runners have no fixed one.",
    ),
    FailureRule(
        "any",
        r"\bsaml\b",
        NoAccess,
        "The organisation requires SAML single sign-on. Authorise the token for it, or use an App, which needs none.",
    ),
    FailureRule(
        "any",
        "forbids access via a|accessible by (?:fine-grained )?personal access token",
        NoAccess,
        "The organisation forbids this kind of token, or the token lacks the permission. An App needs no token.",
    ),
    FailureRule("any", "suspended", NoAccess, "GitHub or the owner suspended this account or installation."),
    FailureRule("any", "not permitted to create or approve pull requests", NoAccess, _MAY_OPEN),
    FailureRule(
        "any",
        "must be a collaborator|limited the ability to|pull requests (?:are|is) (?:disabled|restricted)",
        NeedsHumanAction,
        "The repository's settings say who may do this. See Settings, General, Features, Pull requests, and "
        "Moderation, Interaction limits.",
    ),
    FailureRule(
        "any",
        "without .?workflows?.? (?:permission|scope)",
        WorkflowsMoved,
        "A workflow changed on the base branch, or this branch changes one, which only a person may do. To start again "
        "from the current state, use `/agent retry` on an issue or `/agent rebase` on a pull request.",
    ),
    FailureRule("any", "upgrade to github", NeedsHumanAction, "The repository's plan does not have this."),
    FailureRule("403", "locked", NeedsHumanAction, "The conversation is locked."),
    FailureRule("403 404", "", NoAccess, _INSTALL),
    FailureRule("408", "", TemporaryFailure),
    FailureRule("409", "is empty", NeedsHumanAction, "The repository has no commit yet."),
    FailureRule("409", "", TemporaryFailure),
    FailureRule("410", "", NoAccess, "It was deleted, or issues or pull requests are turned off."),
    FailureRule("422", "a pull request already exists", AlreadyThere),
    FailureRule("422", "draft pull requests are not supported", NoDrafts),
    FailureRule("422", "head invalid|head ref must be|sha can't be blank|no commits between", NotSeenYet),
    FailureRule("422", "no commit found for sha", NotSeenYet),  # of a check run right after the push
    FailureRule("422", "not all refs are readable", NotSeenYet, "Check that the App may read contents."),
    FailureRule(
        "422",
        "not resolve to a node with the global id of '(?:T_|MDQ6VGVh)",  # a team's id: actions/github-script#572
        NoAccess,
        TEAM_HINT,
    ),
    FailureRule("422", "could not resolve to a node|^[^:]*: [^:]*\\w missing\\b", NotSeenYet),
    FailureRule("422", "base invalid", NeedsHumanAction, "The base branch is gone or was renamed."),
    FailureRule("422", "permissions requested are not granted", NoAccess, _INSTALL),
    FailureRule("422", "not accessible to the parent installation", NoAccess, _INSTALL),
    FailureRule("422", "user is blocked", NoAccess, "The owner has blocked the account of agent-fix."),
    FailureRule("423", "", NoAccess, "The repository is locked, for example during a migration."),
    FailureRule("451", "", NoAccess, "The repository is blocked for legal reasons."),
    FailureRule("RATE_LIMIT RATE_LIMITED", "", RateLimited),
    FailureRule("FORBIDDEN INSUFFICIENT_SCOPES NOT_FOUND", "", NoAccess, _INSTALL),
    FailureRule("SERVICE_UNAVAILABLE INTERNAL STALE_DATA", "", TemporaryFailure),
    FailureRule(
        "push",
        "verified signatures",
        NeedsHumanAction,
        f"{_SIGN} {_EXEMPT}",
    ),
    FailureRule(
        "push",
        "push protection|cannot contain secrets|GH009",
        NeedsHumanAction,
        "GitHub recognised a secret in the commits. A person may allow it at the address in GitHub's message.",
    ),
    FailureRule("push", "GH001|file size limit", NeedsHumanAction, "A file is too large for GitHub without Git LFS."),
    FailureRule(
        "push", "GH007|private email", NeedsHumanAction, "Allow pushes that show the email address of this account."
    ),
    FailureRule("push", "quota", NeedsHumanAction, "The repository or its owner has no storage left."),
    FailureRule("push", "GH006|GH013|protected branch|rule violations", NeedsHumanAction, _EXEMPT),
    FailureRule("push", "failed to update ref|cannot lock ref|internal|fatal error in commit_refs", TemporaryFailure),
    FailureRule("push", "pre-receive hook", NeedsHumanAction, "A hook of this GitHub Enterprise Server refused it."),
    FailureRule("push", "", NeedsHumanAction),
    FailureRule(
        "git",
        "check-ref-format|not a valid branch name",
        NeedsHumanAction,
        "Check that the configuration's branch pattern gives a valid git branch name.",
    ),
    FailureRule("git", "has moved to [0-9a-f]{40}", NeedsHumanAction, "The pull request has new commits; try again."),
    FailureRule("git", "error: 429|rate limit", RateLimited),
    FailureRule(
        "git",
        "error: 40[13]|authentication failed|write access .* not granted",
        NoAccess,
        "Check that the App may write contents.",
    ),
    FailureRule(
        "git",
        "error: 404|repository .* not found|error: 410|error: 451",
        NoAccess,
        "Check that the App is still installed here.",
    ),
    FailureRule("git", "error: 3\\d\\d|unable to update url base from redirection", NoAccess, "The repository moved."),
    FailureRule("git", "", TemporaryFailure),
)
"""The first rule that matches counts; without one, a person has to look."""


def failure_by(place: str, message: str, text: str, now: datetime) -> ForgeError:
    """The error with `text` for GitHub's `message` at a `place` of the table."""
    for rule in RULES:
        if ({"any", place} & set(rule.places.split())) and re.search(rule.part, message, re.IGNORECASE):
            return (
                RateLimited(text, until=now + DEFAULT_WAIT)
                if rule.kind is RateLimited
                else rule.kind(text, hint=rule.hint)
            )
    return NeedsHumanAction(text)


def git_failure(place: str, began: str, message: str, now: datetime) -> ForgeError:
    """The error for a message of git, at `push` or `git`; `began` says what was tried."""
    text = " ".join(part for part in mask_secrets(message).split() if part.strip("-—"))
    return failure_by(place, text, f"{began}: {text}", now)


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
    message = message_of(response)
    status = response.status_code
    text = f"GitHub answered {status}: {message}" if message else f"GitHub answered {status}."
    if until := silence_until(response, message, now):
        return RateLimited(text, until=until)
    if status in {301, 302, 307, 308}:
        return NoAccess("The repository has moved: GitHub redirected the request.", hint=_INSTALL)
    if status >= 500:
        return TemporaryFailure(text)
    return failure_by(str(status), message, text, now)


def graphql_failure(kind: str, message: str, now: datetime) -> ForgeError:
    """The error for one entry of `errors` in a GraphQL answer."""
    return failure_by(kind, message, f"GitHub answered {kind or 'an error'}: {_short(message)}", now)


def silence_until(response: httpx.Response, message: str, now: datetime) -> datetime | None:
    """Until when a rate limit forbids requests; None if the answer is about something else."""
    status, headers = response.status_code, response.headers
    if "retry-after" in headers and (status in {403, 429} or status >= 500):
        return now + _seconds(headers["retry-after"])
    if status not in {403, 429}:
        return None
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
        return datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
    limited = status == 429 or "rate limit" in message.lower() or "abuse detection" in message.lower()
    return now + DEFAULT_WAIT if limited else None


def message_of(response: httpx.Response) -> str:
    """GitHub's message with its details, which are objects, texts or one text; empty if the body is not JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    errors = body.get("errors")
    details = [_detail(each) for each in (errors if isinstance(errors, list) else [errors])]
    return _short(": ".join(str(part) for part in (body.get("message"), *details) if part))


def _detail(value: object) -> str:
    """A text, or an object's message; such as `head invalid` if GitHub gives none."""
    if isinstance(value, dict):
        return str(value.get("message") or " ".join(str(value[key]) for key in ("field", "code") if value.get(key)))
    return value if isinstance(value, str) else ""


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=min(int(text), 86_400)) if text.isdigit() else DEFAULT_WAIT


def _short(text: str) -> str:
    return mask_secrets(" ".join(text.split()))[:MAX_MESSAGE]
