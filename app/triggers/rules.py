"""Decides about an event by named rules in order; the first one that returns a decision wins."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.config.prompt_overrides import is_own_name
from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.markup import without_quotes
from app.core.task import TaskOrigin
from app.core.text import visible
from app.github.models import ActorPermission, BotAccount
from app.jobs.context import BY_PROGRAM, ON_DASHBOARD
from app.jobs.requests import ProgramRequest
from app.triggers.commands import STARTING, VALID_WITHOUT_CONFIG, AgentCommand, CommandOptions, parse
from app.triggers.decisions import Decision, Destination, Ignored, IssueState, JobRequest, Reply, RequestAim
from app.triggers.event_facts import EventFacts
from app.triggers.events import (
    Assigned,
    ChecksFailed,
    CommentEvent,
    Event,
    EventSubject,
    LabelAdded,
    ProgramCommand,
    ReviewCommented,
    ReviewSubmitted,
    TriggerEvent,
)
from app.triggers.notifications import decide_notification
from app.triggers.permission import refusal
from app.verify.gates.protected_paths import is_configured

LABEL: Final = "agent-fix"
PROMPT_LABEL: Final = "agent-fix:"
MAX_AGE: Final = timedelta(days=7)
"""A comment older than this is not acted on; the inbox remembers what it has seen for longer."""
PER_HOUR: Final = 30
CHANGES_REQUESTED: Final = "changes_requested"
"""The verdict of a review that asks something of a pull request's author, who may be the bot."""


@dataclass(frozen=True, slots=True)
class RuleContext:
    """All that the rules may use."""

    event: TriggerEvent
    command: AgentCommand
    config: RepoConfig | ConfigError
    requester: ActorPermission | None
    state: IssueState
    bot: BotAccount

    @property
    def starts(self) -> bool:
        """True if the command would start work that leads to a pull request."""
        verb, state = self.command.verb, self.state
        if verb == "approve":
            return state.planned and not state.working
        return verb in STARTING and (not state.working or verb == "retry")

    @property
    def is_our_pull_request(self) -> bool:
        return self.state.pull is not None and self.state.pull.author == self.bot.user


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


def decide(
    event: Event, command: AgentCommand | None, found: EventFacts, bot: BotAccount, *, now: datetime
) -> Decision:
    """Decide about an event with its command, by what was found out about it and is current."""
    config, state = found.config, found.state
    if not isinstance(event, TriggerEvent):
        return should_ignore(event, command, bot) or decide_notification(event, config, state, bot)
    if (skip := should_ignore(event, command, bot)) or command is None:
        return skip or Ignored(rule="not_addressed", reason="it has no command for the bot")
    if isinstance(event, CommentEvent) and now - event.at > MAX_AGE:
        return Ignored(rule="too_old", reason=f"it was written more than {MAX_AGE.days} days ago")
    context = RuleContext(event, command, config, found.requester, state, bot)
    return next((decision for rule in RULES if (decision := rule(context))), None) or job_request(context)


def foreign_installation(context: RuleContext) -> Decision | None:
    if context.state.installation != context.event.installation:
        return Ignored(
            rule="foreign_installation", reason="security: the installation has no access to this repository"
        )
    return None


def withdrawn(context: RuleContext) -> Decision | None:
    """Ignore late or repeated deliveries whose request was withdrawn."""
    there = {label.casefold() for label in context.state.labels}
    if isinstance(context.event, LabelAdded) and context.event.label.casefold() not in there:
        return Ignored(rule="withdrawn", reason="the label was removed again")
    if isinstance(context.event, Assigned) and context.bot.user not in context.state.assignees:
        return Ignored(rule="withdrawn", reason="the assignment was removed again")
    if context.state.text_deleted:
        reviewed = isinstance(context.event, ReviewSubmitted)
        reason = "the review was deleted or dismissed" if reviewed else "the comment was deleted"
        return Ignored(rule="withdrawn", reason=reason)
    return None


def superseded(context: RuleContext) -> Decision | None:
    """Deliveries may arrive in any order: ignore a start before a later stop, and a stop before a later start."""
    asked_at, verb = context.state.asked_at, context.command.verb
    later = {"stop": context.state.begun_at, "status": None}.get(verb, context.state.stopped_at)
    if asked_at is None or later is None or asked_at >= later:
        return None
    reason = "a later command asked for work" if verb == "stop" else "a later command asked to stop"
    return Ignored(rule="superseded", reason=reason)


def archived(context: RuleContext) -> Decision | None:
    """Ignore archived repositories, where nothing can be posted."""
    return Ignored(rule="archived", reason="the repository is archived") if context.state.archived else None


