"""The fake's state: accounts, repositories and everything in them, which tests change without a webhook."""

import itertools
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.github.auth import PERMISSIONS
from tests.support.repositories import commit_files, git, make_repository

SKIPS = re.compile(r"\[(?:skip ci|ci skip|no ci|skip actions|actions skip)\]|^skip-checks: *true$", re.MULTILINE)
WORKFLOWS_ARE_ELSEWHERE = """
workflows_are_elsewhere() {  # COMMIT REF
    git ls-tree -r "$1" -- .github/workflows/ | while read -r mode type blob path; do
        for other in $(git for-each-ref --format="%(refname)" refs/heads/); do
            [ "$other" = "$2" ] && continue
            [ "$(git rev-parse -q --verify "$other:$path")" = "$blob" ] && continue 2
        done
        echo "refusing to allow a GitHub App to create or update workflow" \\
            "\\`$path\\` without \\`workflows\\` permission" >&2
        exit 1
    done
}
"""
"""The docs' sentence (github/docs, scopes-for-oauth-apps.md, `workflow`), by the word: "Workflow files can be committed
without this scope if the same file (with both the same path and contents) exists on another branch in the same
repository." So a branch that is behind a changed workflow is refused too, also where the push does not touch any:
vtmocanu/uzi#456, Molecule-AI/molecule-core#970, wildfly/wildfly.org#549, kaeawc/android-build#428."""
PRE_RECEIVE = f"""#!/bin/sh
{WORKFLOWS_ARE_ELSEWHERE}
while read old new ref; do
    echo "$old $new $ref" >> pushes
    case "$MAY_CHANGE_WORKFLOWS$new" in yes*) ;; *[!0]*) workflows_are_elsewhere "$new" "$ref" || exit 1 ;; esac
    if grep -qxF "$ref" protected 2>/dev/null; then
        echo "error: GH006: Protected branch update failed for $ref." >&2
        exit 1
    fi
    unsigned=
    if [ -e signed ] && [ "$new" != {"0" * 40} ]; then
        for commit in $(git rev-list "$new" --not --all); do git verify-commit "$commit" || unsigned=yes; done
    fi
    if [ -n "$unsigned" ]; then  # vercel/sandbox#169, gh-aw#29301: these very words
        echo "error: GH013: Repository rule violations found for $ref." >&2
        echo "- Commits must have verified signatures." >&2
        echo "  Found 1 violation:" >&2
        exit 1
    fi
done
"""


def ssh_key(place: Path) -> str:
    """A new SSH key without a passphrase at this place; returns its public part."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(place)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return place.with_name(f"{place.name}.pub").read_text().strip()


@dataclass
class User:
    id: int
    login: str
    type: str = "User"
    name: str | None = None


@dataclass
class Comment:
    """On an issue, or inline where `path` is given."""

    id: int
    user: User
    body: str
    created_at: datetime
    updated_at: datetime
    path: str = ""
    in_reply_to: int | None = None
    line: int | None = None
    review: int | None = None
    app: int | None = None
    """The App through which it was written."""
    editor: User | None = None


@dataclass
class Thread:
    id: str
    number: int
    path: str
    line: int | None
    comments: list[int]
    resolved: bool = False


@dataclass
class Review:
    id: int
    user: User
    body: str
    state: str
    submitted_at: datetime
    edited_at: datetime | None = None


@dataclass
class Pull:
    head: str
    base: str
    draft: bool
    merged_at: datetime | None = None
    mergeable: bool | None = None
    fork: int = 0
    """The number of the repository that the head is in, where it is another one."""


@dataclass
class WorldEvent:
    """An entry of an issue's events."""

    event: str
    user: User
    at: datetime
    label: str = ""
    assignee: User | None = None
    rename: tuple[str, str] | None = None


