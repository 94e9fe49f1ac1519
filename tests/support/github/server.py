"""The fake itself: an ASGI application that lets in, looks up, answers, and remembers every request."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Send

from app.github.calls import Call as GitHubCall
from tests.support import openapi
from tests.support.github.authentication import AccessDenied, Authenticator
from tests.support.github.faults import Fault
from tests.support.github.registration import Registrations
from tests.support.github.rights import call_of
from tests.support.github.world import Issue, Repo, Token, World

PREFIX = "/repos/{owner}/{name}"


@dataclass(frozen=True)
class Call:
    """One request that arrived, faults included, with what its token opened."""

    method: str
    path: str
    at: float
    body: Any
    token: Token | None


@dataclass
class Ask:
    """A request to one repository that was let in."""

    world: World
    repo: Repo
    params: dict[str, Any]
    query: dict[str, str]
    body: dict[str, Any]
    token: Token
    accept: str = ""

    @property
    def issue(self) -> Issue:
        issue = self.repo.issues.get(self.params["number"])
        if issue is None:
            raise AccessDenied(404, "Not Found")
        return issue

    @property
    def pull(self) -> Issue:
        if self.issue.pull is None:
            raise AccessDenied(404, "Not Found")
        return self.issue


Answer = tuple[int, Any] | Response
Handler = Callable[[Ask], Answer]
ROUTES: list[tuple[str, str, Handler]] = []


def rest(method: str, path: str) -> Callable[[Handler], Handler]:
    """A route below a repository."""

    def register(handler: Handler) -> Handler:
        ROUTES.append((method, path, handler))
        return handler

    return register


class FakeGitHub:
    """`app` is the ASGI application. `calls` are in the order of arrival."""

    def __init__(self, world: World, extra: list[Route]) -> None:
        self.world = world
        self.gate = Authenticator(world)
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.registrations = Registrations()
        self.app = Starlette(routes=[*map(self._route, ROUTES), *extra, *self.registrations.routes()])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        raw = await request.body()
        path = request.url.path
        self.calls.append(self._call(request, raw))
        fault = next((fault for fault in self.faults if fault.hits(request.method, path)), None)
        if fault is None:
            await self._answered(scope, raw, send)
            return
        if fault.after or fault.cut:
            whole = await _answer_of(self.app, scope, raw)
            if fault.cut:
                await Response(whole[: len(whole) // 2], media_type="application/json")(scope, receive, send)
                return
        if fault.drop:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        media = "text/html" if fault.body.startswith("<") else "application/json"
        response = Response(fault.body, fault.status, dict(fault.headers), media_type=media)
        await response(scope, receive, send)

    async def _answered(self, scope: Any, raw: bytes, send: Send) -> None:
        """What the application answers, held against GitHub's description of it."""
        call = call_of(scope["method"], scope["path"])
        head: dict[str, Any] = {}
        parts: list[bytes] = []

        async def noted(message: Message) -> None:
            head.update(message)
            parts.append(message.get("body", b""))
            await send(message)

        await self.app(scope, _replayed(raw), send if call is None else noted)
        if call is not None:
            media = dict(head["headers"]).get(b"content-type", b"").decode()
            query = scope["query_string"].decode()
            openapi.note(call, query, raw, openapi.Answer(head["status"], media, b"".join(parts)))

    def mutations(self) -> list[Call]:
        """What was changed over REST, token requests left out."""
        rest_calls = [call for call in self.calls if call.path.startswith("/repos/")]
        return [call for call in rest_calls if call.method != "GET"]

    def _call(self, request: Request, raw: bytes) -> Call:
        value = request.headers.get("authorization", "").partition(" ")[2]
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        at = self.world.now.timestamp()
        return Call(request.method, request.url.path, at, body, self.world.tokens.get(value))

    def _route(self, entry: tuple[str, str, Handler]) -> Route:
        method, path, handler = entry

        async def endpoint(request: Request) -> Response:
            try:
                repo = self._repo(request)
                token = self.gate.enter(
                    request.headers.get("authorization", ""), repo, listed(method, request.url.path)
                )
                if repo.full_name != full_name(request):
                    return moved(repo, request)
                raw = await request.body()
                ask = Ask(
                    self.world,
                    repo,
                    dict(request.path_params),
                    dict(request.query_params),
                    json.loads(raw) if raw else {},
                    token,
                    request.headers.get("accept", ""),
                )
                answer = handler(ask)
            except AccessDenied as refusal:
                return self.refuse(refusal)
            if isinstance(answer, Response):
                return answer
            return self.answer(request, *answer)

        return Route(PREFIX + path, endpoint, methods=[method])

    def answer(self, request: Request, status: int, content: Any) -> Response:
        """JSON, in pages where it is a list, or an object around one."""
        headers, query = {"date": _http_date(self.world)}, request.query_params
        around = next((name for name in WRAPPED if isinstance(content, dict) and name in content), "")
        items = content[around] if around else content
        if isinstance(items, list) and (around or "page" in query):
            size, page = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
            if page * size < len(items):
                headers["link"] = f'<{request.url.include_query_params(page=page + 1)}>; rel="next"'
            items = items[(page - 1) * size : page * size]
            content = {**content, around: items} if around else items
        return JSONResponse(content, status, headers) if status != 204 else Response(status_code=204, headers=headers)

    def refuse(self, refusal: AccessDenied) -> Response:
        return JSONResponse(refusal.body, refusal.status, {"date": _http_date(self.world), **refusal.headers})

    def _repo(self, request: Request) -> Repo:
        repo = self.world.named(full_name(request))
        if repo is None:
            raise AccessDenied(404, "Not Found")
        return repo


def full_name(request: Request) -> str:
    return f"{request.path_params['owner']}/{request.path_params['name']}"


def moved(repo: Repo, request: Request) -> Response:
    """GitHub's documentation, "Redirects": 301 for a GET; 307 for all others, which keep their method."""
    api, _, rest = request.url.path.partition(f"/repos/{full_name(request)}")
    address = f"{api}/repositories/{repo.id}{rest}"
    body = {"message": "Moved Permanently", "url": address, "documentation_url": "https://docs.github.example"}
    return JSONResponse(body, 301 if request.method == "GET" else 307, {"location": address})


WRAPPED = ("check_runs", "statuses")
"""Lists that stand in an object with their number."""


def listed(method: str, path: str) -> GitHubCall:
    """The row of a request in the product's table of calls."""
    call = call_of(method, path)
    if call is None:
        raise AssertionError(f"{method} {path} is not in app.github.calls")
    return call


def _http_date(world: World) -> str:
    return world.now.strftime("%a, %d %b %Y %H:%M:%S GMT")


def _replayed(raw: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    return receive


async def _answer_of(app: Any, scope: Any, raw: bytes) -> bytes:
    """What the application would have sent."""
    parts: list[bytes] = []

    async def send(message: dict[str, Any]) -> None:
        parts.append(message.get("body", b""))

    await app(scope, _replayed(raw), send)
    return b"".join(parts)
