"""The network policy: what is built, and that whatever is read back differently is a difference."""

from typing import Any

import pytest

from app.core.errors import SetupError
from app.sandbox.e2b.cloud import CLOSED, EVERYTHING, NetworkPolicy, during_setup

HOSTS = ("index.example.com", "files.example.com")
CREATED: dict[str, Any] = {"allow_out": [], "deny_out": [EVERYTHING], "allow_public_traffic": False}


def test_nothing_is_allowed_but_what_a_set_up_names() -> None:
    assert CLOSED.at_creation() == CREATED
    assert CLOSED.as_update() == {"allow_out": [], "deny_out": [EVERYTHING], "rules": {}}
    opened = during_setup(["https://index.example.com", "files.example.com", "https://index.example.com:443"])
    assert opened == NetworkPolicy(HOSTS)
    assert opened.as_update()["allow_out"] == list(HOSTS)


def test_settings_that_match_the_request_are_not_a_difference() -> None:
    assert CLOSED.difference(False, CREATED) == ""
    assert CLOSED.difference(None, {**CREATED, "rules": {}, "egress_proxy": None, "dns_servers": []}) == ""
    turned = {**CREATED, "allow_out": list(reversed(HOSTS)), "dns_servers": ["8.8.8.8"]}
    assert NetworkPolicy(HOSTS).difference(False, turned) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"allow_out": [EVERYTHING]},
        {"allow_out": ["index.example.com"]},
        {"deny_out": []},
        {"deny_out": ["10.0.0.0/8"]},
        {"allow_public_traffic": True},
        {"allow_public_traffic": None},
        {"rules": {"index.example.com": [{"transform": {"headers": {"x": "y"}}}]}},
        {"egress_proxy": {"address": "socks.example.com:1080"}},
        {"dns_servers": ["203.0.113.1"]},
        {"https_ports": [8443]},
        {"mask_request_host": "x"},
        {"something_new": True},
    ],
)
def test_any_other_is(change: dict[str, Any]) -> None:
    assert next(iter(change)) in CLOSED.difference(False, {**CREATED, **change})


def test_the_internet_as_a_whole_and_nothing_at_all_are_differences() -> None:
    assert CLOSED.difference(True, CREATED)
    assert CLOSED.difference(None, {})
    assert NetworkPolicy(HOSTS).difference(False, CREATED)


@pytest.mark.parametrize(
    "entry", ["http://127.0.0.1:3141", "https://10.1.2.3", "http://localhost", "https://mirror.lan"]
)
def test_a_mirror_of_this_machine_is_refused(entry: str) -> None:
    with pytest.raises(SetupError, match="cloud sandbox cannot reach it"):
        during_setup([entry])
