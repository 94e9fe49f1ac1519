"""GraphQL documents, which a test checks against GitHub's schema, and models of their answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.github.models import GitHubModel

VIEWER = """
query Viewer {
  viewer { login }
}
"""

BODY_HTML = """
query BodyHtml($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issueOrPullRequest(number: $number) {
      __typename
      ... on Issue { bodyHtml: bodyHTML }
      ... on PullRequest { bodyHtml: bodyHTML }
    }
  }
}
"""

PLAN_FEATURES = """
query PlanFeatures($owner: String!, $name: String!) {
  repository(owner: $owner, name: $name) {
    planFeatures { draftPullRequests }
  }
}
"""

BRANCH_PROTECTIONS = """
query BranchProtections($owner: String!, $name: String!) {
  repository(owner: $owner, name: $name) {
    branchProtectionRules(first: 100) {
      nodes {
        pattern
        blocksCreations
        lockBranch
        requiresApprovingReviews
        requiresCommitSignatures
        requiresLinearHistory
        requiresStatusChecks
        restrictsPushes
      }
    }
  }
}
"""

REVIEW_THREADS = """
query ReviewThreads($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 50, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          id
          isResolved
          isOutdated
          path
          line
          startLine
          comments(first: 50) {
            nodes {
              databaseId
              fullDatabaseId
              body
              createdAt
              lastEditedAt
              diffHunk
              author { login }
              pullRequestReview { databaseId fullDatabaseId }
            }
          }
        }
      }
    }
  }
}
"""

THREAD_STATE = """
query ThreadState($id: ID!) {
  node(id: $id) { __typename ... on PullRequestReviewThread { isResolved } }
}
"""

RESOLVE_THREAD = """
mutation ResolveThread($id: ID!) {
  resolveReviewThread(input: {threadId: $id}) { thread { id isResolved } }
}
"""

LINKED_PULL_REQUESTS = """
query LinkedPullRequests($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    id
    issue(number: $number) {
      closedByPullRequestsReferences(first: 20, includeClosedPrs: false) {
        nodes {
          number
          state
          repository { id }
          author { __typename login ... on User { databaseId } ... on Bot { databaseId } }
        }
      }
    }
  }
}
"""

COMMENT_EDIT = """
query CommentEdit($id: ID!) {
  node(id: $id) {
    __typename
    ... on IssueComment {
      body
      lastEditedAt
      editor { __typename login ... on User { databaseId } ... on Bot { databaseId } }
    }
  }
}
"""


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


class AccountNode(GraphQLNode):
    typename: str = Field(alias="__typename")
    login: str
    database_id: int | None = None


class LinkedPullRequest(GraphQLNode):
    """A pull request that will close an issue; `author` is 0 if the account is gone."""

    number: int
    state: str
    repository: str = Field(validation_alias=AliasPath("repository", "id"))
    author: Annotated[int, BeforeValidator(lambda value: value or 0)] = Field(
        default=0, validation_alias=AliasPath("author", "databaseId")
    )


class LinkedAnswer(GraphQLNode):
    """Empty if the issue is gone."""

    repository: str = Field("", validation_alias=AliasPath("repository", "id"))
    pull_requests: list[LinkedPullRequest | None] | None = Field(
        None, validation_alias=AliasPath("repository", "issue", "closedByPullRequestsReferences", "nodes")
    )


class CommentEditNode(GraphQLNode):
    body: str
    last_edited_at: datetime | None
    editor: AccountNode | None


class CommentEditAnswer(GraphQLNode):
    node: CommentEditNode | None


class ViewerAnswer(GraphQLNode):
    """The whole answer with its errors: a token without permission gets status 200 and no data."""

    login: str = Field("", validation_alias=AliasPath("data", "viewer", "login"))
