"""Decides about events that are not requests: active jobs are notified, and failing checks are fixed."""

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.task import TaskOrigin
from app.github.models import BotAccount
from app.triggers.decisions import (
    Decision,
    Ignored,
    IssueState,
    JobRequest,
    Notification,
    NotificationAim,
    PullRequestState,
)
from app.triggers.event_facts import EventFacts
from app.triggers.events import (
    ChecksFailed,
    EventSubject,
    InstallationChanged,
    IssueChanged,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    StateChangeEvent,
)

WORK_LABELS = frozenset({"agent-fix", "agent-in-progress"})
"""Removing one of these labels stops the job."""

Notice = StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


def decide_notification(event: Notice, found: EventFacts) -> Decision:
    """Decide about an event. The facts are current, so an outdated event has no effect."""
    match event:
        case InstallationChanged():
            return _installation(event)
        case RepositoryChanged():
            return _repository(event)
        case _ if found.state.installation != event.installation:
            reason = "security: the installation has no access to this repository"
            return Ignored(rule="foreign_installation", reason=reason)
        case Pushed():
            return _pushed(event)
        case ChecksFailed():
            return _checks(event, found)
        case _:
            return _state_change(event, found)


def _installation(event: InstallationChanged) -> Notification:
    access_lost = event.change in {"deleted", "suspended", "removed"}
    return Notification(
        rule=f"installation_{event.change}",
        aim="no_access" if access_lost else "reconcile",
        installation=event.installation,
        repositories=event.repositories if event.change in {"added", "removed"} else (),
    )


def _repository(event: RepositoryChanged) -> Notification:
    aims: dict[str, NotificationAim] = {
        "archived": "no_access",
        "deleted": "no_access",
        "renamed": "moved",
        "transferred": "moved",
        "unarchived": "reconcile",
    }
    return Notification(
        rule=f"repository_{event.change}",
        aim=aims[event.change],
        installation=event.installation,
        repositories=(event.repository.id,),
    )


def _pushed(event: Pushed) -> Notification:
    """Notify the pull requests and jobs based on this branch; those with it as head get other events."""
    return Notification(
        rule="pushed",
        aim="base_moved",
        installation=event.installation,
        repositories=(event.repository.id,),
        branch=event.branch,
    )


def _state_change(event: StateChangeEvent, found: EventFacts) -> Decision:
    name = event.kind if isinstance(event, LabelRemoved) else f"{event.kind.removesuffix('_changed')}_{event.change}"
    match event:
        case LabelRemoved():
            aim = _aim_of_label(event, found.state)
        case IssueChanged():
            aim = _aim_of_issue(event, found.state)
        case PullRequestChanged():
            aim = _aim_of_pull_request(event, found)
    if aim is None:
        return Ignored(rule=name, reason="no job needs to know this")
    return Notification(
        rule=name,
        aim=aim,
        installation=event.installation,
        repositories=(event.repository.id,),
        number=event.subject.number,
        job=found.state.job,
    )


def _aim_of_label(event: LabelRemoved, state: IssueState) -> NotificationAim | None:
    back_on = event.label.casefold() in {label.casefold() for label in state.labels}
    asked_again = state.asked_at is not None and state.begun_at is not None and state.asked_at < state.begun_at
    called_off = event.label.casefold() in WORK_LABELS and not back_on and not asked_again
    return "stop" if called_off and state.working else None


def _aim_of_issue(event: IssueChanged, state: IssueState) -> NotificationAim | None:
    if not state.working:
        return None
    if event.change == "edited":
        return "edited"
    removed = event.change in {"deleted", "transferred"}
    return "stop" if removed or (event.change == "closed" and not state.open) else None


def _aim_of_pull_request(event: PullRequestChanged, found: EventFacts) -> NotificationAim | None:
    state = found.state
    if event.change == "synchronize" and (found.is_our_pull_request or state.working):
        return "head_moved"
    return "stop" if event.change == "closed" and state.working and not state.open else None


def _checks(event: ChecksFailed, found: EventFacts) -> Decision:
    """Fix failing checks of the bot's own pull request, as often as the repository allows."""
    config, state, bot, pull = found.config, found.state, found.bot, found.state.pull
    if isinstance(config, ConfigError) or pull is None:
        return Ignored(rule="checks", reason="the configuration is invalid" if pull else "it is not on a pull request")
    if reason := _why_not_fix(event, config, state, pull, bot):
        return Ignored(rule="checks", reason=reason)
    if state.follow_ups >= config.iterate.max:
        most = config.iterate.max
        rounds = "round" if most == 1 else "rounds"
        reason = f"Checks still fail after {most} {rounds} of fixes; a person must take over."
        return Ignored(rule="checks_cap", reason=reason, visible=True)
    subject = EventSubject(
        number=pull.number,
        is_pull_request=True,
        title=state.title or "",
        author=bot.user,
        labels=state.labels,
        head=pull.head,
    )
    origin = TaskOrigin(
        installation=event.installation,
        repository=event.repository.id,
        number=pull.number,
        is_pull_request=True,
        actor=bot.user,
    )
    trigger = f"{event.source}:{event.id}"
    return JobRequest(
        aim="fix_checks", origin=origin, subject=subject, trigger=trigger, destination="same_branch", head=pull.head
    )


def _why_not_fix(
    event: ChecksFailed, config: RepoConfig, state: IssueState, pull: PullRequestState, bot: BotAccount
) -> str | None:
    ours = pull.author == bot.user and pull.head.repository == event.repository.id
    reasons = {
        "it is the bot's own check": event.app == bot.app,
        "the configuration turns it off": not config.iterate.ci,
        "it is not on a pull request of the bot": not ours,
        "the branch has moved": pull.head.sha != event.head_sha,
        "the pull request is closed, locked or archived": not state.open or state.locked or state.archived,
        "a job is already working on it": state.working,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
