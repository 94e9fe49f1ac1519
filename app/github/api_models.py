"""Tolerant models of GitHub's REST answers: only the fields we use, so that servers of any age work."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ApiModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TokenResponse(ApiModel):
    token: str = Field(repr=False)


class AccountResponse(ApiModel):
    id: int = 0
    login: str = "ghost"
    type: str = "User"
    name: str | None = None


class LabelResponse(ApiModel):
    name: str


class AppResponse(ApiModel):
    id: int = 0
    slug: str
    html_url: str = ""


class IdResponse(ApiModel):
    id: int


class InstallationResponse(ApiModel):
    id: int
    suspended_at: datetime | None = None
    permissions: dict[str, str] = {}
    events: list[str] = []
    html_url: str = ""

    def grants(self, name: str, access: str) -> bool:
        """Whether people gave the App this access."""
        return self.permissions.get(name) in {access, "write"}


class Rights(ApiModel):
    """What the account behind a token may do in a repository; not set for an App's token."""

    admin: bool = False
    push: bool = False
    pull: bool = False

    @property
    def permission(self) -> str:
        """In the words of a collaborator's base permission: admin, write, read or none."""
        return "admin" if self.admin else "write" if self.push else "read" if self.pull else "none"


class RepositoryResponse(ApiModel):
    id: int
    name: str
    owner: AccountResponse
    default_branch: str
    private: bool
    archived: bool = False
    has_issues: bool = True
    permissions: Rights = Rights()


class Branch(ApiModel):
    protected: bool = False


class BranchRule(ApiModel):
    """A rule of a ruleset that applies to a branch."""

    type: str
    ruleset_id: int = 0
    parameters: dict[str, Any] | None = None


class Ruleset(ApiModel):
    name: str = ""
    current_user_can_bypass: str = "never"


class WorkflowPermissions(ApiModel):
    can_approve_pull_request_reviews: bool


class HookConfig(ApiModel):
    url: str | None = None


class RepositoriesResponse(ApiModel):
    repositories: list[RepositoryResponse]


class CollaboratorResponse(ApiModel):
    permission: str
    user: AccountResponse | None


class IssueResponse(ApiModel):
    number: int
    title: str
    body: str | None = None
    user: AccountResponse | None = None
    state: str
    locked: bool = False
    labels: list[LabelResponse | str] = []
    assignees: list[AccountResponse] | None = None
    pull_request: dict[str, Any] | None = None
    updated_at: datetime


class CommentResponse(ApiModel):
    id: int
    node_id: str = ""
    body: str | None = None
    user: AccountResponse | None = None
    created_at: datetime
    updated_at: datetime
    html_url: str
    issue_url: str = ""
    in_reply_to_id: int | None = None
    performed_via_github_app: IdResponse | None = None


class ReviewCommentResponse(CommentResponse):
    path: str = ""
    line: int | None = None
    original_line: int | None = None
    start_line: int | None = None
    side: str | None = None
    diff_hunk: str = ""
    pull_request_url: str = ""
    pull_request_review_id: int | None = None


class IssueEventResponse(ApiModel):
    event: str
    actor: AccountResponse | None = None
    created_at: datetime
    label: LabelResponse | None = None
    assignee: AccountResponse | None = None
    assigner: AccountResponse | None = None


class ReviewResponse(ApiModel):
    id: int
    user: AccountResponse | None = None
    state: str
    body: str | None = None
    commit_id: str | None = None
    submitted_at: datetime | None = None


class BranchResponse(ApiModel):
    ref: str
    sha: str
    repo: IdResponse | None = None


class PullRequestResponse(ApiModel):
    number: int
    updated_at: datetime | None = None
    html_url: str
    title: str
    body: str | None = None
    user: AccountResponse | None = None
    state: str
    draft: bool = False
    merged_at: datetime | None = None
    mergeable: bool | None = None
    head: BranchResponse
    base: BranchResponse


class TeamResponse(ApiModel):
    slug: str


class RequestedReviewersResponse(ApiModel):
    users: list[AccountResponse] = []
    teams: list[TeamResponse] = []


class FileResponse(ApiModel):
    filename: str
    status: str
    additions: int
    deletions: int
    patch: str | None = None


class GitObjectResponse(ApiModel):
    sha: str


class DirectoryEntryResponse(ApiModel):
    type: str
    path: str


class ReferenceResponse(ApiModel):
    ref: str
    object: GitObjectResponse


class SignatureResponse(ApiModel):
    name: str | None = None
    email: str | None = None


class CommitBodyResponse(ApiModel):
    author: SignatureResponse | None = None
    message: str = ""


class CommitResponse(ApiModel):
    sha: str = ""
    commit: CommitBodyResponse


class ComparisonResponse(ApiModel):
    merge_base_commit: GitObjectResponse


class CheckOutputResponse(ApiModel):
    title: str | None = None
    summary: str | None = None
    text: str | None = None


class CheckAppResponse(ApiModel):
    id: int = 0
    slug: str | None = None


class CheckRunResponse(ApiModel):
    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    external_id: str | None = None
    output: CheckOutputResponse = CheckOutputResponse()
    app: CheckAppResponse | None = None


class CheckRunsResponse(ApiModel):
    check_runs: list[CheckRunResponse]


class AnnotationResponse(ApiModel):
    path: str
    start_line: int
    message: str | None = None


class StatusResponse(ApiModel):
    context: str
    state: str
    description: str | None = None
    target_url: str | None = None


class CombinedStatusResponse(ApiModel):
    statuses: list[StatusResponse]


class DeliveryResponse(ApiModel):
    id: int
    guid: str
    delivered_at: datetime
    redelivery: bool
    status_code: int
    status: str = ""
    event: str
    action: str | None = None
    installation_id: int | None = None
    repository_id: int | None = None


class GraphQLErrorResponse(ApiModel):
    message: str = ""
    type: str = ""


class GraphQLResponse(ApiModel):
    data: Any = None
    errors: list[GraphQLErrorResponse] | None = None


class WorkflowRunResponse(ApiModel):
    id: int
    status: str | None = None


class SearchResponse(ApiModel):
    """One page of a search's answer."""

    items: list[IssueResponse]
