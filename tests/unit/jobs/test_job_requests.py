"""Jobs that programs request, while the publisher admits them."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import sleep

import sqlalchemy as sa

from app.jobs.job_actions import JobRequests, ProgramRequest
from tests.support.databases import database
from tests.support.job_queue import Server
from tests.support.server_jobs import START


def test_a_request_that_is_being_admitted_is_not_ended_any_more(tmp_path: Path) -> None:
    with database("postgresql", tmp_path) as engine, ThreadPoolExecutor() as threads:  # SQLite has one writer anyway
        server, ended = Server(engine), list[Future[bool]]()
        requests = JobRequests(engine, lambda: START)
        requests.add(ProgramRequest(job="a", by="ci", repository="ada/sample", number=3, at=START))

        def end_it_meanwhile(_admitting: sa.Connection) -> None:
            if ended:
                return
            ended.append(threads.submit(requests.end, "a", "stopped", "no longer needed"))
            with engine.connect() as db:
                while not db.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
                    assert not ended[0].done()
                    sleep(0.005)

        sa.event.listen(engine, "commit", end_it_meanwhile)
        assert server.admit("a") == "a"
        assert not ended[0].result()
        row = server.store.get("a")
        assert row is not None
        assert row.state == "queued"
