"""Lists every GitHub call that this program makes, with the App permissions that each call needs.

No other module contains a path of GitHub's API. The tokens, the App's manifest and the fake GitHub in tests read this
table; tests compare the templates' `permissions:` blocks and the documentation with it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from app.github.connection import Access, Grant

PUBLISHED: Final = "github/docs, server-to-server-permissions.json, version 2026-03-10"
GRAPHQL_GUIDE: Final = "as its REST counterpart; GitHub publishes no permissions of GraphQL fields"
UNDOCUMENTED: Final = "not in GitHub's documentation; Octokit and `gh` follow the address in redirects"
REFS: Final = (
    "ShipfoxHQ/shipfox#1754: in a private repository 422 `not all refs are readable` without contents; not published"
)
RESOLVING: Final = (
    "github/gh-aw#35726, mergewatch#545, oven-sh/bun#40468: FORBIDDEN without write access to contents; not published"
)
TEAMS: Final = (
    "actions/github-script#572, peter-evans/create-pull-request: an organisation's team is found only with Members; "
    "not published"
)
COMMITS: Final = (
    f"{PUBLISHED}; contents is a guess: we do not know whether private repositories show a commit's checks without it, "
    "and whoever holds this token may read contents anyway"
)
SEARCH: Final = "github/issue-metrics#59: search finds only what the token may read; GitHub documents only metadata"
_REPOSITORY: Final = "/repos/{owner}/{repo}"
_NAME: Final = re.compile(r"\{(\w+)\}")
_SEVERAL_SEGMENTS: Final = frozenset({"path", "ref", "branch"})
"""Values that may contain slashes; GitHub's description marks these parameters `x-multi-segment`."""


class Purpose(StrEnum):
    """What a token is for. It gets the permissions that the calls of one purpose need together."""

    AS_APP = "sign as the App, without a token"
    ACCOUNTS = "look up accounts, Apps and repositories"
    READ = "read issues, pull requests, files and branches"
    READ_CHECKS = "read checks, statuses and logs"
    COMMENT = "write comments, labels and reactions"
    PULL_REQUEST = "open and update pull requests, ask for reviews, answer threads"
    TEAM_REVIEW = "ask teams for reviews"
    RESOLVE = "resolve review threads"
    CHECK_RUN = "write the check run"
    FETCH = "fetch commits"
    PUSH = "push branches"
    READ_RUN = "see whether a workflow run is still running"
    CANCEL_RUN = "cancel a workflow run"
    SEE_SETTINGS = "see a repository's settings"
    SEE_ORGANISATION = "see an organisation's settings"
    SIGN_IN = "see which repositories a person who signs in may open"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, by GitHub's path template. `method` is GIT for requests by git; `text` is a GraphQL document."""

    method: str
    path: str
    purpose: Purpose
    needs: Grant = field(default_factory=dict)
    source: str = PUBLISHED
    """The source for `needs`."""
    text: str = ""
    inside: str = ""
    """The key of the list in an answer that is an object around one."""

    @property
    def title(self) -> str:
        """Its name in tables and messages."""
        return self.text.split("(")[0].split("{")[0].strip() if self.text else f"{self.method} {self.path}"

    @property
    def is_mutation(self) -> bool:
        """True if the GraphQL document is a mutation."""
        return self.text.lstrip().startswith("mutation")

    @property
    def is_below_repository(self) -> bool:
        return self.path.startswith(_REPOSITORY)

    def at(self, *values: str | int) -> str:
        """The path with these values, quoted, in place of its parameters, in order."""
        path = self.path
        for name, value in zip(_NAME.findall(path), values, strict=True):
            path = path.replace(f"{{{name}}}", quote(str(value), safe="/" if name in _SEVERAL_SEGMENTS else ""), 1)
        return path


def grant(purposes: Iterable[Purpose]) -> Grant:
    """The permissions that the calls of these purposes need together."""
    wanted, found = frozenset(purposes), dict[str, Access]()
    for call in CALLS:
        if call.purpose in wanted:
            found.update({name: access for name, access in call.needs.items() if found.get(name) != "write"})
    return found


def _repo(method: str, path: str, purpose: Purpose, source: str = PUBLISHED, inside: str = "", **needs: Access) -> Call:
    return Call(method, _REPOSITORY + path, purpose, needs, source, inside=inside)


def _graphql(text: str, purpose: Purpose, source: str = GRAPHQL_GUIDE, **needs: Access) -> Call:
    return Call("POST", "/graphql", purpose, needs, source, text)


