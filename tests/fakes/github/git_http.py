"""Git over HTTP behind the fake's own tokens, over the real bare repositories."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.forge.github.calls import GIT_FETCH, GIT_PUSH
from tests.fakes.github.gate import Refusal
from tests.fakes.github.server import FakeGitHub
from tests.loopback import git_over_http


def git_route(github: Callable[[], FakeGitHub]) -> Route:
    async def endpoint(request: Request) -> Response:
        fake = github()
        try:
            return await _served(fake, request)
        except Refusal as refusal:
            challenge = {"www-authenticate": 'Basic realm="GitHub"'} if refusal.status == 401 else {}
            return Response(str(refusal), refusal.status, challenge)

    return Route("/{owner}/{name}.git/{rest:path}", endpoint, methods=["GET", "POST"])


async def _served(fake: FakeGitHub, request: Request) -> Response:
    wanted = f"{request.path_params['owner']}/{request.path_params['name']}"
    repo = next((repo for repo in fake.world.repos.values() if repo.full_name == wanted), None)
    if repo is None:
        raise Refusal(404, "Repository not found.")
    rest = request.path_params["rest"]
    writes = "receive-pack" in rest or "receive-pack" in request.url.query
    fake.gate.enter(request.headers.get("authorization", ""), repo, GIT_PUSH if writes else GIT_FETCH)
    if repo.moved:
        return Response(status_code=301, headers={"location": f"/moved/{rest}"})
    return await git_over_http(request, repo.path, rest)
