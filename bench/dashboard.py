"""How long the dashboard's pages take with 10,000 jobs of 100 steps each, and with 50 people who watch one of them.

`python -m bench.dashboard [--jobs N] [--steps N] [--watchers N] [--repeat N]`: the receiver is the program that
`agent-fix serve --role receiver` starts, over a real socket, on SQLite. The jobs are copies of those of the tests'
database; each step has three lines in the log and one model call.
"""

import argparse
import asyncio
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import httpx
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.accounts import WebSessions
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from bench.webhooks import receiving
from tests.support.seeded_database import PLACES, seeded

OBSERVATION = "rounding.py:9:    return amount.quantize(CENT)\n" * 8
WATCHED = "seed22"
LINES = 40
SIGN_IN = {
    "AGENT_FIX_CLIENT_ID": "Iv23liExampleClient1",
    "AGENT_FIX_CLIENT_SECRET": "a secret that only the bench knows",
    "AGENT_FIX_OPERATORS": "operator",
}
PAGES = (
    "/",
    "/?state=waiting",
    "/?verdict=proved",
    "/?repository=ada/sample",
    "/?person=ada",
    "/?q=invoice",
    "/?sort=cost",
    "/?page=150",
    f"/jobs/{WATCHED}",
    "/jobs/seed13x7",
    "/jobs/seed13x7/log",
    "/operators",
)
API = ("/api/jobs", "/api/jobs/seed13x7", "/api/jobs/seed13x7/log?limit=1000", "/metrics")


