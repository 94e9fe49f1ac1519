"""One Chromium for all tests of this directory, and the servers that its pages come from.

The names below .example lead to this machine. Pages there are not a secure context, so that the browser sends no
`Sec-Fetch-Site` for them; it does for 127.0.0.1 and localhost, which are two sites.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.browser.chromium import chromium

ARGUMENTS = ("--disable-gpu", "--disable-quic", "--host-resolver-rules=MAP *.example 127.0.0.1")
PATIENCE = 20_000.0
"""Milliseconds that an element or a page may take."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = chromium()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)} if program.libraries else None
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program.path, args=ARGUMENTS, env=environment)
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser without a past."""
    made = browser.new_context()
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()
