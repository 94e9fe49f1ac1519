"""What only GraphQL can say, as documents that a test checks against GitHub's own schema, and their answers' shapes."""

from datetime import datetime

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.forge.github.wire import Wire

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


class Node(Wire):
    """Fields have our names and are read by GitHub's."""

    model_config = ConfigDict(alias_generator=to_camel)


class Rendered(Node):
    body_html: str


class RenderedRepository(Node):
    issue_or_pull_request: Rendered | None


class BodyHtmlAnswer(Node):
    repository: RenderedRepository | None

    @property
    def page(self) -> str:
        """Empty where there is no such issue any more."""
        found = self.repository.issue_or_pull_request if self.repository else None
        return found.body_html if found else ""


class Login(Node):
    login: str


class NumberedNode(Node):
    """What the REST API knows by a number. `databaseId` has 32 bits and is to be removed; it is asked for as long as
    it is there, and counts where the other one is missing."""

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
    author: Login | None
    pull_request_review: NumberedNode | None = None


class ThreadComments(Node):
    nodes: list[ThreadCommentNode]


class ThreadNode(Node):
    id: str
    is_resolved: bool
    is_outdated: bool
    path: str
    line: int | None
    start_line: int | None
    comments: ThreadComments


class PageInfo(Node):
    has_next_page: bool
    end_cursor: str | None


class Threads(Node):
    page_info: PageInfo
    nodes: list[ThreadNode]


class ThreadsPullRequest(Node):
    review_threads: Threads


class ThreadsRepository(Node):
    pull_request: ThreadsPullRequest | None


class ThreadsAnswer(Node):
    repository: ThreadsRepository


class ThreadStateNode(Node):
    is_resolved: bool


class ThreadStateAnswer(Node):
    node: ThreadStateNode | None


class AccountNode(Node):
    typename: str = Field(alias="__typename")
    login: str
    database_id: int | None = None


class Identified(Node):
    id: str


class LinkedNode(Node):
    number: int
    state: str
    repository: Identified
    author: AccountNode | None


class LinkedNodes(Node):
    nodes: list[LinkedNode | None] | None


class LinkedIssue(Node):
    closed_by_pull_requests_references: LinkedNodes | None


class LinkedRepository(Identified):
    issue: LinkedIssue | None


class LinkedAnswer(Node):
    repository: LinkedRepository | None


class CommentEditNode(Node):
    body: str
    last_edited_at: datetime | None
    editor: AccountNode | None


class CommentEditAnswer(Node):
    node: CommentEditNode | None


class Viewer(Node):
    login: str


class ViewerData(Node):
    viewer: Viewer


class ViewerAnswer(Node):
    """The whole answer, errors and all: a token that may not ask is told so with status 200."""

    data: ViewerData | None = None

    @property
    def login(self) -> str:
        return self.data.viewer.login if self.data else ""
