"""GraphQL documents, which a test checks against GitHub's schema, and models of their answers."""

from datetime import datetime

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.github.api_models import ApiModel

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


class GraphQLNode(ApiModel):
    """Reads GitHub's camelCase fields into snake_case ones."""

    model_config = ConfigDict(alias_generator=to_camel)


class RenderedNode(GraphQLNode):
    body_html: str


class RenderedRepository(GraphQLNode):
    issue_or_pull_request: RenderedNode | None


class BodyHtmlAnswer(GraphQLNode):
    repository: RenderedRepository | None

    @property
    def page(self) -> str:
        """Empty if the issue is gone."""
        found = self.repository.issue_or_pull_request if self.repository else None
        return found.body_html if found else ""


class PlanFeatures(GraphQLNode):
    draft_pull_requests: bool


class PlanFeaturesRepository(GraphQLNode):
    plan_features: PlanFeatures


class PlanFeaturesAnswer(GraphQLNode):
    repository: PlanFeaturesRepository


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


class Protections(GraphQLNode):
    nodes: list[Protection | None] | None


class ProtectionsRepository(GraphQLNode):
    branch_protection_rules: Protections


class ProtectionsAnswer(GraphQLNode):
    repository: ProtectionsRepository


class LoginNode(GraphQLNode):
    login: str


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
    author: LoginNode | None
    pull_request_review: NumberedNode | None = None


class ThreadCommentNodes(GraphQLNode):
    nodes: list[ThreadCommentNode]


class ThreadNode(GraphQLNode):
    id: str
    is_resolved: bool
    is_outdated: bool
    path: str
    line: int | None
    start_line: int | None
    comments: ThreadCommentNodes


class PageInfo(GraphQLNode):
    has_next_page: bool
    end_cursor: str | None


class ThreadNodes(GraphQLNode):
    page_info: PageInfo
    nodes: list[ThreadNode]


class ThreadsPullRequest(GraphQLNode):
    review_threads: ThreadNodes


class ThreadsRepository(GraphQLNode):
    pull_request: ThreadsPullRequest | None


class ThreadsAnswer(GraphQLNode):
    repository: ThreadsRepository


class ThreadStateNode(GraphQLNode):
    is_resolved: bool


class ThreadStateAnswer(GraphQLNode):
    node: ThreadStateNode | None


class AccountNode(GraphQLNode):
    typename: str = Field(alias="__typename")
    login: str
    database_id: int | None = None


class Identified(GraphQLNode):
    id: str


class LinkedNode(GraphQLNode):
    number: int
    state: str
    repository: Identified
    author: AccountNode | None


class LinkedNodes(GraphQLNode):
    nodes: list[LinkedNode | None] | None


class LinkedIssue(GraphQLNode):
    closed_by_pull_requests_references: LinkedNodes | None


class LinkedRepository(Identified):
    issue: LinkedIssue | None


class LinkedAnswer(GraphQLNode):
    repository: LinkedRepository | None


class CommentEditNode(GraphQLNode):
    body: str
    last_edited_at: datetime | None
    editor: AccountNode | None


class CommentEditAnswer(GraphQLNode):
    node: CommentEditNode | None


class ViewerNode(GraphQLNode):
    login: str


class ViewerData(GraphQLNode):
    viewer: ViewerNode


class ViewerAnswer(GraphQLNode):
    """The whole answer with its errors: a token without permission gets status 200."""

    data: ViewerData | None = None

    @property
    def login(self) -> str:
        return self.data.viewer.login if self.data else ""
