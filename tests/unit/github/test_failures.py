"""What people read when GitHub cannot be reached."""

from datetime import UTC, datetime

import httpx
import pytest
from githubkit.exception import RequestError

from app.github.refusals import failure_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ASKED = httpx.Request("GET", "https://github.example.org/api/v3/app")


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (httpx.ReadTimeout("", request=ASKED), "GitHub (github.example.org) could not be reached: ReadTimeout"),
        (httpx.ConnectError("refused", request=ASKED), "GitHub (github.example.org) could not be reached: refused"),
        (httpx.ConnectError("refused"), "GitHub could not be reached: refused"),
        (OSError("no route"), "GitHub could not be reached: no route"),
    ],
    ids=repr,
)
def test_the_server_that_was_asked_is_named(cause: Exception, message: str) -> None:
    assert failure_of(RequestError(cause), NOW).message == message
