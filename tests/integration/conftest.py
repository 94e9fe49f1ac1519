"""What several modules of stories share: a town where their stories are told side by side."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.town import Story, chosen, running_town, told_side_by_side


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[None]"]]:
    """The stories of a module's STORIES that this session was asked for, each by its name."""
    stories: tuple[Story, ...] = request.module.STORIES
    with (
        running_town(tmp_path_factory.mktemp("town")) as town,
        told_side_by_side(town, chosen(request, stories)) as told,
    ):
        yield told
