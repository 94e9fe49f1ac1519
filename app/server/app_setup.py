"""`agent-fix serve --setup`: a process with no other role, in which a person makes the GitHub App with a browser."""

import asyncio
import secrets
import socket
import sys
from functools import partial
from urllib.parse import urlsplit

from app.config.settings import Settings, write_app_file
from app.core.errors import AgentFixError, ExitCode
from app.github.app_manifest import NewAppResponse, exchange
from app.github.connection import GitHubHost
from app.server.http_limits import bounded_server
from app.server.startup import address_of, listen, only_supervisor
from app.server.web.setup import SetupPage

SECONDS = 3_600.0
LINGER_SECONDS = 2.0
"""So that the last page arrives with its style."""


def run_setup(settings: Settings) -> int:
    """Serve the set-up page until an App was created, an hour has passed, or Ctrl-C."""
    if settings.app_id or settings.app_key:
        raise AgentFixError(
            f"The GitHub App {settings.app_id} is already configured.",
            hint=f"To create another, first remove it from {settings.state}/app.env or the environment.",
        )
    token = secrets.token_urlsafe(24)
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
    page = SetupPage(
        github_url=settings.github_url,
        public_url=settings.public_url,
        token=token,
        exchange=partial(exchange, host),
        keep=partial(keep, settings),
    )
    with only_supervisor(settings), listen(settings.host, settings.port) as listener:
        _invite(f"{address_of(listener)}/setup?token={token}", listener.getsockname()[1])
        asyncio.run(_serve(page, listener.dup()))
    if page.made is None:
        print("No App was created.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    _print_done(settings, page.made)
    return ExitCode.OK


def keep(settings: Settings, app: NewAppResponse, address: str) -> str:
    """Write the App's settings for `agent-fix serve`; returns the file."""
    values = {
        "AGENT_FIX_APP_ID": str(app.id),
        "AGENT_FIX_WEBHOOK_SECRET": app.webhook_secret or secrets.token_hex(32),
        "AGENT_FIX_PRIVATE_KEY": app.pem,
        "AGENT_FIX_CLIENT_ID": app.client_id,
        "AGENT_FIX_CLIENT_SECRET": app.client_secret,
        "AGENT_FIX_GITHUB_URL": settings.github_url,
        "AGENT_FIX_GITHUB_API_URL": settings.github_api_url,
    }
    if address and not urlsplit(address).path.strip("/"):
        values["AGENT_FIX_PUBLIC_URL"] = address
    return str(write_app_file(settings.state, values))


async def _serve(page: SetupPage, listener: socket.socket) -> None:
    server = bounded_server(page.app())
    serving, made = asyncio.create_task(server.serve([listener])), asyncio.create_task(page.ended.wait())
    done, _ = await asyncio.wait([serving, made], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if made in done:
        await asyncio.sleep(LINGER_SECONDS)
    made.cancel()
    server.should_exit = True
    await serving


def _invite(address: str, port: int) -> None:
    print("Open this address in your browser to create the GitHub App. It works for one hour:\n")
    print(f"  {address}\n")
    print(
        f"If your browser is on another machine, first run: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE\n", flush=True
    )


def _print_done(settings: Settings, app: NewAppResponse) -> None:
    print(
        f"The App {app.slug} ({app.id}) was created. Its key is in {settings.state}/app.env, which only you can read.\n"
    )
    print("Next steps:")
    print(f"  1. Install it in your repositories: {app.html_url}/installations/new")
    print("  2. Set AGENT_FIX_MODEL and the model's key, for example ANTHROPIC_API_KEY.")
    print("  3. agent-fix serve")
