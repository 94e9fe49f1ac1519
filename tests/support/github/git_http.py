"""Git over HTTP behind the fake's own tokens, over the real bare repositories."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.github.calls import GIT_FETCH, GIT_PUSH
from tests.support.github.authentication import AccessDenied
from tests.support.github.server import FakeGitHub, full_name
from tests.support.loopback import git_over_http


def git_route(github: Callable[[], FakeGitHub]) -> Route:
    async def endpoint(request: Request) -> Response:
        fake = github()
        try:
            return await _served(fake, request)
        except AccessDenied as refusal:
            challenge = {"www-authenticate": 'Basic realm="GitHub"'} if refusal.status == 401 else {}
            return Response(str(refusal), refusal.status, challenge)

    return Route("/{owner}/{name}.git/{rest:path}", endpoint, methods=["GET", "POST"])


async def _served(fake: FakeGitHub, request: Request) -> Response:
    repo = fake.world.named(full_name(request))
    if repo is None:
        raise AccessDenied(404, "Repository not found.")
    rest = request.path_params["rest"]
    writes = "receive-pack" in rest or "receive-pack" in request.url.query
    token = fake.gate.enter(request.headers.get("authorization", ""), repo, GIT_PUSH if writes else GIT_FETCH)
    if repo.full_name != full_name(request):
        return Response(status_code=301, headers={"location": f"/{repo.full_name}.git/{rest}"})
    scopes = (token.scopes or "").replace(",", " ").split()
    changes_workflows = token.permissions.get("workflows") == "write" or "workflow" in scopes
    hooks = {"MAY_CHANGE_WORKFLOWS": "yes"} if changes_workflows else {}
    return await git_over_http(request, repo.path, rest, hooks)
