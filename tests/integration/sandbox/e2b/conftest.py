"""A local E2B for each test, and a provider that asks it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.sandbox.e2b.provider import E2BProvider
from tests.support.e2b.server import LocalE2B, local_e2b


@pytest.fixture
def e2b(tmp_path: Path) -> Iterator[LocalE2B]:
    if os.geteuid():
        pytest.skip("a machine of the local E2B has two accounts, which only root can make")
    with local_e2b(tmp_path / "e2b") as server:
        yield server


@pytest.fixture
def provider(e2b: LocalE2B, tmp_path: Path) -> E2BProvider:
    return E2BProvider(e2b.account, scope="tests", caches=tmp_path / "caches", seconds=5)
