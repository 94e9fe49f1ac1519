"""The set-up page: from the token of the terminal to the key in `app.env`, and everybody else turned away."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.config.settings import read_app_file, settings_from
from app.core.errors import AgentFixError
from app.github.auth import EVENTS, PERMISSIONS, NewAppResponse, exchange, page_to_make_it
from app.github.base import ForgeError
from app.github.connection import GitHubHost
from app.server.app_setup import SetupPage, keep, run_setup
from tests.support.github.authentication import app_key
from tests.support.github.registration import problems_of

TOKEN = "the-token-of-the-terminal"
CODE = "a180b1a3d263c81bc6441d7b990bae27d4c10679"
HERE = "http://127.0.0.1:8080"
FORM = {"name": "agent-fix-ada", "organisation": "", "address": "https://agent-fix.example.org/"}


def new_app(**changes: Any) -> dict[str, Any]:
    made = {"id": 7, "slug": "agent-fix-ada", "html_url": "https://github.com/apps/agent-fix-ada", "pem": app_key()[0]}
    return {**made, "webhook_secret": "a webhook secret", "client_id": "x", "node_id": "y", "owner": None, **changes}


class Form(HTMLParser):
    """The form that a browser sends on: where to, and its fields."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self.action = found.get("action") or ""
        if tag == "input":
            self.fields[found["name"] or ""] = found.get("value") or ""


@dataclass
class Setting:
    """The page, a browser that has the token or not, and what was kept."""

    page: SetupPage
    browser: httpx.AsyncClient
    codes: list[str] = field(default_factory=list)
    kept: list[tuple[NewAppResponse, str]] = field(default_factory=list)

    async def enter(self) -> None:
        answer = await self.browser.get(f"/setup?token={TOKEN}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/setup")

    async def confirm(self, **changes: str) -> httpx.Response:
        """What the form leads to: the page with the manifest, or the form again."""
        return await self.browser.post("/setup", data={**FORM, **changes}, follow_redirects=True)

    async def begun(self) -> str:
        """The state of a form that was filled in."""
        form = Form((await self.confirm()).text)
        return parse_qs(urlsplit(form.action).query)["state"][0]


@pytest.fixture
async def here() -> AsyncIterator[Setting]:
    async def give(code: str) -> NewAppResponse:
        setting.codes.append(code)
        if code != CODE:
            raise AgentFixError("GitHub answered 404: Not Found", hint="Begin again.")
        return NewAppResponse.model_validate(new_app())

    def keeping(app: NewAppResponse, address: str) -> str:
        setting.kept.append((app, address))
        return "/state/app.env"

    page = SetupPage(github_url="https://github.com", public_url="", token=TOKEN, exchange=give, keep=keeping)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(page.app()), base_url=HERE) as browser:
        setting = Setting(page, browser)
        yield setting


async def test_the_whole_way(here: Setting) -> None:
    await here.enter()
    assert "Create your GitHub App" in (await here.browser.get("/setup")).text
    answer = await here.confirm()
    form = Form(answer.text)
    assert form.action.startswith("https://github.com/settings/apps/new?state=")
    assert "form-action 'self' https://github.com;" in answer.headers["content-security-policy"]
    wanted = json.loads(form.fields["manifest"])
    assert wanted["hook_attributes"] == {"url": "https://agent-fix.example.org/webhook", "active": True}
    assert wanted["redirect_url"] == f"{HERE}/setup/done"
    assert [*problems_of(wanted)] == []
    assert (wanted["name"], wanted["url"], wanted["public"]) == (FORM["name"], "https://agent-fix.example.org", False)
    state = parse_qs(urlsplit(form.action).query)["state"][0]
    done = await here.browser.get("/setup/done", params={"code": CODE, "state": state})
    assert done.status_code == 200
    assert "https://github.com/apps/agent-fix-ada/installations/new" in done.text
    assert app_key()[0].splitlines()[1] not in done.text
    assert "a webhook secret" not in done.text
    ((app, address),) = here.kept
    assert (app.id, address) == (7, "https://agent-fix.example.org")
    assert here.page.ended.is_set()


