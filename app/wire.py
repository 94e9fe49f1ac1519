"""The parts of the forge's webhook payloads that we read, and no more: whatever else is there, or is new, is let by."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _encodable(text: str) -> str:
    """A lone surrogate is no text: it could not be stored or sent on."""
    text.encode()
    return text


Id = Annotated[int, Field(gt=0, lt=2**63)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
Text = Annotated[str, AfterValidator(_encodable)]
When = Annotated[datetime, Field(strict=False)]


class Wire(BaseModel):
    """Strict in what it reads (no `true` for 1, no "7" for 7), blind for the rest."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Numbered(Wire):
    id: Id


class User(Wire):
    id: Id
    login: Text
    type: Text = "User"


class Named(Wire):
    name: Text


class Owner(Wire):
    login: Text


class Repository(Wire):
    id: Id
    name: Text
    owner: Owner
    default_branch: Text
    private: bool
    archived: bool = False


class Payload(Wire):
    """What every event of a repository holds."""

    installation: Numbered
    sender: User
    repository: Repository


class InstallationPayload(Wire):
    installation: Numbered
    sender: User
    repositories: tuple[Numbered, ...] | None = Field(default=None, strict=False)
    repositories_added: tuple[Numbered, ...] | None = Field(default=None, strict=False)
    repositories_removed: tuple[Numbered, ...] | None = Field(default=None, strict=False)


class HeadRef(Wire):
    ref: Text
    sha: Sha
    repo: Numbered | None = None


class IssueLink(Wire):
    """The mark of an issue that is a pull request."""


class About(Wire):
    """An issue, or a pull request in either of its shapes."""

    number: Id
    title: Text
    body: Text | None = None
    user: User | None = None
    labels: tuple[Named, ...] = Field(default=(), strict=False)
    pull_request: IssueLink | None = None
    head: HeadRef | None = None
    merged: bool | None = None

    @property
    def is_pull_request(self) -> bool:
        return self.pull_request is not None or self.head is not None


class SubjectPayload(Payload):
    issue: About | None = None
    pull_request: About | None = None

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> Self:
        if (self.issue is None) == (self.pull_request is None):
            raise ValueError("one of issue and pull_request is expected")
        return self

    @property
    def about(self) -> About:
        return self.issue or self.pull_request  # type: ignore[return-value]  # exactly one is there


class LabelPayload(SubjectPayload):
    label: Named


class Saying(Numbered):
    user: User | None = None
    body: Text | None = None
    performed_via_github_app: Numbered | None = None


class Comment(Saying):
    created_at: When


class ReviewComment(Comment):
    path: Text
    diff_hunk: Text = ""
    line: Id | None = None
    original_line: Id | None = None
    start_line: Id | None = None
    side: Text | None = None
    in_reply_to_id: Id | None = None


class Review(Saying):
    state: Text
    submitted_at: When


class CommentPayload(SubjectPayload):
    comment: Comment


class ReviewCommentPayload(SubjectPayload):
    comment: ReviewComment


class ReviewPayload(SubjectPayload):
    review: Review


class PullNumber(Wire):
    number: Id


class Suite(Wire):
    head_branch: Text | None = None


class Outcome(Numbered):
    """How a check ended. A run tells its branch through its suite."""

    name: Text | None = None
    conclusion: Text | None = None
    head_sha: Sha
    head_branch: Text | None = None
    check_suite: Suite | None = None
    pull_requests: tuple[PullNumber, ...] = Field(default=(), strict=False)
    app: Numbered | None = None

    @property
    def branch(self) -> str:
        return self.head_branch or (self.check_suite.head_branch if self.check_suite else None) or ""


class CheckRunPayload(Payload):
    outcome: Outcome = Field(alias="check_run")


class CheckSuitePayload(Payload):
    outcome: Outcome = Field(alias="check_suite")


class WorkflowRunPayload(Payload):
    outcome: Outcome = Field(alias="workflow_run")


ChecksPayload = CheckRunPayload | CheckSuitePayload | WorkflowRunPayload
CHECKS: dict[str, type[CheckRunPayload] | type[CheckSuitePayload] | type[WorkflowRunPayload]] = {
    "check_run": CheckRunPayload,
    "check_suite": CheckSuitePayload,
    "workflow_run": WorkflowRunPayload,
}


class PushPayload(Payload):
    ref: Text
    before: Sha
    after: Sha
