"""What we read of GitHub's JSON, from the REST API and from webhooks: only the fields we use, under our names for them.

Each model is read from GitHub's fields or made from ours. Webhooks are read strictly (no `true` for 1, no "7" for 7).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AliasChoices, AliasPath, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.core.record import Record
from app.core.task import Person

WRITERS: frozenset[str] = frozenset({"admin", "maintain", "write"})


class GitHubModel(Record):
    """One of GitHub's objects, without the fields that we do not use, so that servers of any age work."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True)


def _encodable(text: str) -> str:
    """Refuse lone surrogates, which can neither be stored nor sent."""
    text.encode()
    return text


def listed(key: str) -> BeforeValidator:
    """Reads a list of objects, or null, as a tuple of one of their fields."""

    def values(found: object) -> object:
        if found is None:
            return ()
        if not isinstance(found, list | tuple):
            return found
        return tuple(item.get(key) if isinstance(item, Mapping) else item for item in found)

    return BeforeValidator(values)


Id = Annotated[int, Field(gt=0, lt=2**63)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
Text = Annotated[str, AfterValidator(_encodable)]
TextOrNull = Annotated[Text, BeforeValidator(lambda value: "" if value is None else value)]
"""Text that GitHub may give as null, which becomes the empty text."""
IdOrNull = Annotated[int, BeforeValidator(lambda value: value or 0)]
When = Annotated[
    datetime, BeforeValidator(lambda value: datetime.fromisoformat(value) if isinstance(value, str) else value)
]
"""A time, read from ISO 8601 also in strict mode."""
Names = Annotated[tuple[Text, ...], listed("name")]
IsOpen = Annotated[bool, BeforeValidator(lambda value: value == "open" if isinstance(value, str) else value)]
IsThere = Annotated[bool, BeforeValidator(lambda value: value if isinstance(value, bool) else value is not None)]

_AUTHOR: Final = AliasPath("user", "id")


class Account(GitHubModel):
    """An account; `id` is 0 if it is gone. `kind` is GitHub's word: User, Bot, Organization, Mannequin."""

    id: int = Field(ge=0, lt=2**63)
    login: Text
    kind: Text = Field(default="User", validation_alias="type")
    name: str | None = None
    """The name that a person chose, if GitHub was asked for this account."""

    @property
    def is_person(self) -> bool:
        return self.kind == "User" and not self.login.endswith("[bot]")


GHOST: Final = Account(id=0, login="ghost")


class Rights(GitHubModel):
    """What the account behind a token may do in a repository; not set for an App's token."""

    admin: bool = False
    push: bool = False
    pull: bool = False

    @property
    def permission(self) -> str:
        """In the words of a collaborator's base permission: admin, write, read or none."""
        return "admin" if self.admin else "write" if self.push else "read" if self.pull else "none"


class Repository(GitHubModel):
    """A repository by number, with its default branch."""

    id: Id
    owner: Text = Field(validation_alias=AliasPath("owner", "login"))
    owner_kind: Text = Field(default="User", validation_alias=AliasPath("owner", "type"))
    name: Text
    default_branch: Text
    private: bool
    archived: bool = False
    has_issues: bool = True
    permissions: Rights = Rights()
    """Of the account behind the token that asked."""


class GitHubIssue(GitHubModel):
    """An issue, or the issue side of a pull request. `author` is 0 if the account is gone."""

    number: int
    node: str = Field(default="", validation_alias="node_id")
    title: str
    body: TextOrNull = ""
    author: int = Field(default=0, validation_alias=_AUTHOR)
    open: IsOpen = Field(validation_alias="state")
    locked: bool = False
    labels: Names = ()
    milestone: TextOrNull = Field(default="", validation_alias=AliasPath("milestone", "title"))
    assignees: Annotated[tuple[int, ...], listed("id")] = ()
    pull_request: IsThere = False
    updated_at: datetime


def _last_number(address: object) -> object:
    """The number in an API address such as `…/issues/7`, else 0."""
    if not isinstance(address, str):
        return address
    last = address.rstrip("/").rpartition("/")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


class PostedText(GitHubModel):
    """What somebody wrote. `author` is 0 if the account is gone."""

    id: int
    author: int = Field(default=0, validation_alias=_AUTHOR)
    author_name: str = Field(default="ghost", validation_alias=AliasPath("user", "login"))
    kind: str = Field(default="User", validation_alias=AliasPath("user", "type"))
    """The kind of the author's account."""
    body: TextOrNull = ""


class IssueComment(PostedText):
    """A comment on an issue or pull request."""

    created_at: datetime
    updated_at: datetime | None = None
    url: str = Field(validation_alias="html_url")
    number: Annotated[int, BeforeValidator(_last_number)] = Field(
        default=0, validation_alias=AliasChoices("issue_url", "pull_request_url")
    )
    """The issue or pull request it belongs to; 0 if the caller knows it."""
    app: int | None = Field(default=None, validation_alias=AliasPath("performed_via_github_app", "id"))
    """The App that wrote it, if any."""
    node: str = Field(default="", validation_alias="node_id")

    @property
    def may_be_edited(self) -> bool:
        """GitHub sometimes sets the times a second apart without an edit (palantir/policy-bot#459)."""
        return self.updated_at is not None and self.updated_at > self.created_at


class DiffThread(GitHubModel):
    """The lines of a file that a review comment is about. GitHub names them in each comment of the thread."""

    comment: Id
    """The comment that opened the thread; replies go to it."""
    path: Text
    start: Id | None
    end: Id | None
    hunk: Text

    @model_validator(mode="before")
    @classmethod
    def _of_comment(cls, found: object) -> object:
        if not isinstance(found, Mapping) or "comment" in found:
            return found
        end = found.get("line") or found.get("original_line")
        return {
            "comment": found.get("in_reply_to_id") or found.get("id"),
            "path": found.get("path"),
            "start": found.get("start_line") or end,
            "end": end,
            "hunk": found.get("diff_hunk", ""),
        }


class InlineComment(IssueComment):
    """A comment on lines of a pull request."""

    thread: DiffThread
    review: int | None = Field(default=None, validation_alias="pull_request_review_id")

    @model_validator(mode="before")
    @classmethod
    def _with_thread(cls, found: object) -> object:
        return {"thread": found, **found} if isinstance(found, Mapping) else found


class IssueEvent(GitHubModel):
    """An event of an issue; `event` is GitHub's word (labeled, unlabeled, closed, reopened …)."""

    event: str
    actor: Account
    """Who did it; for an assignment, who assigned."""
    at: datetime = Field(validation_alias="created_at")
    label: str = Field(default="", validation_alias=AliasPath("label", "name"))
    assignee: int = Field(default=0, validation_alias=AliasPath("assignee", "id"))

    @model_validator(mode="before")
    @classmethod
    def _who_did_it(cls, found: object) -> object:
        if not isinstance(found, Mapping):
            return found
        return {**found, "actor": found.get("assigner") or found.get("actor") or GHOST}


class CrossReference(GitHubModel):
    """An entry of an issue's timeline; of those that refer to it, the issue or pull request in which they stand."""

    event: str = ""
    number: int = Field(default=0, validation_alias=AliasPath("source", "issue", "number"))
    open: IsOpen = Field(default=False, validation_alias=AliasPath("source", "issue", "state"))
    pull_request: IsThere = Field(default=False, validation_alias=AliasPath("source", "issue", "pull_request"))
    repository: str = Field(default="", validation_alias=AliasPath("source", "issue", "repository_url"))

    def is_in(self, repository: str) -> bool:
        """True if it is in this repository, OWNER/NAME."""
        return self.repository.casefold().split("/")[-2:] == repository.casefold().split("/")


NOT_SUBMITTED: Final = datetime.max.replace(tzinfo=UTC)


class PullRequestReview(PostedText):
    """A review; `state` is GitHub's word in lower case."""

    node: str = Field(default="", validation_alias="node_id")
    state: Annotated[str, AfterValidator(str.lower)]
    commit: TextOrNull = Field(default="", validation_alias="commit_id")
    submitted_at: Annotated[datetime, BeforeValidator(lambda value: value or NOT_SUBMITTED)] = NOT_SUBMITTED


class ChangedFile(GitHubModel):
    """A file of a pull request; `diff` is empty if GitHub shows none (binary or too large)."""

    path: str = Field(validation_alias="filename")
    status: str
    additions: int
    deletions: int
    diff: TextOrNull = Field(default="", validation_alias="patch")


class PullRequest(GitHubModel):
    """A pull request's current state. `author` is 0 if the account is gone, `head_repository` None if the fork is."""

    number: int
    url: str = Field(validation_alias="html_url")
    title: str
    body: TextOrNull = ""
    author: int = Field(default=0, validation_alias=_AUTHOR)
    open: IsOpen = Field(validation_alias="state")
    merged: IsThere = Field(default=False, validation_alias="merged_at")
    draft: bool = False
    head_branch: str = Field(validation_alias=AliasPath("head", "ref"))
    head: str = Field(validation_alias=AliasPath("head", "sha"))
    head_repository: int | None = Field(default=None, validation_alias=AliasPath("head", "repo", "id"))
    base_branch: str = Field(validation_alias=AliasPath("base", "ref"))
    base: str = Field(validation_alias=AliasPath("base", "sha"))
    mergeable: bool | None = None
    updated_at: datetime | None = None


class PullRequestCommit(GitHubModel):
    """A commit of a pull request; `author` is a name, as in the commit."""

    id: str = Field(validation_alias="sha")
    author: TextOrNull = Field(default="", validation_alias=AliasPath("commit", "author", "name"))
    email: TextOrNull = Field(default="", validation_alias=AliasPath("commit", "author", "email"))
    message: str = Field(default="", validation_alias=AliasPath("commit", "message"))


class ActorPermission(GitHubModel):
    """What GitHub says about a numeric account id in one repository, at the time of the decision.

    `permission` is the forge's base permission: admin, write, read or none. A role of the organisation's own
    making counts as the base it was made from; a word we do not know gives no access.
    """

    id: int = Field(default=0, validation_alias=AliasPath("user", "id"))
    """0 if the account is gone."""
    login: str = Field(default="", validation_alias=AliasPath("user", "login"))
    """The id's current login."""
    kind: str = Field(default="User", validation_alias=AliasPath("user", "type"))
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


class TokenResponse(GitHubModel):
    token: str = Field(repr=False)


class LabelResponse(GitHubModel):
    name: str


class AppResponse(GitHubModel):
    id: int = 0
    slug: str
    html_url: str = ""


class InstallationResponse(GitHubModel):
    id: int
    suspended_at: datetime | None = None
    permissions: dict[str, str] = Field(default_factory=dict)
    events: tuple[str, ...] = ()
    html_url: str = ""

    def grants(self, name: str, access: str) -> bool:
        """Whether people gave the App this access."""
        return self.permissions.get(name) in {access, "write"}


class Branch(GitHubModel):
    protected: bool = False


class BranchRule(GitHubModel):
    """A rule of a ruleset that applies to a branch."""

    type: str
    ruleset_id: int = 0
    parameters: dict[str, Any] | None = None


class Ruleset(GitHubModel):
    name: str = ""
    current_user_can_bypass: str = "never"


class WorkflowPermissions(GitHubModel):
    can_approve_pull_request_reviews: bool


class HookConfig(GitHubModel):
    url: str | None = None


class RequestedReviewersResponse(GitHubModel):
    users: tuple[Account, ...] = ()
    teams: Annotated[tuple[str, ...], listed("slug")] = ()


class DirectoryEntryResponse(GitHubModel):
    type: str
    path: str


class ReferenceResponse(GitHubModel):
    ref: str
    commit: str = Field(validation_alias=AliasPath("object", "sha"))


class CreatedObject(GitHubModel):
    """A blob or tree."""

    id: str = Field(validation_alias="sha")


class CreatedCommit(CreatedObject):
    verified: bool = Field(default=False, validation_alias=AliasPath("verification", "verified"))
    reason: TextOrNull = Field(default="", validation_alias=AliasPath("verification", "reason"))


class ComparisonResponse(GitHubModel):
    merge_base: str = Field(validation_alias=AliasPath("merge_base_commit", "sha"))


class CheckRunResponse(GitHubModel):
    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    external_id: str | None = None
    title: str | None = Field(default=None, validation_alias=AliasPath("output", "title"))
    summary: str | None = Field(default=None, validation_alias=AliasPath("output", "summary"))
    text: str | None = Field(default=None, validation_alias=AliasPath("output", "text"))
    app: int | None = Field(default=None, validation_alias=AliasPath("app", "id"))
    app_slug: TextOrNull = Field(default="", validation_alias=AliasPath("app", "slug"))


class AnnotationResponse(GitHubModel):
    path: str
    start_line: int
    message: str | None = None


class StatusResponse(GitHubModel):
    context: str
    state: str
    description: str | None = None
    target_url: str | None = None


class DeliveryResponse(GitHubModel):
    id: int
    guid: str
    delivered_at: datetime
    redelivery: bool
    status_code: int
    status: str = ""
    event: str
    action: str | None = None
    repository_id: int | None = None


class GraphQLErrorResponse(GitHubModel):
    message: str = ""
    type: str = ""


class GraphQLResponse(GitHubModel):
    data: Any = None
    errors: list[GraphQLErrorResponse] | None = None


class WorkflowRunResponse(GitHubModel):
    id: int
    status: str | None = None


class GraphQLNode(GitHubModel):
    """Reads GitHub's camelCase fields into snake_case ones."""

    model_config = ConfigDict(alias_generator=to_camel)


class BodyHtmlAnswer(GraphQLNode):
    page: str = Field("", validation_alias=AliasPath("repository", "issueOrPullRequest", "bodyHtml"))
    """Empty if the issue is gone."""


class PlanFeaturesAnswer(GraphQLNode):
    draft_pull_requests: bool = Field(validation_alias=AliasPath("repository", "planFeatures", "draftPullRequests"))


class Protection(GraphQLNode):
    """A classic branch protection rule, for all branches that match its pattern."""

    pattern: str
    blocks_creations: bool = False
    lock_branch: bool = False
    requires_approving_reviews: bool = False
    requires_commit_signatures: bool = False
    requires_linear_history: bool = False
    requires_status_checks: bool = False
    restricts_pushes: bool = False


class ProtectionsAnswer(GraphQLNode):
    rules: list[Protection | None] | None = Field(
        validation_alias=AliasPath("repository", "branchProtectionRules", "nodes")
    )


def _rest_id(node: Mapping[str, Any]) -> object:
    """An id in the REST API. `databaseId` has 32 bits and will be removed; it counts only without the other id."""
    return node.get("fullDatabaseId") or node.get("databaseId") or 0


class ReviewThreadComment(GraphQLNode):
    """One comment of an inline thread; `id` is the id to reply to, `review` is that of its review."""

    id: int
    author_name: str = Field("ghost", validation_alias=AliasPath("author", "login"))
    body: str
    created_at: datetime
    last_edited_at: datetime | None = None
    diff_hunk: str = ""
    review: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_rest_ids(cls, found: object) -> object:
        if not isinstance(found, Mapping) or "id" in found:
            return found
        review = found.get("pullRequestReview")
        return {**found, "id": _rest_id(found), "review": _rest_id(review) if isinstance(review, Mapping) else None}


class ReviewThread(GraphQLNode):
    """An inline review thread with its position; `line` is None if the position is outdated."""

    id: str
    root: int = 0
    """The id of its first comment."""
    path: str
    line: int | None
    start_line: int | None
    resolved: bool = Field(validation_alias="isResolved")
    outdated: bool = Field(validation_alias="isOutdated")
    diff: str = ""
    """The lines that its first comment is about."""
    comments: tuple[ReviewThreadComment, ...] = Field(validation_alias=AliasPath("comments", "nodes"))


_THREADS = ("repository", "pullRequest", "reviewThreads")


class ThreadsAnswer(GraphQLNode):
    """One page; empty and the last if the pull request is gone."""

    threads: list[ReviewThread] = Field([], validation_alias=AliasPath(*_THREADS, "nodes"))
    has_next_page: bool = Field(default=False, validation_alias=AliasPath(*_THREADS, "pageInfo", "hasNextPage"))
    end_cursor: str | None = Field(None, validation_alias=AliasPath(*_THREADS, "pageInfo", "endCursor"))


class ThreadStateAnswer(GraphQLNode):
    is_resolved: bool | None = Field(None, validation_alias=AliasPath("node", "isResolved"))
    """None if the thread is gone."""


class LinkedPullRequest(GraphQLNode):
    """A pull request that will close an issue; `author` is 0 if the account is gone."""

    number: int
    state: str
    repository: str = Field(validation_alias=AliasPath("repository", "id"))
    author: IdOrNull = Field(default=0, validation_alias=AliasPath("author", "databaseId"))


class LinkedAnswer(GraphQLNode):
    """Empty if the issue is gone."""

    repository: str = Field("", validation_alias=AliasPath("repository", "id"))
    pull_requests: list[LinkedPullRequest | None] | None = Field(
        None, validation_alias=AliasPath("repository", "issue", "closedByPullRequestsReferences", "nodes")
    )


class CommentEdit(GraphQLNode):
    """A comment's current text and its last editor. `editor_name` is empty if it was never edited."""

    body: str
    editor: IdOrNull = Field(default=0, validation_alias=AliasPath("editor", "databaseId"))
    editor_name: str = Field(default="", validation_alias=AliasPath("editor", "login"))
    edited_at: datetime | None = Field(validation_alias="lastEditedAt")


class CommentEditAnswer(GraphQLNode):
    node: CommentEdit | None
    """None if the comment is gone."""


class ViewerAnswer(GraphQLNode):
    """The whole answer with its errors: a token without permission gets status 200 and no data."""

    login: str = Field("", validation_alias=AliasPath("data", "viewer", "login"))
