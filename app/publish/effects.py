"""What a worker wishes to happen on a forge: typed, closed, with a key that is the same whoever wishes it again.

A wish names no address of its own choosing: where it happens is the job's `IssueRef`, and everything in it was made
by us.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from app.core.errors import AgentFixError
from app.core.record import Record
from app.core.task import Person
from app.github.base import Conclusion, NewPullRequest, Reaction, ReactionTarget
from app.github.errors import RateLimited

MAX_TITLE = 200
MAX_BODY = 60_000
"""Characters; GitHub refuses a body of more than 65,536."""
MAX_COMMENT = 8_000
Title = Annotated[str, Field(max_length=MAX_TITLE)]
Body = Annotated[str, Field(max_length=MAX_BODY)]
Comment = Annotated[str, Field(max_length=MAX_COMMENT)]
"""What is longer cannot even be wished for, so that nothing can be carried out of the house in bulk."""


class CommitRecipe(Record):
    """What suffices to make a commit again: the same recipe gives the same id on any machine."""

    patch: str
    """Digest of the patch (`Patch.model_dump_json()`) among the job's blobs."""
    message: Comment
    author: Person
    date: datetime
    parents: tuple[str, ...] = ()
    """Where these are not just the patch's base: of a merge."""


class OpenDraftPullRequest(Record):
    """Publish a commit on a new branch and open the draft for it."""

    kind: Literal["open_draft_pr"] = "open_draft_pr"
    branch: str
    commit: str
    recipe: CommitRecipe
    base: str
    title: Title
    body: Body
    replaces: tuple[str, ...] = ()
    """Empty commits of ours that a branch may hold in its place. Only the publisher says so, which made them."""
    draft: str = ""
    """The branch of a draft that was opened early: the commit goes there or nowhere. Only the publisher says so."""
    onto: str = ""
    """A commit of the base branch to merge into the commit before it is pushed (`app.publish.base_merge`). The
    publisher sets it, after GitHub refused the commit alone."""

    def pull_request(self, branch: str) -> NewPullRequest:
        verified = bool(self.recipe.patch)  # an early draft's commit has none
        return NewPullRequest(branch=branch, base=self.base, title=self.title, body=self.body, verified=verified)


class OpenEarlyDraft(Record):
    """Open the draft before there is a change: the publisher makes an empty commit by itself for the branch to hold."""

    kind: Literal["early_draft"] = "early_draft"
    branch: str
    base: str
    title: Title
    body: Body


class UpdateDraftStatus(Record):
    """How a job stands, in the description of the draft that was opened early for it; any other text is left alone."""

    kind: Literal["tell_draft"] = "tell_draft"
    section: Comment
    close: bool = False
    """Nothing will come of it: close it, if its branch holds nothing but our empty commit, which goes with it."""
    branch: str = ""
    commit: str = ""
    """Said by the publisher."""


class PushCommits(Record):
    """Move our branch on from `expected`."""

    kind: Literal["push_commits"] = "push_commits"
    branch: str
    commit: str
    recipe: CommitRecipe
    expected: str
    base: str = ""
    """The branch that the pull request is against. The publisher sets it."""
    onto: str = ""
    """As in OpenDraftPullRequest."""


class LabelAndRequestReview(Record):
    """What the house puts on a pull request of ours: labels that are added, people who are asked for a review."""

    kind: Literal["dress_pr"] = "dress_pr"
    branch: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    """Logins, and teams as `org/team`."""


class AddFollowUpSection(Record):
    """A section of our own pull request's body about what was done to it later; the rest of the body stays."""

    kind: Literal["follow_up"] = "follow_up"
    section: Body


class UpdateStatusComment(Record):
    """The one comment that tells how the job stands; a newer wish takes the place of one not yet fulfilled."""

    kind: Literal["status_comment"] = "status_comment"
    body: Comment


class ChangeLabels(Record):
    """Labels that the issue should have and should not have."""

    kind: Literal["label"] = "label"
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class AddReaction(Record):
    """An emoji on what triggered the job."""

    kind: Literal["reaction"] = "reaction"
    target: ReactionTarget
    content: Reaction


