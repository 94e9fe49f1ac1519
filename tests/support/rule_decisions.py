"""Decides about events as the triggers' rules do, with defaults for all that a test does not name."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.job import FINAL, JobState
from app.github.models import ActorPermission, BotAccount, GitHubIssue, PullRequest
from app.triggers.decisions import (
    Decision,
    EventFacts,
    Ignored,
    IssueState,
    JobRequest,
    Reply,
)
from app.triggers.events import Event, SubjectEvent, read
from app.triggers.rules import command_of, decide
from tests.support import webhook_requests as made

NOW = datetime(2026, 1, 2, 4, 0, tzinfo=UTC)
US = BotAccount(app=made.APP, user=made.BOT)
WRITER = ActorPermission(id=1, login="octocat", permission="write")
CONFIG = RepoConfig()
OURS = PullRequest(
    number=7,
    url="https://github.example/o/r/pull/7",
    title="It breaks",
    body="Badly.",
    author=made.BOT,
    open=True,
    head_branch="agent-fix/x",
    head=made.SHA,
    head_repository=600,
    base_branch="main",
    base=made.OTHER_SHA,
)
THEIRS = OURS.model_copy(update={"author": 1, "head_branch": "topic"})
ACTIVE: tuple[JobState, ...] = tuple(state for state in get_args(JobState) if state not in FINAL)


def event_of(name: str, payload: dict[str, Any]) -> Event:
    reading = read(name, payload)
    assert not isinstance(reading, str), reading
    return reading


@dataclass(frozen=True)
class Now:
    """How things are when an event is decided. Title and description are the event's, if they are not named."""

    state: IssueState
    issue: dict[str, Any]
    pull: PullRequest | None


def state(**changes: Any) -> Now:
    pull = changes.pop("pull", None)
    issue = {name: changes.pop(name) for name in GitHubIssue.model_fields if name in changes}
    return Now(IssueState(**changes), issue, pull)


def facts_of(
    event: Event,
    now: Now | None = None,
    *,
    config: RepoConfig | ConfigError = CONFIG,
    requester: ActorPermission | None = WRITER,
    bot: BotAccount = US,
) -> EventFacts:
    now, issue = now or state(), None
    if isinstance(event, SubjectEvent):
        subject = event.subject
        texts = {"number": subject.number, "title": subject.title, "body": subject.body}
        known = {"labels": ("agent-fix",), "open": True, "updated_at": NOW, **texts, **now.issue}
        issue = GitHubIssue(**known)
    elif now.pull is not None:
        issue = GitHubIssue(**{"number": 7, "title": now.pull.title, "open": True, "updated_at": NOW, **now.issue})
    return EventFacts(event, command_of(event), bot, now.state, config, requester, issue, now.pull)


def ask(
    event: Event | str,
    now: Now | None = None,
    *,
    config: RepoConfig | ConfigError = CONFIG,
    requester: ActorPermission | None = WRITER,
    bot: BotAccount = US,
    at: datetime = NOW,
) -> Decision:
    """Decide about an event, or about a comment with this text on the issue."""
    event = event_of("issue_comment", made.comment(event)) if isinstance(event, str) else event
    return decide(facts_of(event, now, config=config, requester=requester, bot=bot), now=at)


def label(**parts: Any) -> Event:
    return event_of("issues", made.label_added(**parts))


def on_pull_request(text: str) -> Event:
    return event_of("issue_comment", made.comment_on_pull_request(text))


def order(decision: Decision) -> JobRequest:
    assert isinstance(decision, JobRequest), decision
    return decision


def skipped(decision: Decision) -> tuple[str, bool]:
    assert isinstance(decision, Ignored), decision
    return decision.rule, decision.visible


def replied(decision: Decision) -> str:
    assert isinstance(decision, Reply), decision
    return decision.rule
