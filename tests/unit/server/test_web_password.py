"""Who may see the pages: the password in every form, how often it may be wrong, and what other sites may not do."""

import asyncio
from base64 import b64encode
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from app.jobs.accounts import PREFIX, ApiKeys
from app.server.web.access import UNTRUSTED_PROXY
from app.server.web.sign_in import (
    FORGET_AFTER,
    MAX_FAILURES,
    MAX_REMEMBERED,
    DashboardPassword,
    address,
    from_our_pages,
    is_small,
)
from tests.support.clock import SettableClock
from tests.support.web_client import HOST, NOW, TOKEN, WebClient, web_client

PATHS = ["/", "/jobs/seed05", "/jobs/seed05/log", "/jobs/seed05/events", "/api/jobs", "/api/jobs/seed05", "/metrics"]
PATHS += ["/jobs/seed05/change.patch", "/nothing"]
PUBLIC = ["/style.css", "/live.js", "/icon.svg"]


def basic(password: str, name: str = "anybody") -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_shown_without_the_password(here: WebClient, path: str) -> None:
    answer = await here.stranger.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert "seed" not in answer.text
    if path.startswith("/api/"):
        assert answer.headers["content-type"] == "application/problem+json"
        return
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    page = await here.stranger.get(path, headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "seed" not in page.text


@pytest.mark.parametrize("path", PUBLIC)
async def test_static_files_need_no_password(here: WebClient, path: str) -> None:
    assert (await here.stranger.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/jobs/seed22/stop", "/api/jobs/seed22/cancel"])
async def test_nothing_is_done_without_the_password(here: WebClient, path: str) -> None:
    assert (await here.stranger.post(path)).status_code == 401
    listed = here.receiving.overview.one("seed22")
    assert listed is not None
    assert not listed.stop_requested


@pytest.mark.parametrize(
    "headers", [{"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer {TOKEN}"}, basic(TOKEN)]
)
async def test_the_password_is_taken_as_a_bearer_or_with_any_name(here: WebClient, headers: dict[str, str]) -> None:
    assert (await here.stranger.get("/", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Token {TOKEN}",
        TOKEN,
        "Basic ???",
        "Basic",
    ],
)
async def test_anything_else_is_not_taken(here: WebClient, given: str) -> None:
    assert (await here.stranger.get("/", headers={"authorization": given})).status_code == 401


@pytest.mark.parametrize("wrong", [basic(""), basic(TOKEN.upper()), basic("x", TOKEN), {"authorization": "Basic /w=="}])
async def test_a_wrong_basic_password_is_not_taken(here: WebClient, wrong: dict[str, str]) -> None:
    assert (await here.stranger.get("/", headers=wrong)).status_code == 401


async def test_too_many_failed_sign_ins_are_blocked_for_a_while(here: WebClient) -> None:
    for _ in range(MAX_FAILURES):
        assert (await here.stranger.get("/", headers=basic("guess"))).status_code == 401
    refused = await here.stranger.get("/", headers=basic(TOKEN))
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= FORGET_AFTER.total_seconds() + 1
    here.clock.now += FORGET_AFTER
    assert (await here.stranger.get("/", headers=basic(TOKEN))).status_code == 200


async def test_an_unknown_proxy_is_named_once_for_each_lockout(
    here: WebClient, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MAX_FAILURES + 5):
        await here.stranger.get("/", headers={"authorization": "Bearer wrong", "x-forwarded-for": "203.0.113.7"})
    assert [line for line in caplog.messages if "AGENT_FIX_TRUSTED_PROXIES" in line] == [UNTRUSTED_PROXY % "127.0.0.1"]


async def test_many_wrong_passwords_at_once_are_refused_too(here: WebClient) -> None:
    guess = {"authorization": f"Bearer {PREFIX}guess"}
    answers = await asyncio.gather(*(here.stranger.get("/api/jobs", headers=guess) for _ in range(60)))
    assert [answer.status_code for answer in answers].count(401) == MAX_FAILURES


async def test_a_key_works_while_its_address_is_locked_out(here: WebClient) -> None:
    key = ApiKeys(here.engine, here.clock).create("ci", ["read"])
    for _ in range(MAX_FAILURES + 1):
        refused = await here.stranger.get("/api/jobs", headers={"authorization": "Bearer guess"})
    assert refused.status_code == 429
    assert (await here.stranger.get("/api/jobs", headers={"authorization": f"Bearer {key}"})).status_code == 200


@pytest.mark.parametrize("length", ["00000000000000000000314572800", "314572800", "-1", "+5", "1_0", "٣"])
def test_a_content_length_that_is_large_or_odd_is_not_small(length: str) -> None:
    assert not is_small(Headers(raw=[(b"content-length", length.encode())]))


async def test_a_browser_that_was_not_asked_yet_has_not_failed(here: WebClient) -> None:
    for _ in range(3 * MAX_FAILURES):
        assert (await here.stranger.get("/")).status_code == 401
    assert (await here.client.get("/")).status_code == 200


def test_failures_are_counted_for_each_address_and_few_are_remembered() -> None:
    clock = SettableClock(NOW)
    password = DashboardPassword(TOKEN, clock)
    for number in range(MAX_REMEMBERED + 5):
        password.admits(f"10.0.{number // 256}.{number % 256}", "Bearer guess")
    assert len(password._failures) == MAX_REMEMBERED
    for _ in range(MAX_FAILURES):
        password.admits("10.0.0.1", "Bearer guess")
    assert password.refuses("10.0.0.1") == FORGET_AFTER
    assert password.refuses("10.0.0.2") is None
    clock.now += FORGET_AFTER + timedelta(seconds=1)
    assert password.refuses("10.0.0.1") is None


def test_one_customers_ipv6_addresses_are_one() -> None:
    scope = [{"client": (f"2001:db8:1:2::{end}", 5)} for end in ("1", "ffff")]
    assert {address(each) for each in scope} == {"2001:db8:1:2::/64"}
    assert address({"client": None}) == ""
    assert address({"client": ("127.0.0.1", 5)}) == "127.0.0.1"


async def test_every_answer_forbids_framing_caching_and_foreign_content(here: WebClient) -> None:
    for path in [*PATHS, *PUBLIC, "/jobs/none"]:
        if path.endswith("events"):
            continue
        for client in (here.client, here.stranger):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),
        ({"origin": HOST}, True),
        ({"sec-fetch-site": "same-origin", "origin": HOST}, True),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "https://what-a-proxy-calls-us.example"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": ""}, False),
        ({"sec-fetch-site": "nonsense"}, False),
        ({"sec-fetch-site": "cross-site", "origin": HOST}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"origin": "null"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "http://agent-fix.example.evil.example"}, False),
        ({"origin": "http://agent-fix.example:81"}, False),
        ({"origin": "http://["}, False),
    ],
)
async def test_other_sites_cannot_make_a_browser_act(here: WebClient, headers: dict[str, str], ours: bool) -> None:
    assert from_our_pages(Headers({"host": "agent-fix.example", **headers})) is ours
    answer = await here.client.post("/api/jobs/seed09/cancel", headers=headers)
    assert answer.status_code == (409 if ours else 403)


