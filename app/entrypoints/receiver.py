"""The receiver's process: webhooks in, and the pages for people out. It holds the webhook secret and the database."""

import logging
import socket
from collections.abc import Callable
from datetime import timedelta

import uvicorn
from fastapi import FastAPI

from app.bootstrap.receiving import Receiving
from app.entrypoints.heads import bounded_server
from app.entrypoints.opening import address_of, listen
from app.entrypoints.webhook import receiver
from app.errors import ExitCode
from app.settings import Settings
from app.web.site import site

logger = logging.getLogger(__name__)


def run_receiver(settings: Settings, listening: int | None = None) -> int:
    """Until SIGTERM or SIGINT. `listening` is a socket that the supervisor opened and keeps."""
    receiving = Receiving(settings)
    receiving.prepare()
    door = socket.socket(fileno=listening) if listening is not None else listen(settings.host, settings.port)
    try:
        with door:
            serve(receiving, settings, door)
    finally:
        receiving.close()
    return ExitCode.OK


def serve(receiving: Receiving, settings: Settings, door: socket.socket) -> None:
    servers: list[uvicorn.Server] = []
    app = application(receiving, settings, ending=lambda: any(server.should_exit for server in servers))
    servers.append(bounded_server(app))
    logger.info("receiver ready at %s", address_of(door))
    servers[0].run([door])


def application(receiving: Receiving, settings: Settings, *, ending: Callable[[], bool] = lambda: False) -> FastAPI:
    """Webhooks and health for everybody; the pages for who has the password, where there is one."""

    def stalled() -> timedelta | None:
        found = receiving.pulse.stalled()
        return timedelta(seconds=found.seconds) if found else None

    app = receiver(settings.webhook_secrets, receiving.inbox, receiving.clock, stalled=stalled)
    if settings.web_token:
        pages = site(
            settings,
            receiving.files,
            receiving.pulse,
            receiving.queue,
            answers=app.state.counts,
            ending=ending,
        )
        app.mount("/", pages)
    return app
