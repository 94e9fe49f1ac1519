"""Accounts: installation tokens and their end, accounts by number, roles in GitHub's words, the App's deliveries."""

from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse

from app.github.auth import PERMISSIONS
from tests.support.emulate.corrections import corrected
from tests.support.emulate.front import IN_REPO, Answer, Ask, answers, paged
from tests.support.emulate.memory import ACTIONS, Token, stamp
from tests.support.emulate.relay import Delivery
from tests.support.github.authentication import AccessDenied

_ROLES = {"pull": "read", "triage": "read", "push": "write", "maintain": "write", "admin": "admin"}


@answers("POST", "/app/installations/{id:int}/access_tokens")
async def mint(ask: Ask) -> Answer:
    wanted = ask.body.get("permissions", PERMISSIONS)
    if any(PERMISSIONS.get(name) not in {access, "write"} for name, access in wanted.items()):
        raise AccessDenied(422, "The permissions requested are not granted to this installation.")
    status, made = await ask.passed_on(json={**ask.body, "permissions": wanted})
    made.pop("repositories", None)
    chosen = ask.body.get("repository_ids") or [
        repo.id for repo in ask.front.memory.repos.values() if repo.name in ask.body.get("repositories", ())
    ]
    ask.front.memory.tokens[made["token"]] = Token(
        text=made["token"],
        login=ask.front.memory.bot,
        permissions=made["permissions"],
        repositories=frozenset(chosen) if chosen else None,
        expires_at=datetime.fromisoformat(made["expires_at"]),
    )
    return status, made


@answers("GET", IN_REPO + "/installation")
async def installed(ask: Ask) -> Answer:
    """As people accepted it; emulate's App has more, so that tokens of workflows can be made from it."""
    status, found = await ask.passed_on()
    return status, {**found, "permissions": dict(PERMISSIONS)}


@answers("DELETE", "/installation/token")
async def revoke(ask: Ask) -> Answer:
    if ask.token is None or ask.token.permissions is None:
        raise AccessDenied(403, "You must authenticate with an installation access token in order to revoke it.")
    ask.token.revoked = True
    return 204, None


@answers("GET", "/user")
async def oneself(ask: Ask) -> Answer:
    """People only: an App's token has no account of its own here."""
    if ask.token is None or ask.token.permissions is not None:
        raise AccessDenied(403, "Resource not accessible by integration")
    return await ask.passed_on()


@answers("GET", "/user/{id:int}")
async def account(ask: Ask) -> Answer:
    """Emulate knows accounts by login only."""
    for known in await ask.front.look("/users"):
        if known["id"] == ask.params["id"]:
            return 200, await ask.front.look(f"/users/{known['login']}")
    raise AccessDenied(404, "Not Found")


@answers("GET", "/apps/{slug}")
async def application(ask: Ask) -> Answer:
    """Ours, and the one that workflows run as."""
    if ask.token is None:
        raise AccessDenied(401, "A JSON web token is for the App's own routes")
    for app in (ask.front.memory.app, ACTIONS):
        if app["slug"] == ask.params["slug"]:
            return 200, app
    raise AccessDenied(404, "Not Found")


@answers("GET", "/installation/repositories")
async def repositories(ask: Ask) -> Answer:
    if ask.token is None or ask.token.permissions is None:
        raise AccessDenied(
            403, "You must authenticate with an installation access token in order to list repositories."
        )
    opened = [repo for repo in ask.front.memory.repos.values() if ask.token.opens(repo.id)]
    shown = [corrected(await ask.front.look(repo.api), ask.front.memory, repo) for repo in opened]
    return paged(ask, shown, within="repositories")


@answers("GET", IN_REPO + "/collaborators/{login}/permission")
async def permission(ask: Ask) -> Answer:
    """Of anybody; GitHub tells `read` of strangers where the repository is public, and `none` elsewhere."""
    user = await ask.front.look(f"/users/{ask.params['login']}")
    try:
        _, found = await ask.passed_on()
    except AccessDenied as refusal:
        if refusal.status != 404:
            raise
        repository = await ask.emulate("GET", ask.within.api)
        found = {"permission": "none" if repository["private"] else "pull", "role_name": "", "user": user}
    return 200, {**found, "permission": _ROLES.get(found["permission"], "none")}


@answers("GET", "/app/hook/deliveries")
async def deliveries(ask: Ask) -> Answer:
    await ask.emulate("GET", "/app")
    newest = sorted(ask.front.relay.deliveries, key=lambda delivery: -delivery.id)
    query = ask.request.query_params
    size, start = int(query.get("per_page", 30)), int(query.get("cursor", 0))
    following = ask.request.url.include_query_params(cursor=start + size)
    headers = {"link": f'<{following}>; rel="next"'} if start + size < len(newest) else {}
    return JSONResponse([_view(delivery) for delivery in newest[start : start + size]], headers=headers)


@answers("POST", "/app/hook/deliveries/{id:int}/attempts")
async def attempt(ask: Ask) -> Answer:
    await ask.emulate("GET", "/app")
    if not ask.front.relay.again(ask.params["id"]):
        raise AccessDenied(404, "Not Found")
    return 202, {}


def _view(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": stamp(delivery.at),
        "redelivery": delivery.redelivery,
        "duration": 0.1,
        "status": "OK" if delivery.ok else "failed to connect to host",
        "status_code": delivery.status,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": (delivery.payload.get("installation") or {}).get("id"),
        "repository_id": (delivery.payload.get("repository") or {}).get("id"),
        "throttled_at": None,
    }
