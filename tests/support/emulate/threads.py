"""GraphQL over emulate, in a part of GitHub's own schema: edits, review threads and resolving, what closes an issue."""

import base64
import re
from typing import Any

from graphql import GraphQLError, graphql

from tests.support.emulate.corrections import closed_by, corrected
from tests.support.emulate.front import Answer, Ask, answers
from tests.support.emulate.memory import Repo, stamp
from tests.support.github.authentication import AccessDenied
from tests.support.github.graphql import SCHEMA, numbers
from tests.support.github.rights import allows, call_of

View = dict[str, Any]
_COMMENT = re.compile(rb"0:IssueComment(\d+)")
_ISSUE = re.compile(rb"0:Issue(\d+)")
"""What emulate's node ids say."""


@answers("POST", "/graphql")
async def ask_graphql(ask: Ask) -> Answer:
    call, held = call_of("POST", "/graphql", ask.body["query"]), ask.token.permissions if ask.token else None
    if call is None:
        raise AssertionError(f"not in app.github.calls: {ask.body['query']}")
    if held is not None and not allows(held, call):
        refused = {"type": "FORBIDDEN", "message": "Resource not accessible by integration"}
        return 200, {"data": None, "errors": [refused]}
    result = await graphql(SCHEMA, ask.body["query"], _Root(ask), variable_values=ask.body.get("variables"))
    answer: View = {"data": result.data}
    if result.errors:
        kinds = ((error.extensions or {}).get("type", "") for error in result.errors)
        told = zip(kinds, result.errors, strict=True)
        answer["errors"] = [{"type": kind, "message": error.message} for kind, error in told]
    return 200, answer


