"""The front: lets in who has a live token, answers what is ours, and passes everything else on to emulate."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.emulate.corrections import corrected
from tests.support.emulate.memory import Call, Memory, Repo, Token, now
from tests.support.emulate.relay import Relay
from tests.support.github.authentication import AccessDenied
from tests.support.github.rights import allows, call_of
from tests.support.openapi import note

IN_REPO = "/repos/{owner}/{name}"
_KEPT = {"link", "location", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
_MUTATIONS = {"POST", "PUT", "PATCH", "DELETE"}


class Upstream:
    """Emulate, asked from inside the front's loop; `address` is where it listens, `site` what it is known by."""

    def __init__(self, address: str, site: str) -> None:
        host = httpx.URL(site).netloc.decode()
        self._client = httpx.AsyncClient(base_url=address, headers={"host": host}, timeout=30.0)

    async def ask(self, method: str, path: str, authorization: str, **request: Any) -> httpx.Response:
        headers = {"authorization": authorization, **request.pop("headers", {})}
        return await self._client.request(method, path, headers=headers, **request)

    async def close(self) -> None:
        await self._client.aclose()


@dataclass
class Ask:
    """A request that was let in. `repo` is None outside of repositories, `token` for the App's own signature."""

    front: "Front"
    request: Request
    authorization: str
    token: Token | None
    repo: Repo | None
    body: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.request.path_params)

    @property
    def login(self) -> str:
        return self.token.login if self.token is not None else ""

    @property
    def within(self) -> Repo:
        if self.repo is None:
            raise AccessDenied(404, "Not Found")
        return self.repo

    def needs(self, permission: str, access: str = "read") -> Token:
        """Refuse what emulate is not asked about: a token that does not open this repository for this."""
        if self.token is None:
            raise AccessDenied(401, "Requires authentication")
        if not self.token.opens(self.within.id):
            raise AccessDenied(404, "Not Found")
        if not self.token.allows(permission, access):
            raise AccessDenied(403, "Resource not accessible by integration")
        return self.token

    async def emulate(self, method: str, path: str, **request: Any) -> Any:
        """What emulate answers to whoever asks here; its refusal is raised."""
        answer = await self.front.upstream.ask(method, path, self.authorization, **request)
        if not answer.is_success:
            raise AccessDenied(answer.status_code, answer.json().get("message", ""))
        return answer.json() if answer.content else None

    async def passed_on(self, **changes: Any) -> tuple[int, Any]:
        """The same request, asked of emulate."""
        found = self.request
        sent = {"json": self.body} if self.body else {}
        query = changes.pop("params", dict(found.query_params))
        whole = await self.emulate(found.method, _path(found), params=query, **{**sent, **changes})
        return (201 if found.method == "POST" else 200), whole


Answer = tuple[int, Any] | Response
Handler = Callable[[Ask], Awaitable[Answer]]
ROUTES: list[tuple[str, str, Handler]] = []


def answers(method: str, path: str) -> Callable[[Handler], Handler]:
    """A path that the front answers itself."""

    def register(handler: Handler) -> Handler:
        ROUTES.append((method, path, handler))
        return handler

    return register


async def _noted(request: Request, token: Token | None) -> None:
    """What the App asks is held against GitHub's description; what emulate answers is of others' making."""
    call = call_of(request.method, request.url.path)
    if call is not None and (token is None or token.permissions is not None):
        note(call, request.url.query, await request.body())


