"""Photographs the dashboard with the tests' made-up jobs: `.venv/bin/python -m docs.pictures.dashboard`.

Needs Chromium. Where Pillow is at hand, the pictures get a palette and are a third as large.
"""

import importlib.util
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from app.jobs.plan_versions import PlanVersions
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


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        place = Path(directory)
        seeded(place)
        chosen = settings(place)
        receiving = ReceiverContext(chosen)
        receiving.prepare()
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
