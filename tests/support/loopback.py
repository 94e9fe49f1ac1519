"""Servers that tests have on a loopback port: an ASGI application in a thread, and git over HTTP."""

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from tests.support.repositories import ENVIRONMENT


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A port that is ours: who connects before anybody serves there waits in the backlog."""
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        yield listener
    finally:
        listener.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def address_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def serving(app: Any, listener: socket.socket, *, lifespan: Literal["on", "off"] = "off") -> Iterator[str]:
    """The application at that port, in a thread of its own; its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan=lifespan))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield address_of(listener)
    finally:
        server.should_exit = True
        thread.join(30)


async def git_over_http(request: Request, repository: Path, rest: str, hooks: Mapping[str, str] = {}) -> Response:
    """What `git http-backend` answers over one bare repository; whoever asks was let in by the caller.

    `hooks` are variables for the hooks.
    """
    environment = {
        **ENVIRONMENT,
        **hooks,
        "GIT_PROJECT_ROOT": str(repository),
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
    command = ["git", "http-backend"]
    # Not by asyncio: uvloop cannot write to a child that has not waited for what it is sent.
    raw = await request.body()
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, input=raw, capture_output=True, check=False
    )
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
    status = int(headers.pop("Status", "200").split()[0])
    return Response(body, status, headers)
