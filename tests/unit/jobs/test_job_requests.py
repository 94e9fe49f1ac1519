"""Jobs that programs request, while the publisher admits them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.job_actions import JobActions, JobRequests, ProgramRequest
from app.jobs.queue import JobQueue
from tests.support.databases import database
from tests.support.job_queue import Server
from tests.support.server_jobs import START

T = TypeVar("T")


@contextmanager
def during_an_admission(tmp_path: Path, act: Callable[[Engine], T]) -> Iterator[tuple[Server, T]]:
    """The server after the requested job `a` was admitted, and what was returned by what waited for that."""
    with database("postgresql", tmp_path) as engine, ThreadPoolExecutor() as threads:  # SQLite has one writer anyway
        server, acted = Server(engine), list[Future[T]]()
        JobRequests(engine, lambda: START).add(
            ProgramRequest(job="a", by="ci", repository="ada/sample", number=3, at=START)
        )

        def act_meanwhile(_admitting: sa.Connection) -> None:
            if acted:
                return
            acted.append(threads.submit(act, engine))
            with engine.connect() as db:
                while not db.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
                    assert not acted[0].done()
                    sleep(0.005)

        sa.event.listen(engine, "commit", act_meanwhile)
        assert server.admit("a") == "a"
        yield server, acted[0].result()


def test_a_request_that_is_being_admitted_is_not_ended_any_more(tmp_path: Path) -> None:
    def end(engine: Engine) -> bool:
        return JobRequests(engine, lambda: START).end("a", "stopped", "no longer needed")

    with during_an_admission(tmp_path, end) as (server, ended):
        assert not ended
        assert server.state("a") == "queued"


def test_a_request_is_cancelled_while_it_is_admitted(tmp_path: Path) -> None:
    def cancel(engine: Engine) -> str:
        return JobActions(engine, lambda: START, JobQueue(engine, lambda: START)).cancel("a", "no longer needed")

    with during_an_admission(tmp_path, cancel) as (server, answer):
        assert (answer, server.state("a")) == ("stopped", "stopped")
        assert server.admit("b") == "b", "its issue is free again"
