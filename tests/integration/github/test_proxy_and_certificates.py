"""A GitHub with a certificate of its own authority, behind a proxy or past it: real git and real HTTP requests."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.support.loopback import free_port, git_over_http, listening
from tests.support.repositories import git, make_repository

INTERNAL = "github.internal.example"
"""No name server knows it: only the proxy reaches it."""
ASK = """
import asyncio, pathlib, sys
import httpx
from app.config.settings import read_settings
from app.github.connection import GitHubHost
from app.repo.git_store import GitStore
from app.repo.remote import Remote, RemoteError, branch_tips

host = GitHubHost.of(read_settings())

async def rest():
    async with httpx.AsyncClient(transport=host.transport()) as client:
        return (await client.get(host.api_url + "/zen")).text

try:
    print("rest", asyncio.run(rest()))
except httpx.HTTPError as error:
    print("rest", error)
store = GitStore(pathlib.Path(sys.argv[1]))
store.ensure()
try:
    print("git", *branch_tips(store, Remote(host.git_url("ada", "sample"), "ghs_x", host.git_variables), "main"))
except RemoteError as error:
    print("git", error)
"""


@contextmanager
def tls_server(directory: Path) -> Iterator[int]:
    """Git and a REST answer over TLS; `ca.pem` in the directory is the authority."""
    make_authority(directory)
    work = make_repository(directory / "work", {"README.md": "# Sample\n"})
    git(directory, "clone", "-q", "--bare", "--template=", str(work), str(directory / "sample.git"))

    async def answer(request: Request) -> Response:
        _, found, rest = request.url.path.partition("/ada/sample.git/")
        return await git_over_http(request, directory / "sample.git", rest) if found else PlainTextResponse("Keep it.")

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    with listening() as listener:
        files: dict[str, Any] = {"ssl_certfile": directory / "host.pem", "ssl_keyfile": str(directory / "host.key")}
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", **files))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


def make_authority(directory: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=House CA")
    openssl("req", *key, "-keyout", "host.key", "-out", "host.csr", "-subj", f"/CN={INTERNAL}")
    (directory / "names").write_text(f"subjectAltName=DNS:{INTERNAL},DNS:localhost\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "host.csr", *signed, "-out", "host.pem")


@contextmanager
def connect_proxy() -> Iterator[tuple[int, list[str]]]:
    """A proxy that tunnels to this machine, whatever host is asked for; and what it was asked for."""
    asked: list[str] = []
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        asked.append(target.partition(":")[0])
        inside, outside = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, outside), copy(inside, writer), return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(tunnel, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        server.close()
        loop.close()


def ask(directory: Path, address: str, **variables: str) -> str:
    """What a fresh process gets, whose environment has only these variables."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory), **variables}
    environment |= {"AGENT_FIX_GITHUB_API_URL": f"{address}/api/v3", "AGENT_FIX_GITHUB_URL": address}
    command = [sys.executable, "-c", ASK, str(directory / "store.git")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


BOTH = "rest Keep it.\ngit main\n"


def test_the_proxy_and_the_own_authority_serve_requests_and_git(tmp_path: Path) -> None:
    with tls_server(tmp_path) as port, connect_proxy() as (proxy, asked):
        trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        assert ask(tmp_path, f"https://{INTERNAL}:{port}", **trusted) == BOTH
        assert set(asked) == {INTERNAL}
        refused = ask(tmp_path, f"https://{INTERNAL}:{port}", HTTPS_PROXY=trusted["HTTPS_PROXY"])
        assert refused.lower().count("certificate") >= 2, "neither trusts what it was not told to trust"


@pytest.mark.parametrize("listed", ["localhost", "a.example, LOCALHOST", "localhost:{port}", "*"])
def test_a_host_that_needs_no_proxy_is_reached_straight(tmp_path: Path, listed: str) -> None:
    with tls_server(tmp_path) as port:
        variables = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "HTTPS_PROXY": f"http://127.0.0.1:{free_port()}"}
        reached = ask(tmp_path, f"https://localhost:{port}", **variables, NO_PROXY=listed.format(port=port))
        assert reached == BOTH
