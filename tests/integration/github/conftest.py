"""The fixtures of these tests: a fake GitHub with one repository, and the emulated one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.github.effects import GitHubForge
from tests.support.emulate.github import EmulatedGitHub, emulated_github
from tests.support.emulate.repository import EmulatedRepository, emulated_repository
from tests.support.github.fake import FakeGitHubSetup, make_fake_github
from tests.support.github.publishing import forge_at
from tests.support.publisher_harness import PublisherHarness, publisher_harness


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    return make_fake_github(tmp_path)


@pytest.fixture
async def forge(fake_github: FakeGitHubSetup, tmp_path: Path) -> AsyncIterator[GitHubForge]:
    async with forge_at(fake_github, tmp_path) as forge:
        yield forge


@pytest.fixture
async def harness(fake_github: FakeGitHubSetup, tmp_path: Path) -> AsyncIterator[PublisherHarness]:
    async with publisher_harness(fake_github, tmp_path) as harness:
        yield harness


@pytest.fixture(scope="module")
def github() -> Iterator[EmulatedGitHub]:
    with emulated_github() as github:
        yield github


@pytest.fixture
async def place(github: EmulatedGitHub, tmp_path: Path) -> AsyncIterator[EmulatedRepository]:
    async with emulated_repository(github, tmp_path) as place:
        yield place
