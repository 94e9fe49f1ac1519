"""The dashboard in a real browser: who gets in, who may press its buttons, and what its script adds."""

import re

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from app.server.web.sign_in import DashboardPassword, Visitor
from tests.integration.server.browser.dashboard import GUESSES, Dashboard, OtherSite
from tests.support.web_client import TOKEN

HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
WORKING, PLANNING, VERIFYING = "seed22", "seed19", "seed18"


def test_a_wrong_password_opens_nothing(browser: Browser, here: Dashboard) -> None:
    with browser.new_context(http_credentials=GUESSES) as context:
        page = context.new_page()
        page.goto(here.address)
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        expect(page.locator(".card")).to_have_css("border-radius", "10px")  # its style needs no password
        assert "seed" not in page.content()


def test_the_password_opens_the_list_and_a_job(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(here.address)
    page.get_by_text("More filters").click()
    page.get_by_role("combobox", name="State").select_option("paused")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_text("/agent continue")).to_be_visible()


@pytest.mark.parametrize(("host", "job"), [("127.0.0.1", PLANNING), ("agent-fix.example", VERIFYING)])
def test_the_button_stops_a_job(visitor: BrowserContext, here: Dashboard, host: str, job: str) -> None:
    """With `Sec-Fetch-Site`, and from an address for which browsers leave it out."""
    page = visitor.new_page()
    page.goto(f"{here.at(host)}/jobs/{job}")
    page.get_by_text("Stop this job").click()
    assert not here.stop_requested(job), "it asks first"
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_text("Stop requested")).to_be_visible()
    assert here.stop_requested(job)


@pytest.mark.parametrize("path", [f"/jobs/{WORKING}/stop", f"/api/jobs/{WORKING}/cancel"])
@pytest.mark.parametrize(
    ("sites", "referrer", "sent"),
    [
        ("127.0.0.1 localhost", "unsafe-url", {"sec-fetch-site": "cross-site"}),
        ("127.0.0.1 127.0.0.1", "unsafe-url", {"sec-fetch-site": "same-site"}),
        ("agent-fix.example evil.agent-fix.example", "unsafe-url", {}),
        ("agent-fix.example evil.example", "no-referrer", {"origin": "null"}),
    ],
)
def test_a_form_of_another_site_is_refused(
    visitor: BrowserContext,
    here: Dashboard,
    other_site: OtherSite,
    *,
    sites: str,
    referrer: str,
    sent: dict[str, str],
    path: str,
) -> None:
    """Even where it knows the seal."""
    ours, theirs = sites.split()
    key = DashboardPassword(TOKEN, here.receiving.clock).form_key
    seal = Visitor(name="operator", form_key=key, operator=True).seal(f"{WORKING} ")
    page = visitor.new_page()
    page.goto(other_site(theirs, to=here.at(ours) + path, referrer=referrer, seal=seal))
    with page.expect_response(lambda answer: answer.url.endswith(path) and answer.status != 401) as answer:
        page.get_by_role("button").click()
    expect(page.locator("body")).to_contain_text("This request came from another site")
    assert answer.value.status == 403
    headers = answer.value.request.all_headers()
    assert sent.items() <= headers.items()
    assert ("sec-fetch-site" in headers) is ("sec-fetch-site" in sent)
    assert not here.stop_requested(WORKING)


def test_the_log_grows_and_the_end_is_shown(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{WORKING}")
    expect(page.get_by_text("live")).to_be_visible()
    here.receiving.job_store().add_progress(WORKING, "note", "<b>42</b> tests found")
    expect(page.get_by_text("<b>42</b> tests found")).to_be_visible()
    here.receiving.job_store().add_progress(WORKING, "plan", "Round once, <i>at the end</i>.")
    expect(page.locator("#plan")).to_contain_text("Round once, <i>at the end</i>.")
    page.evaluate(HIDE, True)
    here.receiving.job_store().add_progress(WORKING, "note", "said while nobody looked")
    page.evaluate(HIDE, False)
    expect(page.get_by_text("said while nobody looked")).to_be_visible()
    assert page.get_by_text("tests found").count() == 1
    here.receiving.job_store().finish(WORKING, "stopped", "It was stopped.", {})
    expect(page.get_by_role("button", name="Stop this job")).to_have_count(0)
    expect(page.locator("#state")).to_have_text(re.compile("stopped"))
