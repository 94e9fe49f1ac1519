"""What several modules share: a command line, a server of stories, and a GitHub with a model."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.support.cli_job import CliJob
from tests.support.console import Console
from tests.support.conversation_model import ConversationModel
from tests.support.e2e_server import Story, chosen, run_stories, running_e2e_server
from tests.support.emulate.github import EmulatedGitHub, emulated_github
from tests.support.sample_project import think


@pytest.fixture(scope="module")
def story_results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[None]"]]:
    """The stories of a module's STORIES that this session was asked for, each by its name."""
    stories: tuple[Story, ...] = request.module.STORIES
    with (
        running_e2e_server(tmp_path_factory.mktemp("e2e")) as e2e_server,
        run_stories(e2e_server, chosen(request, stories)) as told,
    ):
        yield told


@pytest.fixture
def cli_job(tmp_path: Path) -> Iterator[CliJob]:
    cli_job = CliJob(tmp_path)
    yield cli_job
    cli_job.assert_quiet()


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


@pytest.fixture(scope="module")
def github() -> Iterator[EmulatedGitHub]:
    with emulated_github() as github:
        yield github


@pytest.fixture(scope="module")
def model() -> Iterator[ConversationModel]:
    with ConversationModel(think) as model:
        yield model
