"""The GraphQL side: a part of GitHub's schema with the same names and types, executed for real over the world."""

import re
from collections.abc import Callable
from typing import Any

from graphql import GraphQLError, build_schema, graphql_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.github.calls import BRANCH_PROTECTIONS
from tests.support.github.authentication import AccessDenied
from tests.support.github.rights import allows, call_of
from tests.support.github.server import FakeGitHub
from tests.support.github.views import when
from tests.support.github.world import Issue, Repo, Thread, Token, User

SCHEMA = build_schema("""
scalar BigInt
scalar DateTime
scalar HTML
interface Node { id: ID! }
type Query { viewer: User!  repository(owner: String!, name: String!): Repository  node(id: ID!): Node }
type Mutation { resolveReviewThread(input: ResolveReviewThreadInput!): ResolveReviewThreadPayload }
input ResolveReviewThreadInput { threadId: ID! clientMutationId: String }
type ResolveReviewThreadPayload { thread: PullRequestReviewThread }
type Repository {
  id: ID!
  planFeatures: RepositoryPlanFeatures!
  branchProtectionRules(first: Int): BranchProtectionRuleConnection!
  issueOrPullRequest(number: Int!): IssueOrPullRequest
  pullRequest(number: Int!): PullRequest
  issue(number: Int!): Issue
}
type RepositoryPlanFeatures { draftPullRequests: Boolean! }
type BranchProtectionRuleConnection { nodes: [BranchProtectionRule] }
type BranchProtectionRule {
  pattern: String! blocksCreations: Boolean! lockBranch: Boolean! requiresApprovingReviews: Boolean!
  requiresCommitSignatures: Boolean! requiresLinearHistory: Boolean! requiresStatusChecks: Boolean!
  restrictsPushes: Boolean!
}
union IssueOrPullRequest = Issue | PullRequest
enum PullRequestState { OPEN CLOSED MERGED }
type PullRequestConnection { nodes: [PullRequest] }
type Issue implements Node & Comment {
  id: ID! body: String! lastEditedAt: DateTime editor: Actor
  bodyHTML: HTML!
  closedByPullRequestsReferences(first: Int, includeClosedPrs: Boolean): PullRequestConnection
}
type PullRequest implements Node & Comment {
  id: ID! body: String! lastEditedAt: DateTime editor: Actor
  bodyHTML: HTML!
  number: Int!
  repository: Repository!
  state: PullRequestState!
  author: Actor
  reviewThreads(first: Int, after: String): PullRequestReviewThreadConnection!
}
type PageInfo { hasNextPage: Boolean! endCursor: String }
type PullRequestReviewThreadConnection { pageInfo: PageInfo! nodes: [PullRequestReviewThread] }
type PullRequestReviewThread implements Node {
  id: ID! isResolved: Boolean! isOutdated: Boolean! path: String! line: Int startLine: Int
  comments(first: Int): PullRequestReviewCommentConnection!
}
type PullRequestReviewCommentConnection { nodes: [PullRequestReviewComment] }
interface Actor { login: String! }
type User implements Actor { login: String! databaseId: Int }
type Bot implements Actor { login: String! databaseId: Int }
type Organization implements Actor { login: String! databaseId: Int }
type PullRequestReview implements Node & Comment {
  id: ID! body: String! lastEditedAt: DateTime editor: Actor databaseId: Int fullDatabaseId: BigInt
}
type PullRequestReviewComment implements Node & Comment {
  id: ID! editor: Actor
  databaseId: Int fullDatabaseId: BigInt body: String! createdAt: DateTime! lastEditedAt: DateTime diffHunk: String!
  author: Actor pullRequestReview: PullRequestReview
}
interface Comment { id: ID! body: String! lastEditedAt: DateTime editor: Actor }
type IssueComment implements Node & Comment { id: ID! body: String! lastEditedAt: DateTime editor: Actor }
""")


_SHOWN_IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]*)\)")
"""Attachments have an address on the rendered page that is signed."""


_COMMENTS = {"IC", "PRRC"}