_VIEWER = """
query Viewer {
  viewer { login }
}
"""

_BODY_HTML = """
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

_PLAN_FEATURES = """
query PlanFeatures($owner: String!, $name: String!) {
  repository(owner: $owner, name: $name) {
    planFeatures { draftPullRequests }
  }
}
"""

_BRANCH_PROTECTIONS = """
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

_REVIEW_THREADS = """
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

_THREAD_STATE = """
query ThreadState($id: ID!) {
  node(id: $id) { __typename ... on PullRequestReviewThread { isResolved } }
}
"""

_RESOLVE_THREAD = """
mutation ResolveThread($id: ID!) {
  resolveReviewThread(input: {threadId: $id}) { thread { id isResolved } }
}
"""

_LINKED_PULL_REQUESTS = """
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

_COMMENT_EDIT = """
query CommentEdit($id: ID!) {
  node(id: $id) {
    __typename
    ... on Comment {
      body
      lastEditedAt
      editor { login ... on User { databaseId } ... on Bot { databaseId } }
    }
  }
}
"""

_ACCOUNT: Final[Grant] = {"metadata": "read"}

GET_APP = Call("GET", "/app", Purpose.AS_APP)
GET_INSTALLATION = _repo("GET", "/installation", Purpose.AS_APP)
LIST_INSTALLATIONS = Call("GET", "/app/installations", Purpose.AS_APP)
CREATE_TOKEN = Call("POST", "/app/installations/{installation_id}/access_tokens", Purpose.AS_APP)
REVOKE_TOKEN = Call("DELETE", "/installation/token", Purpose.AS_APP)
GET_HOOK = Call("GET", "/app/hook/config", Purpose.AS_APP)
LIST_DELIVERIES = Call("GET", "/app/hook/deliveries", Purpose.AS_APP)
REDELIVER = Call("POST", "/app/hook/deliveries/{delivery_id}/attempts", Purpose.AS_APP)
CONVERT_MANIFEST = Call("POST", "/app-manifests/{code}/conversions", Purpose.AS_APP)
DELETE_USER_TOKEN = Call("DELETE", "/applications/{client_id}/token", Purpose.AS_APP)

LIST_REPOSITORIES = Call("GET", "/installation/repositories", Purpose.ACCOUNTS, _ACCOUNT, inside="repositories")
GET_REPOSITORY_BY_ID = Call("GET", "/repositories/{id}", Purpose.ACCOUNTS, _ACCOUNT, UNDOCUMENTED)
GET_SELF = Call("GET", "/user", Purpose.ACCOUNTS, _ACCOUNT)
GET_USER_BY_ID = Call("GET", "/user/{account_id}", Purpose.ACCOUNTS, _ACCOUNT)
GET_USER = Call("GET", "/users/{username}", Purpose.ACCOUNTS, _ACCOUNT)
GET_OTHER_APP = Call("GET", "/apps/{app_slug}", Purpose.ACCOUNTS, _ACCOUNT)
VIEWER = _graphql(_VIEWER, Purpose.ACCOUNTS, metadata="read")

