"""The dashboard in a real browser: who gets in, and who may press its buttons."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.browser.dashboard import WORKING, Dashboard, dashboard
from tests.loopback import listening, serving
from tests.visiting import TOKEN

STOP = f"/jobs/{WORKING}/stop"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Dashboard]:
    with dashboard(tmp_path) as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, here: Dashboard) -> Iterator[BrowserContext]:
    """A browser that knows the password; closed before the server, so that no stream of a page keeps that one up."""
    made = browser.new_context(http_credentials={"username": "anybody", "password": TOKEN})
    yield made
    made.close()


@pytest.mark.parametrize("secure", [True, False])
def test_the_button_stops_a_job(visitor: BrowserContext, here: Dashboard, secure: bool) -> None:
    page = visitor.new_page()
    page.goto((here.address if secure else here.plain) + f"/jobs/{WORKING}")
    page.get_by_role("button", name="Stop this job").click()
    expect(page.get_by_text("It has been told to stop")).to_be_visible()
    assert here.stop_requested(WORKING)
