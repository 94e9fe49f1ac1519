"""Photographs the dashboard with the tests' made-up jobs: `.venv/bin/python -m docs.pictures.dashboard`.

Needs Chromium. Where Pillow is at hand, the pictures get a palette and are a third as large.
"""

import importlib.util
import tempfile
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from playwright.sync_api import sync_playwright
from sqlalchemy.engine import Engine

from app.jobs.job_actions import PlanVersions
from app.jobs.operations import GitHubLimit, OperationsOverview
from app.jobs.queue import QueueLimits
from app.jobs.tables import job_contexts, jobs
from app.llm.base import Usage
from app.llm.sql_ledger import SqlLedger
from app.server.context import ServerContext
from app.server.receiver import application
from docs.pictures.make import HERE, shrink
from tests.integration.server.browser.chromium import chromium
from tests.integration.server.browser.dashboard import KNOWS
from tests.support.loopback import listening, serving
from tests.support.seeded_database import PLAN, TITLES, seeded
from tests.support.web_client import settings

PAGES = {
    "dashboard": ("/", 900),
    "dashboard-job": ("/jobs/seed00", 1180),
    "dashboard-plan": ("/jobs/seed16", 1180),
    "dashboard-operators": ("/operators", 1180),
}


def earlier_days(engine: Engine, now: datetime) -> None:
    """Model calls of the days before, so that the chart of costs has bars."""
    for back, dimes in enumerate((31, 54, 12, 0, 0, 47, 88, 63, 39, 71, 0, 8), 2):
        at = (now - timedelta(days=back)).timestamp()
        ledger = SqlLedger(engine, f"earlier{back}", 10_000_000, clock=partial(float, at))
        ledger.reserve("turn-0", dimes * 100_000)
        ledger.book("turn-0", Usage(cost=dimes * 100_000))


def at_work(engine: Engine, now: datetime) -> None:
    """Two workers, with leases as long as real ones, a limit of GitHub's, and an issue that the plan is about."""
    with engine.begin() as db:
        for number, name in enumerate(("seed17", "seed18", "seed19", "seed22")):
            mine = job_contexts.c.job == name
            db.execute(job_contexts.update().where(mine).values(lease_until=now.timestamp() + 41 + 3 * number))
            owner = f"worker-{1 + number % 2}:{4100 + number % 2}:1"
            db.execute(jobs.update().where(jobs.c.id == name).values(owner=owner))
        approvable = jobs.c.id == "seed16"
        job = db.scalars(sa.select(jobs.c.job).where(approvable)).one()
        job["task"]["issue"]["title"] = TITLES[0]
        db.execute(jobs.update().where(approvable).values(job=job))
    limit = GitHubLimit(7, "core", 4_120, 5_000, now + timedelta(minutes=20), now)
    OperationsOverview(engine, lambda: now, QueueLimits(jobs=10, per_repository=3)).store_limits([limit])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        place = Path(directory)
        seeded(place)
        chosen = settings(place, JOBS="4", JOBS_PER_REPOSITORY="3")
        receiving = ServerContext(chosen)
        receiving.prepare()
        earlier_days(receiving.engine, receiving.clock())
        at_work(receiving.engine, receiving.clock())
        PlanVersions(receiving.engine, receiving.clock).record("seed16", PLAN)
        with listening() as listener, serving(application(receiving), listener) as address:
            browser = driver.chromium.launch(executable_path=chromium().path)
            for name, (path, height) in PAGES.items():
                context = browser.new_context(http_credentials=KNOWS, viewport={"width": 1180, "height": height})
                page = context.new_page()
                page.goto(address + path)
                page.screenshot(path=HERE / f"{name}.png")
                context.close()
                if importlib.util.find_spec("PIL"):
                    shrink(HERE / f"{name}.png")
            browser.close()
        receiving.engine.dispose()


if __name__ == "__main__":
    main()
