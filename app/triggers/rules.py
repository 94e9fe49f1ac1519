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
from app.publish.body_edits import FORK_MARK
from app.triggers.commands import VALID_WITHOUT_CONFIG, AgentCommand, CommandOptions, parse
from app.triggers.decisions import (
    Decision,
    Destination,
    EventFacts,
    Ignored,
    IssueState,
    JobRequest,
    Notification,
    NotificationAim,
    Reply,
    RequestAim,
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
from app.verify.gates.paths import is_configured

LABEL: Final = "agent-fix"
PROMPT_LABEL: Final = "agent-fix:"
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
    name = prompt_of_label(event.label)
    return AgentCommand(verb="fix", options=CommandOptions(prompt=name)) if name else None


def starts_job(label: str) -> bool:
    """Whether adding this label requests a job: `agent-fix` or `agent-fix:NAME`."""
    return label.casefold() == LABEL or bool(prompt_of_label(label))


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


def decide(found: EventFacts, *, now: datetime) -> Decision:
    """Decide about an event with its command, by what was found out about it and is current."""
    event, command = found.event, found.command
    skip = should_ignore(event, command, found.bot)
    if not isinstance(event, TriggerEvent):
        return skip or decide_notification(event, found)
    if skip or command is None:
        return skip or Ignored(rule="not_addressed", reason="it has no command for the bot")
    if isinstance(event, CommentEvent) and now - event.at > MAX_AGE:
        return Ignored(rule="too_old", reason=f"it was written more than {MAX_AGE.days} days ago")
    refused = next((decision for rule in RULES if (decision := rule(found))), None)
    return refused or job_request(event, command, found)


def withdrawn(found: EventFacts) -> Decision | None:
    """Ignore late or repeated deliveries whose request was withdrawn."""
    issue, gone = found.issue, found.state.withdrawn
    if isinstance(found.event, LabelAdded) and (gone or (issue and found.event.label.casefold() not in found.labels)):
        return Ignored(rule="withdrawn", reason="the label was removed again")
    if isinstance(found.event, Assigned) and (gone or (issue and found.bot.user not in issue.assignees)):
        return Ignored(rule="withdrawn", reason="the assignment was removed again")
    if found.state.text_deleted:
        reviewed = isinstance(found.event, ReviewSubmitted)
        reason = "the review was deleted or dismissed" if reviewed else "the comment was deleted"
        return Ignored(rule="withdrawn", reason=reason)
    return None


def superseded(found: EventFacts) -> Decision | None:
    """Deliveries may arrive in any order: ignore a start before a later stop, and a stop before a later start."""
    asked_at, verb = found.state.asked_at, found.verb
    later = {"stop": found.state.begun_at, "status": None}.get(verb, found.state.stopped_at)
    if asked_at is None or later is None or asked_at >= later:
        return None
    reason = "a later command asked for work" if verb == "stop" else "a later command asked to stop"
    return Ignored(rule="superseded", reason=reason)


def archived(found: EventFacts) -> Decision | None:
    """Ignore archived repositories, where nothing can be posted."""
    return Ignored(rule="archived", reason="the repository is archived") if found.state.archived else None


def no_access(found: EventFacts) -> Decision | None:
    """Refuse actors without access. No reply is posted: strangers could trigger it again and again."""
    if _by_key(found.event):
        return None
    actors = found.config.allowed_actors if isinstance(found.config, RepoConfig) else ()
    apps = found.bot.allowed_apps
    reason = refusal(found.event.actor, found.requester, via=found.via, allowed_actors=actors, allowed_apps=apps)
    return Ignored(rule="no_access", reason=reason) if reason else None


def review(found: EventFacts) -> Decision | None:
    """Follow up on a review without a command, as often as the repository allows; ignore others."""
    if found.verb != "revise":
        return None
    if reason := _why_not_revise(found):
        return Ignored(rule="review", reason=reason)
    most = found.config.iterate.max if isinstance(found.config, RepoConfig) else 0
    if found.state.working or found.state.follow_ups < most:
        return None
    rounds = count(most, "round")
    return _visible("reviews_cap", f"A review requests changes again after {rounds}; reply `/agent …` to continue.")


def _why_not_revise(found: EventFacts) -> str | None:
    config, issue = found.config, found.issue
    if isinstance(config, ConfigError):
        return "the configuration is invalid"
    reasons = {
        "the configuration turns it off": not config.iterate.reviews or config.iterate.max == 0,
        "it is not on a pull request of the bot": not found.is_our_pull_request,
        "the pull request is closed or locked": issue is None or not issue.open or issue.locked,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def too_many(found: EventFacts) -> Decision | None:
    if _by_key(found.event) or found.verb == "stop" or found.state.recent_requests < PER_HOUR:
        return None
    reason = f"More than {PER_HOUR} commands in an hour; please try again later."
    return Ignored(rule="too_many", reason=reason, visible=found.state.recent_requests == PER_HOUR)


def unclear_command(found: EventFacts) -> Decision | None:
    command = found.command
    if command is None or command.verb != "help":
        return None
    return Reply(rule="unclear_command", text=command.problem, suggestion=command.suggestion)


def broken_config(found: EventFacts) -> Decision | None:
    if isinstance(found.config, RepoConfig) or found.verb in VALID_WITHOUT_CONFIG:
        return None
    return Reply(rule="broken_config", text=found.config.message)


def closed(found: EventFacts) -> Decision | None:
    return _visible("closed", "It is closed; reopen it first.") if found.starts and not found.is_open else None


def locked(found: EventFacts) -> Decision | None:
    issue = found.issue
    return _visible("locked", "The conversation is locked.") if found.starts and issue and issue.locked else None


def assigned_elsewhere(found: EventFacts) -> Decision | None:
    """Refuse issues assigned to somebody else. Not for pull requests, whose assignee only shepherds them."""
    event, assignees = found.event, found.issue.assignees if found.issue else ()
    if not found.starts or not isinstance(event, TriggerEvent) or event.subject.is_pull_request or not assignees:
        return None
    if {event.actor.id, found.bot.user} & set(assignees):
        return None
    return _visible(
        "assigned_elsewhere", "This issue is assigned to someone else; assign it to yourself or unassign it."
    )


def has_pull_request(found: EventFacts) -> Decision | None:
    linked = found.state.linked
    if not found.starts or linked is None or (found.verb == "retry" and found.state.linked_is_ours):
        return None
    how = "request changes there" if found.state.linked_is_ours else "close it first, or request changes there"
    text = f"Pull request #{linked} is already open for this issue; {how} with `/agent fix …`."
    return _visible("has_pull_request", text)


def busy(found: EventFacts) -> Decision | None:
    """Refuse a second label or plan while a job is active; further messages go to that job."""
    if not found.state.working:
        return None
    if found.state.job_state == "paused" and found.verb in {"fix", "plan", "steer", "revise"}:
        return Reply(rule="busy", text="The job is paused.", suggestion="/agent continue --budget +3")
    if found.verb == "allow":
        text = "A job is already running, and its permissions cannot change. Stop it first."
        return Reply(rule="busy", text=text, suggestion="/agent stop")
    starts = isinstance(found.event, LabelAdded | Assigned | ProgramCommand) and found.verb != "retry"
    if starts or found.verb == "plan":
        return _visible("busy", "A job is already working on it.")
    return None


def nothing_to_act_on(found: EventFacts) -> Decision | None:
    """Refuse a command that needs a job if no job is in the right state."""
    state, verb, command = found.state, found.verb, found.command
    if verb == "approve" and state.job_state != "awaiting_approval" and not state.planned:
        return Reply(rule="nothing_to_act_on", text="No plan is waiting for approval.", suggestion="/agent plan")
    if verb == "continue" and state.job_state != "paused":
        return Reply(rule="nothing_to_act_on", text="No job is paused.", suggestion="/agent status")
    path, config = command.options.allow if command else None, found.config
    if path is not None and isinstance(config, RepoConfig) and not is_configured(path, config.protected_paths):
        text = f"`{path}` is not protected here, so nothing has to be allowed."
        return Reply(rule="nothing_to_act_on", text=text, suggestion="/agent retry")
    if verb == "stop" and not state.working and not state.resting:
        return Reply(rule="nothing_to_act_on", text="No job is running.", suggestion="/agent status")
    return None


def only_our_pull_request(found: EventFacts) -> Decision | None:
    """Other people's commits are never rewritten, and only they may start their CI."""
    if found.verb not in {"rebase", "ci"} or found.is_our_pull_request:
        return None
    text = f"`/agent {found.verb}` works on agent-fix's own pull requests only."
    return Reply(rule="only_our_pull_request", text=text)


def commits_of_a_fork(found: EventFacts) -> Decision | None:
    """CI on a branch here gets this repository's secrets, so only a person may start it for a fork's code."""
    if found.verb != "ci" or found.pull is None or FORK_MARK not in found.pull.body:
        return None
    text = (
        "This branch has commits from a fork, and CI would run on it with this repository's secrets. Review all its "
        "commits first. Then start CI with a commit of your own, even an empty one: `git commit --allow-empty`."
    )
    return Reply(rule="commits_of_a_fork", text=text)


RULES: Final[tuple[Callable[[EventFacts], Decision | None], ...]] = (
    withdrawn,
    archived,
    no_access,
    superseded,
    review,
    too_many,
    unclear_command,
    broken_config,
    closed,
    locked,
    assigned_elsewhere,
    has_pull_request,
    busy,
    nothing_to_act_on,
    only_our_pull_request,
    commits_of_a_fork,
)


def job_request(event: TriggerEvent, command: AgentCommand, found: EventFacts) -> JobRequest:
    """The request that remains if no rule objected."""
    return JobRequest(
        aim=_aim(command, found.state),
        subject=event.subject,
        text=command.text,
        options=command.options,
        lesson=command.lesson,
        trigger=_trigger(event),
        destination=destination_of(event, found.pull),
        thread=event.thread if isinstance(event, ReviewCommented) else None,
        changed=tuple(_changed(event, found)),
    )


def destination_of(event: TriggerEvent, pull: PullRequest | None) -> Destination:
    """Where the change goes. Forks, and branches that serve more than this pull request, are only read."""
    if not event.subject.is_pull_request:
        return "new_branch"
    repository = event.repository
    if pull is None or pull.head_repository != repository.id:
        return "sibling"
    return "sibling" if pull.head_branch in {repository.default_branch, pull.base_branch} else "same_branch"


def _aim(command: AgentCommand, state: IssueState) -> RequestAim:
    verb = command.verb
    if verb == "help":
        raise ValueError("help only needs an answer")
    if verb in {"fix", "steer", "revise"} and state.working:
        return "steer"
    if verb == "steer":
        return "answer" if state.job_state == "needs_input" else "fix"
    return verb


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


def _changed(event: TriggerEvent, found: EventFacts) -> list[str]:
    """What was edited since the request; only what was looked up is reported."""
    subject, head, issue = event.subject, event.subject.head, found.issue
    pairs = [
        ("title", subject.title, issue.title if issue else None),
        ("description", subject.body, issue.body if issue else None),
        ("comment", event.text if isinstance(event, CommentEvent) else None, found.state.text),
        ("head", head.sha if head else None, found.pull.head if found.pull else None),
    ]
    return [name for name, then, now in pairs if then is not None and now is not None and then != now]


def _visible(rule: str, reason: str) -> Ignored:
    return Ignored(rule=rule, reason=reason, visible=True)


WORK_LABELS = frozenset({"agent-fix", "agent-in-progress"})
"""Removing one of these labels stops the job."""

_REPOSITORY_AIMS: Final[dict[str, NotificationAim]] = {
    "archived": "no_access",
    "deleted": "no_access",
    "renamed": "moved",
    "transferred": "moved",
    "unarchived": "reconcile",
}

Notice = StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


def decide_notification(event: Notice, found: EventFacts) -> Decision:
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
        return _checks(event, found)
    elif isinstance(event, Pushed):
        # For pull requests and jobs based on this branch; those with it as head get other events.
        rule, aim, branch = "pushed", "base_moved", event.branch
    else:
        number, job = event.subject.number, found.state.job
        if isinstance(event, LabelRemoved):
            rule, aim = event.kind, _aim_of_label(event, found)
        elif isinstance(event, IssueChanged):
            rule, aim = f"issue_{event.change}", _aim_of_issue(event, found)
        else:
            rule, aim = f"pull_request_{event.change}", _aim_of_pull(event, found)
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


def _aim_of_label(event: LabelRemoved, found: EventFacts) -> NotificationAim | None:
    state, back_on = found.state, event.label.casefold() in found.labels
    asked_again = state.asked_at is not None and state.begun_at is not None and state.asked_at < state.begun_at
    called_off = event.label.casefold() in WORK_LABELS and not back_on and not asked_again
    return "stop" if called_off and state.working else None


def _aim_of_issue(event: IssueChanged, found: EventFacts) -> NotificationAim | None:
    if not found.state.working:
        return None
    if event.change == "edited":
        return "edited"
    removed = event.change in {"deleted", "transferred"}
    return "stop" if removed or (event.change == "closed" and not found.is_open) else None


def _aim_of_pull(event: PullRequestChanged, found: EventFacts) -> NotificationAim | None:
    state = found.state
    if event.change == "synchronize" and (found.is_our_pull_request or state.working):
        return "head_moved"
    return "stop" if event.change == "closed" and state.working and not found.is_open else None


def _checks(event: ChecksFailed, found: EventFacts) -> Decision:
    """Fix failing checks of the bot's own pull request, as often as the repository allows."""
    config, bot, pull = found.config, found.bot, found.pull
    if isinstance(config, ConfigError) or pull is None:
        return Ignored(rule="checks", reason="the configuration is invalid" if pull else "it is not on a pull request")
    if reason := _why_not_fix(event, config, pull, found):
        return Ignored(rule="checks", reason=reason)
    if found.state.follow_ups >= config.iterate.max:
        rounds = count(config.iterate.max, "round")
        reason = f"Checks still fail after {rounds} of fixes; a person must take over."
        return Ignored(rule="checks_cap", reason=reason, visible=True)
    subject = EventSubject(
        number=pull.number,
        is_pull_request=True,
        title=pull.title,
        body=pull.body,
        author=bot.user,
        labels=found.issue.labels if found.issue else (),
    )
    trigger = f"{event.source}:{event.id}"
    return JobRequest(aim="fix_checks", subject=subject, trigger=trigger, destination="same_branch")


def _why_not_fix(event: ChecksFailed, config: RepoConfig, pull: PullRequest, found: EventFacts) -> str | None:
    issue, state = found.issue, found.state
    ours = found.is_our_pull_request and pull.head_repository == event.repository.id
    closed = issue is None or not issue.open or issue.locked or state.archived
    reasons = {
        "it is the bot's own check": event.app == found.bot.app,
        "the configuration turns it off": not config.iterate.ci,
        "it is not on a pull request of the bot": not ours,
        "the branch has moved": pull.head != event.head_sha,
        "the pull request is closed, locked or archived": closed,
        "a job is already working on it": state.working,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