def fill(engine: Engine, jobs: int, steps: int) -> None:
    """Copies of the two dozen jobs, whose times are spread over the last days, and steps for each of them."""
    with engine.connect() as db:
        db.exec_driver_sql("PRAGMA cache_size = -400000")  # in the order of the jobs, pages are filled one by one
        db.exec_driver_sql("CREATE TEMP TABLE seeds AS SELECT id FROM jobs")
        db.exec_driver_sql(
            "CREATE TEMP TABLE copies AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "SELECT id AS seed, id || 'x' || i AS copy, i FROM n CROSS JOIN seeds LIMIT ?",
            (jobs, jobs - db.scalar(sa.text("SELECT count(*) FROM seeds"))),
        )
        for table, key in (("jobs", "id"), ("job_contexts", "job")):
            changed = {key: "copy", "active_key": "NULL", "created_at": _earlier(table)}
            names = [column["name"] for column in sa.inspect(db).get_columns(table)]
            values = ", ".join(changed.get(name, f"{table}.{name}") for name in names)
            there = f"{table} JOIN copies ON {table}.{key} = seed"
            db.exec_driver_sql(f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {there}")
        db.exec_driver_sql(
            "CREATE TEMP TABLE steps AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "SELECT i FROM n",
            (steps,),
        )
        lines = "SELECT 'step' AS kind, 'Look at it.' AS text UNION ALL SELECT 'command', 'grep -n quantize app' "
        db.exec_driver_sql(
            "INSERT INTO progress (job, at, kind, text) SELECT jobs.id, created_at, kind, text FROM jobs "
            f"CROSS JOIN steps CROSS JOIN ({lines} UNION ALL SELECT 'observation', ?)",
            (OBSERVATION,),
        )
        db.exec_driver_sql(
            "INSERT INTO calls (job_id, call, attempt, state, worst, prompt_tokens, cached_tokens, completion_tokens, "
            "cost, estimated, answer, at) SELECT id, 'step-' || i, 1, 'booked', 21000, 9000, 7100, 420, 21000, 0, ?, "
            "unixepoch(created_at) + i FROM jobs CROSS JOIN steps",
            (OBSERVATION,),
        )
        db.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.exec_driver_sql("ANALYZE")


def _earlier(table: str) -> str:
    if table == "jobs":
        return "strftime('%Y-%m-%d %H:%M:%f000', created_at, '-' || (i * 30) || ' minutes')"
    return "job_contexts.created_at - i * 1800"


async def page_times(browser: httpx.AsyncClient, paths: tuple[str, ...], repeat: int) -> dict[str, list[float]]:
    """Milliseconds of each answer, one request at a time; the first of each is not counted."""
    found: dict[str, list[float]] = {}
    for path in paths:
        for number in range(repeat + 1):
            began = perf_counter()
            answer = await browser.get(path)
            if answer.status_code != 200:
                raise SystemExit(f"{path} was answered with {answer.status_code}")
            if number:
                found.setdefault(path, []).append((perf_counter() - began) * 1_000)
    return found


async def watch(browser: httpx.AsyncClient, watching: asyncio.Event, seen: dict[str, list[float]]) -> None:
    """Follow the job as its page does, and note when each of the bench's lines arrives."""
    async with browser.stream("GET", f"/jobs/{WATCHED}/events", timeout=300.0) as answer:
        if answer.status_code != 200:
            raise SystemExit(f"a watcher was answered with {answer.status_code}")
        async for line in answer.aiter_lines():
            watching.set()
            name = line.partition("bench line ")[2].partition('"')[0]
            if name:
                seen.setdefault(name, []).append(perf_counter())
            if name == str(LINES - 1):
                return


async def watched(
    browsers: list[httpx.AsyncClient], store: JobStore, repeat: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Milliseconds until each line of the job is seen by each watcher, and those of the pages meanwhile."""
    seen: dict[str, list[float]] = {}
    ready = [asyncio.Event() for _ in browsers]
    watchers = [asyncio.create_task(watch(*each, seen)) for each in zip(browsers, ready, strict=True)]
    await asyncio.gather(*(each.wait() for each in ready))
    pages = asyncio.create_task(page_times(browsers[0], ("/", f"/jobs/{WATCHED}"), repeat))
    written = []
    for number in range(LINES):
        await asyncio.to_thread(store.add_progress, WATCHED, "note", f"bench line {number}")
        written.append(perf_counter())
        await asyncio.sleep(0.2)
    await asyncio.gather(*watchers)
    waits = [(at - written[int(name)]) * 1_000 for name, all_seen in seen.items() for at in all_seen]
    if len(waits) != LINES * len(browsers):
        raise SystemExit(f"{len(waits)} lines were seen instead of {LINES * len(browsers)}")
    return waits, await pages


def show(title: str, found: list[float]) -> None:
    cuts = quantiles(found, n=20, method="inclusive")
    print(f"{title:<44}{median(found):>9,.0f}{cuts[18]:>9,.0f}{max(found):>9,.0f}")


async def measure(place: Path, port: int, chosen: argparse.Namespace) -> None:
    engine = sqlite_engine(place / "agent-fix.db", synced=False)
    sessions, store = WebSessions(engine, _now), JobStore(engine, _now)
    rights = {PLACES[0][2]: "write"}
    people = {name: sessions.create(1, name, "ghu_of_the_bench", rights) for name in ("operator", "reader")}
    base = f"http://127.0.0.1:{port}"
    print(f"{'milliseconds':<44}{'median':>9}{'p95':>9}{'worst':>9}")
    for name, cookie in people.items():
        async with httpx.AsyncClient(base_url=base, cookies={"agent-fix-session": cookie}, timeout=60.0) as browser:
            paths = PAGES if name == "operator" else ("/", "/?q=invoice", "/jobs/seed21")
            for path, times in (await page_times(browser, paths, chosen.repeat)).items():
                show(f"{name}: {path}", times)
    token = {"authorization": "Bearer a-token-of-the-bench"}
    async with httpx.AsyncClient(base_url=base, headers=token, timeout=60.0) as program:
        for path, times in (await page_times(program, API, chosen.repeat)).items():
            show(path, times)
    cookies = {"agent-fix-session": people["operator"]}
    browsers = [httpx.AsyncClient(base_url=base, cookies=cookies, timeout=60.0) for _ in range(chosen.watchers)]
    waits, pages = await watched(browsers, store, chosen.repeat)
    show(f"{chosen.watchers} watchers: from a line to each", waits)
    for path, times in pages.items():
        show(f"meanwhile: {path}", times)
    for each in browsers:
        await each.aclose()
    engine.dispose()


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N")
    parser.add_argument("--steps", type=int, default=100, metavar="N")
    parser.add_argument("--watchers", type=int, default=50, metavar="N")
    parser.add_argument("--repeat", type=int, default=20, metavar="N")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as root:
        place = Path(root)
        engine = sqlite_engine(seeded(place, _now()), synced=False)
        began = perf_counter()
        fill(engine, chosen.jobs, chosen.steps)
        engine.dispose()
        size = (place / "agent-fix.db").stat().st_size / 2**30
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}")
        print(
            f"{chosen.jobs:,} jobs of {chosen.steps} steps, {size:.1f} GB, filled in {perf_counter() - began:.0f} s\n"
        )
        with receiving(place, SIGN_IN) as (_, port):
            asyncio.run(measure(place, port, chosen))


if __name__ == "__main__":
    main()
