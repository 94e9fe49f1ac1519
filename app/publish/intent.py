"""What a worker wishes to happen on a forge: typed, closed, with a key that is the same whoever wishes it again.

A wish names no address of its own choosing: where it happens is the job's `Place`, and everything in it was made by us.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from app.errors import AgentFixError
from app.forge.base import Conclusion, PullRequest, Reaction, Target
from app.forge.errors import WaitUntil
from app.noun import Noun
from app.task import Person

MAX_TITLE = 200
MAX_BODY = 60_000
"""Characters; GitHub refuses a body of more than 65,536."""
MAX_COMMENT = 8_000
Title = Annotated[str, Field(max_length=MAX_TITLE)]
Body = Annotated[str, Field(max_length=MAX_BODY)]
Comment = Annotated[str, Field(max_length=MAX_COMMENT)]
"""What is longer cannot even be wished for, so that nothing can be carried out of the house in bulk."""


class Place(Noun):
    """The issue or pull request that a job belongs to. The repository's number decides, not its name."""

    installation: int
    repository: int
    owner: str
    name: str
    number: int


class Recipe(Noun):
    """What suffices to make a commit again: the same recipe gives the same id on any machine."""

    patch: str
    """Digest of the patch (`Patch.model_dump_json()`) among the job's blobs."""
    message: Comment
    author: Person
    date: datetime
    parents: tuple[str, ...] = ()
    """Where these are not just the patch's base: of a merge."""


class OpenDraftPullRequest(Noun):
    """Publish a commit on a new branch and open the draft for it."""

    kind: Literal["open_draft_pr"] = "open_draft_pr"
    branch: str
    commit: str
    recipe: Recipe
    base: str
    title: Title
    body: Body
    replaces: tuple[str, ...] = ()
    """Empty commits of ours that a branch may hold in its place. Only the publisher says so, which made them."""
    draft: str = ""
    """The branch of a draft that was opened early: the commit goes there or nowhere. Only the publisher says so."""

    def pull_request(self, branch: str) -> PullRequest:
        verified = bool(self.recipe.patch)  # an early draft's commit has none
        return PullRequest(branch=branch, base=self.base, title=self.title, body=self.body, verified=verified)


class OpenEarlyDraft(Noun):
    """Open the draft before there is a change: the publisher makes an empty commit by itself for the branch to hold."""

    kind: Literal["early_draft"] = "early_draft"
    branch: str
    base: str
    title: Title
    body: Body


class TellDraft(Noun):
    """How a job stands, in the description of the draft that was opened early for it; any other text is left alone."""

    kind: Literal["tell_draft"] = "tell_draft"
    section: Comment
    close: bool = False
    """Nothing will come of it: close it, if its branch holds nothing but our empty commit, which goes with it."""
    branch: str = ""
    commit: str = ""
    """Said by the publisher."""


class PushCommits(Noun):
    """Move our branch on from `expected`."""

    kind: Literal["push_commits"] = "push_commits"
    branch: str
    commit: str
    recipe: Recipe
    expected: str


class DressPullRequest(Noun):
    """What the house puts on a pull request of ours: labels that are added, people who are asked for a review."""

    kind: Literal["dress_pr"] = "dress_pr"
    branch: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    """Logins, and teams as `org/team`."""


class TellFollowUp(Noun):
    """A section of our own pull request's body about what was done to it later; the rest of the body stays."""

    kind: Literal["follow_up"] = "follow_up"
    section: Body


class StatusComment(Noun):
    """The one comment that tells how the job stands; a newer wish takes the place of one not yet fulfilled."""

    kind: Literal["status_comment"] = "status_comment"
    body: Comment


class Label(Noun):
    """Labels that the issue should have and should not have."""

    kind: Literal["label"] = "label"
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class React(Noun):
    """An emoji on what triggered the job."""

    kind: Literal["reaction"] = "reaction"
    target: Target
    content: Reaction