@dataclass
class Issue:
    number: int
    title: str
    body: str
    user: User
    updated_at: datetime
    state: str = "open"
    locked: bool = False
    labels: list[str] = field(default_factory=list)
    comments: list[int] = field(default_factory=list)
    pull: Pull | None = None
    reviews: list[Review] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Of a pull request: who is asked for a review, people by login and teams as `org/team`."""
    assignees: list[User] = field(default_factory=list)
    events: list[WorldEvent] = field(default_factory=list)
    closes: int | None = None
    """Of a pull request: the issue that it is linked to."""
    closed_elsewhere: "list[tuple[Repo, Issue]]" = field(default_factory=list)
    """Of an issue: pull requests of other repositories that will close it."""
    edited_at: datetime | None = None
    """When its description was edited last; a new title is an event of its own."""
    editor: User | None = None
    tells_of_hidden: bool = False
    """Whether those that the token may not see are an error beside the answer."""


@dataclass
class Check:
    id: int
    name: str
    head_sha: str
    app: str
    app_id: int
    status: str = "completed"
    conclusion: str | None = None
    external_id: str = ""
    title: str | None = None
    summary: str | None = None
    log: str = ""
    annotations: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Repo:
    """A repository with its bare git side at `path`. `rename` changes `name`; the number stays."""

    id: int
    owner: User
    name: str
    path: Path
    collaborators: dict[int, str] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    comments: dict[int, Comment] = field(default_factory=dict)
    threads: list[Thread] = field(default_factory=list)
    reactions: list[tuple[str, int, int, str]] = field(default_factory=list)
    """(`issues` | `issue comments` | `pull comments`, number, user, content)."""
    checks: list[Check] = field(default_factory=list)
    statuses: list[tuple[str, str, str]] = field(default_factory=list)
    private: bool = False
    archived: bool = False
    old_names: set[str] = field(default_factory=set)
    """Of the owner and the repository, from before it was renamed or transferred."""
    drafts: bool = True
    has_rules: bool = True
    """Whether the plan knows rulesets and protected branches; for public repositories every one does."""
    has_issues: bool = True
    labels: set[str] = field(default_factory=set)
    guarded: bool = False
    """Whether a branch protection rule covers `main`."""
    rules: list[dict[str, Any]] = field(default_factory=list)
    """Of rulesets, as GitHub tells them, each with a regular expression of the `branches` that it is for."""
    bypasses: dict[int, str] = field(default_factory=dict)
    """Rulesets that do not bind who asks, and how they may be bypassed."""
    protections: list[dict[str, Any]] = field(default_factory=list)
    signs: bool = True
    """Whether commits made by the API are signed: not on Enterprise Server."""
    actions_open_pulls: bool = False
    """A new repository's default: its workflows may not open pull requests with their own token."""

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def rename(self, name: str) -> None:
        self.old_names.add(self.full_name)
        self.name = name

    @property
    def branches(self) -> dict[str, str]:
        lines = git(self.path, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/").splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

    @property
    def pushes(self) -> list[str]:
        """Every `old new ref` that was tried, also those that were refused."""
        record = self.path / "pushes"
        return record.read_text().splitlines() if record.exists() else []

    @property
    def started(self) -> list[str]:
        """Of these, those that started workflows: no commit at their head says not to (docs, "Skipping workflow runs").
        Workflows of this repository's own branches have its secrets (docs, "Events": those of a fork have none)."""
        pushed = [line.split()[1] for line in self.pushes if not line.split()[1].startswith("0" * 40)]
        return [commit for commit in pushed if not SKIPS.search(git(self.path, "show", "-s", "--format=%B", commit))]

    def protect(self, branch: str) -> None:
        (self.path / "protected").write_text(f"refs/heads/{branch}\n")

    def demand_signatures(self) -> None:
        """A ruleset for all branches; git itself checks the signatures, by the keys that are trusted here."""
        (self.path / "signed").touch()

    def trust(self, public_key: str) -> None:
        """Accept what this SSH key signs, as GitHub does for its own key and those of accounts."""
        signers = self.path / "signers"
        with signers.open("a") as file:
            file.write(f"* {public_key}\n")
        git(self.path, "config", "gpg.ssh.allowedSignersFile", str(signers))

    @property
    def web_flow_key(self) -> Path:
        """The key that signs what is made by the API."""
        key = self.path / "web-flow"
        if not key.exists():
            self.trust(ssh_key(key))
        return key

    @property
    def pulls(self) -> list[Issue]:
        return [issue for issue in self.issues.values() if issue.pull is not None]


@dataclass
class Installation:
    id: int
    repositories: set[int]
    permissions: dict[str, str] = field(default_factory=lambda: dict(PERMISSIONS))
    events: list[str] = field(default_factory=list)
    suspended: bool = False


@dataclass
class Token:
    """A token that was handed out, and what it opens."""

    installation: int
    repositories: frozenset[int]
    permissions: Mapping[str, str]
    expires_at: datetime
    revoked: bool = False
    user: User | None = None
    """Whose it is where it is a person's; an App's and a workflow's are nobody's."""
    scopes: str | None = None
    """Of a classic token."""


@dataclass
class Code:
    """A code of the sign-in that was not exchanged yet, and what it was asked for with."""

    user: User
    redirect: str
    challenge: str
    expires_at: datetime


@dataclass
class SignIn:
    """How people sign in to the App: its client, and who they are in their browser."""

    client: str = "Iv23liExampleClient1"
    secret: str = "0123456789abcdef0123456789abcdef01234567"
    callbacks: set[str] = field(default_factory=set)
    """The App's callback URLs."""
    person: "User | None" = None
    """Whose session the browser has on GitHub; None where it has none."""
    codes: dict[str, Code] = field(default_factory=dict)


@dataclass
class Delivery:
    id: int
    guid: str
    event: str
    action: str | None
    payload: dict[str, Any]
    delivered_at: datetime
    status: int
    redelivery: bool = False
    words: str = ""
    """How GitHub puts the status, where it is not OK."""


class World:
    """All of it, with a clock that begins now and moves when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.users: dict[int, User] = {}
        self.repos: dict[int, Repo] = {}
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.deliveries: list[Delivery] = []
        self.long_tokens = False
        self.webhooks = True
        """Whether the App has a webhook. What GitHub answers about deliveries of one without is documented nowhere."""
        self.logs = "https://logs.example/logs"
        """Where the logs of workflow jobs lie."""
        self.attachments: dict[str, bytes] = {}
        """Images that people attached, by their UUID."""
        self.noreply = "users.noreply.github.example"
        """Where the addresses of accounts end, which GitHub writes into commits."""
        self.apps: dict[str, int] = {}
        """Other Apps, by slug."""
        self.hook = "https://agent-fix.example/webhook"
        """Where the App's webhooks go; empty where it has none."""
        self.hook_answers: tuple[int, str] | None = None
        """What a delivery that is asked for again comes to; None while it is not sent."""
        self.organisations_open_pulls: set[str] = set()
        """Organisations whose repositories may let workflows open pull requests."""
        self.sign_in = SignIn()
        self._numbers = itertools.count(1_001)
        self.bot = self.add_user("agent-fix-test[bot]", kind="Bot")
        self.actions = self.add_user("github-actions[bot]", kind="Bot")

    def tick(self, seconds: float = 1.0) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def number(self) -> int:
        return next(self._numbers)

    def large_number(self) -> int:
        """Beyond 32 bits, as those of reviews and of their comments are by now."""
        return 2**32 + next(self._numbers)

    def add_user(self, login: str, *, kind: str = "User", name: str | None = None) -> User:
        user = User(self.number(), login, kind, name)
        self.users[user.id] = user
        return user

    def add_repo(self, owner: User, name: str, files: Mapping[str, str | bytes]) -> Repo:
        """A repository with one commit of these files on `main`."""
        work = make_repository(self.directory / f"{name}.work", files)
        bare = self.directory / f"{name}.git"
        git(self.directory, "clone", "-q", "--bare", "--template=", str(work), str(bare))
        git(bare, "config", "http.receivepack", "true")
        git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(bare, "config", "uploadpack.allowFilter", "true")
        (bare / "hooks").mkdir(exist_ok=True)
        hook = bare / "hooks" / "pre-receive"
        hook.write_text(PRE_RECEIVE)
        hook.chmod(0o755)
        repo = Repo(self.number(), owner, name, bare, {owner.id: "admin"})
        self.repos[repo.id] = repo
        return repo

    def named(self, full_name: str) -> Repo | None:
        """The repository of this name, else one that had it."""
        found = [repo for repo in self.repos.values() if full_name in {repo.full_name, *repo.old_names}]
        return max(found, key=lambda repo: repo.full_name == full_name, default=None)

    def push_as_human(self, repo: Repo, branch: str, files: Mapping[str, str | bytes], message: str = "mine") -> str:
        """A person's commit on a branch, new or not."""
        work = self.directory / f"{repo.name}.work"
        git(work, "fetch", "-q", str(repo.path), "+refs/heads/*:refs/remotes/bare/*")
        start = f"refs/remotes/bare/{branch}" if branch in repo.branches else "refs/remotes/bare/main"
        git(work, "checkout", "-q", "--detach", start)
        commit = commit_files(work, files, message)
        git(work, "push", "-q", "--no-verify", "--receive-pack=git -c core.hooksPath=/dev/null receive-pack",
            str(repo.path), f"{commit}:refs/heads/{branch}")  # fmt: skip
        return commit

    def install(self, *repos: Repo) -> Installation:
        installation = Installation(self.number(), {repo.id for repo in repos})
        self.installations[installation.id] = installation
        return installation

    def open_issue(self, repo: Repo, user: User, title: str, body: str = "", *, pull: Pull | None = None) -> Issue:
        issue = Issue(len(repo.issues) + 1, title, body, user, self.now, pull=pull)
        repo.issues[issue.number] = issue
        return issue

    def label(self, issue: Issue, user: User, label: str, *, off: bool = False) -> None:
        """Put a label on or take it off, as the issue's events tell."""
        if off:
            issue.labels.remove(label)
        else:
            issue.labels.append(label)
        issue.updated_at = self.now
        issue.events.append(WorldEvent("unlabeled" if off else "labeled", user, self.now, label))

    def assign(self, issue: Issue, user: User, assignee: User) -> None:
        issue.assignees.append(assignee)
        issue.updated_at = self.now
        issue.events.append(WorldEvent("assigned", user, self.now, assignee=assignee))

    def turn(self, issue: Issue, user: User, state: str) -> None:
        """Close or reopen it."""
        issue.state = state
        issue.updated_at = self.now
        issue.events.append(WorldEvent("closed" if state == "closed" else "reopened", user, self.now))

    def review(self, issue: Issue, user: User, body: str, state: str = "CHANGES_REQUESTED") -> Review:
        review = Review(self.large_number(), user, body, state, self.now)
        issue.reviews.append(review)
        issue.updated_at = self.now
        return review

    def comment(self, repo: Repo, issue: Issue, user: User, body: str) -> Comment:
        now = self.now
        comment = Comment(self.number(), user, body, now, now)
        issue.updated_at = now
        repo.comments[comment.id] = comment
        issue.comments.append(comment.id)
        return comment

    def edit(self, thing: Issue | Comment, body: str, by: User | None = None) -> None:
        thing.body = body
        thing.updated_at = self.now
        thing.editor = by or thing.user
        if isinstance(thing, Issue):
            thing.edited_at = self.now

    def edit_review(self, review: Review, body: str) -> None:
        review.body, review.edited_at = body, self.now

    def retitle(self, issue: Issue, title: str, by: User | None = None) -> None:
        """A new title; as GitHub tells it, `lastEditedAt` stays as it was."""
        issue.events.append(WorldEvent("renamed", by or issue.user, self.now, rename=(issue.title, title)))
        issue.title, issue.updated_at = title, self.now

    def start_thread(self, repo: Repo, issue: Issue, user: User, *, path: str, line: int, body: str) -> Thread:
        now = self.now
        comment = Comment(self.large_number(), user, body, now, now, path=path, line=line)
        issue.updated_at = now
        repo.comments[comment.id] = comment
        thread = Thread(f"PRRT_{comment.id}", issue.number, path, line, [comment.id])
        repo.threads.append(thread)
        return thread

    def add_check(self, repo: Repo, sha: str, name: str, conclusion: str, *, app: str = "", log: str = "") -> Check:
        check = Check(self.number(), name, sha, app or "github-actions", 15_368, conclusion=conclusion, log=log)
        repo.checks.append(check)
        return check