def test_the_app_asks_for_the_least() -> None:
    assert not {"workflows", "administration", "secrets", "members", "organization_administration"} & PERMISSIONS.keys()
    assert {name for name, access in PERMISSIONS.items() if access == "write"} == {
        "contents",
        "issues",
        "pull_requests",
        "checks",
    }
    assert not {"installation", "installation_repositories", "meta"} & set(
        EVENTS
    )  # GitHub refuses a manifest with them


async def test_an_organisation_and_a_forwarder(here: Setting) -> None:
    await here.enter()
    channel = "https://forwarder.example/aBc123"
    answer = await here.confirm(organisation="octo-org", address=channel)
    form = Form(answer.text)
    assert form.action.startswith("https://github.com/organizations/octo-org/settings/apps/new?state=")
    wanted = json.loads(form.fields["manifest"])
    assert (wanted["hook_attributes"]["url"], wanted["url"]) == (channel, "https://github.com")
    assert page_to_make_it("https://ghe.example.org/", "", "s") == "https://ghe.example.org/settings/apps/new?state=s"


@pytest.mark.parametrize(
    "path", ["/setup", "/setup?token=", "/setup?token=guess", "/setup/confirm", f"/setup/done?code={CODE}&state=x"]
)
async def test_a_request_without_the_password_is_refused(here: Setting, path: str) -> None:
    answer = await here.browser.get(path)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert (await here.confirm()).status_code == 403


async def test_another_browser_cannot_finish_what_one_began(here: Setting) -> None:
    await here.enter()
    state = await here.begun()
    here.browser.cookies.clear()
    for cookie in ("", "guess"):
        here.browser.cookies.set("agent_fix_setup", cookie)
        done = await here.browser.get("/setup/done", params={"code": CODE, "state": state})
        assert done.status_code == 403
    assert not here.codes


async def test_a_state_is_ours_and_good_for_one_time(here: Setting) -> None:
    await here.enter()
    state = await here.begun()
    for wrong in ("", "guess", state[:-1]):
        assert (await here.browser.get("/setup/done", params={"code": CODE, "state": wrong})).status_code == 403
    failed = await here.browser.get("/setup/done", params={"code": "b" * 40, "state": state})
    assert failed.status_code == 502
    assert "GitHub answered 404" in failed.text
    assert (await here.browser.get("/setup/done", params={"code": CODE, "state": state})).status_code == 403
    again = await here.begun()
    assert (await here.browser.get("/setup/done", params={"code": CODE, "state": again})).status_code == 200
    assert (
        await here.browser.get("/setup/done", params={"code": CODE, "state": await here.begun()})
    ).status_code == 403
    assert len(here.kept) == 1


async def test_without_an_address_there_are_no_webhooks(here: Setting) -> None:
    """GitHub refuses `hook_attributes` and events without an address, even with `active: false`."""
    await here.enter()
    wanted = json.loads(Form((await here.confirm(address="")).text).fields["manifest"])
    assert not {"hook_attributes", "default_events"} & wanted.keys()
    assert wanted["url"] == "https://github.com"
    assert [*problems_of(wanted)] == []


async def test_the_form_can_be_opened_again_as_it_was(here: Setting) -> None:
    await here.enter()
    state = await here.begun()
    for _ in range(2):
        assert (await here.browser.get("/setup/confirm", params={"state": state})).status_code == 200
    form = Form((await here.browser.get("/setup", params={"state": state})).text)
    assert form.fields == FORM


async def test_other_sites_cannot_send_the_form(here: Setting) -> None:
    await here.enter()
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert (await here.browser.post("/setup", data=FORM, headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "x" * 35},
        {"organisation": "../../evil"},
        {"organisation": "a b"},
        {"organisation": "x?y"},
        {"address": "http://localhost:8080"},
        {"address": "http://127.0.0.1:8080"},
        {"address": "http://[::1]:8080"},
        {"address": "javascript:alert(1)"},
        {"address": "http://["},
        {"address": "agent-fix.example.org"},
        {"address": "https://user@host"},
        {"address": "https://host/?x=1"},
    ],
)
async def test_an_invalid_form_shows_the_error_and_keeps_its_values(here: Setting, changes: dict[str, str]) -> None:
    await here.enter()
    answer = await here.confirm(**changes)
    assert answer.status_code == 400
    form = Form(answer.text)
    assert form.action == "/setup"
    assert {name: value for name, value in form.fields.items() if name not in changes}.items() <= FORM.items()


