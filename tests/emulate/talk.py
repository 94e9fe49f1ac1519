"""Issues and what is said on them, where emulate leaves something out: pull requests among them, edits, reactions."""

from typing import Any

from starlette.responses import JSONResponse

from tests.emulate.dressing import as_issue, dressed
from tests.emulate.front import IN_REPO, Answer, Ask, answers
from tests.emulate.memory import Reaction, now, stamp
from tests.fakes.github.gate import Refusal

CONTENTS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}


@answers("GET", IN_REPO + "/issues")
async def issues(ask: Ask) -> Answer:
    """Issues and pull requests together, filtered, in order and in pages."""
    ask.needs("issues")
    query = ask.request.query_params
    state, wanted = query.get("state", "open"), [name for name in query.get("labels", "").split(",") if name]
    repo = ask.within
    found = await ask.front.look(f"{repo.api}/issues", state=state)
    found += [as_issue(pull) for pull in await ask.front.look(f"{repo.api}/pulls", state=state)]
    kept = [item for item in found if set(wanted) <= {label["name"] for label in item["labels"]}]
    kept = [item for item in kept if item["updated_at"] >= query.get("since", "")]
    by = "updated_at" if query.get("sort") == "updated" else "created_at"
    kept.sort(key=lambda item: item[by], reverse=query.get("direction", "desc") == "desc")
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    following = ask.request.url.include_query_params(page=page + 1)
    headers = {"link": f'<{following}>; rel="next"'} if page * size < len(kept) else {}
    shown = dressed(kept[(page - 1) * size : page * size], ask.front.memory, repo)
    return JSONResponse(shown, headers=headers)


@answers("GET", IN_REPO + "/issues/{number:int}")
async def issue(ask: Ask) -> Answer:
    number = ask.params["number"]
    if number not in ask.within.pulls:
        return await ask.passed_on()
    ask.needs("issues")
    return 200, as_issue(await ask.emulate("GET", f"{ask.within.api}/pulls/{number}"))


@answers("PATCH", IN_REPO + "/issues/{number:int}")
async def edit_issue(ask: Ask) -> Answer:
    repo, number = ask.within, ask.params["number"]
    if number not in repo.pulls:
        before = await ask.emulate("GET", f"{repo.api}/issues/{number}")
        answer = await ask.passed_on()
        note_edit(ask, number, before, answer[1])
        return answer
    return 200, as_issue(await patch_pull(ask, number))


@answers("PATCH", IN_REPO + "/pulls/{number:int}")
async def edit_pull(ask: Ask) -> Answer:
    return 200, await patch_pull(ask, ask.params["number"])


async def patch_pull(ask: Ask, number: int) -> dict[str, Any]:
    """Emulate's change of a pull request, and what of it is remembered here."""
    repo = ask.within
    before = await ask.emulate("GET", f"{repo.api}/pulls/{number}")
    after: dict[str, Any] = await ask.emulate("PATCH", f"{repo.api}/pulls/{number}", json=ask.body)
    repo.pulls[number].open = after["state"] == "open"
    note_edit(ask, number, before, after)
    return after


def note_edit(ask: Ask, number: int, before: dict[str, Any], after: dict[str, Any]) -> None:
    if before["body"] != after["body"]:
        ask.within.edited[f"issues/{number}"] = now()
    if before["title"] != after["title"]:
        ask.within.renamed.setdefault(number, []).append(now())


@answers("PATCH", IN_REPO + "/{kind}/comments/{id:int}")
async def edit_comment(ask: Ask) -> Answer:
    answer = await ask.passed_on()
    ask.within.edited[f"{ask.params['kind']}/comments/{ask.params['id']}"] = now()
    return answer


async def _react(ask: Ask) -> Answer:
    """One of a kind for each account, as GitHub keeps it."""
    kind = ask.request.url.path.removeprefix(f"{ask.within.api}/").removesuffix("/reactions")
    token = ask.needs("pull_requests" if kind.startswith("pulls") else "issues", "write")
    await _must_exist(ask, kind)
    content = ask.body.get("content")
    if content not in CONTENTS:
        raise Refusal(422, "Validation Failed")
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