class _Root:
    """Resolvers; graphql-core calls a method where a dictionary holds one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def viewer(self, _info: Any) -> View:
        """The one way in which an App's token learns whose it is."""
        return {"login": self._ask.login}

    async def repository(self, _info: Any, owner: str, name: str) -> View:
        repo = next((repo for repo in self._opened() if repo.full_name == f"{owner}/{name}"), None)
        if repo is None:
            raise _refused("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")

        async def either(_info: Any, number: int) -> View | None:
            return await (self._pull if number in repo.pulls else self._issue)(repo, number)

        async def issue(_info: Any, number: int) -> View | None:
            return None if number in repo.pulls else await self._issue(repo, number)

        async def pull(_info: Any, number: int) -> View | None:
            return await self._pull(repo, number) if number in repo.pulls else None

        return {"id": f"R_{repo.id}", "issueOrPullRequest": either, "issue": issue, "pullRequest": pull}

    async def node(self, _info: Any, id: str) -> View | None:  # noqa: A002  # GitHub's name
        if id.startswith("PRRT_"):
            return await self._thread(id)
        return await (self._description(id) if _ISSUE.fullmatch(_decoded(id)) else self._comment(id))

    async def resolveReviewThread(self, _info: Any, input: dict[str, str]) -> View:  # noqa: A002
        if await self._thread(input["threadId"]) is None:
            raise _refused("NOT_FOUND", "Could not resolve to a node with the global id.")
        repo, first = self._place(input["threadId"])
        repo.resolved.add(first)
        return {"thread": await self._thread(input["threadId"])}

    def _opened(self) -> list[Repo]:
        """What whoever asks may see."""
        token = self._ask.token
        return [repo for repo in self._ask.front.memory.repos.values() if token is not None and token.opens(repo.id)]

    async def _look(self, repo: Repo, path: str) -> Any:
        """None where there is nothing."""
        try:
            found = await self._ask.front.look(f"{repo.api}{path}")
        except AccessDenied:
            return None
        return corrected(found, self._ask.front.memory, repo)

    async def _issue(self, repo: Repo, number: int) -> View | None:
        found = await self._look(repo, f"/issues/{number}")
        if found is None:
            return None

        async def closers(_info: Any, **_rest: Any) -> View:
            pulls = [pull for pull in await self._look(repo, "/pulls") if number in closed_by(pull["body"])]
            return {"nodes": [await self._pull(repo, pull["number"]) for pull in pulls]}

        return {"__typename": "Issue", "closedByPullRequestsReferences": closers}

    async def _pull(self, repo: Repo, number: int) -> View:
        found = await self._look(repo, f"/pulls/{number}")

        async def threads(_info: Any, first: int = 50, after: str | None = None) -> View:
            nodes, start = await self._threads(repo, number), int(after or 0)
            page = {"hasNextPage": start + first < len(nodes), "endCursor": str(start + first)}
            return {"pageInfo": page, "nodes": nodes[start : start + first]}

        state = "MERGED" if found["merged_at"] else found["state"].upper()
        about = {"number": number, "state": state, "author": _account(found["user"])}
        return {"__typename": "PullRequest", **about, "repository": {"id": f"R_{repo.id}"}, "reviewThreads": threads}

    async def _threads(self, repo: Repo, number: int) -> list[View]:
        comments = await self._look(repo, f"/pulls/{number}/comments")
        firsts = [comment for comment in comments if comment["in_reply_to_id"] is None]
        return [_thread(repo, [item for item in comments if first["id"] in _ends(item)]) for first in firsts]

    async def _thread(self, ident: str) -> View | None:
        repo, first = self._place(ident)
        comment = await self._look(repo, f"/pulls/comments/{first}")
        if comment is None:
            return None
        number = int(comment["pull_request_url"].rpartition("/")[2])
        return next((found for found in await self._threads(repo, number) if found["id"] == ident), None)

    def _place(self, ident: str) -> tuple[Repo, int]:
        """The repository of a thread and its first comment."""
        _, repository, first = ident.split("_")
        repo = next((repo for repo in self._opened() if str(repo.id) == repository), None)
        if repo is None:
            raise _refused("NOT_FOUND", "Could not resolve to a node with the global id.")
        return repo, int(first)

    async def _description(self, ident: str) -> View | None:
        """An issue, by emulate's node id, with who edited its description last."""
        for repo in self._opened():
            listed = await self._ask.front.look(f"{repo.api}/issues", state="all")
            for found in (item for item in listed if item["node_id"] == ident):
                return {"__typename": "Issue", "id": ident, "body": found["body"], **(await self._edit(repo, found))}
        return None

    async def _edit(self, repo: Repo, issue: View) -> View:
        at, login = repo.edited.get(f"issues/{issue['number']}", (None, ""))
        editor = _account(await self._ask.front.user(login)) if login else None
        return {"lastEditedAt": stamp(at) if at else None, "editor": editor}

    async def _comment(self, ident: str) -> View | None:
        """A comment on a conversation, by emulate's node id, with who edited it last."""
        told = _COMMENT.fullmatch(_decoded(ident))
        path = f"issues/comments/{int(told[1])}" if told else ""
        for repo in self._opened() if path else ():
            if found := await self._look(repo, f"/{path}"):
                at, login = repo.edited.get(path, (None, ""))
                editor = _account(await self._ask.front.user(login)) if login else None
                edit = {"lastEditedAt": stamp(at) if at else None, "editor": editor}
                return {"__typename": "IssueComment", "id": ident, "body": found["body"], **edit}
        return None


def _decoded(ident: str) -> bytes:
    return base64.b64decode(ident + "=" * (-len(ident) % 4))


def _ends(comment: View) -> tuple[int, int | None]:
    return comment["id"], comment["in_reply_to_id"]


def _thread(repo: Repo, comments: list[View]) -> View:
    first = comments[0]
    return {
        "__typename": "PullRequestReviewThread",
        "id": f"PRRT_{repo.id}_{first['id']}",
        "isResolved": first["id"] in repo.resolved,
        "isOutdated": first["line"] is None,
        "path": first["path"],
        "line": first["line"],
        "startLine": first["start_line"],
        "comments": {"nodes": [_inline(repo, comment) for comment in comments]},
    }


def _inline(repo: Repo, comment: View) -> View:
    at, _ = repo.edited.get(f"pulls/comments/{comment['id']}", (None, ""))
    review = comment["pull_request_review_id"]
    return {
        **numbers(comment["id"]),
        "body": comment["body"],
        "createdAt": comment["created_at"],
        "lastEditedAt": stamp(at) if at else None,
        "diffHunk": comment["diff_hunk"],
        "author": _account(comment["user"]),
        "pullRequestReview": numbers(review) if review else None,
    }


def _account(user: View) -> View:
    """GraphQL tells a bot's login without the ending that REST gives it."""
    return {"__typename": user["type"], "login": user["login"].removesuffix("[bot]"), "databaseId": user["id"]}


def _refused(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})