GET_REPOSITORY = _repo("GET", "", Purpose.READ, metadata="read")
GET_PERMISSION = _repo("GET", "/collaborators/{username}/permission", Purpose.READ, metadata="read")
GET_CONTENT = _repo("GET", "/contents/{path}", Purpose.READ, contents="read")
GET_REF = _repo("GET", "/git/ref/{ref}", Purpose.READ, contents="read")
LIST_MATCHING_REFS = _repo("GET", "/git/matching-refs/{ref}", Purpose.READ, contents="read")
GET_COMMIT = _repo("GET", "/commits/{ref}", Purpose.READ, contents="read")
GET_BRANCH = _repo("GET", "/branches/{branch}", Purpose.READ, contents="read")
LIST_BRANCH_RULES = _repo("GET", "/rules/branches/{branch}", Purpose.READ, metadata="read")
GET_RULESET = _repo("GET", "/rulesets/{ruleset_id}", Purpose.READ, metadata="read")
GET_LABEL = _repo("GET", "/labels/{name}", Purpose.READ, issues="read")
COMPARE_COMMITS = _repo("GET", "/compare/{basehead}", Purpose.READ, contents="read")
SEARCH_ISSUES = Call("GET", "/search/issues", Purpose.READ, {"issues": "read"}, SEARCH, inside="items")
LIST_ISSUES = _repo("GET", "/issues", Purpose.READ, issues="read")
GET_ISSUE = _repo("GET", "/issues/{issue_number}", Purpose.READ, issues="read")
LIST_ISSUE_EVENTS = _repo("GET", "/issues/{issue_number}/events", Purpose.READ, issues="read")
LIST_TIMELINE = _repo("GET", "/issues/{issue_number}/timeline", Purpose.READ, issues="read")
LIST_ISSUE_LABELS = _repo("GET", "/issues/{issue_number}/labels", Purpose.READ, issues="read")
LIST_ISSUE_COMMENTS = _repo("GET", "/issues/{issue_number}/comments", Purpose.READ, issues="read")
LIST_ALL_COMMENTS = _repo("GET", "/issues/comments", Purpose.READ, issues="read")
GET_COMMENT = _repo("GET", "/issues/comments/{comment_id}", Purpose.READ, issues="read")
LIST_PULLS = _repo("GET", "/pulls", Purpose.READ, pull_requests="read")
GET_PULL = _repo("GET", "/pulls/{pull_number}", Purpose.READ, pull_requests="read")
LIST_PULL_FILES = _repo("GET", "/pulls/{pull_number}/files", Purpose.READ, pull_requests="read")
LIST_PULL_COMMITS = _repo("GET", "/pulls/{pull_number}/commits", Purpose.READ, pull_requests="read")
LIST_REVIEWS = _repo("GET", "/pulls/{pull_number}/reviews", Purpose.READ, pull_requests="read")
GET_REVIEW = _repo("GET", "/pulls/{pull_number}/reviews/{review_id}", Purpose.READ, pull_requests="read")
LIST_REVIEWERS = _repo("GET", "/pulls/{pull_number}/requested_reviewers", Purpose.READ, pull_requests="read")
LIST_PULL_COMMENTS = _repo("GET", "/pulls/{pull_number}/comments", Purpose.READ, pull_requests="read")
LIST_ALL_PULL_COMMENTS = _repo("GET", "/pulls/comments", Purpose.READ, pull_requests="read")
GET_PULL_COMMENT = _repo("GET", "/pulls/comments/{comment_id}", Purpose.READ, pull_requests="read")
PLAN_FEATURES = _graphql(_PLAN_FEATURES, Purpose.READ, metadata="read")
BODY_HTML = _graphql(_BODY_HTML, Purpose.READ, issues="read", pull_requests="read")
COMMENT_EDIT = _graphql(_COMMENT_EDIT, Purpose.READ, issues="read", pull_requests="read")
LINKED_PULL_REQUESTS = _graphql(_LINKED_PULL_REQUESTS, Purpose.READ, issues="read", pull_requests="read")
REVIEW_THREADS = _graphql(_REVIEW_THREADS, Purpose.READ, pull_requests="read")
THREAD_STATE = _graphql(_THREAD_STATE, Purpose.READ, pull_requests="read")

LIST_CHECK_RUNS = _repo(
    "GET", "/commits/{ref}/check-runs", Purpose.READ_CHECKS, COMMITS, "check_runs", checks="read", contents="read"
)
LIST_ANNOTATIONS = _repo(
    "GET",
    "/check-runs/{check_run_id}/annotations",
    Purpose.READ_CHECKS,
    COMMITS,
    checks="read",
    contents="read",
)
GET_COMBINED_STATUS = _repo(
    "GET", "/commits/{ref}/status", Purpose.READ_CHECKS, COMMITS, "statuses", statuses="read", contents="read"
)
LIST_RUNS = _repo("GET", "/actions/runs", Purpose.READ_CHECKS, actions="read")
GET_JOB_LOG = _repo("GET", "/actions/jobs/{job_id}/logs", Purpose.READ_CHECKS, actions="read")

CREATE_ISSUE = _repo("POST", "/issues", Purpose.COMMENT, issues="write")
CREATE_COMMENT = _repo("POST", "/issues/{issue_number}/comments", Purpose.COMMENT, issues="write")
UPDATE_COMMENT = _repo("PATCH", "/issues/comments/{comment_id}", Purpose.COMMENT, issues="write")
ADD_LABELS = _repo("POST", "/issues/{issue_number}/labels", Purpose.COMMENT, issues="write")
REMOVE_LABEL = _repo("DELETE", "/issues/{issue_number}/labels/{name}", Purpose.COMMENT, issues="write")
REACT_TO_ISSUE = _repo("POST", "/issues/{issue_number}/reactions", Purpose.COMMENT, issues="write")
REACT_TO_COMMENT = _repo("POST", "/issues/comments/{comment_id}/reactions", Purpose.COMMENT, issues="write")
REACT_TO_PULL_COMMENT = _repo("POST", "/pulls/comments/{comment_id}/reactions", Purpose.COMMENT, pull_requests="write")

