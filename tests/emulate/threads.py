"""GraphQL over emulate: who edited what, review threads and their resolving, in a part of GitHub's own schema."""

from datetime import datetime
from typing import Any

from graphql import GraphQLError, graphql

from tests.emulate.dressing import dressed
from tests.emulate.front import Answer, Ask, answers
from tests.emulate.memory import Repo, stamp
from tests.fakes.github.gate import Refusal
from tests.fakes.github.graphql import SCHEMA

View = dict[str, Any]


@answers("POST", "/graphql")
async def ask_graphql(ask: Ask) -> Answer:
    root = _Root(ask)
    result = await graphql(SCHEMA, ask.body["query"], root, variable_values=ask.body.get("variables"))
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

    async def repository(self, _info: Any, owner: str, name: str) -> View:
        repo = self._opened(self._ask.front.memory.repos.get(f"{owner}/{name}"))
        if repo is None:
            raise _refused("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")

        async def found(_info: Any, number: int) -> View | None:
            if number in repo.pulls:
                return {
                    "__typename": "PullRequest",
                    **_history(repo, number),
                    "reviewThreads": self._page(repo, number),
                }
            try:
                await self._ask.front.look(f"{repo.api}/issues/{number}")
            except Refusal:
                return None
            return {"__typename": "Issue", **_history(repo, number)}

        async def pull(info: Any, number: int) -> View | None:
            return await found(info, number) if number in repo.pulls else None

        return {"issueOrPullRequest": found, "pullRequest": pull}

    async def node(self, _info: Any, id: str) -> View | None:  # noqa: A002  # GitHub's name
        return await self._thread(id)

    async def resolveReviewThread(self, _info: Any, input: dict[str, str]) -> View:  # noqa: A002
        token = self._ask.token
        if token is None or not token.allows("pull_requests", "write"):
            raise _refused("FORBIDDEN", "Resource not accessible by integration")
        if await self._thread(input["threadId"]) is None:
            raise _refused("NOT_FOUND", "Could not resolve to a node with the global id.")
        repo, first = self._place(input["threadId"])
        repo.resolved.add(first)
        return {"thread": await self._thread(input["threadId"])}

    def _opened(self, repo: Repo | None) -> Repo | None:
        token = self._ask.token
        return repo if repo is not None and token is not None and token.opens(repo.id) else None

    def _page(self, repo: Repo, number: int) -> Any:
        async def threads(_info: Any, first: int = 50, after: str | None = None) -> View:
            found, start = await self._threads(repo, number), int(after or 0)
            page = {"hasNextPage": start + first < len(found), "endCursor": str(start + first)}
            return {"pageInfo": page, "nodes": found[start : start + first]}

        return threads

    async def _threads(self, repo: Repo, number: int) -> list[View]:
        comments = await self._ask.front.look(f"{repo.api}/pulls/{number}/comments")
        shown = dressed(comments, self._ask.front.memory, repo)
        firsts = [comment for comment in shown if comment["in_reply_to_id"] is None]
        return [_thread(repo, [item for item in shown if first["id"] in _line(item)]) for first in firsts]

    async def _thread(self, ident: str) -> View | None:
        try:
            repo, first = self._place(ident)
            comment = await self._ask.front.look(f"{repo.api}/pulls/comments/{first}")
        except Refusal:
            return None
        number = int(comment["pull_request_url"].rpartition("/")[2])
        return next((found for found in await self._threads(repo, number) if found["id"] == ident), None)

    def _place(self, ident: str) -> tuple[Repo, int]:
        """The repository of a thread that whoever asks may see, and its first comment."""
        _, repository, first = ident.split("_")
        wanted = (repo for repo in self._ask.front.memory.repos.values() if str(repo.id) == repository)
        repo = self._opened(next(wanted, None))
        if repo is None:
            raise Refusal(404, "Not Found")
        return repo, int(first)


def _line(comment: View) -> tuple[int, int | None]:
    return comment["id"], comment["in_reply_to_id"]


def _history(repo: Repo, number: int) -> View:
    edited = repo.edited.get(f"issues/{number}")

    def timeline(_info: Any, since: str = "", **_rest: Any) -> dict[str, int]:
        moment = datetime.fromisoformat(since) if since else None
        return {"filteredCount": sum(moment is None or at >= moment for at in repo.renamed.get(number, ()))}

    return {"lastEditedAt": stamp(edited) if edited else None, "timelineItems": timeline}


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
        "comments": {"nodes": [_comment(repo, comment) for comment in comments]},
    }


def _comment(repo: Repo, comment: View) -> View:
    edited = repo.edited.get(f"pulls/comments/{comment['id']}")
    return {
        "databaseId": comment["id"],
        "body": comment["body"],
        "createdAt": comment["created_at"],
        "lastEditedAt": stamp(edited) if edited else None,
        "diffHunk": comment["diff_hunk"],
        "author": {"__typename": "User", "login": comment["user"]["login"].removesuffix("[bot]")},  # as GraphQL says it
    }


def _refused(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})
