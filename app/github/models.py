"""What is read from a forge: the facts that triggers are decided by and that a model is shown, as people wrote them."""

from datetime import datetime
from typing import Literal

from app.core.record import Record
from app.core.task import Person

Permission = Literal["admin", "write", "read", "none"]
WRITERS: frozenset[Permission] = frozenset({"admin", "write"})


class ActorPermission(Record):
    """An account by its number, and what it may do in this repository at this moment."""

    id: int
    login: str
    kind: str
    """`User`, `Bot` or `Organization`, as the forge says."""
    permission: Permission
    person: Person

    @property
    def may_write(self) -> bool:
        return self.permission in WRITERS


class GitHubIssue(Record):
    """An issue, or the issue side of a pull request. `author` is 0 where the account is gone."""

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
    """Who did something; `id` is 0 where the account is gone. `kind` is the forge's own word."""

    id: int
    login: str
    kind: str = "User"


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
    """Of the author's account."""
    number: int = 0
    """Of the issue or pull request it is on; 0 where that was known before."""
    app: int | None = None
    """The App through which it was written."""
    node: str = ""

    @property
    def edited(self) -> bool:
        return self.updated_at is not None and self.updated_at > self.created_at


class InlineComment(IssueComment):
    """A comment on lines of a pull request. `root` is the comment that opened its thread."""

    root: int
    path: str
    start: int | None
    end: int | None
    side: str
    hunk: str
    review: int | None


class IssueEvent(Record):
    """Something that happened to an issue: `event` is the forge's word (labeled, unlabeled, closed, reopened …)."""

    event: str
    actor: Account
    at: datetime
    label: str = ""


class LinkedPullRequest(Record):
    """An open pull request that will close an issue; `author` is 0 where the account is gone."""

    number: int
    author: int


class CommentEdit(Record):
    """A comment as it stands, and who edited it last; None where nobody did."""

    body: str
    editor: Account | None
    edited_at: datetime | None


class PullRequestCommit(Record):
    """A commit of a pull request; `author` is a name, as the commit says."""

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
    """One comment of an inline thread; `id` is the number that a reply is addressed to."""

    id: int
    author_name: str
    body: str
    created_at: datetime
    review: int | None = None
    """The review that it was submitted with."""


class ReviewThread(Record):
    """An inline review thread with its place; `line` is None where the place is outdated."""

    id: str
    root: int = 0
    """The number of the comment that opened it."""
    path: str
    line: int | None
    start_line: int | None
    resolved: bool
    outdated: bool
    diff: str
    comments: tuple[ReviewThreadComment, ...]


class ChangedFile(Record):
    """A file of a pull request; `diff` is empty where the forge shows none (binary, or too large)."""

    path: str
    status: str
    additions: int
    deletions: int
    diff: str


class PullRequest(Record):
    """A pull request as it stands; `head_repository` is None where the fork is gone."""

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
    """A check or commit status that has ended or not; `log` is the end of its output where it failed.

    `id` and `app` are a check run's; a status has none.
    """

    id: int = 0
    app: int | None = None
    name: str
    source: str
    conclusion: str
    """`success`, `failure`, `pending` and so on, as the forge says."""
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
