"""Every form and button of the dashboard, used in a real browser as a person uses it."""

from pathlib import Path

import sqlalchemy as sa
from playwright.sync_api import BrowserContext, expect

from app.jobs.accounts import WebSessions
from app.jobs.job_actions import PlanVersions
from app.jobs.operations import OperationsOverview
from app.jobs.queue import QueueLimits
from app.jobs.tables import job_requests
from tests.integration.server.browser.dashboard import Dashboard, dashboard
from tests.support.seeded_database import PLACES, PLAN
from tests.support.signed_in import github_people

LIMITS = QueueLimits(jobs=10, per_repository=3)
APPROVABLE, ASKS, PAUSED, FAILED = "seed16", "seed15", "seed14", "seed08"


def state(here: Dashboard, job: str) -> str:
    listed = here.receiving.overview.one(job)
    assert listed is not None
    return listed.state


def test_a_plan_is_edited_in_fields_and_as_text_then_approved(visitor: BrowserContext, here: Dashboard) -> None:
    plans = PlanVersions(here.receiving.engine, here.receiving.clock)
    plans.record(APPROVABLE, PLAN)
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{APPROVABLE}")
    page.get_by_label("Steps, number 1").fill("Write the test first.")
    page.get_by_role("button", name="Save as a new version").first.click()
    expect(page.get_by_text("version 2 by operator")).to_be_visible()
    page.get_by_text("Edit as text").click()
    text = page.get_by_label("The plan as text")
    text.fill(text.input_value().replace("Write the test first.", "Write the test last."))
    page.get_by_role("button", name="Save as a new version").last.click()
    expect(page.get_by_text("version 3 by operator")).to_be_visible()
    expect(page.get_by_label("Steps, number 1")).to_have_value("Write the test last.")
    page.get_by_text("Edit as text").click()
    page.get_by_label("The plan as text").fill("steps: 7")
    page.get_by_role("button", name="Save as a new version").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The plan cannot be used")
    page.go_back()
    page.reload()
    page.get_by_label("Summary").fill("Round once.")
    page.get_by_role("button", name="Approve this plan").first.click()
    expect(page.locator("#state")).to_have_text("queued")
    assert plans.of(APPROVABLE)[-1].plan == PLAN.model_copy(
        update={"summary": "Round once.", "steps": ("Write the test last.", *PLAN.steps[1:])}
    )


def test_a_question_is_answered(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{ASKS}")
    page.get_by_role("button", name="Answer").click()  # the browser itself refuses an empty one
    assert state(here, ASKS) == "needs_input"
    page.get_by_label("Your answer").fill("Half up, please.")
    page.get_by_role("button", name="Answer").click()
    expect(page.locator("#state")).to_have_text("queued")
    expect(page.locator("#messages")).to_contain_text("Half up, please.")


def test_a_paused_job_continues_with_more_money(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{PAUSED}")
    amount = page.get_by_label("Add to the budget (USD)")
    amount.fill("much")
    page.get_by_role("button", name="Continue").click()
    assert state(here, PAUSED) == "paused"
    amount.fill("2.50")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#state")).to_have_text("queued")
    expect(page.locator("#facts")).to_contain_text("of $7.50")


def test_a_failed_job_is_retried_once(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/jobs/{FAILED}")
    page.get_by_role("button", name="Retry").dblclick()
    expect(page.locator("#state")).to_have_text("queued")
    with here.receiving.engine.connect() as db:
        assert db.execute(sa.select(job_requests.c.job)).scalars().all() == [page.url.rpartition("/")[2]]


def test_the_list_is_searched_filtered_sorted_and_paged(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(here.address)
    rows = page.locator("table.jobs tbody tr")
    everything = rows.count()
    page.get_by_label("Search").fill("safari")
    page.get_by_label("Search").press("Enter")
    expect(page.get_by_label("Search")).to_have_value("safari")
    assert 0 < rows.count() < everything
    expect(rows.first).to_contain_text("Safari 18")
    page.get_by_role("link", name="Clear filter").click()
    page.get_by_text("More filters").click()
    page.get_by_label("Verdict", exact=True).select_option("broken")
    page.get_by_label("Repository", exact=True).select_option(label="ada/sample")
    page.get_by_label("Requested by").fill("octocat")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_label("Requested by")).to_have_value("octocat")
    for row in rows.all():
        expect(row).to_contain_text("ada/sample")
        expect(row).to_contain_text("broken")
    page.get_by_role("link", name="Clear filter").click()
    page.get_by_text("More filters").click()
    page.get_by_label("from").fill("2027-01-01")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No jobs match this filter.")).to_be_visible()
    page.goto(here.address)
    for direction in ("ascending", "descending"):  # those that need a person come first until then
        page.locator("th").get_by_role("link", name="Age").click()
        expect(page.get_by_role("columnheader", name="Age")).to_have_attribute("aria-sort", direction)
    page.locator("th").get_by_role("link", name="Cost").click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
    page.goto(f"{here.address}/?page=2")
    page.get_by_role("link", name="Previous").click()
    assert rows.count() == everything


def test_a_dead_letter_is_tried_again(visitor: BrowserContext, here: Dashboard) -> None:
    page = visitor.new_page()
    page.goto(f"{here.address}/operators")
    letters = page.locator("#letters")
    letters.get_by_role("button", name="Retry").click()
    expect(letters).to_contain_text("No dead letters.")
    assert not OperationsOverview(here.receiving.engine, here.receiving.clock, LIMITS).now().dead


def test_a_person_signs_out(stranger: BrowserContext, tmp_path: Path) -> None:
    with dashboard(tmp_path, sign_in=github_people(tmp_path).client()) as here:
        sessions = WebSessions(here.receiving.engine, here.receiving.clock)
        cookie = sessions.create(7, "a-reader", "ghu_x", {PLACES[0][2]: "read"})
        stranger.add_cookies([{"name": "agent-fix-session", "value": cookie, "url": here.address}])
        page = stranger.new_page()
        page.goto(here.address)
        page.get_by_role("button", name="Sign out").click()
        page.goto(here.address)
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