async def test_the_button_needs_its_pages_csrf_token(here: WebClient) -> None:
    for form in ("", "seal=", "seal=0000", "seal=%C3%A4", "=&&&"):
        answer = await here.client.post("/jobs/seed22/stop", content=form)
        assert answer.status_code == 403
    other = (await here.page("/jobs/seed19")).partition('name="seal" value="')[2].partition('"')[0]
    assert (await here.client.post("/jobs/seed22/stop", data={"seal": other})).status_code == 403
    assert (await here.client.post("/jobs/seed22/stop", data={"seal": "x" * 600_000})).status_code == 413
    listed = here.receiving.overview.one("seed22")
    assert listed is not None
    assert not listed.stop_requested


async def test_without_a_password_there_are_no_pages_at_all(tmp_path: Path) -> None:
    async with web_client(tmp_path, WEB_TOKEN="") as here:
        for path in PATHS:
            assert (await here.client.get(path)).status_code == 404
        for path in ("/livez", "/healthz", "/readyz"):
            assert (await here.stranger.get(path)).status_code == 200


@pytest.mark.parametrize(("client", "status"), [("::1", 200), ("2001:db8::1", 403)])
async def test_the_password_opens_pages_to_this_machine_over_ipv6_too(tmp_path: Path, client: str, status: int) -> None:
    async with web_client(tmp_path, address=client, HOST="::1") as here:
        assert (await here.client.get("/")).status_code == status


async def test_health_needs_no_password(here: WebClient) -> None:
    for path in ("/livez", "/readyz"):
        assert (await here.stranger.get(path)).status_code == 200
