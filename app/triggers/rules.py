"""Decides about an event by named rules in order; the first one that returns a decision wins.

Active jobs are notified of other events, and failing checks of our own pull requests are fixed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from app.config.repository import RepoConfig, is_own_name
from app.core.errors import ConfigError
from app.core.text import count, visible, without_quotes
from app.github.models import BotAccount, PullRequest
from app.github.permission import refusal
from app.jobs.context import BY_PROGRAM, ON_DASHBOARD
from app.jobs.job_actions import ProgramRequest
from app.triggers.commands import AgentCommand, CommandOptions, parse
from app.triggers.decisions import (
    Decision,
    Destination,
    EventFacts,
    Ignored,
    JobRequest,
    Notification,
    NotificationAim,
    Reply,
)
from app.triggers.events import (
    Assigned,
    ChecksFailed,
    CommentEvent,
    Event,
    EventSubject,
    InstallationChanged,
    IssueChanged,
    LabelAdded,
    LabelRemoved,
    ProgramCommand,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    ReviewCommented,
    ReviewSubmitted,
    StateChangeEvent,
    TriggerEvent,
)
from app.triggers.handlers import HANDLERS
from app.triggers.handlers.base import CommandHandler, refused

LABEL: Final = "agent-fix"
REPRODUCE_LABEL: Final = "agent-reproduce"
PROMPT_LABEL: Final = "agent-fix:"
VERIFY_LABEL: Final = "agent-verify"
MAX_AGE: Final = timedelta(days=7)
"""A comment older than this is not acted on; the inbox remembers what it has seen for longer."""
PER_HOUR: Final = 30
CHANGES_REQUESTED: Final = "changes_requested"
"""The verdict of a review that asks something of a pull request's author, who may be the bot."""


def command_of(event: Event) -> AgentCommand | None:
    """The command in a trigger; None for another label or event, or text that is not addressed to the bot."""
    if not isinstance(event, TriggerEvent):
        return None
    if isinstance(event, LabelAdded):
        return _command_of_label(event)
    if isinstance(event, Assigned):
        return AgentCommand(verb="fix", options=CommandOptions(prompt=_chosen_prompt(event.subject)))
    if isinstance(event, ProgramCommand):
        return _program_command(event.request)
    command = parse(event.text)
    if (
        command is None
        and isinstance(event, ReviewSubmitted)
        and event.verdict == CHANGES_REQUESTED
        and event.actor.is_person
    ):
        return AgentCommand(verb="revise", text=without_quotes(visible(event.text).text).strip())
    return command


def _command_of_label(event: LabelAdded) -> AgentCommand | None:
    """`agent-fix:NAME` starts a job with the repository's prompt NAME; so does `agent-fix` where it is there too."""
    if event.label.casefold() == LABEL:
        return AgentCommand(verb="fix", options=CommandOptions(prompt=_chosen_prompt(event.subject)))
    if event.label.casefold() == VERIFY_LABEL:
        return AgentCommand(verb="verify")
    if event.label.casefold() == REPRODUCE_LABEL:
        return AgentCommand(verb="reproduce")
    name = prompt_of_label(event.label)
    return AgentCommand(verb="fix", options=CommandOptions(prompt=name)) if name else None


def starts_job(label: str) -> bool:
    """Whether adding this label requests a job: `agent-fix`, `agent-fix:NAME`, `agent-reproduce` or `agent-verify`."""
    return label.casefold() in {LABEL, REPRODUCE_LABEL, VERIFY_LABEL} or bool(prompt_of_label(label))


def _chosen_prompt(subject: EventSubject) -> str | None:
    """The prompt that the issue's labels name, if exactly one does."""
    chosen = [name for label in subject.labels if (name := prompt_of_label(label))]
    return chosen[0] if len(chosen) == 1 else None


def prompt_of_label(label: str) -> str:
    """The prompt that a label names; empty for other labels."""
    name = label.casefold().removeprefix(PROMPT_LABEL)
    return name if label.casefold().startswith(PROMPT_LABEL) and is_own_name(name) else ""


def _program_command(request: ProgramRequest) -> AgentCommand:
    options = request.model_dump(include=set(CommandOptions.model_fields))
    return AgentCommand(
        verb=request.verb, text=visible(request.instructions).text.strip(), options=CommandOptions(**options)
    )


