"""GitHub's own examples of webhook payloads, as published on npm."""

import json
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.support.emulate.provision import Unavailable
from tests.support.npm import member

PACKAGE = "@octokit/webhooks-examples@7.6.1"
SHA256 = "89e6cb1c6345d32e3dd775617fa54effbdc26c859e514898d7728e95e9738280"
COUNT = 329


class Published(NamedTuple):
    """One example: the value of the event header, and the payload."""

    event: str
    payload: dict[str, Any]


@cache
def published() -> tuple[Published, ...]:
    """All of them; the calling test is skipped, in plain words, where npm or its registry cannot be had."""
    try:
        groups = json.loads(member(PACKAGE, SHA256, "api.github.com/index.json"))
    except Unavailable as unavailable:
        pytest.skip(f"NOT TESTED: the {COUNT} published payloads: {unavailable}")
    return tuple(Published(group["name"], payload) for group in groups for payload in group["examples"])
