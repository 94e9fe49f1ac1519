"""An event becomes an Order, a Signal, a Reply or a Skip: named rules in order, the first that speaks decides."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.access import Standing, refusal
from app.commands import Command, parse
from app.config import RepoConfig
from app.errors import ConfigError
from app.events import ChecksFailed, Event, Labelled, ReviewCommented, Reviewed, Said, Trigger
from app.markup import without_quotes
from app.orders import Aim, Bot, Decision, Destination, Order, Reply, Skip, State
from app.signals import decide_signal
from app.task import Origin
from app.text import visible

LABEL: Final = "agent-fix"
OLDEST: Final = timedelta(days=7)
"""A comment older than this is not acted on; the inbox remembers what it has seen for longer."""
PER_HOUR: Final = 30
ASKS_FOR_CHANGES: Final = "changes_requested"
"""The verdict of a review that asks something of a pull request's author, who may be the bot."""
_STARTING: Final = frozenset({"fix", "plan", "retry", "steer"})


@dataclass(frozen=True, slots=True)
class Case:
    """All that the rules may look at."""

    event: Trigger
    command: Command
    config: RepoConfig | ConfigError
    standing: Standing | None
    state: State
    bot: Bot

    @property
    def starts(self) -> bool:
        """Whether it would begin work that leads to a pull request."""
        verb, state = self.command.verb, self.state
        if verb == "approve":
            return state.planned and not state.working
        return verb in _STARTING and (not state.working or verb == "retry")

    @property
    def is_our_pull_request(self) -> bool:
        return self.state.pull is not None and self.state.pull.author == self.bot.user


def command_of(event: Trigger) -> Command | None:
    """What a trigger asks; None for another label, or words that are not addressed to the bot."""
    if isinstance(event, Labelled):
        return Command(verb="fix") if event.label.casefold() == LABEL else None
    command = parse(event.words.text)
    if command is None and isinstance(event, Reviewed) and event.verdict == ASKS_FOR_CHANGES and event.actor.is_person:
        return Command(verb="revise", text=without_quotes(visible(event.words.text).text).strip())
    return command


def overheard(event: Event, bot: Bot) -> Skip | None:
    """Why an event needs no look at the forge: it is our own doing, or nothing that we are asked."""
    ours = event.actor.id == bot.user or (isinstance(event, Said) and event.app == bot.app)
    if ours and not isinstance(event, ChecksFailed):  # whose actor is who pushed
        return Skip(rule="own_doing", reason="the bot did it itself")
    command = command_of(event) if isinstance(event, Trigger) else None
    revises = isinstance(event, Reviewed) and command is not None and command.verb == "revise"
    if isinstance(event, Trigger) and (command is None or (revises and event.subject.author != bot.user)):
        return Skip(rule="not_addressed", reason="nothing is asked of the bot")
    return None


def decide(
    event: Event,
    config: RepoConfig | ConfigError,
    standing: Standing | None,
    state: State,
    bot: Bot,
    *,
    now: datetime,
) -> Decision:
    """What is to be done about an event. `standing` is the actor's, `state` its issue's or pull request's, both now."""
    if not isinstance(event, Trigger):
        return overheard(event, bot) or decide_signal(event, config, state, bot)
    command = command_of(event)
    if (skip := overheard(event, bot)) or command is None:
        return skip or Skip(rule="not_addressed", reason="nothing is asked of the bot")
    if isinstance(event, Said) and now - event.at > OLDEST:
        return Skip(rule="too_old", reason=f"it was written more than {OLDEST.days} days ago")
    case = Case(event, command, config, standing, state, bot)
    return next((decision for rule in RULES if (decision := rule(case))), None) or order(case)


def foreign_installation(case: Case) -> Decision | None:
    if case.state.installation != case.event.installation:
        return Skip(rule="foreign_installation", reason="security: the installation does not serve this repository")
    return None


def taken_back(case: Case) -> Decision | None:
    """Late or repeated deliveries: what was asked then is no longer wished."""
    if isinstance(case.event, Labelled) and LABEL not in {label.casefold() for label in case.state.labels}:
        return Skip(rule="taken_back", reason="the label is no longer there")
    if case.state.gone:
        reviewed = isinstance(case.event, Reviewed)
        reason = "the review was deleted or dismissed" if reviewed else "the comment was deleted"
        return Skip(rule="taken_back", reason=reason)
    return None


