"""Effects that a worker requests on a forge: typed and closed, with a deterministic key.

An effect never names its own target: that is the job's `IssueRef`, and our code writes everything in it.
"""

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from app.core.errors import AgentFixError, UnforeseenError
from app.core.job import JobState
from app.core.patch import Patch
from app.core.record import Record, StrictRecord
from app.core.task import Person
from app.github.base import CommentState, Conclusion, NewPullRequest, RateLimited, Reaction, ReactionTarget

if TYPE_CHECKING:
    from app.repo.git_store import GitStore

MAX_TITLE = 200
MAX_BODY = 60_000
"""Characters; GitHub refuses a body of more than 65,536."""
MAX_COMMENT = 8_000
Title = Annotated[str, Field(max_length=MAX_TITLE)]
Body = Annotated[str, Field(max_length=MAX_BODY)]
Comment = Annotated[str, Field(max_length=MAX_COMMENT)]
"""Limited in size, so that nothing can be exported in bulk."""


class CommitRecipe(StrictRecord):
    """Everything that makes a commit again: the same recipe gives the same id on any machine."""

    patch: str
    """Digest of the patch (`Patch.model_dump_json()`) among the job's blobs."""
    message: Comment
    author: Person
    date: datetime
    parents: tuple[str, ...] = ()
    """Set if they are not just the patch's base, as for a merge."""

    def commit(self, store: "GitStore", patch: Patch) -> str:
        """Make the commit in the store; returns its id. Raises GitError or UnsafePathError. Blocking."""
        return store.commit(patch, message=self.message, author=self.author, date=self.date, parents=self.parents)


class OpenDraftPullRequest(StrictRecord):
    """Publish a commit on a new branch and open the draft for it."""

    kind: Literal["open_draft_pr"] = "open_draft_pr"
    branch: str
    commit: str
    recipe: CommitRecipe
    base: str
    title: Title
    body: Body
    replaces: tuple[str, ...] = ()
    """Empty commits of ours that the branch may hold instead. Set only by the publisher, which made them."""
    signed: str = ""
    """The verified commit as it was signed. Set only by the publisher."""
    draft: str = ""
    """The branch of the early draft: the commit goes there or nowhere. Set only by the publisher."""
    onto: str = ""
    """A commit of the base branch to merge into the commit before it is pushed (`app.publish.policy`). The
    publisher sets it, after GitHub refused the commit alone."""

    def pull_request(self, branch: str) -> NewPullRequest:
        verified = bool(self.recipe.patch)  # an early draft's commit has none
        return NewPullRequest(branch=branch, base=self.base, title=self.title, body=self.body, verified=verified)


class OpenEarlyDraft(StrictRecord):
    """Open the draft before there is a change, on an empty commit that the publisher makes."""

    kind: Literal["early_draft"] = "early_draft"
    branch: str
    base: str
    title: Title
    body: Body


class UpdateDraftStatus(StrictRecord):
    """Show a job's state in the description of its early draft; the rest of the text stays."""

    kind: Literal["draft_status"] = "draft_status"
    section: Comment
    close: bool = False
    """Close the draft without a change, and delete its branch, if that holds only our empty commit."""
    branch: str = ""
    commit: str = ""
    """The empty commit; set by the publisher."""


class PushCommits(StrictRecord):
    """Move our branch on from `expected`."""

    kind: Literal["push_commits"] = "push_commits"
    branch: str
    commit: str
    recipe: CommitRecipe
    expected: str
    signed: str = ""
    """As in OpenDraftPullRequest."""
    base: str = ""
    """The pull request's base branch. Set by the publisher."""
    onto: str = ""
    """As in OpenDraftPullRequest."""


class LabelAndRequestReview(StrictRecord):
    """Add labels to our pull request and request reviews, as the repository configured."""

    kind: Literal["labels_and_review"] = "labels_and_review"
    branch: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    """Logins, and teams as `org/team`."""


class AddFollowUpSection(StrictRecord):
    """Add a section about a follow-up to our pull request's body, whose verdict becomes that of the new head."""

    kind: Literal["follow_up"] = "follow_up"
    section: Body
    shorter: tuple[Body, ...] = ()
    """The section in less and less detail, for a body that has no place for all of it."""
    banner: Comment = ""
    """The verdict of the new head; empty in an effect that an earlier version stored."""
    verifications: tuple[Body, ...] = ()
    """Its verification, in less and less detail."""


class UpdateVerdict(StrictRecord):
    """Replace the verdict and the verification in the body of our pull request of that branch."""

    kind: Literal["verdict"] = "verdict"
    branch: str
    banner: Comment
    verification: Body
    shorter: tuple[Body, ...] = ()
    """The verification in less and less detail, for a body that has no place for all of it."""


