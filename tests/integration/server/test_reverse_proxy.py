"""The real receiver behind a reverse proxy: whose wrong passwords lock out whom, by `AGENT_FIX_TRUSTED_PROXIES`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.server.web.sign_in import MAX_FAILURES
from tests.support.server_process import Server, running_server
from tests.support.web_client import OURS

ATTACKER, COLLEAGUE = "203.0.113.9", "198.51.100.1"
WRONG = {"authorization": "Bearer guess"}


@contextmanager
def receiver(place: Path, **changes: str) -> Iterator[Server]:
    token = OURS["authorization"].removeprefix("Bearer ")
    with running_server(place, {"AGENT_FIX_WEB_TOKEN": token, **changes}) as server:
        server.start("receiver")
        yield server


def status(server: Server, forwarded: str, authorization: dict[str, str]) -> int:
    """Of a request as the proxy on this machine passes it on."""
    headers = {**authorization, "x-forwarded-for": forwarded}
    return httpx.get(f"{server.url}/api/jobs", headers=headers, timeout=90).status_code


def guess_until_locked_out(server: Server) -> None:
    """The attacker claims another address each time; the proxy appends the real one."""
    for number in range(MAX_FAILURES):
        assert status(server, f"192.0.2.{number}, {ATTACKER}", WRONG) == 401
    assert status(server, ATTACKER, WRONG) == 429


def test_behind_a_trusted_proxy_only_the_attacker_is_locked_out(tmp_path: Path) -> None:
    with receiver(tmp_path) as server:
        guess_until_locked_out(server)
        assert status(server, COLLEAGUE, OURS) == 200
        assert status(server, f"{COLLEAGUE}, {ATTACKER}", OURS) == 429
        assert "AGENT_FIX_TRUSTED_PROXIES" not in server.tail()


def test_the_networks_of_proxies_are_trusted_in_a_chain(tmp_path: Path) -> None:
    with receiver(tmp_path, AGENT_FIX_TRUSTED_PROXIES="127.0.0.0/8, 10.0.0.0/8") as server:
        for _ in range(MAX_FAILURES):
            assert status(server, f"{ATTACKER}, 10.1.2.3", WRONG) == 401
        assert status(server, f"{ATTACKER}, 10.3.2.1", OURS) == 429
        assert status(server, f"{COLLEAGUE}, 10.1.2.3", OURS) == 200


def test_an_address_from_an_untrusted_proxy_does_not_count_and_the_log_says_so(tmp_path: Path) -> None:
    with receiver(tmp_path, AGENT_FIX_TRUSTED_PROXIES="10.0.0.0/8") as server:
        guess_until_locked_out(server)
        assert status(server, COLLEAGUE, OURS) == 429
        assert "blocked for a minute, for everybody behind it" in server.tail()


@pytest.mark.parametrize("value", ["*", "proxy.example", "0.0.0.0/0", "10.0.0.1/8", "::/0"])
def test_a_receiver_that_would_trust_everybody_does_not_start(tmp_path: Path, value: str) -> None:
    with running_server(tmp_path, {}) as server:
        process = server.start("receiver", AGENT_FIX_TRUSTED_PROXIES=value)
        assert process.wait(90) != 0
        del server.processes["receiver"]
        assert "AGENT_FIX_TRUSTED_PROXIES" in server.tail()