SWITCHES = (
    *("blocksCreations", "lockBranch", "requiresApprovingReviews", "requiresCommitSignatures"),
    *("requiresLinearHistory", "requiresStatusChecks", "restrictsPushes"),
)
"""Of a branch protection rule."""


def graphql_route(github: Callable[[], FakeGitHub]) -> Route:
    async def endpoint(request: Request) -> Response:
        fake = github()
        try:
            token = fake.gate.token(request.headers.get("authorization", ""))
        except AccessDenied as refusal:
            return fake.refuse(refusal)
        body = await request.json()
        installation = fake.world.installations.get(token.installation)
        opened = token.repositories & installation.repositories if installation else frozenset()
        open_repos = [repo for repo in fake.world.repos.values() if repo.id in opened]
        call = call_of("POST", "/graphql", body["query"])
        if call is None:
            raise AssertionError(f"not in app.github.calls: {body['query']}")
        if not allows(token.permissions, call) and not (token.user and call is BRANCH_PROTECTIONS):
            message = "Resource not accessible by integration"
            return JSONResponse({"data": None, "errors": [{"type": "FORBIDDEN", "message": message}]})
        root = Root(fake, open_repos, token)
        result = graphql_sync(SCHEMA, body["query"], root, variable_values=body.get("variables"))
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            kinds = [(error.extensions or {}).get("type", "") for error in result.errors]
            answer["errors"] = [
                {"type": kind, "message": error.message} for kind, error in zip(kinds, result.errors, strict=True)
            ]
        return JSONResponse(answer)

    return Route("/graphql", endpoint, methods=["POST"])


class Root:
    """Resolvers; graphql-core calls a method where a dictionary holds one."""

    def __init__(self, fake: FakeGitHub, repos: list[Repo], token: Token) -> None:
        self._token = token
        self._fake = fake
        self._repos = repos

    def repository(self, _info: Any, owner: str, name: str) -> dict[str, Any]:
        repo = self._fake.world.named(f"{owner}/{name}")  # `followRenames` is true by default
        if repo is None or repo not in self._repos:
            raise _refused("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")

        def found(_info: Any, number: int) -> dict[str, Any] | None:
            issue = repo.issues.get(number)
            return _issue(repo, issue, self._repos) if issue else None

        # Without an administrator's rights the list is empty: w3c/validate-repos#30, prodigyeducation/branch-cleaner#27
        rules = repo.protections if "administration" in self._token.permissions else []
        off = dict.fromkeys(SWITCHES, False)
        return {
            "id": f"R_{repo.id}",
            "issueOrPullRequest": found,
            "pullRequest": found,
            "issue": found,
            "planFeatures": {"draftPullRequests": repo.drafts},
            "branchProtectionRules": {"nodes": [{**off, **rule} for rule in rules]},
        }

    def viewer(self, _info: Any) -> dict[str, Any]:
        return _account(self._token.user or self._fake.world.actions)

    def node(self, _info: Any, id: str) -> dict[str, Any] | None:  # noqa: A002  # GitHub's name
        kind, _, ident = id.partition("_")
        if kind in _COMMENTS:
            return next((_comment(repo, int(ident)) for repo in self._repos if int(ident) in repo.comments), None)
        if kind == "I":
            where, _, number = ident.partition("-")
            return next((_description(repo, int(number)) for repo in self._repos if str(repo.id) == where), None)
        if kind == "PRR":
            return next((shown for repo in self._repos if (shown := _review(repo, int(ident)))), None)
        found = self._thread(id)
        return _thread(*found) if found else None

    def resolveReviewThread(self, _info: Any, input: dict[str, str]) -> dict[str, Any]:  # noqa: A002
        if self._token.permissions.get("contents") != "write":  # seen in github/gh-aw#35726; not published
            raise _refused("FORBIDDEN", "Resource not accessible by integration")
        found = self._thread(input["threadId"])
        if found is None:
            raise _refused("NOT_FOUND", "Could not resolve to a node with the global id.")
        found[1].resolved = True
        return {"thread": _thread(*found)}

    def _thread(self, ident: str) -> tuple[Repo, Thread] | None:
        threads = ((repo, thread) for repo in self._repos for thread in repo.threads)
        return next(((repo, thread) for repo, thread in threads if thread.id == ident), None)


