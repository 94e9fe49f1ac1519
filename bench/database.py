"""What the queue costs on Postgres at scale: `python -m bench.database [FINISHED WAITING IN_PROGRESS]`.

Rows are made in SQL from one admitted job. The Postgres is the test suite's own, with its defaults.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.config.settings import Settings
from app.jobs.queue import JobClaim, QueueLimits
from app.server.context import ServerContext
from tests.support.databases import fresh_postgres
from tests.support.server_jobs import issue_ref, job, job_context, trigger

TIMES = 50


def fill(server: ServerContext, *, finished: int, waiting: int, in_progress: int) -> None:
    """Each job in a repository of its own."""
    where = issue_ref(1)
    server.queue.admit(job("seed", where), job_context(where), trigger("seed", where), ready=True)
    with server.engine.begin() as db:
        _copy(db, "f", finished, state="pr_opened", owner="NULL", lease="0", active=False)
        _copy(db, "w", waiting, state="queued", owner="NULL", lease="0", active=True)
        _copy(db, "p", in_progress, state="working", owner="'kubernetes'", lease="4102444800", active=True)
        db.exec_driver_sql("DELETE FROM job_contexts WHERE job = 'seed'")
        db.exec_driver_sql("DELETE FROM jobs WHERE id = 'seed'")
    with server.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.exec_driver_sql("ANALYZE")


def _copy(db: Connection, prefix: str, number: int, *, state: str, owner: str, lease: str, active: bool) -> None:
    for table, changed in (
        ("jobs", {"id": f"'{prefix}' || n", "state": f"'{state}'", "owner": owner, "epoch": "1"}),
        (
            "job_contexts",
            {
                "job": f"'{prefix}' || n",
                "repository": f"{ord(prefix)} * 10000000 + n",
                "lease_until": lease,
                "active_key": f"'{prefix}' || n" if active else "NULL",
            },
        ),
    ):
        columns = [column["name"] for column in sa.inspect(db).get_columns(table)]
        values = ", ".join(changed.get(name, f"{table}.{name}") for name in columns)
        source = f"{table}, generate_series(1, {number}) AS n"
        key = "id" if table == "jobs" else "job"
        db.exec_driver_sql(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {source} WHERE {table}.{key} = 'seed'"
        )


def measured(name: str, work: Callable[[int], object]) -> str:
    taken = []
    for number in range(TIMES):
        began = perf_counter()
        work(number)
        taken.append(1_000 * (perf_counter() - began))
    return f"| {name} | {statistics.median(taken):.1f} | {max(taken):.1f} |"


def main(finished: int = 1_000_000, waiting: int = 10_000, in_progress: int = 10_000) -> None:
    with tempfile.TemporaryDirectory() as place:
        settings = Settings(state=Path(place), database_url=fresh_postgres())
        server = ServerContext(settings, lambda: datetime.now(UTC))
        server.prepare()
        fill(server, finished=finished, waiting=waiting, in_progress=in_progress)
        limits, store = QueueLimits(jobs=100_000, per_repository=1), server.job_store()
        print(f"{finished:,} finished, {waiting:,} waiting, {in_progress:,} in progress; milliseconds\n")
        print("| | median | longest |\n|---|---|---|")
        print(measured("claim a job", lambda _: server.queue.claim("kubernetes", limits)))
        print(measured("claim 32 jobs", lambda _: server.queue.claim_several("kubernetes", limits, 32)))
        mine = [JobClaim(f"p{number + 1}", 1, "kubernetes", resumed=False) for number in range(TIMES)]
        print(measured("extend a lease", lambda number: server.queue.heartbeat(mine[number])))
        print(measured("look at one's own row", lambda number: store.get(mine[number].job)))
        print(measured("ask which jobs are to stop", lambda _: server.queue.to_stop()))
        print(measured("store a line of progress", lambda number: store.add_progress(mine[number].job, "note", "x")))
        server.engine.dispose()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