class WriteCheckRun(Record):
    """The verification's summary as a check on a commit."""

    kind: Literal["check_run"] = "check_run"
    name: str
    commit: str
    title: Title
    summary: Body
    conclusion: Conclusion | None = None


class AnswerReviewThread(Record):
    """An answer in an inline thread, which is then resolved where `thread` is given."""

    kind: Literal["thread_reply"] = "thread_reply"
    comment: int
    body: Comment
    thread: str = ""


class PostFailure(Record):
    """The visible end of a job that did not end well: a comment of its own, and the labels."""

    kind: Literal["fail"] = "fail"
    body: Comment
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


Effect = Annotated[
    OpenDraftPullRequest
    | OpenEarlyDraft
    | UpdateDraftStatus
    | PushCommits
    | LabelAndRequestReview
    | AddFollowUpSection
    | UpdateStatusComment
    | ChangeLabels
    | AddReaction
    | WriteCheckRun
    | AnswerReviewThread
    | PostFailure,
    Field(discriminator="kind"),
]
EFFECT_ADAPTER: TypeAdapter[Effect] = TypeAdapter(Effect)


class Receipt(Record):
    """That it happened, and where it is to be seen: an address, and for a push the branch's name."""

    url: str = ""
    branch: str = ""
    onto: str = ""
    """The commit of the base branch that was merged in first; empty if none was."""


EffectState = Literal["wanted", "claimed", "done", "failed", "withdrawn"]

EDITS_APART = timedelta(seconds=10)
"""Between two versions of the same thing, so that a busy job does not edit its comment all the time."""
MAX_ATTEMPTS = 8
"""After so many a publisher that died again is taken for killed by it."""
MAX_TRIES = 60
"""While a forge is out of order: nearly two hours, after which people have to look."""
LEASE = timedelta(minutes=5)
"""Longer than a push may take to be given up by the network; a publisher that died is replaced after it."""
_MAX_PAUSE_LENGTH = timedelta(minutes=2)


def key_of(job: str, effect: Effect) -> str:
    """The same for the same wish of the same job, at any time on any machine."""
    return "/".join(part for part in (job, effect.kind, *_names(effect)) if part)


def _names(effect: Effect) -> tuple[str, ...]:
    match effect:
        case OpenDraftPullRequest() | LabelAndRequestReview():
            return (_short(effect.branch),)
        case PushCommits():
            return (effect.commit[:20],)
        case AddReaction():
            return (effect.target.kind.replace(" ", "-"), str(effect.target.id), effect.content)
        case WriteCheckRun():
            return (effect.commit[:20], _short(effect.name))
        case AnswerReviewThread():
            return (str(effect.comment), _short(effect.body))
        case _:
            return ()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of(effect: Effect) -> str:
    return hashlib.sha256(effect.model_dump_json().encode()).hexdigest()


class NextAttempt(NamedTuple):
    """Where an intent stands after something happened, when it is due again, and how many attempts count."""

    state: EffectState
    due: datetime
    attempts: int


def after_want(state: EffectState, due: datetime, attempts: int, now: datetime) -> NextAttempt:
    """Another version of an intent that is there already. A claimed one stays with its publisher until it is done."""
    if state == "claimed":
        return NextAttempt("claimed", due, attempts)
    return NextAttempt("wanted", max(now, due) if state in {"wanted", "done"} else now, 0)


def after_success(claimed: int, wanted: int, now: datetime) -> NextAttempt:
    """Done, unless another version was wanted meanwhile. `due` keeps the distance between two edits."""
    return NextAttempt("done" if claimed == wanted else "wanted", now + EDITS_APART, 0)


def after_failure(error: AgentFixError, attempts: int, now: datetime) -> NextAttempt:
    """Once more later, or never: a forge's wish to wait counts as no attempt."""
    if isinstance(error, RateLimited):
        return NextAttempt("wanted", max(error.until, now), attempts - 1)
    if error.final or attempts >= MAX_TRIES:
        return NextAttempt("failed", now, attempts)
    return NextAttempt("wanted", now + pause_after(attempts), attempts)


def pause_after(attempts: int) -> timedelta:
    """2 s after the first attempt, doubling, at most two minutes."""
    return min(timedelta(seconds=2 ** min(attempts, 10)), _MAX_PAUSE_LENGTH)
