"""GitHub's answers, read tolerantly: the fields we use and no others, so that servers of any age are understood."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Token(Wire):
    token: str = Field(repr=False)


class Account(Wire):
    id: int = 0
    login: str = "ghost"
    type: str = "User"
    name: str | None = None


class Label(Wire):
    name: str


class AppIdentity(Wire):
    id: int = 0
    slug: str


class Numbered(Wire):
    id: int


class Installation(Wire):
    id: int
    suspended_at: datetime | None = None


class Repository(Wire):
    id: int
    name: str
    owner: Account
    default_branch: str
    private: bool
    archived: bool = False


class Repositories(Wire):
    repositories: list[Repository]


class Collaborator(Wire):
    permission: str
    user: Account | None


class Issue(Wire):
    number: int
    title: str
    body: str | None = None
    user: Account | None = None
    state: str
    locked: bool = False
    labels: list[Label | str] = []
    assignees: list[Account] | None = None
    pull_request: dict[str, Any] | None = None
    updated_at: datetime


class Comment(Wire):
    id: int
    node_id: str = ""
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    updated_at: datetime
    html_url: str
    issue_url: str = ""
    in_reply_to_id: int | None = None
    performed_via_github_app: Numbered | None = None


class ReviewComment(Comment):
    path: str = ""
    line: int | None = None
    original_line: int | None = None
    start_line: int | None = None
    side: str | None = None
    diff_hunk: str = ""
    pull_request_url: str = ""
    pull_request_review_id: int | None = None


class IssueEvent(Wire):
    event: str
    actor: Account | None = None
    created_at: datetime
    label: Label | None = None


class Review(Wire):
    id: int
    user: Account | None = None
    state: str
    body: str | None = None
    commit_id: str | None = None
    submitted_at: datetime | None = None


class HeadRepository(Wire):
    id: int


class Side(Wire):
    ref: str
    sha: str
    repo: HeadRepository | None = None


class PullRequest(Wire):
    number: int
    updated_at: datetime | None = None
    html_url: str
    title: str
    body: str | None = None
    user: Account | None = None
    state: str
    draft: bool = False
    merged_at: datetime | None = None
    mergeable: bool | None = None
    head: Side
    base: Side


class Team(Wire):
    slug: str


class RequestedReviewers(Wire):
    users: list[Account] = []
    teams: list[Team] = []


class File(Wire):
    filename: str
    status: str
    additions: int
    deletions: int
    patch: str | None = None


class GitObject(Wire):
    sha: str


class Reference(Wire):
    ref: str
    object: GitObject


class Signature(Wire):
    name: str | None = None
    email: str | None = None


class CommitBody(Wire):
    author: Signature | None = None
    message: str = ""


class Commit(Wire):
    sha: str = ""
    commit: CommitBody


class Comparison(Wire):
    merge_base_commit: GitObject


class CheckOutput(Wire):
    title: str | None = None
    summary: str | None = None
    text: str | None = None


class CheckApp(Wire):
    id: int = 0
    slug: str | None = None


class CheckRun(Wire):
    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    external_id: str | None = None
    output: CheckOutput = CheckOutput()
    app: CheckApp | None = None


class CheckRuns(Wire):
    check_runs: list[CheckRun]


class Annotation(Wire):
    path: str
    start_line: int
    message: str | None = None


class Status(Wire):
    context: str
    state: str
    description: str | None = None
    target_url: str | None = None


class CombinedStatus(Wire):
    statuses: list[Status]


class Delivery(Wire):
    id: int
    guid: str
    delivered_at: datetime
    redelivery: bool
    status_code: int
    event: str
    action: str | None = None
    installation_id: int | None = None
    repository_id: int | None = None


class GraphQLError(Wire):
    message: str = ""
    type: str = ""


class GraphQLAnswer(Wire):
    data: Any = None
    errors: list[GraphQLError] | None = None


class WorkflowRun(Wire):
    id: int
    status: str | None = None


class Searched(Wire):
    """One page of a search's answer."""

    items: list[Issue]
