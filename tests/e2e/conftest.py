"""The server that several modules of stories share."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.support.e2e_server import Story, chosen, run_stories, running_e2e_server


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
