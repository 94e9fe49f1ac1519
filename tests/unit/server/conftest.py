"""A dashboard over a seeded database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.web_client import WebClient, web_client


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path) as ready:
        yield ready