class Front:
    """`app` is the ASGI application. One mutation at a time; webhooks wait until it is all remembered."""

    def __init__(self, memory: Memory, relay: Relay, address: str, site: str, inner: str) -> None:
        self.memory = memory
        self.relay = relay
        self.site = site
        self.inner = inner
        """The authorization with which the front itself looks things up."""
        self.upstream = Upstream(address, site)
        self.turn = asyncio.Lock()
        self.relaying: asyncio.Task[None] | None = None
        self.app = Starlette(routes=self._routes(), lifespan=self._life)

    @asynccontextmanager
    async def _life(self, _app: Starlette) -> AsyncIterator[None]:
        self.relaying = asyncio.create_task(self.relay.forward(self._dress_payload))
        try:
            yield
        finally:
            self.relaying.cancel()
            await asyncio.wait([self.relaying])
            await self.relay.close()
            await self.upstream.close()

    def _routes(self) -> list[Route]:
        ours = [Route(path, self._endpoint(handler), methods=[method]) for method, path, handler in ROUTES]
        rest = Route("/{path:path}", self._endpoint(_everything_else), methods=["GET", *_MUTATIONS])
        return [Route("/_webhooks", self.relay.take, methods=["POST"]), *ours, rest]

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            token: Token | None = None
            try:
                ask = await self._let_in(request)
                token = ask.token
                response = await self._answered(handler, ask)
            except AccessDenied as refusal:
                response = JSONResponse(refusal.body, refusal.status, refusal.headers)
            await _noted(request, token)
            self.memory.calls.append(Call(request.method, request.url.path, response.status_code, token))
            if request.method in _MUTATIONS:
                self.memory.happened()
            return response

        return endpoint

    async def _answered(self, handler: Handler, ask: Ask) -> Response:
        if ask.request.method in _MUTATIONS:
            async with self.turn:
                answer = await handler(ask)
                _touch(ask)
                return answer if isinstance(answer, Response) else await self._told(answer, ask.repo)
        answer = await handler(ask)
        return answer if isinstance(answer, Response) else await self._told(answer, ask.repo)

    async def _told(self, answer: tuple[int, Any], repo: Repo | None) -> Response:
        status, content = answer
        if status == 204:
            return Response(status_code=204)
        return JSONResponse(await asyncio.to_thread(corrected, content, self.memory, repo), status)

    async def _let_in(self, request: Request) -> Ask:
        header = request.headers.get("authorization", "")
        text = header.partition(" ")[2]
        token = self.memory.tokens.get(text)
        signed_by_app = text.startswith("eyJ")  # emulate verifies it
        open_to_all = request.url.path.startswith("/_logs/") or ".git/" in request.url.path
        if not open_to_all and not signed_by_app and (token is None or not token.live):
            raise AccessDenied(401, "Bad credentials")
        call = call_of(request.method, request.url.path)
        if token and token.permissions is not None and call and not allows(token.permissions, call):
            raise AccessDenied(403, "Resource not accessible by integration")
        parts = request.url.path.split("/")
        repo = self.memory.repos.get("/".join(parts[2:4])) if parts[1] == "repos" else None
        raw = b"" if ".git/" in request.url.path else await request.body()
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            raise AccessDenied(400, "Problems parsing JSON") from None
        return Ask(self, request, header, token, repo, body)

    async def look(self, path: str, **query: str | int) -> Any:
        """What emulate shows to the repositories' owner, every page of it."""
        answer = await self.upstream.ask("GET", path, self.inner, params={"per_page": 100, **query})
        if answer.status_code == 404:
            raise AccessDenied(404, "Not Found")
        found = answer.raise_for_status().json()
        while isinstance(found, list) and "next" in answer.links:
            query["page"] = int(query.get("page", 1)) + 1
            answer = await self.upstream.ask("GET", path, self.inner, params={"per_page": 100, **query})
            found += answer.raise_for_status().json()
        return found

    async def user(self, login: str) -> dict[str, Any]:
        """An account as payloads name it."""
        whole = await self.look(f"/users/{login}")
        return {key: whole[key] for key in ("login", "id", "node_id", "type", "html_url", "site_admin")}

    async def announce(self, event: str, repo: Repo, login: str, **content: Any) -> None:
        """A webhook of ours, in the shape of GitHub's."""
        payload = {**content, "repository": await self.look(repo.api), "sender": await self.user(login)}
        self.relay.put(event, {**payload, "installation": {"id": self.relay.installation, "node_id": ""}})

    async def _dress_payload(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A webhook's payload, once the change that it tells of is remembered."""
        async with self.turn:
            repo = self.memory.repos.get((payload.get("repository") or {}).get("full_name", ""))
            whole: dict[str, Any] = await asyncio.to_thread(corrected, payload, self.memory, repo)
            return whole


def paged(ask: Ask, items: list[Any], *, within: str = "") -> Response:
    """One page of a list, with the link to the next; `within` names the list in a larger answer."""
    query = ask.request.query_params
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    following = ask.request.url.include_query_params(page=page + 1)
    headers = {"link": f'<{following}>; rel="next"'} if page * size < len(items) else {}
    shown = items[(page - 1) * size : page * size]
    return JSONResponse({"total_count": len(items), within: shown} if within else shown, headers=headers)


def _touch(ask: Ask) -> None:
    """Whatever changes on an issue or a pull request makes it the newest."""
    named = re.search(r"/(?:issues|pulls)/(\d+)", ask.request.url.path)
    if named is not None and ask.repo is not None:
        ask.repo.touched[int(named[1])] = now()


async def _everything_else(ask: Ask) -> Answer:
    """Emulate's own answer, dressed where it is JSON."""
    found = ask.request
    headers = {"accept": found.headers["accept"]} if "accept" in found.headers else {}
    answer = await ask.front.upstream.ask(
        found.method,
        f"{_path(found)}?{found.url.query}",
        ask.authorization,
        content=await found.body(),
        headers=headers,
    )
    kept = {name: value for name, value in answer.headers.items() if name in _KEPT}
    if "json" not in answer.headers.get("content-type", "") or not answer.content:
        media = answer.headers.get("content-type")
        return Response(answer.content, answer.status_code, kept, media_type=media)
    content = await asyncio.to_thread(corrected, answer.json(), ask.front.memory, ask.repo)
    return JSONResponse(content, answer.status_code, kept)


def _path(request: Request) -> str:
    """As it was sent: a label or a branch may hold anything, quoted."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode().partition("?")[0]
