"""What `app.intake.decide` is to know of an event, put together from the forge's facts and our own tables."""

from dataclasses import dataclass
from datetime import datetime

from app.access import Standing
from app.config import RepoConfig
from app.errors import ConfigError
from app.events import ChecksFailed, Commented, Head, Labelled, ReviewCommented, Trigger, digest
from app.forge.base import Target
from app.forge.facts import IssueFacts, PullRequestFacts, RepositoryFacts
from app.jobs.roster import Commissioned
from app.jobs.triggers import Trigger as Asked
from app.orders import Pull, State
from app.publish.forks import FORK_MARK
from app.publish.intent import Place as Spot
from app.reception.doors import Ourselves, Readers
from app.task import Person


@dataclass(frozen=True, slots=True)
class Place:
    """A repository that is open to us. `repository` is what it is called now."""

    readers: Readers
    repository: RepositoryFacts
    installation: int
    ours: Ourselves


@dataclass(frozen=True, slots=True)
class Identity:
    """A trigger by the name that it has on every way, and when it was asked by the forge's clock."""

    key: str
    asked_at: datetime
    taken_back: bool = False
    """The label was put on again since, by somebody else: theirs counts."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How things stand around one event. What was not asked has the value that decides nothing."""

    state: State
    config: RepoConfig | ConfigError
    standing: Standing | None = None
    person: Person | None = None
    """Who asked, as a commit trailer names them."""
    pull: PullRequestFacts | None = None
    job: Commissioned | None = None


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that is to be dealt with, with all that is known of it. `verb` is what it amounts to.

    `login` is who asked, by the name that they have now; empty where the bot begins by itself. `target` is what they
    wrote, where a reaction can be put on it.
    """

    place: Place
    identity: Identity
    found: Circumstances
    number: int
    verb: str
    actor: int
    login: str = ""
    target: Target | None = None

    @property
    def spot(self) -> Spot:
        return spot_of(self.place, self.number)

    @property
    def asked(self) -> Asked:
        """The trigger as it is kept."""
        where = {"repository": self.place.repository.id, "number": self.number}
        return Asked(self.identity.key, **where, actor=self.actor, verb=self.verb, at=self.identity.asked_at)


def matter_of(
    event: Trigger | ChecksFailed, verb: str, place: Place, identity: Identity, found: Circumstances
) -> Matter:
    if isinstance(event, ChecksFailed):
        number = found.pull.number if found.pull else 0
        return Matter(place, identity, found, number, verb, place.ours.bot.user)
    login = found.standing.login if found.standing else event.actor.login
    return Matter(place, identity, found, event.subject.number, verb, event.actor.id, login, _target(event))


def _target(event: Trigger) -> Target | None:
    """A review has no place for a reaction."""
    match event:
        case Labelled():
            return Target(kind="issue", id=event.subject.number)
        case Commented():
            return Target(kind="comment", id=event.id)
        case ReviewCommented():
            return Target(kind="review comment", id=event.id)
        case _:
            return None


def spot_of(place: Place, number: int) -> Spot:
    repository = place.repository
    return Spot(
        installation=place.installation,
        repository=repository.id,
        owner=repository.owner,
        name=repository.name,
        number=number,
    )


def pull_of(facts: PullRequestFacts) -> Pull:
    head = Head(repository=facts.head_repository, ref=facts.head_branch, sha=facts.head)
    fork = FORK_MARK in facts.body
    return Pull(number=facts.number, author=facts.author or None, head=head, base_ref=facts.base_branch, fork=fork)


def with_job(state: State, job: Commissioned | None) -> State:
    if job is None:
        return state
    planned = job.row.state == "answered" and job.commission.aim == "plan" and bool((job.row.result or {}).get("plan"))
    return state.model_copy(update={"job": job.job.id, "job_state": job.row.state, "planned": planned})


def with_issue(state: State, issue: IssueFacts | None, pull: PullRequestFacts | None) -> State:
    """An issue that is gone takes back what was asked on it."""
    if issue is None:
        return state.model_copy(update={"gone": True, "open": False})
    now: dict[str, object] = {
        "open": issue.open,
        "locked": issue.locked,
        "labels": issue.labels,
        "assignees": issue.assignees,
        "title": issue.title,
        "body_sha256": digest(issue.body),
        "pull": pull_of(pull) if pull else None,
    }
    return state.model_copy(update=now)