class UpdateStatusComment(StrictRecord):
    """Write the job's status comment; a newer effect replaces one that is still open."""

    kind: Literal["status_comment"] = "status_comment"
    body: Body
    state: CommentState | None = None
    """Hidden in the comment; None for a reply that belongs to no job."""


class ChangeLabels(Record):
    """Labels that the issue should and should not have."""

    kind: Literal["label"] = "label"
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class AddReaction(Record):
    """Add an emoji to what triggered the job."""

    kind: Literal["reaction"] = "reaction"
    target: ReactionTarget
    content: Reaction


class WriteCheckRun(Record):
    """Show the verification's summary as a check on a commit."""

    kind: Literal["check_run"] = "check_run"
    name: str
    commit: str
    title: Title
    summary: Body
    conclusion: Conclusion | None = None


class AnswerReviewThread(Record):
    """Reply in an inline thread, and resolve it if `thread` is given."""

    kind: Literal["thread_reply"] = "thread_reply"
    comment: int
    body: Comment
    thread: str = ""


Channel = Literal["webhook", "apprise"]


class SendNotification(Record):
    """Tell people or programs outside the forge that a job ended or waits (`app.publish.notifications`)."""

    kind: Literal["notification"] = "notification"
    channel: Channel
    state: JobState
    title: Title
    body: Comment
    repository: str
    issue: int
    page: str = ""
    """The job's page."""
    pull_request: str = ""
    verdict: str = ""
    cost: str = ""
    """In dollars, as a decimal string."""


Effect = Annotated[
    OpenDraftPullRequest
    | OpenEarlyDraft
    | UpdateDraftStatus
    | PushCommits
    | LabelAndRequestReview
    | AddFollowUpSection
    | UpdateVerdict
    | UpdateStatusComment
    | ChangeLabels
    | AddReaction
    | WriteCheckRun
    | AnswerReviewThread
    | SendNotification,
    Field(discriminator="kind"),
]
EFFECT_ADAPTER: TypeAdapter[Effect] = TypeAdapter(Effect)


class Receipt(Record):
    """Proof that it happened: an address, or the branch's name for a push."""

    url: str = ""
    branch: str = ""
    onto: str = ""
    """The commit of the base branch that was merged in first; empty if none was."""
    signed: str = ""
    """The id of the verified commit once it was signed; empty if it was not."""


EffectState = Literal["wanted", "claimed", "done", "failed", "withdrawn"]

EDITS_APART = timedelta(seconds=10)
"""Minimum time between two edits of the same comment."""
MAX_DEATHS = 8
"""After so many deaths of the publisher in succession, the effect itself is assumed to cause them."""
MAX_TRIES = 60
"""While a forge has errors: nearly two hours, after which a person must look."""
LEASE = timedelta(minutes=5)
"""Longer than a push may take before the network gives up; then another publisher takes over."""
_MAX_PAUSE_LENGTH = timedelta(minutes=2)


def key_of(job: str, effect: Effect) -> str:
    """The same for the same effect of the same job, at any time on any machine."""
    return "/".join(part for part in (job, effect.kind, *_names(effect)) if part)


def _names(effect: Effect) -> tuple[str, ...]:  # noqa: PLR0911  # one case a kind
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
        case SendNotification():
            return (effect.channel, effect.state)
        case _:
            return ()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of(effect: Effect) -> str:
    return hashlib.sha256(effect.model_dump_json().encode()).hexdigest()


class NextAttempt(NamedTuple):
    """The next state of an effect, when it is due, and how many attempts count."""

    state: EffectState
    due: datetime
    attempts: int


def after_want(state: EffectState, due: datetime, attempts: int, now: datetime) -> NextAttempt:
    """Replace an open effect by another version. A claimed one stays with its publisher until it is done."""
    if state == "claimed":
        return NextAttempt("claimed", due, attempts)
    return NextAttempt("wanted", max(now, due) if state in {"wanted", "done"} else now, 0)


def after_success(claimed: int, wanted: int, now: datetime) -> NextAttempt:
    """Done, unless another version was requested meanwhile. `due` keeps the distance between two edits."""
    return NextAttempt("done" if claimed == wanted else "wanted", now + EDITS_APART, 0)


def after_failure(error: AgentFixError, attempts: int, now: datetime) -> NextAttempt:
    """When to try again, or never; waiting for a rate limit does not count as an attempt."""
    if isinstance(error, RateLimited):
        return NextAttempt("wanted", max(error.until, now), attempts - 1)
    if error.final or attempts >= (MAX_DEATHS if isinstance(error, UnforeseenError) else MAX_TRIES):
        return NextAttempt("failed", now, attempts)
    return NextAttempt("wanted", now + pause_after(attempts), attempts)


def pause_after(attempts: int) -> timedelta:
    """2 s after the first attempt, doubling, at most two minutes."""
    return min(timedelta(seconds=2 ** min(attempts, 10)), _MAX_PAUSE_LENGTH)
