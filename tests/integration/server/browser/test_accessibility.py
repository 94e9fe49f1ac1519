"""Every page, wide and light, then narrow and dark: no barrier that axe-core knows, nothing wider than the screen."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from app.core.errors import AgentFixError
from app.github.auth import NewAppResponse
from app.jobs.accounts import WebSessions
from app.jobs.job_actions import PlanVersions
from app.jobs.operations import GitHubLimit, OperationsOverview
from app.jobs.queue import QueueLimits
from app.jobs.trigger_log import AuditLog
from app.server.app_setup import SetupPage
from app.server.web.sign_in import MAX_FAILURES
from tests.integration.server.browser.chromium import axe_core
from tests.integration.server.browser.dashboard import GUESSES, Dashboard, OtherSite, dashboard
from tests.support.loopback import listening, serving
from tests.support.seeded_database import PLACES, PLAN
from tests.support.signed_in import github_people
from tests.support.web_client import TOKEN

SCREENS: tuple[tuple[ViewportSize, Literal["light", "dark"]], ...] = (
    ({"width": 1280, "height": 900}, "light"),
    ({"width": 390, "height": 844}, "dark"),
)
LISTS = {"all": "/", "some": "/?state=waiting", "none": "/?state=ended&repository=ada%2Fsample&before=seed00"}
JOBS = {
    "working": "seed22",
    "awaiting approval": "seed16",
    "needs input": "seed15",
    "paused": "seed14",
    "pull request opened": "seed13",
    "verification failed": "seed08",
    "error": "seed04",
}


OVERFLOWING = """[...document.querySelectorAll('td, .tile, dd, header')].filter(
    each => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === 'visible'
  ).map(each => each.textContent.trim())"""
"""Texts that run over their cell, and so over what is beside it."""


def judge(page: Page, title: str = "") -> None:
    """Fails on whatever axe-core finds in the page that is open, and where page or text is wider than its place."""
    assert title in page.inner_text("h1")
    page.evaluate(axe_core())
    for size, scheme in SCREENS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run({resultTypes: ['violations']}).then(done => done.violations)")
        told = [f"{each['impact']}: {each['id']}: {node['html']}" for each in found for node in each["nodes"]]
        assert not told, "\n".join([f"{page.url}, {scheme}", *told])
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"], f"{page.url} is too wide"
        assert page.evaluate(OVERFLOWING) == [], f"{page.url}, {size['width']} wide"


@pytest.mark.parametrize("path", LISTS.values(), ids=LISTS)
def test_lists(visitor: BrowserContext, here: Dashboard, path: str) -> None:
    page = visitor.new_page()
    page.goto(here.address + path)
    judge(page, "Jobs")


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_jobs(visitor: BrowserContext, here: Dashboard, job: str) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{job}")
    judge(page)


def test_a_plan_before_its_approval(visitor: BrowserContext, here: Dashboard) -> None:
    PlanVersions(here.receiving.engine, here.receiving.clock).record("seed16", PLAN)
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/seed16")
    page.get_by_text("Edit as text").click()
    judge(page)
    page.set_viewport_size(SCREENS[0][0])
    page.get_by_label("Steps, another").focus()
    page.keyboard.type("Say so in the changelog.")
    page.get_by_role("button", name="Save as a new version").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("version 2 by operator")).to_be_visible()
    expect(page.get_by_label("Steps, number 4")).to_have_value("Say so in the changelog.")


@pytest.mark.parametrize(("path", "title"), [("/operators", "Operators"), ("/audit", "Audit log")])
def test_operators_pages(visitor: BrowserContext, here: Dashboard, path: str, title: str) -> None:
    engine, clock = here.receiving.engine, here.receiving.clock
    limit = GitHubLimit(7, "core", 412, 5_000, clock() + timedelta(minutes=20), clock())
    OperationsOverview(engine, clock, QueueLimits(jobs=10, per_repository=3)).store_limits([limit])
    AuditLog(engine, clock).record("ada", "dashboard", "stop", "seed22", address="192.0.2.1")
    page = visitor.new_page()
    page.goto(here.address + path)
    judge(page, title)


def test_people_who_sign_in(stranger: BrowserContext, tmp_path: Path) -> None:
    """Nobody, and then a reader, who has no buttons."""
    with dashboard(tmp_path, sign_in=github_people(tmp_path).client()) as here:
        page = stranger.new_page()
        page.goto(here.address)
        judge(page, "Sign in")
        page.goto(f"{here.address}/sign-in/done?state=x")
        judge(page, "Sign in")
        sessions = WebSessions(here.receiving.engine, here.receiving.clock)
        cookie = sessions.create(7, "a-reader", "ghu_x", {PLACES[0][2]: "read"})
        stranger.add_cookies([{"name": "agent-fix-session", "value": cookie, "url": here.address}])
        page.goto(here.address)
        judge(page, "Jobs")
        expect(page.get_by_text("a-reader")).to_be_visible()
        page.goto(f"{here.address}/jobs/seed21")
        judge(page)
        expect(page.get_by_role("button")).to_have_count(1)
        page.goto(f"{here.address}/operators")
        judge(page, "This page is for operators")


def test_messages(visitor: BrowserContext, tmp_path: Path, other_site: OtherSite) -> None:
    with dashboard(tmp_path, seed=False) as fresh:
        page = visitor.new_page()
        page.goto(fresh.address)
        judge(page, "Jobs")
        page.goto(f"{fresh.address}/jobs/none")
        judge(page, "Page not found")
        page.goto(f"{fresh.address}/?repository=no/such")
        judge(page, "This repository has no jobs")
        page.goto(other_site("localhost", to=f"{fresh.address}/jobs/none/stop", referrer="origin"))
        page.get_by_role("button").click()
        judge(page, "This request came from another site")
        with fresh.receiving.engine.begin() as db:
            db.exec_driver_sql("ALTER TABLE jobs RENAME TO gone")
        page.goto(fresh.address)
        judge(page, "The database is not responding")
        with httpx.Client(base_url=fresh.address, auth=("anybody", "a guess")) as guesser:
            for _ in range(MAX_FAILURES):
                guesser.get("/")
        page.goto(fresh.address)
        judge(page, "Too many wrong passwords")


def test_sign_in(browser: Browser, here: Dashboard) -> None:
    with browser.new_context(http_credentials=GUESSES) as context:
        page = context.new_page()
        page.goto(here.address)
        judge(page, "Sign in")


def test_set_up(stranger: BrowserContext) -> None:
    async def exchange(code: str) -> NewAppResponse:
        if code != "good":
            raise AgentFixError("GitHub answered 404: Not Found", hint="Start again.")
        page = "https://github.com/apps/agent-fix-ada"
        return NewAppResponse(id=7, slug="agent-fix-ada", html_url=page, pem="a key", webhook_secret="a secret")

    pages = SetupPage(
        github_url="https://github.com",
        public_url="",
        token=TOKEN,
        exchange=exchange,
        keep=lambda _app, _address: "/home/ada/.local/state/agent-fix/app.env",
    )
    with listening() as listener, serving(pages.app(), listener) as address:
        page = stranger.new_page()
        page.goto(f"{address}/setup")
        judge(page, "This link does not work")
        page.goto(f"{address}/setup?token={TOKEN}")
        judge(page, "Create your GitHub App")
        for where, code, title in (
            ("http://localhost:8080", "", "Create your GitHub App"),  # refused, with the reason
            ("https://agent-fix.example.org", "bad", "Create the App on GitHub"),
            ("", "good", "Create the App on GitHub"),
        ):
            page.goto(f"{address}/setup")
            page.get_by_label("Name of the App").fill("agent-fix-ada")
            page.get_by_label("Public address of this server").fill(where)
            page.get_by_role("button", name="Continue").click()
            judge(page, title)
            if code:
                state = page.url.partition("state=")[2]
                page.goto(f"{address}/setup/done?code={code}&state={state}")
                judge(page, "Your App is ready" if code == "good" else "Set-up failed")
