"""One Chromium for all tests of this directory, and the servers that its pages come from.

The names below .example lead to this machine. Pages there are not a secure context, so that the browser sends no
`Sec-Fetch-Site` for them; it does for 127.0.0.1 and localhost, which are two sites.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.integration.server.browser.chromium import chromium
from tests.integration.server.browser.dashboard import KNOWS, Dashboard, OtherSite, dashboard
from tests.support.loopback import listening, serving

ARGUMENTS = ("--disable-gpu", "--disable-quic", "--host-resolver-rules=MAP *.example 127.0.0.1")
TIMEOUT = 30_000.0
"""Milliseconds in which an element has to be there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = chromium()
    options: dict[str, Any] = {"executable_path": program.path, "args": ARGUMENTS}
    if program.libraries:
        options["env"] = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)}
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as driver:
        started = driver.chromium.launch(**options)
        yield started
        started.close()


@pytest.fixture
def stranger(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that knows nothing."""
    with browser.new_context() as context:
        yield context


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard with jobs in every state."""
    with dashboard(tmp_path_factory.mktemp("dashboard")) as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, here: Dashboard) -> Iterator[BrowserContext]:
    """A browser that knows the password. It is closed before the server, so that no open stream keeps that up."""
    with browser.new_context(http_credentials=KNOWS) as context:
        yield context


@pytest.fixture(scope="module")
def other_site() -> Iterator[OtherSite]:
    """Somebody else's server: its page posts a form to wherever the page's address says."""

    async def page(request: Request) -> Response:
        asked = request.query_params
        fields = "".join(f'<input name="{name}" value="{value}">' for name, value in asked.items())
        form = f'<form method=post action="{asked["to"]}">{fields}<button>Win a prize</button></form>'
        return HTMLResponse(f'<meta name=referrer content="{asked["referrer"]}">{form}')

    with listening() as listener, serving(Starlette(routes=[Route("/", page)]), listener) as address:
        yield lambda host, **asked: f"{address.replace('127.0.0.1', host)}/?{urlencode(asked)}"
