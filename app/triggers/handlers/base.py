"""What a command means, as one value for each: for the rules, for the request, and when it is carried out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.jobs.context import reaction_target
from app.jobs.store import JobQueries, JobWithContext
from app.publish import replies
from app.publish.effects import AddReaction, UpdateStatusComment, key_of
from app.publish.outbox import name_without_job
from app.triggers.decisions import (
    Decision,
    EventFacts,
    Ignored,
    JobRequest,
    Reply,
    RequestAim,
    TriggerAnswer,
    TriggerContext,
)
from app.triggers.events import Assigned, LabelAdded, ProgramCommand
from app.triggers.job_creator import JobCreator, StateChanged
from app.triggers.stores import ServerDefaults, Stores

Outcome = str | TriggerAnswer
"""The outcome of a trigger that is stored already, or an answer that is still to be posted and stored."""


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command of an authorised person to carry out, and what may be needed for that."""

    request: JobRequest
    context: TriggerContext
    stores: Stores
    job_creator: JobCreator
    defaults: ServerDefaults

    @property
    def job(self) -> JobWithContext:
        """The job that the command is for. Raises StateChanged if there is none any more."""
        if self.context.facts.job is None:
            raise StateChanged("The job no longer exists.")
        return self.context.facts.job

    def acknowledge(self) -> None:
        """Add 👀 to what was written, if it accepts reactions. Blocking."""
        target = reaction_target(self.request.trigger, self.context.trigger.number)
        if target is not None and not self.context.promised_job:
            seen = AddReaction(target=target, content="eyes")
            self.stores.outbox.add(name_without_job(self.context.trigger.key), 0, self.context.issue_ref, seen)


def status_address(job: str, stores: Stores) -> str:
    """The URL of a job's status comment; empty if there is none yet. Blocking."""
    status = stores.outbox.status(key_of(job, UpdateStatusComment(body="")))
    return status.receipt.url if status and status.receipt else ""


def newest_job(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    """The active job of an issue, else its last one. Blocking."""
    return queries.active(repository, number) or queries.newest(repository, number)


def newest_job_or_question(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    """The active job of an issue, else a question that is being answered there, else the last job. Blocking."""
    here = (each for each in queries.active_jobs(repository=repository) if each.job_context.issue_ref.number == number)
    return queries.active(repository, number) or next(here, None) or queries.newest(repository, number)


def when_idle(facts: EventFacts) -> bool:
    """True if no job is active."""
    return not facts.state.working


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """What the rules, the fact loader and the event handler ask about a command; most have the same answers."""

    run: Callable[[CommandCall], Awaitable[Outcome]]
    """Carries it out, after no rule objected."""
    aim: Callable[[EventFacts], RequestAim] | None = None
    """What is requested; None if it is always the command itself."""
    starts: Callable[[EventFacts], bool] = lambda _: False
    """Whether it would start work that leads to a pull request now."""
    ignore: Callable[[EventFacts], Decision | None] = lambda _: None
    """Its own rule before those that post an answer."""
    refuse: Callable[[EventFacts], Decision | None] = lambda _: None
    """Its own rules after those for all commands."""
    find_job: Callable[[JobQueries, int, int], JobWithContext | None] = newest_job
    """The job that it is for, by the repository's id and the issue's number. Blocking."""
    asks_for_work: bool = False
    """A stop that was requested earlier does not stop its work, whichever arrives first."""
    ends_work: bool = False
    """Only a later request for work cancels it, and it does not count as one command too many."""
    only_reads: bool = False
    """Nothing cancels it."""
    replaces: bool = False
    """It replaces an active job, and our own pull request."""
    needs_config: bool = True
    """It needs a valid configuration."""


def refused(rule: str, reason: str) -> Ignored:
    """A decision to do nothing, and to say why."""
    return Ignored(rule=rule, reason=reason, visible=True)


def refuse_beside_a_job(facts: EventFacts) -> Ignored | None:
    """Refuse a second label, assignment or request of a program while a job is active; comments go to that job."""
    if facts.state.working and isinstance(facts.event, LabelAdded | Assigned | ProgramCommand):
        return refused("busy", "A job is already working on it.")
    return None


def refuse_while_paused(facts: EventFacts) -> Reply | None:
    """A paused job reads nothing until it is continued."""
    if facts.state.job_state != "paused":
        return None
    return Reply(rule="busy", text="The job is paused.", suggestion="/agent continue --budget +3")


def refuse_options(facts: EventFacts, *changeable: str) -> Reply | None:
    """A job that has begun keeps its settings, except the changeable ones."""
    given = facts.command.options.model_dump(exclude_defaults=True) if facts.command else {}
    name = next((name for name in given if name not in changeable), None)
    if name is None:
        return None
    option, what = ("with", "A prompt (`with NAME`)") if name == "prompt" else (f"--{name}", f"`--{name}`")
    text = f"{what} cannot change a job that has begun, so nothing was done. Leave it out, or start again."
    return Reply(rule="busy", text=text, suggestion=f"/agent retry {option} …")


def refuse_pull_requests_of_others(facts: EventFacts) -> Reply | None:
    """Other people's commits are never rewritten, and only they may start their CI."""
    if facts.is_our_pull_request:
        return None
    text = f"`/agent {facts.verb}` works on agent-fix's own pull requests only."
    return Reply(rule="only_our_pull_request", text=text)


def early_draft(context: TriggerContext) -> TriggerAnswer | None:
    """An answer if this is a draft that an active job opened early: work on it continues in its issue."""
    job, number = context.facts.job, context.trigger.number
    if job is None or job.row.final or job.job_context.issue_ref.number == number:
        return None
    issue = job.job_context.issue_ref.number
    text = replies.refused(f"This draft was opened early; work on it continues in #{issue}.")
    return TriggerAnswer("skip early_draft", text)
