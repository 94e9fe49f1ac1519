"""The dashboard on a loopback port, over a seeded database or an empty one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from playwright.sync_api import HttpCredentials

from app.github.user_sign_in import GitHubSignIn
from app.server.context import ServerContext
from app.server.receiver import application
from tests.support.clock import SettableClock
from tests.support.loopback import listening, serving
from tests.support.seeded_database import seeded
from tests.support.web_client import NOW, TOKEN, settings

KNOWS: HttpCredentials = {"username": "anybody", "password": TOKEN}
GUESSES: HttpCredentials = {"username": "anybody", "password": "a guess"}


class OtherSite(Protocol):
    def __call__(self, host: str, *, to: str, referrer: str, **fields: str) -> str:
        """The address of a page on this host with a form of these fields to `to`, and this referrer policy."""


@dataclass
class Dashboard:
    """`address` is a secure context for browsers."""

    address: str
    receiving: ServerContext

    def at(self, host: str) -> str:
        return self.address.replace("127.0.0.1", host)

    def stop_requested(self, job: str) -> bool:
        listed = self.receiving.overview.one(job)
        assert listed is not None
        return listed.stop_requested


@contextmanager
def dashboard(place: Path, *, seed: bool = True, sign_in: GitHubSignIn | None = None) -> Iterator[Dashboard]:
    if seed:
        seeded(place, NOW)
    chosen = settings(place)
    receiving = ServerContext(chosen, SettableClock(NOW))
    receiving.prepare()
    try:
        with listening() as listener, serving(application(receiving, sign_in=sign_in), listener) as address:
            yield Dashboard(address, receiving)
    finally:
        receiving.engine.dispose()
