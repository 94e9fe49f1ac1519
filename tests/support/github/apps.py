"""What an App asks with its own signature, and accounts: installations, tokens, deliveries."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from githubkit_schemas.latest import models
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.github.calls import GET_REPOSITORY_BY_ID
from tests.support.github.authentication import AccessDenied
from tests.support.github.server import FakeGitHub, full_name, listed, moved
from tests.support.github.shapes import shaped
from tests.support.github.views import (
    account_view,
    app_view,
    delivery_view,
    found_view,
    installation_view,
    repo_view,
    token_view,
)

Handler = Callable[[FakeGitHub, Request, dict[str, Any]], tuple[int, Any] | Response]


def app_routes(github: Callable[[], FakeGitHub]) -> list[Route]:
    table: tuple[tuple[str, str, Handler], ...] = (
        ("GET", "/app", _identity),
        ("GET", "/app/hook/config", _hook),
        ("GET", "/user", _self),
        ("GET", "/repos/{owner}/{name}/installation", _installation),
        ("GET", "/app/installations", _installations),
        ("GET", "/apps/{slug}", _application),
        ("GET", "/installation/repositories", _repositories),
        ("GET", "/repositories/{id:int}", _repository),
        ("POST", "/app/installations/{id:int}/access_tokens", _mint),
        ("GET", "/app/hook/deliveries", _deliveries),
        ("POST", "/app/hook/deliveries/{id:int}/attempts", _redeliver),
        ("DELETE", "/installation/token", _revoke),
        ("GET", "/user/{id:int}", _user),
        ("GET", "/users/{login}", _user),
        ("GET", "/search/issues", _search),
    )
    return [*(_route(github, *entry) for entry in table), *_files(github)]


def _files(github: Callable[[], FakeGitHub]) -> list[Route]:
    return [
        Route("/logs/{owner}/{name}/{id:int}", _log(github)),
        Route("/user-attachments/assets/{uuid}", _attachment(github)),
    ]


def _attachment(github: Callable[[], FakeGitHub]) -> Callable[[Request], Awaitable[Response]]:
    """By a signed address and without a token; a browser without a session is sent to log in."""

    async def endpoint(request: Request) -> Response:
        content = github().world.attachments.get(request.path_params["uuid"])
        if "authorization" in request.headers or content is None:
            return PlainTextResponse("Not Found", 404)
        if request.query_params.get("jwt") != "signed":
            return Response(status_code=302, headers={"location": "/login"})
        return Response(content, media_type="image/png")

    return endpoint


def _log(github: Callable[[], FakeGitHub]) -> Callable[[Request], Awaitable[Response]]:
    """The host of the logs, which wants no token and gets none."""

    async def endpoint(request: Request) -> Response:
        checks = (check for repo in github().world.repos.values() for check in repo.checks)
        return PlainTextResponse(next(check.log for check in checks if check.id == request.path_params["id"]))

    return endpoint


def _route(github: Callable[[], FakeGitHub], method: str, path: str, handler: Handler) -> Route:
    async def endpoint(request: Request) -> Response:
        fake = github()
        raw = await request.json() if method == "POST" and await request.body() else {}
        header = request.headers.get("authorization", "")
        try:
            if path == "/app" or path.startswith(("/app/", "/repos/")):
                fake.gate.app(header)
            else:
                fake.gate.use(header, listed(method, request.url.path))
            answer = handler(fake, request, raw)
            return answer if isinstance(answer, Response) else fake.answer(request, *answer)
        except AccessDenied as refusal:
            return fake.refuse(refusal)

    return Route(path, endpoint, methods=[method])


def _identity(fake: FakeGitHub, _request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    return 200, app_view(fake.world)


def _hook(fake: FakeGitHub, _request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    values = {"url": fake.world.hook, "content_type": "json", "insecure_ssl": "0"} if fake.world.hook else {}
    return 200, shaped(models.WebhookConfig, **values)


def _self(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    user = fake.gate.token(request.headers["authorization"]).user
    if user is None:
        raise AccessDenied(403, "Resource not accessible by integration")
    return 200, account_view(user)


def _installation(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any] | Response:
    repo = fake.world.named(full_name(request))
    if repo is not None and repo.full_name != full_name(request):
        return moved(repo, request)
    for installation in fake.world.installations.values():
        if repo is not None and repo.id in installation.repositories:
            return 200, installation_view(installation)
    raise AccessDenied(404, "Not Found")


def _installations(fake: FakeGitHub, _request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    return 200, [installation_view(installation) for installation in fake.world.installations.values()]


def _application(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    slug = request.path_params["slug"]
    if slug not in fake.world.apps:
        raise AccessDenied(404, "Not Found")
    return 200, shaped(models.Integration, id=fake.world.apps[slug], slug=slug, name=slug)


def _repositories(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    """All that the token opens; a page at a time, inside an object."""
    token = fake.gate.token(request.headers["authorization"])
    installation = fake.world.installations[token.installation]
    if installation.suspended:
        raise AccessDenied(403, "This installation has been suspended")
    opened = sorted(token.repositories & installation.repositories)
    size, page = int(request.query_params["per_page"]), int(request.query_params["page"])
    shown = opened[(page - 1) * size : page * size]
    views = [repo_view(fake.world.repos[number], models.Repository) for number in shown]
    return 200, {"total_count": len(opened), "repositories": views}


def _repository(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    repo = fake.world.repos.get(request.path_params["id"])
    if repo is None:
        raise AccessDenied(404, "Not Found")
    fake.gate.enter(request.headers["authorization"], repo, GET_REPOSITORY_BY_ID)
    return 200, repo_view(repo)


def _mint(fake: FakeGitHub, request: Request, body: dict[str, Any]) -> tuple[int, Any]:
    installation = fake.world.installations.get(request.path_params["id"])
    return 201, token_view(*fake.gate.mint(installation, body))


def _revoke(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    fake.gate.token(request.headers["authorization"]).revoked = True
    return 204, None


def _user(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    wanted = request.path_params
    for user in fake.world.users.values():
        if user.id == wanted.get("id") or user.login == wanted.get("login"):
            return 200, account_view(user)
    raise AccessDenied(404, "Not Found")


def _search(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    """By `repo:` and `label:`; the newest first, or by reactions; or the other way round."""
    words = [word.partition(":") for word in request.query_params["q"].split()]
    repo = next(repo for repo in fake.world.repos.values() if ("repo", ":", repo.full_name) in words)
    token = fake.gate.token(request.headers["authorization"])
    if repo.private and "issues" not in token.permissions:  # search shows what the token may read
        return 200, {"total_count": 0, "incomplete_results": False, "search_type": "lexical", "items": []}
    labels = {value for name, _, value in words if name == "label"}
    found = [issue for issue in repo.issues.values() if issue.state == "open" and labels <= set(issue.labels)]
    if ("is", ":", "issue") in words:
        found = [issue for issue in found if issue.pull is None]
    liked = [number for kind, number, _, _ in repo.reactions if kind == "issues"]
    by_likes = request.query_params.get("sort") in {"reactions", "reactions-+1"}
    descending = request.query_params.get("order") != "asc"
    found.sort(key=lambda issue: liked.count(issue.number) if by_likes else issue.number, reverse=descending)
    items = [found_view(repo, issue) for issue in found]
    kind = {"incomplete_results": False, "search_type": "lexical"}
    return 200, {"total_count": len(found), "items": items, **kind}


def _deliveries(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> Response:
    if not fake.world.webhooks:
        raise AccessDenied(404, "Not Found")
    newest = sorted(fake.world.deliveries, key=lambda delivery: -delivery.id)
    start = int(request.query_params.get("cursor", 0))
    size = int(request.query_params.get("per_page", 30))
    more = {"link": f'<{request.url.include_query_params(cursor=start + size)}>; rel="next"'}
    headers = more if start + size < len(newest) else {}
    return JSONResponse([delivery_view(delivery) for delivery in newest[start : start + size]], headers=headers)


def _redeliver(fake: FakeGitHub, request: Request, _body: dict[str, Any]) -> tuple[int, Any]:
    """Sent again under the same guid; `Hooks` is what really sends."""
    wanted = request.path_params["id"]
    old = next((delivery for delivery in fake.world.deliveries if delivery.id == wanted), None)
    if old is None:
        raise AccessDenied(404, "Not Found")
    status, words = fake.world.hook_answers or (0, "")
    again = replace(old, id=fake.world.number(), delivered_at=fake.world.now, status=status, redelivery=True)
    again.words = words
    fake.world.deliveries.append(again)
    return 202, {}
