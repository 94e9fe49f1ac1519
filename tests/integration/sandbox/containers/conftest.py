"""Docker with a directory for each test; the tests with it are executed together, because it is slow to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.sandbox.container.provider import ContainerProvider
from tests.support.containers.engines import LocalEngine, engine, provided


@pytest.fixture
def docker() -> LocalEngine:
    return engine("docker")


@pytest.fixture
def provider(docker: LocalEngine, tmp_path: Path) -> Iterator[ContainerProvider]:
    with provided("docker", tmp_path) as made:
        yield made