def _issue(repo: Repo, issue: Issue, opened: list[Repo]) -> dict[str, Any]:
    def threads(_info: Any, first: int = 50, after: str | None = None) -> dict[str, Any]:
        found = [thread for thread in repo.threads if thread.number == issue.number]
        start = int(after or 0)
        end = start + first
        page = {"hasNextPage": end < len(found), "endCursor": str(end)}
        return {"pageInfo": page, "nodes": [_thread(repo, thread) for thread in found[start:end]]}

    def closers(_info: Any, **_rest: Any) -> dict[str, Any]:
        """Those elsewhere too. What one not open to us becomes is a guess: null with an error, or null alone."""
        here = [(repo, pull) for pull in repo.pulls if pull.closes == issue.number and pull.state == "open"]
        refused = _refused("FORBIDDEN", "Resource not accessible by integration")
        hidden = refused if issue.tells_of_hidden else None
        linked = [(where, pull) for where, pull in (*issue.closed_elsewhere, *here) if pull.state == "open"]
        return {"nodes": [_issue(where, pull, opened) if where in opened else hidden for where, pull in linked]}

    return {
        "__typename": "PullRequest" if issue.pull else "Issue",
        "number": issue.number,
        "repository": {"id": f"R_{repo.id}"},
        "state": issue.state.upper(),
        "author": _account(issue.user),
        "bodyHTML": _SHOWN_IMAGE.sub(r'<img src="\1?jwt=signed" alt="">', issue.body),
        "closedByPullRequestsReferences": closers,
        "reviewThreads": threads,
    }


def _thread(repo: Repo, thread: Thread) -> dict[str, Any]:
    comments = [repo.comments[number] for number in thread.comments]
    nodes = [
        {
            **numbers(comment.id),
            "body": comment.body,
            "createdAt": when(comment.created_at),
            "lastEditedAt": when(comment.updated_at) if comment.updated_at > comment.created_at else None,
            "diffHunk": "@@ -1 +1 @@",
            "author": _account(comment.user),
            "pullRequestReview": numbers(comment.review) if comment.review else None,
        }
        for comment in comments
    ]
    return {
        "__typename": "PullRequestReviewThread",
        "id": thread.id,
        "isResolved": thread.resolved,
        "isOutdated": thread.line is None,
        "path": thread.path,
        "line": thread.line,
        "startLine": None,
        "comments": {"nodes": nodes},
    }


def numbers(number: int) -> dict[str, int | str | None]:
    """`databaseId` is an Int of 32 bits, and announced to be removed for that; today larger ones are there still."""
    return {"databaseId": number if number < 2**31 else None, "fullDatabaseId": str(number)}


def _account(user: User) -> dict[str, Any]:
    return {"__typename": user.type, "login": user.login, "databaseId": user.id}


def _comment(repo: Repo, number: int) -> dict[str, Any]:
    comment = repo.comments[number]
    return {
        "__typename": "PullRequestReviewComment" if comment.path else "IssueComment",
        "id": f"{'PRRC' if comment.path else 'IC'}_{number}",
        "body": comment.body,
        "lastEditedAt": when(comment.updated_at) if comment.editor else None,
        "editor": _account(comment.editor) if comment.editor else None,
    }


def _description(repo: Repo, number: int) -> dict[str, Any]:
    issue = repo.issues[number]
    return {
        "__typename": "PullRequest" if issue.pull else "Issue",
        "id": f"I_{repo.id}-{number}",
        "body": issue.body,
        "lastEditedAt": when(issue.edited_at) if issue.edited_at else None,
        "editor": _account(issue.editor) if issue.editor else None,
    }


def _review(repo: Repo, number: int) -> dict[str, Any] | None:
    review = next((each for issue in repo.issues.values() for each in issue.reviews if each.id == number), None)
    if review is None:
        return None
    edited = {"lastEditedAt": when(review.edited_at) if review.edited_at else None, "editor": _account(review.user)}
    return {"__typename": "PullRequestReview", "id": f"PRR_{number}", "body": review.body, **edited}


def _refused(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})
