"""The publisher's side of triggers over a fake GitHub."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.event_harness import EventHarness, event_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path) as made:
        yield made
