"""The forms of a job's page do what the API does, once, and only if they came from the page."""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.jobs.job_actions import JobRequests, PlanVersions, ProgramRequest
from app.jobs.trigger_log import AuditLog
from tests.support.seeded_database import PLAN
from tests.support.web_client import WebClient, web_client

APPROVABLE, ASKS, PAUSED, FAILED = "seed16", "seed15", "seed14", "seed08"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path) as ready:
        PlanVersions(ready.engine, ready.clock).record(APPROVABLE, PLAN)
        yield ready


async def send(here: WebClient, job: str, action: str, **fields: Any) -> httpx.Response:
    page = await here.page(f"/jobs/{job}")
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    return await here.client.post(f"/jobs/{job}/{action}", data={**hidden, **fields})


def state(here: WebClient, job: str) -> str:
    listed = here.receiving.overview.one(job)
    assert listed is not None
    return listed.state


async def test_a_plan_is_edited_and_approved_with_its_versions_shown(here: WebClient) -> None:
    answer = await send(here, APPROVABLE, "plan", version="1", text="summary: Round once.\n")
    assert answer.status_code == 303
    page = await here.page(f"/jobs/{APPROVABLE}")
    assert "version 2 by operator" in page
    assert "summary: Round once." in page
    late = await send(here, APPROVABLE, "plan", version="1", text="summary: Late.\n")
    assert late.status_code == 409
    assert "summary: Late." in late.text
    assert "summary: Round once." in late.text
    assert (await send(here, APPROVABLE, "plan", text="steps: 7")).status_code == 422
    assert (await send(here, APPROVABLE, "approve", text="summary: Round twice.\n")).status_code == 303
    assert state(here, APPROVABLE) == "queued"
    (message,) = [each for each in here.receiving.messages.since(APPROVABLE, 0) if each.kind == "approve"]
    assert "Round twice." in message.text


async def test_a_plan_is_edited_in_fields(here: WebClient) -> None:
    page = await here.page(f"/jobs/{APPROVABLE}")
    shown = {
        name: re.findall(rf'<textarea name="{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
        for name in ("summary", "candidate_files", "steps")
    }
    assert [unescape(text) for text in shown["steps"]] == list(PLAN.steps)
    fields: dict[str, Any] = {name: [unescape(text) for text in texts] for name, texts in shown.items()}
    assert (await send(here, APPROVABLE, "plan", version="1", **fields)).status_code == 303
    plans = PlanVersions(here.engine, here.clock)
    assert len(plans.of(APPROVABLE)) == 1, "nothing was changed"
    fields["steps"] = ["Round once.\r\nIn the total.", " ", *fields["steps"][1:], "Say so in the changelog."]
    assert (await send(here, APPROVABLE, "plan", version="1", **fields)).status_code == 303
    newest = plans.of(APPROVABLE)[-1]
    steps = ("Round once.\nIn the total.", *PLAN.steps[1:], "Say so in the changelog.")
    assert (newest.version, newest.plan) == (2, PLAN.model_copy(update={"steps": steps}))
    assert (await send(here, APPROVABLE, "plan", version="2", **fields | {"summary": " "})).status_code == 422
    assert (await send(here, APPROVABLE, "approve", version="2", **fields | {"candidate_files": []})).status_code == 303
    assert plans.of(APPROVABLE)[-1].plan.candidate_files == ()
    assert state(here, APPROVABLE) == "queued"


async def test_a_paused_job_continues_with_more_money(here: WebClient) -> None:
    assert (await send(here, PAUSED, "continue", extra="much")).status_code == 422
    assert (await send(here, PAUSED, "continue", extra="0.00")).status_code == 422
    assert (await send(here, PAUSED, "continue", extra="2.50")).status_code == 303
    listed = here.receiving.overview.one(PAUSED)
    assert listed is not None
    assert (listed.state, listed.budget) == ("queued", 7_500_000)
    assert (await send(here, PAUSED, "continue", id="x", seal="x")).status_code == 403


async def test_questions_are_answered_and_a_failed_job_is_retried(here: WebClient) -> None:
    assert (await send(here, ASKS, "answer", text=" ")).status_code == 422
    assert (await send(here, ASKS, "answer", text="Half up, please.")).status_code == 303
    assert state(here, ASKS) == "queued"
    answer = await send(here, FAILED, "retry")
    new = answer.headers["location"].removeprefix("/jobs/")
    assert state(here, new) == "queued"


async def test_a_new_jobs_id_is_the_pages_own_and_no_other_jobs(here: WebClient) -> None:
    assert (await send(here, FAILED, "retry", id="operators")).status_code == 403
    page = await here.page(f"/jobs/{FAILED}")
    hidden = dict(re.findall(r'type="hidden" name="(seal|id)" value="([^"]*)"', page))
    asked = JobRequests(here.engine, here.clock)
    other = {"job": hidden["id"], "by": "ci", "repository": "ada/sample", "number": 7, "at": here.clock.now}
    asked.add(ProgramRequest.model_validate(other))
    assert (await here.client.post(f"/jobs/{FAILED}/retry", data=hidden)).status_code == 409
    assert AuditLog(here.engine, here.clock).newest(9) == ()
    again = await send(here, FAILED, "retry")
    found = asked.get(again.headers["location"].removeprefix("/jobs/"))
    place = here.receiving.job_queries.context(FAILED)
    assert found is not None
    assert place is not None
    assert (found.repository_id, found.user) == (place.issue_ref.repository, 0)


async def test_a_form_that_is_sent_twice_is_carried_out_once(here: WebClient) -> None:
    page = await here.page(f"/jobs/{FAILED}")
    hidden = dict(re.findall(r'type="hidden" name="(seal|id)" value="([^"]*)"', page))
    answers = [await here.client.post(f"/jobs/{FAILED}/retry", data=hidden) for _ in range(2)]
    assert [answer.headers["location"] for answer in answers] == [f"/jobs/{hidden['id']}"] * 2


@pytest.mark.parametrize("action", ["stop", "retry", "plan", "approve", "answer", "continue"])
async def test_no_form_is_carried_out_without_the_password_or_the_seal(here: WebClient, action: str) -> None:
    before = state(here, APPROVABLE)
    assert (await here.stranger.post(f"/jobs/{APPROVABLE}/{action}")).status_code == 401
    assert (await here.client.post(f"/jobs/{APPROVABLE}/{action}", data={"id": "x"})).status_code == 403
    elsewhere = {"sec-fetch-site": "cross-site"}
    answer = await here.client.post(f"/jobs/{APPROVABLE}/{action}", data={"id": "x"}, headers=elsewhere)
    assert answer.status_code == 403
    assert state(here, APPROVABLE) == before