def overtaken(case: Case) -> Decision | None:
    """Deliveries may arrive in any order: what was said to be stopped later is not begun, nor a later wish stopped."""
    asked, verb = case.state.asked_at, case.command.verb
    later = {"stop": case.state.begun_at, "status": None}.get(verb, case.state.stopped_at)
    if asked is None or later is None or asked >= later:
        return None
    reason = "work was asked for again after that" if verb == "stop" else "it was said to stop after that"
    return Skip(rule="overtaken", reason=reason)


def archived(case: Case) -> Decision | None:
    """Nothing can be written there, so nothing is said."""
    return Skip(rule="archived", reason="the repository is archived") if case.state.archived else None


def no_access(case: Case) -> Decision | None:
    """The only way to an order leads through here. Strangers are not answered: that would be theirs to repeat."""
    actors = case.config.allowed_actors if isinstance(case.config, RepoConfig) else ()
    via = case.event.app if isinstance(case.event, Said) else None
    apps = case.bot.allowed_apps
    reason = refusal(case.event.actor, case.standing, via=via, allowed_actors=actors, allowed_apps=apps)
    return Skip(rule="no_access", reason=reason) if reason else None


def review(case: Case) -> Decision | None:
    """A review without a word to the bot is followed as often as the repository lets it; else it is between people."""
    if case.command.verb != "revise":
        return None
    if reason := _why_not_revise(case):
        return Skip(rule="review", reason=reason)
    most = case.config.iterate.max if isinstance(case.config, RepoConfig) else 0
    if case.state.working or case.state.rounds < most:
        return None
    rounds = "round" if most == 1 else "rounds"
    return _visible("reviews_cap", f"A review asks for changes again after {most} {rounds}; say `/agent …` to go on.")