def should_ignore(event: Event, command: AgentCommand | None, bot: BotAccount) -> Ignored | None:
    """Why an event can be ignored without asking GitHub: we caused it, or it requests nothing."""
    if isinstance(event, ProgramCommand):
        return None
    ours = event.actor.id == bot.user or (isinstance(event, CommentEvent) and event.app == bot.app)
    if ours and not isinstance(event, ChecksFailed):  # the actor of failed checks is whoever pushed
        return Ignored(rule="own_doing", reason="it is the bot's own event")
    revises = isinstance(event, ReviewSubmitted) and command is not None and command.verb == "revise"
    if isinstance(event, Assigned) and event.assignee != bot.user:
        return Ignored(rule="not_addressed", reason="somebody else was assigned")
    if isinstance(event, TriggerEvent) and (command is None or (revises and event.subject.author != bot.user)):
        return Ignored(rule="not_addressed", reason="it has no command for the bot")
    return None


def decide(facts: EventFacts, *, now: datetime) -> Decision:
    """Decide about an event with its command, by the current facts about it."""
    event, command = facts.event, facts.command
    skip = should_ignore(event, command, facts.bot)
    if not isinstance(event, TriggerEvent):
        return skip or decide_notification(event, facts)
    if skip or command is None:
        return skip or Ignored(rule="not_addressed", reason="it has no command for the bot")
    if isinstance(event, CommentEvent) and now - event.at > MAX_AGE:
        return Ignored(rule="too_old", reason=f"it was written more than {MAX_AGE.days} days ago")
    objection = next((decision for rule in RULES if (decision := rule(facts))), None)
    return objection or job_request(event, command, facts)


def handler_of(facts: EventFacts) -> CommandHandler:
    """The handler of the event's command. Raises TypeError if it has none."""
    if facts.command is None:
        raise TypeError("there is no command")
    return HANDLERS[facts.command.verb]


def _starts(facts: EventFacts) -> bool:
    """True if the command would start work that leads to a pull request."""
    return handler_of(facts).starts(facts)


def withdrawn(facts: EventFacts) -> Decision | None:
    """Ignore late or repeated deliveries whose request was withdrawn."""
    issue, gone = facts.issue, facts.state.withdrawn
    if isinstance(facts.event, LabelAdded) and (gone or (issue and facts.event.label.casefold() not in facts.labels)):
        return Ignored(rule="withdrawn", reason="the label was removed again")
    if isinstance(facts.event, Assigned) and (gone or (issue and facts.bot.user not in issue.assignees)):
        return Ignored(rule="withdrawn", reason="the assignment was removed again")
    if facts.state.text_deleted:
        reviewed = isinstance(facts.event, ReviewSubmitted)
        reason = "the review was deleted or dismissed" if reviewed else "the comment was deleted"
        return Ignored(rule="withdrawn", reason=reason)
    return None


def superseded(facts: EventFacts) -> Decision | None:
    """Deliveries may arrive in any order: ignore a start before a later stop, and a stop before a later start."""
    state, handler = facts.state, handler_of(facts)
    later = state.begun_at if handler.ends_work else state.stopped_at
    if handler.only_reads or state.asked_at is None or later is None or state.asked_at >= later:
        return None
    reason = "a later command asked for work" if handler.ends_work else "a later command asked to stop"
    return Ignored(rule="superseded", reason=reason)


def archived(facts: EventFacts) -> Decision | None:
    """Ignore archived repositories, where nothing can be posted."""
    return Ignored(rule="archived", reason="the repository is archived") if facts.state.archived else None


def no_access(facts: EventFacts) -> Decision | None:
    """Refuse actors without access. No reply is posted: strangers could trigger it again and again."""
    if _by_key(facts.event):
        return None
    actors = facts.config.allowed_actors if isinstance(facts.config, RepoConfig) else ()
    apps = facts.bot.allowed_apps
    reason = refusal(facts.event.actor, facts.requester, via=facts.via, allowed_actors=actors, allowed_apps=apps)
    return Ignored(rule="no_access", reason=reason) if reason else None


def ignored_by_command(facts: EventFacts) -> Decision | None:
    return handler_of(facts).ignore(facts)


def too_many(facts: EventFacts) -> Decision | None:
    if _by_key(facts.event) or handler_of(facts).ends_work or facts.state.recent_requests < PER_HOUR:
        return None
    reason = f"More than {PER_HOUR} commands in an hour; please try again later."
    return Ignored(rule="too_many", reason=reason, visible=facts.state.recent_requests == PER_HOUR)


def broken_config(facts: EventFacts) -> Decision | None:
    if isinstance(facts.config, RepoConfig) or not handler_of(facts).needs_config:
        return None
    return Reply(rule="broken_config", text=facts.config.message)


def closed(facts: EventFacts) -> Decision | None:
    return refused("closed", "It is closed; reopen it first.") if _starts(facts) and not facts.is_open else None


def locked(facts: EventFacts) -> Decision | None:
    is_locked = facts.issue is not None and facts.issue.locked
    return refused("locked", "The conversation is locked.") if _starts(facts) and is_locked else None


