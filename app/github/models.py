"""What we read from GitHub, as our own records: issues, comments, reviews, pull requests, checks."""

from datetime import datetime

from app.core.record import Record
from app.core.task import Person

WRITERS: frozenset[str] = frozenset({"admin", "maintain", "write"})


class ActorPermission(Record):
    """What the forge's API says of a numeric account id in one repository, asked for the decision at hand.

    `permission` is the forge's base permission: admin, write, read or none. A role of the organisation's own
    making counts as the base it was made from; a word we do not know gives no access.
    """

    id: int
    login: str
    """The id's current login."""
    kind: str = "User"
    """`User`, `Bot` or `Organization`, as GitHub says."""
    permission: str
    person: Person | None = None
    """The account as a commit's author or trailer names it."""
    app: int | None = None
    """For a bot: the numeric id of its App."""

    @property
    def may_write(self) -> bool:
        return self.permission in WRITERS


class BotAccount(Record):
    """The bot's own account: its id for rules, its login for people, its person as the author of commits."""

    user: int
    app: int = 0
    login: str = ""
    person: Person = Person(name="", email="")
    allowed_apps: frozenset[int] = frozenset()
    """Ids of the other Apps that may ask it."""


class GitHubIssue(Record):
    """An issue, or the issue side of a pull request. `author` is 0 if the account is gone."""

    number: int
    title: str
    body: str
    author: int
    open: bool
    locked: bool
    labels: tuple[str, ...]
    assignees: tuple[int, ...]
    pull_request: bool
    updated_at: datetime


class Account(Record):
    """An account; `id` is 0 if it is gone. `kind` is GitHub's word: User, Bot, Organization, Mannequin."""

    id: int
    login: str
    kind: str = "User"

    @property
    def is_person(self) -> bool:
        return self.kind == "User" and not self.login.endswith("[bot]")


class IssueComment(Record):
    """A comment on an issue or pull request."""

    id: int
    author: int
    author_name: str
    bot: bool
    body: str
    created_at: datetime
    url: str
    updated_at: datetime | None = None
    kind: str = "User"
    """The kind of the author's account."""
    number: int = 0
    """The issue or pull request it belongs to; 0 if the caller knows it."""
    app: int | None = None
    """The App that wrote it, if any."""
    node: str = ""

    @property
    def edited(self) -> bool:
        return self.updated_at is not None and self.updated_at > self.created_at


class InlineComment(IssueComment):
    """A comment on lines of a pull request. `root` is the id of the thread's first comment."""

    root: int
    path: str
    start: int | None
    end: int | None
    side: str
    hunk: str
    review: int | None


class IssueEvent(Record):
    """An event of an issue; `event` is GitHub's word (labeled, unlabeled, closed, reopened …)."""

    event: str
    actor: Account
    at: datetime
    label: str = ""
    assignee: int = 0
    """Who was assigned; the actor is then who did it."""


class LinkedPullRequest(Record):
    """An open pull request that will close an issue; `author` is 0 if the account is gone."""

    number: int
    author: int


class CommentEdit(Record):
    """A comment's current text and its last editor; None if it was never edited."""

    body: str
    editor: Account | None
    edited_at: datetime | None


class PullRequestCommit(Record):
    """A commit of a pull request; `author` is a name, as in the commit."""

    id: str
    author: str
    message: str


class PullRequestReview(Record):
    """A submitted review."""

    id: int
    author: int
    author_name: str
    state: str
    body: str
    commit: str
    submitted_at: datetime
    kind: str = "User"


class ReviewThreadComment(Record):
    """One comment of an inline thread; `id` is the id to reply to."""

    id: int
    author_name: str
    body: str
    created_at: datetime
    review: int | None = None
    """The review that it was submitted with."""


class ReviewThread(Record):
    """An inline review thread with its position; `line` is None if the position is outdated."""

    id: str
    root: int = 0
    """The id of its first comment."""
    path: str
    line: int | None
    start_line: int | None
    resolved: bool
    outdated: bool
    diff: str
    comments: tuple[ReviewThreadComment, ...]


class ChangedFile(Record):
    """A file of a pull request; `diff` is empty if GitHub shows none (binary or too large)."""

    path: str
    status: str
    additions: int
    deletions: int
    diff: str


class PullRequest(Record):
    """A pull request's current state; `head_repository` is None if the fork is gone."""

    number: int
    url: str
    title: str
    body: str
    author: int
    author_name: str
    open: bool
    merged: bool
    draft: bool
    head_branch: str
    head: str
    head_repository: int | None
    base_branch: str
    base: str
    mergeable: bool | None
    updated_at: datetime | None = None


class CheckResult(Record):
    """A check run or commit status; `log` is the end of a failed check's log.

    A status has no `id` and `app`.
    """

    id: int = 0
    app: int | None = None
    name: str
    source: str
    conclusion: str
    """`success`, `failure`, `pending` and so on, as GitHub says."""
    summary: str
    url: str
    log: str = ""


class Repository(Record):
    """A repository by number, with its default branch."""

    id: int
    owner: str
    name: str
    default_branch: str
    private: bool
    archived: bool