def _why_not_revise(case: Case) -> str | None:
    config, state = case.config, case.state
    if isinstance(config, ConfigError):
        return "the configuration is broken"
    reasons = {
        "the configuration says not to": not config.iterate.reviews or config.iterate.max == 0,
        "it is not on a pull request of the bot": not case.is_our_pull_request,
        "the pull request is closed or locked": not state.open or state.locked,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def too_many(case: Case) -> Decision | None:
    if case.command.verb == "stop" or case.state.asked_lately < PER_HOUR:
        return None
    reason = f"More than {PER_HOUR} commands in an hour; please try again later."
    return Skip(rule="too_many", reason=reason, visible=case.state.asked_lately == PER_HOUR)


def misread(case: Case) -> Decision | None:
    command = case.command
    if command.verb != "help":
        return None
    return Reply(rule="misread", text=command.problem, suggestion=command.suggestion)


def broken_config(case: Case) -> Decision | None:
    if isinstance(case.config, RepoConfig) or case.command.verb in {"stop", "status"}:
        return None
    return Reply(rule="broken_config", text=case.config.message)


def closed(case: Case) -> Decision | None:
    return _visible("closed", "It is closed; reopen it first.") if case.starts and not case.state.open else None


def locked(case: Case) -> Decision | None:
    return _visible("locked", "The conversation is locked.") if case.starts and case.state.locked else None


def assigned_elsewhere(case: Case) -> Decision | None:
    """Somebody else has it in hand. An issue only: a pull request is assigned to who shepherds it."""
    hands = case.state.assignees
    if not case.starts or case.event.subject.is_pull_request or not hands:
        return None
    if {case.event.actor.id, case.bot.user} & set(hands):
        return None
    return _visible("assigned_elsewhere", "It is assigned to somebody else; assign yourself, or nobody.")


def has_pull_request(case: Case) -> Decision | None:
    linked = case.state.linked
    if not case.starts or linked is None or (case.command.verb == "retry" and case.state.linked_is_ours):
        return None
    how = "ask for changes there" if case.state.linked_is_ours else "close it first, or ask for changes there"
    return _visible("has_pull_request", f"Pull request #{linked} is open for it; {how} with `/agent fix …`.")


def busy(case: Case) -> Decision | None:
    """A job of this issue lives: more words go to it, but a second label or another plan would change nothing."""
    if not case.state.working:
        return None
    if case.state.job_state == "paused" and case.command.verb in {"fix", "plan", "steer", "revise"}:
        return Reply(rule="busy", text="The job is paused.", suggestion="/agent continue --budget +3")
    if isinstance(case.event, Labelled) or case.command.verb == "plan":
        return _visible("busy", "A job is at work on it already.")
    return None


def nothing_to_act_on(case: Case) -> Decision | None:
    """A command that needs a job, where no job is in that state."""
    state, verb = case.state, case.command.verb
    if verb == "approve" and state.job_state != "awaiting_approval" and not state.planned:
        return Reply(rule="nothing_to_act_on", text="No plan waits for approval.", suggestion="/agent plan")
    if verb == "continue" and state.job_state != "paused":
        return Reply(rule="nothing_to_act_on", text="No job is paused.", suggestion="/agent status")
    if verb == "stop" and not state.working:
        return Reply(rule="nothing_to_act_on", text="No job is at work.", suggestion="/agent status")
    return None


def only_our_pull_request(case: Case) -> Decision | None:
    """Other people's commits are never rewritten, and their CI is theirs to start."""
    if case.command.verb not in {"rebase", "ci"} or case.is_our_pull_request:
        return None
    text = f"`/agent {case.command.verb}` works on pull requests of agent-fix only."
    return Reply(rule="only_our_pull_request", text=text)


def commits_of_a_fork(case: Case) -> Decision | None:
    """What CI runs on a branch here gets this repository's secrets: for strangers' code only a person may start it."""
    if case.command.verb != "ci" or case.state.pull is None or not case.state.pull.fork:
        return None
    text = (
        "This branch holds commits of a fork, and CI runs on it with this repository's secrets. Read all of its "
        "commits first. A commit that you push to the branch starts CI, an empty one too: `git commit --allow-empty`."
    )
    return Reply(rule="commits_of_a_fork", text=text)


def too_many_pull_requests(case: Case) -> Decision | None:
    most = case.config.max_open_pull_requests if isinstance(case.config, RepoConfig) else None
    opens = case.starts and destination(case) != "same_branch" and not case.state.linked_is_ours
    if most is None or not opens or case.state.open_pull_requests < most:
        return None
    are = "1 pull request of agent-fix is" if most == 1 else f"{most} pull requests of agent-fix are"
    return _visible("too_many_pull_requests", f"{are} open, the most allowed here.")


RULES: Final[tuple[Callable[[Case], Decision | None], ...]] = (
    foreign_installation,
    taken_back,
    archived,
    no_access,
    overtaken,
    review,
    too_many,
    misread,
    broken_config,
    closed,
    locked,
    assigned_elsewhere,
    has_pull_request,
    busy,
    nothing_to_act_on,
    only_our_pull_request,
    commits_of_a_fork,
    too_many_pull_requests,
)


def order(case: Case) -> Order:
    """What is left when no rule objected."""
    event, command, state = case.event, case.command, case.state
    aim = _aim(case)
    return Order(
        aim=aim,
        origin=Origin(
            installation=event.installation,
            repository=event.repository.id,
            number=event.subject.number,
            is_pull_request=event.subject.is_pull_request,
            actor=event.actor.id,
        ),
        subject=event.subject,
        words=event.words if isinstance(event, Said) else None,
        text=command.text,
        options=command.options,
        lesson=command.lesson,
        job=state.job if state.working or aim == "answer" else "",
        trigger=_trigger(event),
        destination=destination(case),
        head=event.subject.head or (state.pull.head if state.pull else None),
        thread=event.thread if isinstance(event, ReviewCommented) else None,
        changed=tuple(_changed(event, state)),
    )


def destination(case: Case) -> Destination:
    """A fork is only read, and so is a branch that is more than this pull request's: the default one."""
    if not case.event.subject.is_pull_request:
        return "new_branch"
    pull, repository = case.state.pull, case.event.repository
    if pull is None or pull.head.repository != repository.id:
        return "sibling"
    return "sibling" if pull.head.ref in {repository.default_branch, pull.base_ref} else "same_branch"


def _aim(case: Case) -> Aim:
    verb = case.command.verb
    if verb == "help":
        raise ValueError("help is answered, not ordered")
    if verb in {"fix", "steer", "revise"} and case.state.working:
        return "steer"
    if verb == "steer":
        return "answer" if case.state.job_state == "needs_input" else "fix"
    return verb


def _trigger(event: Trigger) -> str:
    if isinstance(event, Labelled):
        return "issue"
    names = {"commented": "comment", "review_commented": "review_comment", "reviewed": "review"}
    return f"{names[event.kind]}:{event.id}"


def _changed(event: Trigger, state: State) -> list[str]:
    """What was edited since; what was not looked up is not claimed."""
    subject, head = event.subject, event.subject.head
    pairs = [
        ("title", subject.title, state.title),
        ("description", subject.body.sha256, state.body_sha256),
        ("comment", event.words.sha256 if isinstance(event, Said) else None, state.words_sha256),
        ("head", head.sha if head else None, state.pull.head.sha if state.pull else None),
    ]
    return [name for name, then, now in pairs if then is not None and now is not None and then != now]


def _visible(rule: str, reason: str) -> Skip:
    return Skip(rule=rule, reason=reason, visible=True)
