"""The receiver's process: accepts webhooks and serves the pages. It holds the webhook secret and the database."""

import logging
import socket
from collections.abc import Callable
from datetime import timedelta

import uvicorn
from fastapi import FastAPI

from app.config.settings import Settings
from app.core.errors import ExitCode
from app.server.http_limits import bounded_server
from app.server.startup import address_of, listen
from app.server.web.sign_in import SignInClient
from app.server.web.site import SiteParts, site
from app.server.webhook import receiver
from app.server.wiring.receiver import ReceiverContext

logger = logging.getLogger(__name__)


def run_receiver(settings: Settings, listening: int | None = None) -> int:
    """Run until SIGTERM or SIGINT. `listening` is a socket that the supervisor opened and keeps."""
    receiver_context = ReceiverContext(settings)
    receiver_context.prepare()
    listener = socket.socket(fileno=listening) if listening is not None else listen(settings.host, settings.port)
    try:
        with listener:
            serve(receiver_context, settings, listener)
    finally:
        receiver_context.close()
    return ExitCode.OK


def serve(receiver_context: ReceiverContext, settings: Settings, listener: socket.socket) -> None:
    servers: list[uvicorn.Server] = []
    app = application(receiver_context, settings, ending=lambda: any(server.should_exit for server in servers))
    servers.append(bounded_server(app, settings.trusted_proxies))
    logger.info("receiver ready at %s", address_of(listener))
    servers[0].run([listener])


def application(
    receiver_context: ReceiverContext,
    settings: Settings,
    *,
    ending: Callable[[], bool] = lambda: False,
    sign_in: SignInClient | None = None,
) -> FastAPI:
    """Webhooks and health for everybody; pages and API if there is a password or a sign-in.

    `sign_in` takes the place of the client that the settings name.
    """

    def stalled() -> timedelta | None:
        found = receiver_context.health.stalled()
        return timedelta(seconds=found.seconds) if found else None

    app = receiver(settings.webhook_secrets, receiver_context.inbox, receiver_context.clock, stalled=stalled)
    client = sign_in or receiver_context.sign_in(settings)
    if settings.web_token or client is not None:
        context, counts = receiver_context, app.state.counts
        parts = SiteParts(context.files, context.health, context.queue, client, counts, ending)
        app.mount("/", site(settings, parts))
    return app
