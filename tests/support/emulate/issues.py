"""Issues, as far as emulate leaves something out: pull requests among them, edits, and events."""

from typing import Any

from tests.support.emulate.corrections import as_issue, corrected
from tests.support.emulate.front import IN_REPO, Answer, Ask, answers, paged
from tests.support.emulate.memory import Event, now, stamp

ISSUE = IN_REPO + "/issues/{number:int}"


@answers("GET", IN_REPO + "/issues")
async def issues(ask: Ask) -> Answer:
    """Issues and pull requests together, filtered, in order and in pages."""
    ask.needs("issues")
    query = ask.request.query_params
    state, wanted = query.get("state", "open"), [name for name in query.get("labels", "").split(",") if name]
    repo = ask.within
    found = await ask.front.look(f"{repo.api}/issues", state=state)
    pulls = corrected(await ask.front.look(f"{repo.api}/pulls", state=state), ask.front.memory, repo)
    found = corrected(found, ask.front.memory, repo) + [as_issue(pull) for pull in pulls]
    kept = [item for item in found if set(wanted) <= {label["name"] for label in item["labels"]}]
    kept = [item for item in kept if item["updated_at"] >= query.get("since", "")]
    by = "updated_at" if query.get("sort") == "updated" else "created_at"
    kept.sort(key=lambda item: (item[by], item["number"]), reverse=query.get("direction", "desc") == "desc")
    return paged(ask, kept)


@answers("GET", ISSUE)
async def issue(ask: Ask) -> Answer:
    number = ask.params["number"]
    if number not in ask.within.pulls:
        return await ask.passed_on()
    ask.needs("issues")
    pull = await ask.emulate("GET", f"{ask.within.api}/pulls/{number}")
    return 200, as_issue(corrected(pull, ask.front.memory, ask.within))


@answers("PATCH", ISSUE)
async def edit_issue(ask: Ask) -> Answer:
    number = ask.params["number"]
    if number not in ask.within.pulls:
        if "body" in ask.body:
            ask.within.edited[f"issues/{number}"] = now(), ask.login
        return await ask.passed_on()
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
    if before["state"] != after["state"]:
        note_event(ask, number, "reopened" if after["state"] == "open" else "closed")
    return after


async def _label(ask: Ask) -> Answer:
    """A label put on or taken off; of a pull request, emulate keeps no events that it would show."""
    repo, number = ask.within, ask.params["number"]
    before = await _labels(ask, number)
    answer = await ask.passed_on()
    if number in repo.pulls:
        after = await _labels(ask, number)
        for name in sorted(before ^ after):
            note_event(ask, number, "labeled" if name in after else "unlabeled", name)
    return 200, answer[1]


async def _labels(ask: Ask, number: int) -> set[str]:
    return {label["name"] for label in await ask.front.look(f"{ask.within.api}/issues/{number}/labels")}


answers("POST", ISSUE + "/labels")(_label)
answers("PUT", ISSUE + "/labels")(_label)
answers("DELETE", ISSUE + "/labels/{label:path}")(_label)


def note_event(ask: Ask, number: int, event: str, label: str = "") -> None:
    noted = ask.within.events.setdefault(number, [])
    noted.append(Event(ask.front.memory.number(), event, ask.login, label))


@answers("GET", ISSUE + "/events")
async def events(ask: Ask) -> Answer:
    number = ask.params["number"]
    if number not in ask.within.pulls:
        return await ask.passed_on()
    ask.needs("issues")
    return paged(ask, [await _event(ask, event) for event in ask.within.events.get(number, ())])


async def _event(ask: Ask, event: Event) -> dict[str, Any]:
    actor = await ask.front.user(event.login)
    label = {"label": {"name": event.label, "color": "ededed"}} if event.label else {}
    return {"id": event.id, "event": event.event, "actor": actor, "created_at": stamp(event.at), **label}
