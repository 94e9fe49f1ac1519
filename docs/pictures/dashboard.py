"""Photographs the dashboard with the tests' made-up jobs: `.venv/bin/python -m docs.pictures.dashboard`.

Needs Chromium. Where Pillow is at hand, the pictures get a palette and are a third as large.
"""

import importlib.util
import tempfile
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from playwright.sync_api import sync_playwright
from sqlalchemy.engine import Engine

from app.jobs.plan_versions import PlanVersions
from app.llm.base import Usage
from app.llm.sql_ledger import SqlLedger
from app.server.receiver import application
from app.server.wiring.receiver import ReceiverContext
from docs.pictures.make import HERE, shrink
from tests.integration.server.browser.chromium import chromium
from tests.integration.server.browser.dashboard import KNOWS
from tests.support.loopback import listening, serving
from tests.support.seeded_database import PLAN, seeded
from tests.support.web_client import settings

PAGES = {
    "dashboard": ("/", 760),
    "dashboard-job": ("/jobs/seed13", 980),
    "dashboard-plan": ("/jobs/seed16", 980),
    "dashboard-operators": ("/operators", 900),
}


def earlier_days(engine: Engine, now: datetime) -> None:
    """Model calls of the days before, so that the chart of costs has bars."""
    for back, dimes in enumerate((31, 54, 12, 0, 0, 47, 88, 63, 39, 71, 0, 8), 2):
        at = (now - timedelta(days=back)).timestamp()
        ledger = SqlLedger(engine, f"earlier{back}", 10_000_000, clock=partial(float, at))
        ledger.reserve("turn-0", dimes * 100_000)
        ledger.book("turn-0", Usage(cost=dimes * 100_000))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        place = Path(directory)
        seeded(place)
        chosen = settings(place)
        receiving = ReceiverContext(chosen)
        receiving.prepare()
        earlier_days(receiving.engine, receiving.clock())
        PlanVersions(receiving.engine, receiving.clock).record("seed16", PLAN)
        with listening() as listener, serving(application(receiving, chosen), listener) as address:
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
        receiving.close()


if __name__ == "__main__":
    main()
