"""The API answers as its own description says, to requests that fit the description and to those that do not."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, settings
from schemathesis.specs.openapi.schemas import OpenApiSchema

from app.jobs.job_actions import KEPT_FOR
from app.server.context import ServerContext
from app.server.receiver import application
from app.server.web.sign_in import FORGET_AFTER
from tests.support.clock import SettableClock
from tests.support.seeded_database import seeded
from tests.support.web_client import NOW, OURS
from tests.support.web_client import settings as server_settings

EXAMPLES = 12
"""For each of the operations."""
LATER = max(KEPT_FOR, FORGET_AFTER) + timedelta(seconds=1)
"""Between two requests, so that an earlier one's idempotency key or wrong password does not count."""


class Password(schemathesis.AuthProvider[str]):
    """Signs each request in, but for those that are to be refused."""

    def get(self, case: schemathesis.Case[Any], context: schemathesis.AuthContext) -> str:
        return OURS["authorization"]

    def set(self, case: schemathesis.Case[Any], data: str, context: schemathesis.AuthContext) -> None:
        case.headers["authorization"] = data


@pytest.fixture(scope="module")
def clock() -> SettableClock:
    return SettableClock(NOW)


@pytest.fixture(scope="module")
def described(clock: SettableClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenApiSchema]:
    place = tmp_path_factory.mktemp("server")
    seeded(place, NOW)
    chosen = server_settings(place)
    receiving = ServerContext(chosen, clock)
    receiving.prepare()
    try:
        described = schemathesis.openapi.from_asgi("/api/openapi.json", application(receiving), headers=OURS)
        described.auth()(Password)
        yield described
    finally:
        receiving.engine.dispose()


API = schemathesis.pytest.from_fixture("described")


# A stream of events ends only with its job.
@API.exclude(path_regex="/events$").parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@pytest.mark.timeout(1_500)  # all operations are one test
def test_answers_are_as_described(case: schemathesis.Case[Any], clock: SettableClock) -> None:
    # HTTP allows headers everywhere that no description lists.
    assume(not any(name.lower().startswith("x-schemathesis-") for name in case.headers))
    clock.now += LATER
    case.call_and_validate()
