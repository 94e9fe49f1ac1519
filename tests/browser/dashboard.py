"""The dashboard on a loopback port, over a seeded database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.bootstrap.receiving import Receiving
from app.entrypoints.receiver import application
from tests.loopback import listening, serving
from tests.seeding import Moment, seeded
from tests.visiting import NOW, settings

WORKING = "seed22"
"""A job at work, which can be stopped."""


@dataclass
class Dashboard:
    """`address` is a secure context for browsers, `plain` is not."""

    address: str
    receiving: Receiving

    @property
    def plain(self) -> str:
        return self.address.replace("127.0.0.1", "agent-fix.example")

    def stop_requested(self, job: str) -> bool:
        listed = self.receiving.files.overview.one(job)
        assert listed is not None
        return listed.stop_requested


@contextmanager
def dashboard(place: Path, *, seed: bool = True, **changes: str) -> Iterator[Dashboard]:
    if seed:
        seeded(place, NOW)
    chosen = settings(place, **changes)
    receiving = Receiving(chosen, Moment(NOW))
    receiving.prepare()
    try:
        with listening() as door, serving(application(receiving, chosen), door) as address:
            yield Dashboard(address, receiving)
    finally:
        receiving.close()