def assigned_elsewhere(facts: EventFacts) -> Decision | None:
    """Refuse issues assigned to somebody else. Not for pull requests, whose assignee only shepherds them."""
    event, assignees = facts.event, facts.issue.assignees if facts.issue else ()
    if not _starts(facts) or not isinstance(event, TriggerEvent) or event.subject.is_pull_request or not assignees:
        return None
    if {event.actor.id, facts.bot.user} & set(assignees):
        return None
    return refused(
        "assigned_elsewhere", "This issue is assigned to someone else; assign it to yourself or unassign it."
    )


def has_pull_request(facts: EventFacts) -> Decision | None:
    linked = facts.state.linked
    if not _starts(facts) or linked is None or (handler_of(facts).replaces and facts.state.linked_is_ours):
        return None
    how = "request changes there" if facts.state.linked_is_ours else "close it first, or request changes there"
    text = f"Pull request #{linked} is already open for this issue; {how} with `/agent fix …`."
    return refused("has_pull_request", text)


def has_rival(facts: EventFacts) -> Decision | None:
    """A label does not say whether whoever adds it knows of the other change; a comment that asks for one does."""
    rival = next((each.number for each in facts.state.neighbours if each.claims), None)
    if rival is None or not _starts(facts) or not isinstance(facts.event, LabelAdded | Assigned):
        return None
    text = f"Pull request #{rival} seems to be about this issue. To start beside it, comment `/agent fix`."
    return refused("has_rival", text)


def edited_since(facts: EventFacts) -> Decision | None:
    """What was authorised is what is used. A webhook's texts are signed; those that were read later are checked."""
    if not facts.state.edited:
        return None
    event = facts.event
    again = "add the label again" if isinstance(event, LabelAdded) else "ask again"
    return refused("edited_since", f"Its {facts.state.edited} changed after the request; please read it and {again}.")


def refused_by_command(facts: EventFacts) -> Decision | None:
    return handler_of(facts).refuse(facts)


RULES: Final[tuple[Callable[[EventFacts], Decision | None], ...]] = (
    withdrawn,
    archived,
    no_access,
    superseded,
    ignored_by_command,
    too_many,
    broken_config,
    closed,
    locked,
    assigned_elsewhere,
    edited_since,
    has_pull_request,
    has_rival,
    refused_by_command,
)


def job_request(event: TriggerEvent, command: AgentCommand, facts: EventFacts) -> JobRequest:
    """The request that remains if no rule objected."""
    return JobRequest(
        aim=aim(facts) if (aim := handler_of(facts).aim) else command.verb,
        subject=event.subject,
        text=command.text,
        options=command.options,
        lesson=command.lesson,
        trigger=_trigger(event),
        destination=destination_of(event, facts.pull),
        thread=event.thread if isinstance(event, ReviewCommented) else None,
        changed=tuple(_changed(event, facts)),
    )


def destination_of(event: TriggerEvent, pull: PullRequest | None) -> Destination:
    """Where the change goes. Forks, and branches that serve more than this pull request, are only read."""
    if not event.subject.is_pull_request:
        return "new_branch"
    repository = event.repository
    if pull is None or pull.head_repository != repository.id:
        return "sibling"
    return "sibling" if pull.head_branch in {repository.default_branch, pull.base_branch} else "same_branch"


def _trigger(event: TriggerEvent) -> str:
    if isinstance(event, LabelAdded | Assigned):
        return "issue"
    if isinstance(event, ProgramCommand):
        return ON_DASHBOARD if event.by_person else f"{BY_PROGRAM}{event.request.by}"
    names = {"commented": "comment", "review_commented": "review_comment", "reviewed": "review"}
    return f"{names[event.kind]}:{event.id}"


def _by_key(event: Event) -> bool:
    """True if the API has checked the key, or an operator asked: no person's rights count."""
    return isinstance(event, ProgramCommand) and not event.by_person


def _changed(event: TriggerEvent, facts: EventFacts) -> list[str]:
    """What was edited since the request; only what was looked up is reported."""
    subject, head, issue = event.subject, event.subject.head, facts.issue
    pairs = [
        ("title", subject.title, issue.title if issue else None),
        ("description", subject.body, issue.body if issue else None),
        ("comment", event.text if isinstance(event, CommentEvent) else None, facts.state.text),
        ("head", head.sha if head else None, facts.pull.head if facts.pull else None),
    ]
    return [name for name, then, now in pairs if then is not None and now is not None and then != now]


WORK_LABELS = frozenset({LABEL, REPRODUCE_LABEL, "agent-in-progress"})
"""Removing one of these labels stops the job."""

