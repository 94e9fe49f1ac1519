"""Decides about events as the triggers' rules do, with defaults for all that a test does not name."""

from datetime import UTC, datetime
from typing import Any, get_args

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.job import FINAL, JobState
from app.github.models import ActorPermission, BotAccount
from app.triggers.decisions import (
    Decision,
    EventFacts,
    Ignored,
    IssueState,
    JobRequest,
    PullRequestState,
    Reply,
)
from app.triggers.events import Event, read
from app.triggers.rules import command_of, decide
from tests.support import webhook_requests as made

NOW = datetime(2026, 1, 2, 4, 0, tzinfo=UTC)
US = BotAccount(app=made.APP, user=made.BOT)
WRITER = ActorPermission(id=1, login="octocat", permission="write")
CONFIG = RepoConfig()
OURS = PullRequestState(
    number=7,
    author=made.BOT,
    head={"repository": 600, "ref": "agent-fix/x", "sha": made.SHA},  # type: ignore[arg-type]
    base_ref="main",
)
THEIRS = OURS.model_copy(update={"author": 1, "head": OURS.head.model_copy(update={"ref": "topic"})})
ACTIVE: tuple[JobState, ...] = tuple(state for state in get_args(JobState) if state not in FINAL)


def event_of(name: str, payload: dict[str, Any]) -> Event:
    reading = read(name, payload)
    assert not isinstance(reading, str), reading
    return reading


def state(**changes: Any) -> IssueState:
    return IssueState(**{"installation": made.INSTALLATION, "labels": ("agent-fix",), **changes})


def ask(
    event: Event | str,
    now: IssueState | None = None,
    *,
    config: RepoConfig | ConfigError = CONFIG,
    requester: ActorPermission | None = WRITER,
    bot: BotAccount = US,
    at: datetime = NOW,
) -> Decision:
    """Decide about an event, or about a comment with this text on the issue."""
    event = event_of("issue_comment", made.comment(event)) if isinstance(event, str) else event
    found = EventFacts(event, command_of(event), bot, now or state(), config, requester)
    return decide(found, now=at)


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
