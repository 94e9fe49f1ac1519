"""The receiver's process: webhooks in, and the pages for people out. It holds the webhook secret and the database."""

import logging
import signal
import socket
from collections.abc import Callable
from datetime import timedelta

import uvicorn
from starlette.applications import Starlette

from app.bootstrap.receiving import Receiving
from app.entrypoints.heads import BoundedHeads
from app.entrypoints.opening import address_of, listen
from app.entrypoints.webhook import receiver
from app.errors import ExitCode
from app.settings import Settings
from app.web.site import site

GRACE_SECONDS = 10
MOST_CONNECTIONS = 800
"""Below the number of files that a process may open almost everywhere."""

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
    ending: list[uvicorn.Server] = []
    app = application(receiving, settings, ending=lambda: bool(ending) and ending[0].should_exit)
    config = uvicorn.Config(
        app,
        http=BoundedHeads,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        forwarded_allow_ips="127.0.0.1,::1",
    )
    ending.append(uvicorn.Server(config))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # what uvicorn puts back, and raises once more, when it has ended
    logger.info("receiver ready at %s", address_of(door))
    ending[0].run([door])


def application(receiving: Receiving, settings: Settings, *, ending: Callable[[], bool] = lambda: False) -> Starlette:
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
