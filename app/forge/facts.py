"""What is read from a forge: the facts that triggers are decided by and that a model is shown, as people wrote them."""

from datetime import datetime
from typing import Literal

from app.noun import Noun
from app.task import Person

Permission = Literal["admin", "write", "read", "none"]
WRITERS: frozenset[Permission] = frozenset({"admin", "write"})


class Actor(Noun):
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


class IssueFacts(Noun):
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


class CommentFacts(Noun):
    """A comment on an issue or pull request."""

    id: int
    author: int
    author_name: str
    bot: bool
    body: str
    created_at: datetime
    url: str


class ReviewFacts(Noun):
    """A submitted review."""

    id: int
    author: int
    author_name: str
    state: str
    body: str
    commit: str
    submitted_at: datetime


class ThreadComment(Noun):
    """One comment of an inline thread; `id` is the number that a reply is addressed to."""

    id: int
    author_name: str
    body: str
    created_at: datetime


class ThreadFacts(Noun):
    """An inline review thread with its place; `line` is None where the place is outdated."""

    id: str
    path: str
    line: int | None
    start_line: int | None
    resolved: bool
    outdated: bool
    diff: str
    comments: tuple[ThreadComment, ...]


class ChangedFile(Noun):
    """A file of a pull request; `diff` is empty where the forge shows none (binary, or too large)."""

    path: str
    status: str
    additions: int
    deletions: int
    diff: str


class PullRequestFacts(Noun):
    """A pull request as it stands; `head_repository` is None where the fork is gone."""

    number: int
    url: str
    title: str
    body: str
    open: bool
    merged: bool
    draft: bool
    head_branch: str
    head: str
    head_repository: int | None
    base_branch: str
    base: str
    mergeable: bool | None


class CheckFacts(Noun):
    """A check or commit status that has ended or not; `log` is the end of its output where it failed."""

    name: str
    source: str
    conclusion: str
    """`success`, `failure`, `pending` and so on, as the forge says."""
    summary: str
    url: str
    log: str = ""


class RepositoryFacts(Noun):
    """A repository by number, with its default branch."""

    id: int
    owner: str
    name: str
    default_branch: str
    private: bool
    archived: bool
