"""What the front remembers, because emulate has no place for it."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.repositories import git

ACTIONS = {"id": 15_368, "slug": "github-actions", "name": "GitHub Actions"}
"""The App that workflows run as."""


def now() -> datetime:
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Token:
    """Who holds it and what it opens; a person's has no permissions of its own, and opens what the person may see."""

    text: str
    login: str
    permissions: Mapping[str, str] | None = None
    repositories: frozenset[int] | None = None
    """None: all of the installation, or all that the person may see."""
    expires_at: datetime | None = None
    revoked: bool = False

    @property
    def live(self) -> bool:
        return not self.revoked and (self.expires_at is None or now() < self.expires_at)

    def allows(self, permission: str, access: str) -> bool:
        return self.permissions is None or self.permissions.get(permission) in {access, "write"}

    def opens(self, repository: int) -> bool:
        return self.repositories is None or repository in self.repositories


@dataclass
class Reaction:
    id: int
    subject: str
    """`issues/1`, `issues/comments/2` or `pulls/comments/3`."""
    login: str
    content: str
    at: datetime = field(default_factory=now)


@dataclass
class Pull:
    """The head of a pull request is where its branch is, for as long as it is open."""

    number: int
    branch: str
    base: str
    base_sha: str
    head: str
    open: bool = True
    merged: dict[str, Any] | None = None


@dataclass
class Inline:
    """What an inline comment has besides what emulate keeps."""

    start_line: int | None = None
    review: int | None = None


@dataclass
class Check:
    """Which App made a check run, and what its job wrote."""

    app: dict[str, Any]
    log: str = ""


@dataclass
class Event:
    """Something that happened to a pull request: labeled, unlabeled, closed, reopened."""

    id: int
    event: str
    login: str
    label: str = ""
    at: datetime = field(default_factory=now)


@dataclass
class Repo:
    """One repository, with its bare git side at `path`."""

    id: int
    owner: str
    name: str
    path: Path
    commits: set[str] = field(default_factory=set)
    blobs: set[str] = field(default_factory=set)
    """Git objects that emulate has."""
    pulls: dict[int, Pull] = field(default_factory=dict)
    inline: dict[int, Inline] = field(default_factory=dict)
    edited: dict[str, tuple[datetime, str]] = field(default_factory=dict)
    """When and by whom, by the path of a comment."""
    touched: dict[int, datetime] = field(default_factory=dict)
    """When anything last changed on an issue or a pull request."""
    events: dict[int, list[Event]] = field(default_factory=dict)
    """Of pull requests; those of issues are emulate's."""
    resolved: set[int] = field(default_factory=set)
    """The first comments of threads."""
    reactions: list[Reaction] = field(default_factory=list)
    checks: dict[int, Check] = field(default_factory=dict)
    drafts: bool = True
    """Whether its owner's plan has them."""
    actions_may_open: bool = True
    """Whether a workflow's token may open pull requests; off in new repositories."""
    statuses: list[dict[str, Any]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def api(self) -> str:
        return f"/repos/{self.full_name}"

    def branches(self) -> dict[str, str]:
        listed = git(self.path, "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/")
        return {name: commit for commit, _, name in (line.partition(" ") for line in listed.splitlines())}

    def open_pulls_of(self, branch: str) -> list[Pull]:
        return [pull for pull in self.pulls.values() if pull.open and pull.branch == branch]


@dataclass(frozen=True)
class Call:
    """One request that was answered, and by which token it was made."""

    method: str
    path: str
    status: int
    token: Token | None


class Memory:
    """All of it. `changed` is notified after every change and every delivery."""

    def __init__(self, app: dict[str, Any], tokens: Iterable[Token]) -> None:
        self.app = app
        """The App as checks and comments name it: id, slug, name."""
        self.tokens = {token.text: token for token in tokens}
        self.repos: dict[str, Repo] = {}
        self.calls: list[Call] = []
        self.changed = threading.Condition()
        self.happenings = 0
        self._numbers = 0

    @property
    def bot(self) -> str:
        return f"{self.app['slug']}[bot]"

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def happened(self) -> None:
        with self.changed:
            self.happenings += 1
            self.changed.notify_all()