async def test_hostile_input_stays_text(here: Setting) -> None:
    await here.enter()
    answer = await here.confirm(name="\"><script>'&lt;")
    assert "<script>" not in answer.text
    assert json.loads(Form(answer.text).fields["manifest"])["name"] == "\"><script>'&lt;"
    bad = await here.browser.get(f"/setup/confirm?state={await here.begun()}", headers={"host": 'x"><script>'})
    assert bad.status_code == 403
    assert "<script>" not in bad.text


async def test_the_pages_forbid_framing_and_the_cookie_is_out_of_reach(here: Setting) -> None:
    answer = await here.browser.get(f"/setup?token={TOKEN}")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"
    assert TOKEN not in answer.headers["location"]


def github(answer: Response, asked: list[tuple[str, str]]) -> httpx.ASGITransport:
    async def convert(request: Request) -> Response:
        asked.append((request.method, request.url.path))
        assert "authorization" not in request.headers
        return answer

    return httpx.ASGITransport(Starlette(routes=[Route("/{rest:path}", convert, methods=["POST"])]))


HOST = GitHubHost("http://api.github.example", "http://github.example")


async def test_a_code_is_exchanged_once_and_without_repeating() -> None:
    asked: list[tuple[str, str]] = []
    app = await exchange(HOST, CODE, transport=github(JSONResponse(new_app(), 201), asked))
    assert (app.id, app.pem, app.webhook_secret) == (7, app_key()[0], "a webhook secret")
    assert "PRIVATE" not in repr(app)
    assert asked == [("POST", f"/app-manifests/{CODE}/conversions")]


@pytest.mark.parametrize("status", [404, 422, 500, 502])
async def test_a_refusal_is_one_of_the_forges_errors(status: int) -> None:
    asked: list[tuple[str, str]] = []
    with pytest.raises(ForgeError) as error:
        await exchange(HOST, CODE, transport=github(JSONResponse({"message": "Nope"}, status), asked))
    assert str(status) in error.value.message
    assert len(asked) == 1


@pytest.mark.parametrize("code", ["", "../../user", "a b", "x" * 500])
async def test_a_malformed_code_is_not_sent_to_github(code: str) -> None:
    asked: list[tuple[str, str]] = []
    with pytest.raises(AgentFixError):
        await exchange(HOST, code, transport=github(JSONResponse({}, 201), asked))
    assert not asked


@pytest.mark.parametrize(
    ("address", "public"), [("https://h.example", "https://h.example"), ("https://h.example/c", None), ("", None)]
)
def test_serve_reads_the_stored_setup(tmp_path: Path, address: str, public: str | None) -> None:
    ghe = {"HOME": str(tmp_path), "AGENT_FIX_GITHUB_URL": "https://ghe.example.org"}
    keep(settings_from(ghe, tmp_path), NewAppResponse.model_validate(new_app(webhook_secret=None)), address)
    names = [f"AGENT_FIX_{name}" for name in ("APP_ID", "PRIVATE_KEY", "WEBHOOK_SECRET", "PUBLIC_URL", "GITHUB_URL")]
    kept = read_app_file(tmp_path, [*names, "AGENT_FIX_GITHUB_API_URL"])
    found = settings_from({**kept, "AGENT_FIX_MODEL": "openai/x"}, tmp_path)
    found.check("receiver", "worker", "publisher")
    assert (found.app_id, found.private_key) == (7, app_key()[0])
    assert found.github_api_url == "https://ghe.example.org/api/v3"
    assert kept.get("AGENT_FIX_PUBLIC_URL") == public


def test_an_app_that_is_configured_already_is_not_replaced(tmp_path: Path) -> None:
    configured = settings_from({"AGENT_FIX_APP_ID": "7", "AGENT_FIX_STATE_DIR": str(tmp_path)}, tmp_path)
    with pytest.raises(AgentFixError, match="The GitHub App 7 is already configured"):
        run_setup(configured)
