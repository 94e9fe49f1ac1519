"""The parts of GitHub's webhook payloads that we read; all other fields are ignored."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, ConfigDict, Field, model_validator


def _encodable(text: str) -> str:
    """Refuse lone surrogates, which can neither be stored nor sent."""
    text.encode()
    return text


Id = Annotated[int, Field(gt=0, lt=2**63)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
Text = Annotated[str, AfterValidator(_encodable)]
When = Annotated[datetime, Field(strict=False)]


class WebhookModel(BaseModel):
    """Strict about the fields it reads (no `true` for 1, no "7" for 7); ignores all others."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class WebhookId(WebhookModel):
    id: Id


class WebhookUser(WebhookModel):
    id: Id
    login: Text
    type: Text = "User"


class WebhookName(WebhookModel):
    name: Text


class WebhookRepository(WebhookModel):
    id: Id
    name: Text
    owner: Text = Field(validation_alias=AliasPath("owner", "login"))
    default_branch: Text
    private: bool
    archived: bool = False


class WebhookPayload(WebhookModel):
    """The fields that every event of a repository has."""

    installation: WebhookId
    sender: WebhookUser
    repository: WebhookRepository


class InstallationPayload(WebhookModel):
    installation: WebhookId
    sender: WebhookUser
    repositories: tuple[WebhookId, ...] | None = Field(default=None, strict=False)
    repositories_added: tuple[WebhookId, ...] | None = Field(default=None, strict=False)
    repositories_removed: tuple[WebhookId, ...] | None = Field(default=None, strict=False)


class WebhookHead(WebhookModel):
    ref: Text
    sha: Sha
    repo: WebhookId | None = None


class WebhookPullRequestLink(WebhookModel):
    """The field that marks an issue as a pull request."""


class WebhookSubject(WebhookModel):
    """An issue, or a pull request in either of its shapes."""

    number: Id
    title: Text
    body: Text | None = None
    user: WebhookUser | None = None
    labels: tuple[WebhookName, ...] = Field(default=(), strict=False)
    pull_request: WebhookPullRequestLink | None = None
    head: WebhookHead | None = None
    merged: bool | None = None

    @property
    def is_pull_request(self) -> bool:
        return self.pull_request is not None or self.head is not None


class SubjectPayload(WebhookPayload):
    issue: WebhookSubject | None = None
    pull_request: WebhookSubject | None = None

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> Self:
        if (self.issue is None) == (self.pull_request is None):
            raise ValueError("expected exactly one of issue and pull_request")
        return self

    @property
    def about(self) -> WebhookSubject:
        return self.issue or self.pull_request  # type: ignore[return-value]  # exactly one is there


class LabelPayload(SubjectPayload):
    label: WebhookName


class AssignmentPayload(SubjectPayload):
    assignee: WebhookUser


class WebhookText(WebhookId):
    user: WebhookUser | None = None
    body: Text | None = None
    performed_via_github_app: WebhookId | None = None


class WebhookComment(WebhookText):
    created_at: When


class WebhookReviewComment(WebhookComment):
    path: Text
    diff_hunk: Text = ""
    line: Id | None = None
    original_line: Id | None = None
    start_line: Id | None = None
    side: Text | None = None
    in_reply_to_id: Id | None = None


class WebhookReview(WebhookText):
    state: Text
    submitted_at: When


class CommentPayload(SubjectPayload):
    comment: WebhookComment


class ReviewCommentPayload(SubjectPayload):
    comment: WebhookReviewComment


class ReviewPayload(SubjectPayload):
    review: WebhookReview


class WebhookPullRequestNumber(WebhookModel):
    number: Id


class WebhookCheckSuite(WebhookModel):
    head_branch: Text | None = None


class WebhookCheckOutcome(WebhookId):
    """The result of a check. A run names its branch in its suite."""

    name: Text | None = None
    conclusion: Text | None = None
    head_sha: Sha
    head_branch: Text | None = None
    check_suite: WebhookCheckSuite | None = None
    pull_requests: tuple[WebhookPullRequestNumber, ...] = Field(default=(), strict=False)
    app: WebhookId | None = None

    @property
    def branch(self) -> str:
        return self.head_branch or (self.check_suite.head_branch if self.check_suite else None) or ""


class ChecksPayload(WebhookPayload):
    outcome: WebhookCheckOutcome = Field(validation_alias=AliasChoices("check_run", "check_suite", "workflow_run"))


class PushPayload(WebhookPayload):
    ref: Text
    before: Sha
    after: Sha
