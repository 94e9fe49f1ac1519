"""Git over HTTP: `git http-backend` behind the fake's own tokens, over the real bare repositories."""

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.fakes.github.gate import Refusal
from tests.fakes.github.server import FakeGitHub
from tests.repositories import ENVIRONMENT


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
    fake.gate.enter(request.headers.get("authorization", ""), repo, "contents", "write" if writes else "read")
    if repo.moved:
        return Response(status_code=301, headers={"location": f"/moved/{rest}"})
    environment = {
        **ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(repo.path),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "PATH_INFO": f"/{rest}",
        "QUERY_STRING": request.url.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "REMOTE_USER": "x-access-token",
    }
    child = await asyncio.create_subprocess_exec(
        "git",
        "http-backend",
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate(await request.body())
    head, _, body = output.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    status = int(headers.pop("Status", "200").split()[0])
    return Response(body, status, headers)
