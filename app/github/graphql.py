"""GraphQL documents, which a test checks against GitHub's schema, and models of their answers."""

from datetime import datetime

from pydantic import AliasPath, ConfigDict, Field
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


class NumberedNode(GraphQLNode):
    """Something with an id in the REST API. `databaseId` has 32 bits and will be removed; it is only used if the
    other id is missing."""

    database_id: int | None = None
    full_database_id: int | None = None

    @property
    def number(self) -> int:
        return self.full_database_id or self.database_id or 0


class ThreadCommentNode(NumberedNode):
    body: str
    created_at: datetime
    last_edited_at: datetime | None
    diff_hunk: str
    author: str = Field("ghost", validation_alias=AliasPath("author", "login"))
    pull_request_review: NumberedNode | None = None


class ThreadNode(GraphQLNode):
    id: str
    is_resolved: bool
    is_outdated: bool
    path: str
    line: int | None
    start_line: int | None
    comments: list[ThreadCommentNode] = Field(validation_alias=AliasPath("comments", "nodes"))


_THREADS = ("repository", "pullRequest", "reviewThreads")


class ThreadsAnswer(GraphQLNode):
    """One page; empty and the last if the pull request is gone."""

    threads: list[ThreadNode] = Field([], validation_alias=AliasPath(*_THREADS, "nodes"))
    has_next_page: bool = Field(default=False, validation_alias=AliasPath(*_THREADS, "pageInfo", "hasNextPage"))
    end_cursor: str | None = Field(None, validation_alias=AliasPath(*_THREADS, "pageInfo", "endCursor"))


class ThreadStateAnswer(GraphQLNode):
    is_resolved: bool | None = Field(None, validation_alias=AliasPath("node", "isResolved"))
    """None if the thread is gone."""


class AccountNode(GraphQLNode):
    typename: str = Field(alias="__typename")
    login: str
    database_id: int | None = None


class LinkedNode(GraphQLNode):
    number: int
    state: str
    repository: str = Field(validation_alias=AliasPath("repository", "id"))
    author: AccountNode | None


class LinkedAnswer(GraphQLNode):
    """Empty if the issue is gone."""

    repository: str = Field("", validation_alias=AliasPath("repository", "id"))
    pull_requests: list[LinkedNode | None] | None = Field(
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
