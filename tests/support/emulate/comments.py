"""Comments, as far as emulate leaves something out: comments of a whole repository since a moment, edits, reactions."""

from typing import Any

from tests.support.emulate.corrections import corrected
from tests.support.emulate.front import IN_REPO, Answer, Ask, answers, paged
from tests.support.emulate.memory import Reaction, now, stamp
from tests.support.github.authentication import AccessDenied

CONTENTS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}


@answers("GET", IN_REPO + "/{kind}/comments")
async def comments_since(ask: Ask) -> Answer:
    """Of all issues, or inline ones of all pull requests; emulate takes `comments` for the number of one."""
    ask.needs("issues" if ask.params["kind"] == "issues" else "pull_requests")
    query, repo, kind = ask.request.query_params, ask.within, ask.params["kind"]
    numbers = {item["number"] for item in await ask.front.look(f"{repo.api}/{kind}", state="all")} | repo.pulls.keys()
    found: list[dict[str, Any]] = []
    for number in sorted(numbers):
        found += corrected(await ask.front.look(f"{repo.api}/{kind}/{number}/comments"), ask.front.memory, repo)
    kept = [item for item in found if item["updated_at"] >= query.get("since", "")]
    by = "updated_at" if query.get("sort") == "updated" else "created_at"
    kept.sort(key=lambda item: (item[by], item["id"]), reverse=query.get("direction", "asc") == "desc")
    return paged(ask, kept)


@answers("PATCH", IN_REPO + "/{kind}/comments/{id:int}")
async def edit_comment(ask: Ask) -> Answer:
    answer = await ask.passed_on()
    ask.within.edited[f"{ask.params['kind']}/comments/{ask.params['id']}"] = now(), ask.login
    return answer


async def _react(ask: Ask) -> Answer:
    """One of a kind for each account, as GitHub keeps it."""
    kind = ask.request.url.path.removeprefix(f"{ask.within.api}/").removesuffix("/reactions")
    token = ask.needs("pull_requests" if kind.startswith("pulls") else "issues", "write")
    await _must_exist(ask, kind)
    content = ask.body.get("content")
    if content not in CONTENTS:
        raise AccessDenied(422, "Validation Failed")
    for there in ask.within.reactions:
        if (there.subject, there.login, there.content) == (kind, token.login, content):
            return 200, await _view(ask, there)
    made = Reaction(ask.front.memory.number(), kind, token.login, content)
    ask.within.reactions.append(made)
    return 201, await _view(ask, made)


async def _reactions(ask: Ask) -> Answer:
    kind = ask.request.url.path.removeprefix(f"{ask.within.api}/").removesuffix("/reactions")
    ask.needs("pull_requests" if kind.startswith("pulls") else "issues")
    await _must_exist(ask, kind)
    return 200, [await _view(ask, item) for item in ask.within.reactions if item.subject == kind]


async def _must_exist(ask: Ask, kind: str) -> None:
    numbered = kind.removeprefix("issues/")
    if not (numbered.isdigit() and int(numbered) in ask.within.pulls):
        await ask.front.look(f"{ask.within.api}/{kind}")


async def _view(ask: Ask, reaction: Reaction) -> dict[str, Any]:
    user = await ask.front.user(reaction.login)
    return {"id": reaction.id, "user": user, "content": reaction.content, "created_at": stamp(reaction.at)}


for _path in ("/issues/{id:int}", "/issues/comments/{id:int}", "/pulls/comments/{id:int}"):
    answers("POST", f"{IN_REPO}{_path}/reactions")(_react)
    answers("GET", f"{IN_REPO}{_path}/reactions")(_reactions)