class WriteCheck(Noun):
    """The verification's summary as a check on a commit."""

    kind: Literal["check_run"] = "check_run"
    name: str
    commit: str
    title: Title
    summary: Body
    conclusion: Conclusion | None = None


class AnswerThread(Noun):
    """An answer in an inline thread, which is then resolved where `thread` is given."""

    kind: Literal["thread_reply"] = "thread_reply"
    comment: int
    body: Comment
    thread: str = ""


class Fail(Noun):
    """The visible end of a job that did not end well: a comment of its own, and the labels."""

    kind: Literal["fail"] = "fail"
    body: Comment
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


Intent = Annotated[
    OpenDraftPullRequest
    | OpenEarlyDraft
    | TellDraft
    | PushCommits
    | DressPullRequest
    | TellFollowUp
    | StatusComment
    | Label
    | React
    | WriteCheck
    | AnswerThread
    | Fail,
    Field(discriminator="kind"),
]
INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)


class Receipt(Noun):
    """That it happened, and where it is to be seen: an address, and for a push the branch's name."""

    url: str = ""
    branch: str = ""


State = Literal["wanted", "claimed", "done", "failed", "withdrawn"]

EDITS_APART = timedelta(seconds=10)
"""Between two versions of the same thing, so that a busy job does not edit its comment all the time."""
MOST_ATTEMPTS = 8
"""After so many a publisher that died again is taken for killed by it."""
MOST_TRIES = 60
"""While a forge is out of order: nearly two hours, after which people have to look."""
LEASE = timedelta(minutes=5)
"""Longer than a push may take to be given up by the network; a publisher that died is replaced after it."""
_LONGEST_PAUSE = timedelta(minutes=2)


def key_of(job: str, intent: Intent) -> str:
    """The same for the same wish of the same job, at any time on any machine."""
    return "/".join(part for part in (job, intent.kind, *_names(intent)) if part)


def _names(intent: Intent) -> tuple[str, ...]:
    match intent:
        case OpenDraftPullRequest() | DressPullRequest():
            return (_short(intent.branch),)
        case PushCommits():
            return (intent.commit[:20],)
        case React():
            return (intent.target.kind.replace(" ", "-"), str(intent.target.id), intent.content)
        case WriteCheck():
            return (intent.commit[:20], _short(intent.name))
        case AnswerThread():
            return (str(intent.comment), _short(intent.body))
        case _:
            return ()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of(intent: Intent) -> str:
    return hashlib.sha256(intent.model_dump_json().encode()).hexdigest()


class Next(NamedTuple):
    """Where an intent stands after something happened, when it is due again, and how many attempts count."""

    state: State
    due: datetime
    attempts: int


def after_want(state: State, due: datetime, attempts: int, now: datetime) -> Next:
    """Another version of an intent that is there already. A claimed one stays with its publisher until it is done."""
    if state == "claimed":
        return Next("claimed", due, attempts)
    return Next("wanted", max(now, due) if state in {"wanted", "done"} else now, 0)


def after_success(claimed: int, wanted: int, now: datetime) -> Next:
    """Done, unless another version was wanted meanwhile. `due` keeps the distance between two edits."""
    return Next("done" if claimed == wanted else "wanted", now + EDITS_APART, 0)


def after_failure(error: AgentFixError, attempts: int, now: datetime) -> Next:
    """Once more later, or never: a forge's wish to wait counts as no attempt."""
    if isinstance(error, WaitUntil):
        return Next("wanted", max(error.until, now), attempts - 1)
    if error.final or attempts >= MOST_TRIES:
        return Next("failed", now, attempts)
    return Next("wanted", now + pause_after(attempts), attempts)


def pause_after(attempts: int) -> timedelta:
    """2 s after the first attempt, doubling, at most two minutes."""
    return min(timedelta(seconds=2 ** min(attempts, 10)), _LONGEST_PAUSE)