CREATE_PULL = _repo("POST", "/pulls", Purpose.PULL_REQUEST, REFS, pull_requests="write", contents="read")
UPDATE_PULL = _repo("PATCH", "/pulls/{pull_number}", Purpose.PULL_REQUEST, pull_requests="write")
REQUEST_REVIEWERS = _repo(
    "POST", "/pulls/{pull_number}/requested_reviewers", Purpose.PULL_REQUEST, pull_requests="write"
)
REQUEST_TEAM_REVIEW = _repo(
    "POST",
    "/pulls/{pull_number}/requested_reviewers",
    Purpose.TEAM_REVIEW,
    TEAMS,
    pull_requests="write",
    members="read",
)
REPLY_TO_PULL_COMMENT = _repo(
    "POST", "/pulls/{pull_number}/comments/{comment_id}/replies", Purpose.PULL_REQUEST, pull_requests="write"
)
RESOLVE_THREAD = _graphql(_RESOLVE_THREAD, Purpose.RESOLVE, RESOLVING, pull_requests="write", contents="write")

CREATE_CHECK_RUN = _repo("POST", "/check-runs", Purpose.CHECK_RUN, COMMITS, checks="write", contents="read")
UPDATE_CHECK_RUN = _repo(
    "PATCH", "/check-runs/{check_run_id}", Purpose.CHECK_RUN, COMMITS, checks="write", contents="read"
)

GIT_FETCH = Call("GIT", "fetch", Purpose.FETCH, {"contents": "read"})
CREATE_BLOB = _repo("POST", "/git/blobs", Purpose.PUSH, contents="write")
CREATE_TREE = _repo("POST", "/git/trees", Purpose.PUSH, contents="write")
CREATE_COMMIT = _repo("POST", "/git/commits", Purpose.PUSH, contents="write")
GIT_PUSH = Call("GIT", "push", Purpose.PUSH, {"contents": "write"})

GET_RUN = _repo("GET", "/actions/runs/{run_id}", Purpose.READ_RUN, actions="read")
CANCEL_RUN = _repo("POST", "/actions/runs/{run_id}/cancel", Purpose.CANCEL_RUN, actions="write")

GET_WORKFLOW_PERMISSIONS = _repo("GET", "/actions/permissions/workflow", Purpose.SEE_SETTINGS, administration="read")
BRANCH_PROTECTIONS = _graphql(_BRANCH_PROTECTIONS, Purpose.SEE_SETTINGS, administration="read")
GET_ORGANISATION_WORKFLOW_PERMISSIONS = Call(
    "GET",
    "/orgs/{org}/actions/permissions/workflow",
    Purpose.SEE_ORGANISATION,
    {"organization_administration": "read"},
)

LIST_USER_INSTALLATIONS = Call("GET", "/user/installations", Purpose.SIGN_IN, _ACCOUNT, inside="installations")
LIST_USER_REPOSITORIES = Call(
    "GET", "/user/installations/{installation_id}/repositories", Purpose.SIGN_IN, _ACCOUNT, inside="repositories"
)

CALLS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Call))
IN_WORKFLOWS: Final = frozenset(Purpose) - {
    Purpose.TEAM_REVIEW,
    Purpose.AS_APP,
    Purpose.SEE_SETTINGS,
    Purpose.SEE_ORGANISATION,
    Purpose.SIGN_IN,
}
"""What the Action does, by a workflow's token or an App's."""
BY_APP: Final = frozenset(Purpose) - {
    Purpose.TEAM_REVIEW,
    Purpose.READ_RUN,
    Purpose.CANCEL_RUN,
    Purpose.SEE_SETTINGS,
    Purpose.SEE_ORGANISATION,
    Purpose.SIGN_IN,
}
"""What every App does with its own tokens. An owner may add the permission that `TEAM_REVIEW` needs. People who sign in
have their own tokens. Only the Action reads workflow runs, with the
workflow's token, and only `doctor --github` reads settings, with an administrator's."""
