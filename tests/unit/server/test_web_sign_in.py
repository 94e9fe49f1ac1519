"""Signing in with GitHub: whose session it is, what it shows and lets do, how long it lasts, and how it ends."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa

from app.jobs.accounts import SESSION_LASTS
from app.jobs.job_actions import PlanVersions
from app.jobs.tables import audit_log, web_sessions
from app.jobs.trigger_log import AuditLog
from app.server.web.sign_in import MAX_FAILURES, RIGHTS_LAST, RIGHTS_LAST_AT_MOST
from tests.support.github.faults import Fault
from tests.support.seeded_database import PLAN
from tests.support.signed_in import GitHubPeople, github_people
from tests.support.web_client import HOST, NOW, WebClient, web_client

HTML = {"accept": "text/html"}
MINE, OTHERS, APPROVABLE = "seed21", "seed22", "seed16"
COOKIE = "agent-fix-session"


@pytest.fixture
def github(tmp_path: Path) -> GitHubPeople:
    return github_people(tmp_path)


@pytest.fixture
async def here(tmp_path: Path, github: GitHubPeople) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path, sign_in=github.client(), OPERATORS="Operator, somebody") as ready:
        ready.stranger.headers.update(HTML)
        yield ready


async def seal(browser: httpx.AsyncClient, path: str) -> dict[str, str]:
    page = (await browser.get(path)).text
    return dict(re.findall(r'type="hidden" name="(seal|id)" value="([^"]*)"', page.partition("<main>")[2]))


async def test_a_page_leads_to_the_sign_in_and_the_sign_in_back_to_the_page(
    here: WebClient, github: GitHubPeople
) -> None:
    wanted = f"/jobs/{MINE}?x=1"
    answer = await here.stranger.get(wanted)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/sign-in?next={quote(wanted, safe='')}"
    page = await here.stranger.get(answer.headers["location"])
    link = re.search(r'href="(/sign-in/github[^"]*)"', page.text)
    assert link is not None
    started = await here.stranger.get(link[1])
    made = await here.stranger.get(await github.sent_back(started.headers["location"], "reader"))
    assert (made.status_code, made.headers["location"]) == (303, wanted)
    shown = await here.stranger.get(wanted)
    assert shown.status_code == 200
    assert "reader" in shown.text
    assert "Sign out" in shown.text


async def test_people_see_the_jobs_of_their_repositories_only(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "reader")
    page = (await here.stranger.get("/")).text
    found = set(re.findall(r'href="/jobs/(seed\d\d)"', page))
    assert found == {f"seed{number:02}" for number in range(0, 23, 3)}
    assert "octo-org/web-shop-frontend" not in page
    assert "No delays" not in page  # a figure of the whole server
    assert (await here.stranger.get("/?repository=ada/sample")).status_code == 404
    assert (await here.stranger.get(f"/jobs/{MINE}")).status_code == 200
    for path in ("", "/log", "/events", "/change.patch"):
        assert (await here.stranger.get(f"/jobs/{OTHERS}{path}")).status_code == 404
    await github.sign_in(here.stranger, "operator")
    assert len(set(re.findall(r'href="/jobs/(seed\d\d)"', (await here.stranger.get("/")).text))) == 23


async def test_a_writer_acts_in_their_own_name_and_a_reader_has_no_buttons(
    here: WebClient, github: GitHubPeople
) -> None:
    await github.sign_in(here.stranger, "triager")
    assert "Stop this job" not in (await here.stranger.get(f"/jobs/{MINE}")).text
    page = await here.stranger.post(f"/jobs/{MINE}/stop", data={"seal": "x"})
    assert (page.status_code, "You may only look at this job" in page.text) == (403, True)
    await github.sign_in(here.stranger, "writer")
    fields = await seal(here.stranger, f"/jobs/{MINE}")
    assert (await here.stranger.post(f"/jobs/{MINE}/stop", data=fields)).status_code == 303
    assert "Stopped on the dashboard by writer." in (await here.stranger.get(f"/jobs/{MINE}")).text
    assert [
        (each.who, each.action, each.job, each.address) for each in AuditLog(here.engine, here.clock).newest(9)
    ] == [
        ("writer", "stop", MINE, "127.0.0.1"),
        ("writer", "sign in", "", "127.0.0.1"),
        ("triager", "sign in", "", "127.0.0.1"),
    ]


async def test_a_plan_is_edited_in_the_persons_name(here: WebClient, github: GitHubPeople) -> None:
    PlanVersions(here.engine, here.clock).record(APPROVABLE, PLAN)
    await github.sign_in(here.stranger, "operator")
    fields = await seal(here.stranger, f"/jobs/{APPROVABLE}")
    fields |= {"version": "1", "text": "summary: Round once.\n"}
    assert (await here.stranger.post(f"/jobs/{APPROVABLE}/plan", data=fields)).status_code == 303
    assert "version 2 by operator" in (await here.stranger.get(f"/jobs/{APPROVABLE}")).text


async def test_a_form_of_another_session_is_refused(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "writer")
    fields = await seal(here.stranger, f"/jobs/{MINE}")
    await github.sign_in(here.stranger, "admin")
    answer = await here.stranger.post(f"/jobs/{MINE}/stop", data=fields)
    assert (answer.status_code, "This form has expired" in answer.text) == (403, True)
    answer = await here.stranger.post("/sign-out", data=fields)
    assert answer.status_code == 403
    answer = await here.stranger.post("/sign-out", headers={"sec-fetch-site": "cross-site"})
    assert "another site" in answer.text


@pytest.mark.parametrize(("public", "secure"), [("", False), ("https://agent-fix.example", True)])
async def test_the_cookie_is_for_this_server_and_no_script(tmp_path: Path, *, public: str, secure: bool) -> None:
    github = github_people(tmp_path, public or HOST)
    async with (
        web_client(tmp_path, sign_in=github.client(), PUBLIC_URL=public) as here,
        httpx.AsyncClient(transport=here.stranger._transport, base_url=public or HOST) as browser,
    ):
        cookies = (await github.sign_in(browser, "reader")).headers.get_list("set-cookie")
    made = next(each for each in cookies if "session=" in each)
    parts = {part.strip().lower() for part in made.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/", f"max-age={int(SESSION_LASTS.total_seconds())}"} <= parts
    assert ("secure" in parts) is secure
    assert made.startswith("__Host-") is secure
    assert not any(part.startswith("domain") for part in parts)
    assert any("sign-in=" in each and "max-age=0" in each.lower() for each in cookies)


async def test_a_session_is_new_at_each_sign_in_and_the_old_one_is_over(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "reader")
    old = here.stranger.cookies[COOKIE]
    await github.sign_in(here.stranger, "reader")
    assert here.stranger.cookies[COOKIE] != old
    answer = await here.client.get("/", headers={"cookie": f"{COOKIE}={old}", "authorization": "", **HTML})
    assert answer.headers["location"].startswith("/sign-in")


async def test_a_session_ends_after_hours(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "reader")
    here.clock.now += SESSION_LASTS - timedelta(seconds=1)
    github.world.now = here.clock.now - timedelta(seconds=2)
    assert (await here.stranger.get("/")).status_code == 200
    here.clock.now += timedelta(seconds=2)
    assert (await here.stranger.get("/")).status_code == 303
    await github.sign_in(here.stranger, "reader")
    with here.engine.connect() as db:
        assert db.execute(sa.select(sa.func.count()).select_from(web_sessions)).scalar() == 1


async def test_signing_out_ends_the_session_and_revokes_the_token(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "reader")
    cookie = here.stranger.cookies[COOKIE]
    page = (await here.stranger.get("/")).text
    given = re.search(r'action="/sign-out".*?name="seal" value="([^"]+)"', page)
    assert given is not None
    answer = await here.stranger.post("/sign-out", data={"seal": given[1]})
    assert answer.headers["location"] == "/sign-in"
    assert COOKIE not in here.stranger.cookies
    again = await here.stranger.get("/", headers={"cookie": f"{COOKIE}={cookie}"})
    assert again.status_code == 303
    assert [token.revoked for text, token in github.world.tokens.items() if text.startswith("ghu_")] == [True]
    assert AuditLog(here.engine, here.clock).newest(1)[0].action == "sign out"


async def test_rights_that_were_taken_away_are_gone_within_minutes(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "writer")
    github.repo.collaborators[github.people["writer"].id] = "read"
    assert "Stop this job" in (await here.stranger.get(f"/jobs/{MINE}")).text
    here.clock.now += RIGHTS_LAST
    assert "Stop this job" not in (await here.stranger.get(f"/jobs/{MINE}")).text
    del github.repo.collaborators[github.people["writer"].id]
    here.clock.now += RIGHTS_LAST
    assert (await here.stranger.get(f"/jobs/{MINE}")).status_code == 404
    for text, token in github.world.tokens.items():
        token.revoked |= text.startswith("ghu_")
    here.clock.now += RIGHTS_LAST
    assert (await here.stranger.get("/")).status_code == 303


async def test_while_github_is_down_rights_last_a_little_longer(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "writer")
    github.github.faults.append(Fault("GET /user/installations", times=99))
    here.clock.now += RIGHTS_LAST
    assert (await here.stranger.get(f"/jobs/{MINE}")).status_code == 200
    here.clock.now = NOW + RIGHTS_LAST_AT_MOST
    assert (await here.stranger.get(f"/jobs/{MINE}")).status_code == 303


async def test_a_sign_in_that_this_browser_did_not_begin_is_refused(here: WebClient, github: GitHubPeople) -> None:
    started = await here.stranger.get("/sign-in/github")
    back = await github.sent_back(started.headers["location"], "admin")
    async with httpx.AsyncClient(transport=here.stranger._transport, base_url=HOST) as other:
        assert (await other.get(back)).status_code == 400
        await other.get("/sign-in/github")
        answer = await other.get(back)
        assert (answer.status_code, "another browser" in answer.text) == (400, True)
        assert COOKIE not in other.cookies
    assert (await here.stranger.get(back.replace("code=", "code=0"))).status_code == 400
    assert (await here.stranger.get(back)).status_code == 400  # its cookie is gone: one try
    denied = await here.stranger.get("/sign-in/github")
    state = denied.headers["location"].partition("&state=")[2].partition("&")[0]
    answer = await here.stranger.get(f"/sign-in/done?error=access_denied&state={state}")
    assert "You did not authorize agent-fix" in answer.text


async def test_only_this_server_begins_a_sign_in_and_not_without_end(here: WebClient, github: GitHubPeople) -> None:
    digest = hashlib.sha256(b"state:made-up").digest()
    made_up = {"code": "x", "state": base64.urlsafe_b64encode(digest).decode().rstrip("=")}
    before = len(github.github.calls)
    cookie = {"cookie": "agent-fix-sign-in=made-up./"}
    assert (await here.stranger.get("/sign-in/done", params=made_up, headers=cookie)).status_code == 400
    assert len(github.github.calls) == before
    found = []
    for _ in range(MAX_FAILURES + 1):
        started = httpx.URL((await here.stranger.get("/sign-in/github")).headers["location"])
        query = {"code": "wrong", "state": started.params["state"]}
        found.append((await here.stranger.get("/sign-in/done", params=query)).status_code)
    assert found == [400] * MAX_FAILURES + [429]
    here.clock.now += timedelta(minutes=1)
    assert (await github.sign_in(here.stranger, "reader")).status_code == 303


async def test_a_login_that_another_account_took_over_is_not_an_operators(
    here: WebClient, github: GitHubPeople
) -> None:
    await github.sign_in(here.stranger, "operator")
    assert (await here.stranger.get("/audit")).status_code == 200
    taken = github.world.add_user("OPERATOR")
    github.people = {**github.people, "newcomer": taken}
    await github.sign_in(here.stranger, "newcomer")
    assert (await here.stranger.get("/audit")).status_code == 403
    await github.sign_in(here.stranger, "operator")
    assert (await here.stranger.get("/audit")).status_code == 200


async def test_an_operator_is_named_by_id(tmp_path: Path, github: GitHubPeople) -> None:
    wanted = github.people["operator"].id
    async with web_client(tmp_path, sign_in=github.client(), OPERATORS=str(wanted)) as here:
        await github.sign_in(here.stranger, "operator")
        assert (await here.stranger.get("/audit")).status_code == 200
        github.people = {**github.people, "namesake": github.world.add_user(str(wanted))}
        await github.sign_in(here.stranger, "namesake")
        assert (await here.stranger.get("/audit")).status_code == 403


@pytest.mark.parametrize("path", ["/sign-out", "/operators/retry", f"/jobs/{MINE}/stop"])
@pytest.mark.parametrize("length", [str(600_000), "300000000", ""])
async def test_no_form_is_read_beyond_a_limit(here: WebClient, github: GitHubPeople, path: str, length: str) -> None:
    await github.sign_in(here.stranger, "operator")

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 600_000

    headers = {"content-length": length} if length else {}
    answer = await here.stranger.post(path, content=body(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/ü", "/\n"])
async def test_signing_in_never_leads_to_another_site(here: WebClient, github: GitHubPeople, wanted: str) -> None:
    assert (await github.sign_in(here.stranger, "reader", wanted)).headers["location"] == "/"


async def test_the_database_alone_reveals_no_cookie_and_no_token(here: WebClient, github: GitHubPeople) -> None:
    await github.sign_in(here.stranger, "reader")
    with here.engine.connect() as db:
        stored = repr([tuple(row) for table in (web_sessions, audit_log) for row in db.execute(table.select())])
    assert "ghu_" not in stored
    assert here.stranger.cookies[COOKIE] not in stored


async def test_with_a_sign_in_the_password_is_for_programs_only(here: WebClient) -> None:
    assert (await here.client.get("/")).status_code == 401
    assert (await here.client.get("/api/jobs")).status_code == 200
    assert (await here.client.get("/metrics")).status_code == 200


@pytest.mark.parametrize(("host", "address"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "192.0.2.1")])
async def test_without_a_sign_in_the_password_opens_pages_on_this_machine_only(
    tmp_path: Path, host: str, address: str
) -> None:
    async with web_client(tmp_path, HOST=host, address=address) as here:
        answer = await here.client.get("/", headers=HTML)
        assert (answer.status_code, "AGENT_FIX_CLIENT_ID" in answer.text) == (403, True)
        assert (await here.client.get("/api/jobs")).status_code == 200
        assert (await here.client.get("/metrics")).status_code == 200