def no_access(context: RuleContext) -> Decision | None:
    """Refuse actors without access. No reply is posted: strangers could trigger it again and again."""
    if _by_key(context.event):
        return None
    actors = context.config.allowed_actors if isinstance(context.config, RepoConfig) else ()
    via = context.event.app if isinstance(context.event, CommentEvent) else None
    apps = context.bot.allowed_apps
    reason = refusal(context.event.actor, context.requester, via=via, allowed_actors=actors, allowed_apps=apps)
    return Ignored(rule="no_access", reason=reason) if reason else None


def review(context: RuleContext) -> Decision | None:
    """Follow up on a review without a command, as often as the repository allows; ignore others."""
    if context.command.verb != "revise":
        return None
    if reason := _why_not_revise(context):
        return Ignored(rule="review", reason=reason)
    most = context.config.iterate.max if isinstance(context.config, RepoConfig) else 0
    if context.state.working or context.state.follow_ups < most:
        return None
    rounds = "round" if most == 1 else "rounds"
    return _visible(
        "reviews_cap", f"A review requests changes again after {most} {rounds}; reply `/agent …` to continue."
    )


def _why_not_revise(context: RuleContext) -> str | None:
    config, state = context.config, context.state
    if isinstance(config, ConfigError):
        return "the configuration is invalid"
    reasons = {
        "the configuration turns it off": not config.iterate.reviews or config.iterate.max == 0,
        "it is not on a pull request of the bot": not context.is_our_pull_request,
        "the pull request is closed or locked": not state.open or state.locked,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def too_many(context: RuleContext) -> Decision | None:
    if _by_key(context.event) or context.command.verb == "stop" or context.state.recent_requests < PER_HOUR:
        return None
    reason = f"More than {PER_HOUR} commands in an hour; please try again later."
    return Ignored(rule="too_many", reason=reason, visible=context.state.recent_requests == PER_HOUR)


def unclear_command(context: RuleContext) -> Decision | None:
    command = context.command
    if command.verb != "help":
        return None
    return Reply(rule="unclear_command", text=command.problem, suggestion=command.suggestion)


def broken_config(context: RuleContext) -> Decision | None:
    if isinstance(context.config, RepoConfig) or context.command.verb in VALID_WITHOUT_CONFIG:
        return None
    return Reply(rule="broken_config", text=context.config.message)


def closed(context: RuleContext) -> Decision | None:
    return _visible("closed", "It is closed; reopen it first.") if context.starts and not context.state.open else None


def locked(context: RuleContext) -> Decision | None:
    return _visible("locked", "The conversation is locked.") if context.starts and context.state.locked else None


def assigned_elsewhere(context: RuleContext) -> Decision | None:
    """Refuse issues assigned to somebody else. Not for pull requests, whose assignee only shepherds them."""
    assignees = context.state.assignees
    if not context.starts or context.event.subject.is_pull_request or not assignees:
        return None
    if {context.event.actor.id, context.bot.user} & set(assignees):
        return None
    return _visible(
        "assigned_elsewhere", "This issue is assigned to someone else; assign it to yourself or unassign it."
    )


def has_pull_request(context: RuleContext) -> Decision | None:
    linked = context.state.linked
    if not context.starts or linked is None or (context.command.verb == "retry" and context.state.linked_is_ours):
        return None
    how = "request changes there" if context.state.linked_is_ours else "close it first, or request changes there"
    text = f"Pull request #{linked} is already open for this issue; {how} with `/agent fix …`."
    return _visible("has_pull_request", text)


def busy(context: RuleContext) -> Decision | None:
    """Refuse a second label or plan while a job is active; further messages go to that job."""
    if not context.state.working:
        return None
    if context.state.job_state == "paused" and context.command.verb in {"fix", "plan", "steer", "revise"}:
        return Reply(rule="busy", text="The job is paused.", suggestion="/agent continue --budget +3")
    if context.command.verb == "allow":
        text = "A job is already running, and its permissions cannot change. Stop it first."
        return Reply(rule="busy", text=text, suggestion="/agent stop")
    starts = isinstance(context.event, LabelAdded | Assigned | ProgramCommand) and context.command.verb != "retry"
    if starts or context.command.verb == "plan":
        return _visible("busy", "A job is already working on it.")
    return None


def nothing_to_act_on(context: RuleContext) -> Decision | None:
    """Refuse a command that needs a job if no job is in the right state."""
    state, verb = context.state, context.command.verb
    if verb == "approve" and state.job_state != "awaiting_approval" and not state.planned:
        return Reply(rule="nothing_to_act_on", text="No plan is waiting for approval.", suggestion="/agent plan")
    if verb == "continue" and state.job_state != "paused":
        return Reply(rule="nothing_to_act_on", text="No job is paused.", suggestion="/agent status")
    path, config = context.command.options.allow, context.config
    if path is not None and isinstance(config, RepoConfig) and not is_configured(path, config.protected_paths):
        text = f"`{path}` is not protected here, so nothing has to be allowed."
        return Reply(rule="nothing_to_act_on", text=text, suggestion="/agent retry")
    if verb == "stop" and not state.working and not state.resting:
        return Reply(rule="nothing_to_act_on", text="No job is running.", suggestion="/agent status")
    return None


def only_our_pull_request(context: RuleContext) -> Decision | None:
    """Other people's commits are never rewritten, and only they may start their CI."""
    if context.command.verb not in {"rebase", "ci"} or context.is_our_pull_request:
        return None
    text = f"`/agent {context.command.verb}` works on agent-fix's own pull requests only."
    return Reply(rule="only_our_pull_request", text=text)


def commits_of_a_fork(context: RuleContext) -> Decision | None:
    """CI on a branch here gets this repository's secrets, so only a person may start it for a fork's code."""
    if context.command.verb != "ci" or context.state.pull is None or not context.state.pull.fork:
        return None
    text = (
        "This branch has commits from a fork, and CI would run on it with this repository's secrets. Review all its "
        "commits first. Then start CI with a commit of your own, even an empty one: `git commit --allow-empty`."
    )
    return Reply(rule="commits_of_a_fork", text=text)


RULES: Final[tuple[Callable[[RuleContext], Decision | None], ...]] = (
    foreign_installation,
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


def job_request(context: RuleContext) -> JobRequest:
    """The request that remains if no rule objected."""
    event, command, state = context.event, context.command, context.state
    aim = _aim(context)
    return JobRequest(
        aim=aim,
        origin=TaskOrigin(
            installation=event.installation,
            repository=event.repository.id,
            number=event.subject.number,
            is_pull_request=event.subject.is_pull_request,
            actor=event.actor.id,
        ),
        subject=event.subject,
        text=command.text,
        options=command.options,
        lesson=command.lesson,
        job=state.job if state.working or aim == "answer" or (aim == "stop" and state.resting) else "",
        trigger=_trigger(event),
        destination=destination(context),
        head=event.subject.head or (state.pull.head if state.pull else None),
        thread=event.thread if isinstance(event, ReviewCommented) else None,
        changed=tuple(_changed(event, state)),
        new_job=event.request.job if isinstance(event, ProgramCommand) else "",
    )


def destination(context: RuleContext) -> Destination:
    """Where the change goes. Forks, and branches that serve more than this pull request, are only read."""
    if not context.event.subject.is_pull_request:
        return "new_branch"
    pull, repository = context.state.pull, context.event.repository
    if pull is None or pull.head.repository != repository.id:
        return "sibling"
    return "sibling" if pull.head.ref in {repository.default_branch, pull.base_ref} else "same_branch"


def _aim(context: RuleContext) -> RequestAim:
    verb = context.command.verb
    if verb == "help":
        raise ValueError("help only needs an answer")
    if verb in {"fix", "steer", "revise"} and context.state.working:
        return "steer"
    if verb == "steer":
        return "answer" if context.state.job_state == "needs_input" else "fix"
    return verb


def _trigger(event: TriggerEvent) -> str:
    if isinstance(event, LabelAdded | Assigned):
        return "issue"
    if isinstance(event, ProgramCommand):
        return ON_DASHBOARD if event.by_person else f"{BY_PROGRAM}{event.request.by}"
    names = {"commented": "comment", "review_commented": "review_comment", "reviewed": "review"}
    return f"{names[event.kind]}:{event.id}"


def _by_key(event: TriggerEvent) -> bool:
    """True if the API has checked the key, or an operator asked: no person's rights count."""
    return isinstance(event, ProgramCommand) and not event.by_person


def _changed(event: TriggerEvent, state: IssueState) -> list[str]:
    """What was edited since the request; only what was looked up is reported."""
    subject, head = event.subject, event.subject.head
    pairs = [
        ("title", subject.title, state.title),
        ("description", subject.body, state.body),
        ("comment", event.text if isinstance(event, CommentEvent) else None, state.text),
        ("head", head.sha if head else None, state.pull.head.sha if state.pull else None),
    ]
    return [name for name, then, now in pairs if then is not None and now is not None and then != now]


def _visible(rule: str, reason: str) -> Ignored:
    return Ignored(rule=rule, reason=reason, visible=True)