_REPOSITORY_AIMS: Final[dict[str, NotificationAim]] = {
    "archived": "no_access",
    "deleted": "no_access",
    "renamed": "moved",
    "transferred": "moved",
    "unarchived": "reconcile",
}

Notice = StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


def decide_notification(event: Notice, facts: EventFacts) -> Decision:
    """Decide about an event. The facts are current, so an outdated event has no effect."""
    if isinstance(event, InstallationChanged):
        if event.change == "removed" and not event.repositories:
            return Ignored(rule="installation_removed", reason="it names no repository")
        return Notification(
            rule=f"installation_{event.change}",
            aim="no_access" if event.change in {"deleted", "suspended", "removed"} else "reconcile",
            installation=event.installation,
            repositories=event.repositories if event.change in {"added", "removed"} else (),
        )
    rule: str
    aim: NotificationAim | None
    number, job, branch = None, "", ""
    if isinstance(event, RepositoryChanged):
        rule, aim = f"repository_{event.change}", _REPOSITORY_AIMS[event.change]
    elif isinstance(event, ChecksFailed):
        return _checks(event, facts)
    elif isinstance(event, Pushed):
        # For pull requests and jobs based on this branch; those with it as head get other events.
        rule, aim, branch = "pushed", "base_moved", event.branch
    else:
        number, job = event.subject.number, facts.state.job
        if isinstance(event, LabelRemoved):
            rule, aim = event.kind, _aim_of_label(event, facts)
        elif isinstance(event, IssueChanged):
            rule, aim = f"issue_{event.change}", _aim_of_issue(event, facts)
        else:
            rule, aim = f"pull_request_{event.change}", _aim_of_pull(event, facts)
    if aim is None:
        return Ignored(rule=rule, reason="no job needs to know this")
    repositories = (event.repository.id,)
    return Notification(
        rule=rule,
        aim=aim,
        installation=event.installation,
        repositories=repositories,
        number=number,
        job=job,
        branch=branch,
    )


def _aim_of_label(event: LabelRemoved, facts: EventFacts) -> NotificationAim | None:
    state, back_on = facts.state, event.label.casefold() in facts.labels
    asked_again = state.asked_at is not None and state.begun_at is not None and state.asked_at < state.begun_at
    called_off = event.label.casefold() in WORK_LABELS and not back_on and not asked_again
    return "stop" if called_off and state.working else None


def _aim_of_issue(event: IssueChanged, facts: EventFacts) -> NotificationAim | None:
    if not facts.state.working:
        return None
    if event.change == "edited":
        return "edited"
    removed = event.change in {"deleted", "transferred"}
    return "stop" if removed or (event.change == "closed" and not facts.is_open) else None


def _aim_of_pull(event: PullRequestChanged, facts: EventFacts) -> NotificationAim | None:
    state = facts.state
    if event.change == "synchronize" and (facts.is_our_pull_request or state.working):
        return "head_moved"
    return "stop" if event.change == "closed" and state.working and not facts.is_open else None


def _checks(event: ChecksFailed, facts: EventFacts) -> Decision:
    """Fix failing checks of the bot's own pull request, as often as the repository allows."""
    config, bot, pull = facts.config, facts.bot, facts.pull
    if isinstance(config, ConfigError) or pull is None:
        return Ignored(rule="checks", reason="the configuration is invalid" if pull else "it is not on a pull request")
    if reason := _why_not_fix(event, config, pull, facts):
        return Ignored(rule="checks", reason=reason)
    if facts.state.follow_ups >= config.iterate.max:
        rounds = count(config.iterate.max, "round")
        reason = f"Checks still fail after {rounds} of fixes; a person must take over."
        return Ignored(rule="checks_cap", reason=reason, visible=True)
    subject = EventSubject(
        number=pull.number,
        is_pull_request=True,
        title=pull.title,
        body=pull.body,
        author=bot.user,
        labels=facts.issue.labels if facts.issue else (),
    )
    trigger = f"{event.source}:{event.id}"
    return JobRequest(aim="fix_checks", subject=subject, trigger=trigger, destination="same_branch")


def _why_not_fix(event: ChecksFailed, config: RepoConfig, pull: PullRequest, facts: EventFacts) -> str | None:
    issue, state = facts.issue, facts.state
    ours = facts.is_our_pull_request and pull.head_repository == event.repository.id
    closed = issue is None or not issue.open or issue.locked or state.archived
    reasons = {
        "it is the bot's own check": event.app == facts.bot.app,
        "the configuration turns it off": not config.iterate.ci,
        "it is not on a pull request of the bot": not ours,
        "the branch has moved": pull.head != event.head_sha,
        "the pull request is closed, locked or archived": closed,
        "a job is already working on it": state.working,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
