"""The API for programs: every route with the password, with keys of each scope, and without; errors; repetitions."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from app.core.job import JobResult
from app.core.plan import Plan
from app.jobs.accounts import ApiKeys
from app.jobs.inbox import PROGRAM_EVENT, Inbox
from app.jobs.job_actions import (
    IN_PROGRESS,
    IdempotencyKeys,
    PlanVersions,
    ProgramRequest,
    StillInProgress,
)
from app.jobs.schema import prepare_tables
from app.jobs.store import JobBlobs
from app.jobs.tables import idempotency_keys, job_contexts, jobs
from app.server.web.api_models import dollars, micro
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database
from tests.support.web_client import WebClient, web_client

PLAN = {"summary": "Round once, half up.", "steps": ["Add a test", "Round"]}
ISSUE = {"repository": "ada/sample", "issue": 7}
READS = ["", "/seed05", "/seed05/log", "/seed13/events", "/seed05/plan", "/seed05/patch", "/seed05/trajectory"]
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "", ISSUE),
    ("PUT", "/seed16/plan", {"version": 1, "plan": PLAN}),
    ("POST", "/seed16/approve", {}),
    ("POST", "/seed15/answer", {"text": "Half up."}),
    ("POST", "/seed14/continue", {"extra": "3"}),
    ("POST", "/seed02/retry", None),
    ("POST", "/seed22/cancel", None),
]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path) as ready:
        PlanVersions(ready.engine, ready.clock).record("seed16", Plan(summary="Round half even."))
        yield ready


async def send(here: WebClient, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return await here.client.request(method, f"/api/jobs{path}", json=body, headers=headers)


async def got(here: WebClient, path: str, status: int = 200) -> Any:
    answer = await send(here, "GET", path)
    assert answer.status_code == status, answer.text
    return answer.json()


def stored(here: WebClient) -> list[ProgramRequest]:
    found = [each.delivery for each in Inbox(here.engine, here.clock).claim("w1")]
    assert {each.event for each in found} <= {PROGRAM_EVENT}
    return [ProgramRequest.model_validate_json(each.body) for each in found]


async def test_deaths_of_a_job_and_of_its_workers_are_shown(here: WebClient) -> None:
    with here.engine.begin() as db:
        db.execute(job_contexts.update().where(job_contexts.c.job == "seed13").values(crashes=1, worker_deaths=7))
    shown = (await here.client.get("/api/jobs/seed13")).json()
    assert (shown["crashes"], shown["worker_deaths"]) == (1, 7)
    page = (await here.client.get("/jobs/seed13")).text
    assert "1 crashed" in page
    assert "7 ended with their worker" in page


# Who may do what.


@pytest.mark.parametrize("path", READS)
async def test_reading_needs_a_token_of_that_scope(here: WebClient, path: str) -> None:
    keys = ApiKeys(here.engine, here.clock)
    reader, writer = keys.create("reader", ["read"]), keys.create("writer", ["write"])
    answers = [
        await here.stranger.get(f"/api/jobs{path}", headers={"authorization": f"Bearer {token}"})
        for token in (reader, writer, "afk_wrong")
    ]
    assert answers[0].status_code in {200, 404}, "only the content may be missing"
    assert [each.status_code for each in answers[1:]] == [403, 401]
    assert {each.headers["content-type"] for each in answers[1:]} == {"application/problem+json"}
    assert (await here.stranger.get(f"/api/jobs{path}")).status_code == 401


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_changing_needs_a_token_of_that_scope(here: WebClient, method: str, path: str, body: Any) -> None:
    keys = ApiKeys(here.engine, here.clock)
    reader, writer = keys.create("reader", ["read"]), keys.create("writer", ["write"])
    other_site = {"authorization": f"Bearer {writer}", "sec-fetch-site": "cross-site"}
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer afk_wrong"}, 401),
        ({"authorization": f"Bearer {reader}"}, 403),
        (other_site, 403),
        ({"authorization": f"Bearer {writer}", "origin": "https://evil.example"}, 403),
        ({"authorization": f"Bearer {writer}"}, 200 if method == "PUT" else 202),
    ):
        answer = await here.stranger.request(method, f"/api/jobs{path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert (answer.headers["content-type"], answer.json()["status"]) == ("application/problem+json", status)


async def test_a_key_opens_no_page_and_a_deleted_one_nothing(here: WebClient) -> None:
    keys = ApiKeys(here.engine, here.clock)
    headers = {"authorization": f"Bearer {keys.create('ci', ['read', 'write'])}"}
    assert (await here.stranger.get("/", headers=headers)).status_code == 401
    assert (await here.stranger.get("/metrics", headers=headers)).status_code == 401
    assert (await here.stranger.get("/api/openapi.json", headers=headers)).status_code == 200
    assert [each.name for each in keys.all()] == ["ci"]
    assert keys.delete("ci")
    assert not keys.delete("ci")
    assert (await here.stranger.get("/api/jobs", headers=headers)).status_code == 401


# Lists and details.


async def test_jobs_are_listed_filtered_and_turned(here: WebClient) -> None:
    first = await got(here, "?limit=20")
    second = await got(here, f"?limit=20&before={first['before']}")
    ids = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert ids == [f"seed{number:02}" for number in range(22, -1, -1)]
    assert second["before"] is None
    assert [job["id"] for job in (await got(here, "?state=paused"))["jobs"]] == ["seed14"]
    mine = (await got(here, "?repository=Ada/sample&state=done"))["jobs"]
    assert {job["repository"] for job in mine} == {"ada/sample"}
    assert (await got(here, "?repository=no/such"))["jobs"] == []
    assert [job["id"] for job in (await got(here, "?number=113"))["jobs"]] == ["seed13"]
    assert {job["verdict"] for job in (await got(here, "?verdict=proved"))["jobs"]} == {"proved"}
    assert [job["state"] for job in (await got(here, "?verdict=broken"))["jobs"]] == ["verification_failed"]
    assert float(first["jobs"][0]["cost"]) > 0
    assert (first["jobs"][0]["budget"], first["jobs"][0]["created_at"]) == ("5.00", "2026-11-22T11:55:00Z")


@pytest.mark.parametrize(
    "query",
    ["state=nonsense", "limit=0", "limit=1000000", "limit=-1", "limit=x", "number=0", "verdict=x", "repository=x"],
)
async def test_a_question_that_makes_no_sense_is_refused(here: WebClient, query: str) -> None:
    problem = await got(here, f"?{query}", 422)
    assert problem["errors"][0]["where"] == f"query.{query.partition('=')[0]}"


async def test_list_and_details_name_model_and_runner(here: WebClient) -> None:
    listed = {job["id"]: (job["model"], job["runner"]) for job in (await got(here, "?limit=50"))["jobs"]}
    assert listed["seed12"] == ("anthropic/claude-sonnet-4-5", "codex")
    assert listed["seed13"] == ("anthropic/claude-sonnet-4-5", "native")
    job = await got(here, "/seed12")
    assert (job["model"], job["runner"]) == listed["seed12"]


async def test_a_job_is_shown_with_everything_that_is_stored(here: WebClient) -> None:
    job = await got(here, "/seed13")
    assert (job["state"], job["verdict"], job["usage"]["calls"]) == ("pr_opened", "proved", 16)
    assert job["result"]["verification"]["verdict"] == "proved"
    assert job["limits"] == {"usd": "5.00", "minutes": 60.0, "steps": 100}
    assert (job["runner"], job["fallbacks"]) == ("native", [])
    assert job["models"]["code"]
    assert [effect["kind"] for effect in job["effects"]] == ["reaction", "status_comment"]
    assert job["effects"][0]["url"].endswith("/issues/113")
    assert [each["who"] for each in (await got(here, "/seed15"))["messages"]] == ["ada"]
    assert (await got(here, "/none", 404))["detail"] == "There is no such job."
    assert (await here.client.delete("/api/jobs/seed13")).status_code == 405
    assert (await here.client.options("/api/jobs")).headers["allow"] == "GET, POST"
    assert (await here.client.get("/api/nothing")).headers["content-type"] == "application/problem+json"


async def test_the_log_is_read_line_by_line(here: WebClient) -> None:
    whole = await got(here, "/seed13/log")
    assert [line["kind"] for line in whole["lines"][:3]] == ["state", "note", "plan"]
    rest = await got(here, f"/seed13/log?offset={whole['lines'][9]['seq']}")
    assert rest["lines"] == whole["lines"][10:]
    assert await got(here, f"/seed13/log?offset={whole['offset']}") == {"lines": [], "offset": whole["offset"]}
    assert len((await got(here, "/seed13/log?limit=2"))["lines"]) == 2
    await got(here, "/seed13/log?offset=x", 422)
    await got(here, "/none/log", 404)


async def test_events_go_on_from_an_offset_with_the_models_text(here: WebClient) -> None:
    store = here.receiving.job_store()
    await asyncio.to_thread(store.add_progress, "seed13", "text", "Let me think.")
    whole = (await send(here, "GET", "/seed13/events")).text
    assert '"kind": "text", "text": "Let me think."' in whole
    assert whole.endswith("event: end\ndata: {}\n\n")
    seq = max(int(line.removeprefix("id: ")) for line in whole.splitlines() if line.startswith("id: "))
    later = (await send(here, "GET", f"/seed13/events?offset={seq - 1}")).text
    assert later.count("event: line") == 1
    assert "event: line" not in (await send(here, "GET", "/seed13/events", **{"Last-Event-ID": str(seq)})).text
    assert "Let me think" not in (await here.client.get("/jobs/seed13/events")).text, "the page shows whole lines"
    assert "Let me think" not in str(await got(here, "/seed13/log"))


async def test_patch_and_trajectory_are_downloaded(here: WebClient) -> None:
    blobs, store = JobBlobs(here.engine, "seed13"), here.receiving.job_store()
    await got(here, "/seed13/patch", 404)
    result = JobResult(exit_status="pr_opened", diff=blobs.put(b"--- a\n"), trajectory=blobs.put(b'{"turn": 1}\n'))
    await asyncio.to_thread(store.store_result, "seed13", result.model_dump(mode="json"))
    assert (await send(here, "GET", "/seed13/patch")).content == b"--- a\n"
    assert (await send(here, "GET", "/seed13/trajectory")).json() == {"turn": 1}
    shown = (await got(here, "/seed13"))["result"]
    assert (shown["has_patch"], shown["has_trajectory"]) == (True, True)


async def test_a_waiting_job_shows_its_place(here: WebClient) -> None:
    queued = [job["id"] for job in (await got(here, "?state=queued"))["jobs"]]
    shown = [(await got(here, f"/{job}"))["queue"] for job in sorted(queued)]
    assert [(each["place"], each["of"], each["urgent"]) for each in shown] == [(1, 2, False), (2, 2, False)]
    assert shown[0]["waiting_seconds"] > 60
    assert (await got(here, "/seed22"))["queue"] is None


# Starting jobs.


async def test_a_started_job_is_listed_at_once_and_the_publisher_gets_a_delivery(here: WebClient) -> None:
    options = {"model": "openai/o3", "budget": "2.50", "urgent": True, "attempts": 2, "kind": "bug"}
    answer = await send(here, "POST", "", {**ISSUE, **options, "instructions": "Mind the tests."})
    assert answer.status_code == 202
    (request,) = stored(here)
    assert answer.json() == {"id": request.job}
    assert (request.repository, request.number, request.by) == ("ada/sample", 7, "web token")
    assert (request.budget, request.model, request.urgent, request.attempts) == (2_500_000, "openai/o3", True, 2)
    job = await got(here, f"/{request.job}")
    assert (job["state"], job["repository"], job["number"], job["budget"]) == ("queued", "ada/sample", 7, "2.50")
    assert [each["id"] for each in (await got(here, "?repository=ada/sample&number=7"))["jobs"]] == [request.job]


async def test_a_text_takes_the_place_of_an_issue(here: WebClient) -> None:
    text = "# Totals are wrong\n\nBy a cent."
    started = (await send(here, "POST", "", {"repository": "ada/sample", "text": text})).json()["id"]
    assert [each.text for each in stored(here)] == [text]
    assert (await got(here, f"/{started}"))["title"] == "Totals are wrong"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"repository": "ada/sample"},
        {**ISSUE, "text": "both"},
        {"repository": "sample", "issue": 7},
        {"repository": "ada/sample", "issue": "7"},
        {"repository": "ada/sample", "issue": 0},
        {"repository": "ada/sample", "text": " \n"},
        {"repository": "ada/sample", "text": "a\0b"},
        {**ISSUE, "budget": 3},
        {**ISSUE, "budget": "0.00"},
        {**ISSUE, "budget": "10000.01"},
        {**ISSUE, "unknown": 1},
        {**ISSUE, "kind": "magic"},
        [],
    ],
)
async def test_a_request_that_makes_no_sense_starts_nothing(here: WebClient, body: Any) -> None:
    answer = await send(here, "POST", "", body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"]
    assert stored(here) == []


async def test_bodies_that_are_not_json_or_too_large_are_refused(here: WebClient) -> None:
    headers = {"content-type": "application/json"}
    broken = await here.client.post("/api/jobs", content=b"{", headers=headers)
    assert (broken.status_code, broken.json()["detail"]) == (400, "The body is not valid JSON.")
    large = await here.client.post("/api/jobs", content=b" " * 600_000, headers=headers)
    assert large.status_code == 413


async def test_a_repeated_request_starts_one_job(here: WebClient) -> None:
    first, again, other = [
        await send(here, "POST", "", ISSUE, **{"Idempotency-Key": key}) for key in ("k1", "k1", "k2")
    ]
    assert first.json() == again.json() != other.json()
    assert len(stored(here)) == 2
    changed = await send(here, "POST", "", {**ISSUE, "issue": 8}, **{"Idempotency-Key": "k1"})
    assert changed.status_code == 422
    token = ApiKeys(here.engine, here.clock).create("ci", ["write"])
    theirs = await send(here, "POST", "", ISSUE, **{"Idempotency-Key": "k1", "authorization": f"Bearer {token}"})
    assert theirs.json() != first.json(), "each key has its own"


async def test_a_refused_request_may_be_repeated_and_a_crashed_one_creates_the_same(here: WebClient) -> None:
    once = IdempotencyKeys(here.engine, here.clock)
    begun = once.begin("web token", "k1", "what")
    with pytest.raises(StillInProgress):
        once.begin("web token", "k1", "what")
    here.clock.passes(IN_PROGRESS * 2)
    assert once.begin("web token", "k1", "what").id == begun.id
    for _ in range(2):
        assert (
            await send(here, "POST", "/seed02/answer", {"text": "x"}, **{"Idempotency-Key": "k2"})
        ).status_code == 409


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/seed16/approve", None),
        ("/seed15/answer", {"text": "Half up."}),
        ("/seed14/continue", {"extra": "1.25"}),
        ("/seed21/cancel", None),
    ],
)
async def test_a_request_repeated_after_a_crash_gets_the_first_answer(here: WebClient, path: str, body: Any) -> None:
    first = await send(here, "POST", path, body, **{"Idempotency-Key": "k1"})
    with here.engine.begin() as db:  # the process died before it stored its answer
        db.execute(idempotency_keys.update().values(answer=sa.null()))
    here.clock.passes(IN_PROGRESS * 2)
    again = await send(here, "POST", path, body, **{"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert (await send(here, "POST", path, body, **{"Idempotency-Key": "k2"})).status_code == 409


@pytest.mark.parametrize("dialect", DIALECTS)
def test_simultaneous_requests_with_one_key_are_one(dialect: str, tmp_path: Path) -> None:
    def begin(number: int) -> bool:
        try:
            return bool(once.begin("ci", f"k{number // 8}", "what").id)
        except StillInProgress:
            return False

    with database(dialect, tmp_path) as engine, ThreadPoolExecutor(8) as pool:
        prepare_tables(engine)
        once = IdempotencyKeys(engine, SettableClock())
        assert sum(pool.map(begin, range(160))) == 20


# Deciding on jobs.


async def test_a_plan_is_edited_by_version_and_approved_as_edited(here: WebClient) -> None:
    plan = await got(here, "/seed16/plan")
    assert (plan["version"], plan["who"], plan["plan"]["summary"]) == (1, "agent-fix", "Round half even.")
    edited = await send(here, "PUT", "/seed16/plan", {"version": 1, "plan": PLAN})
    assert (edited.status_code, edited.json()["version"], edited.json()["who"]) == (200, 2, "web token")
    assert [each["who"] for each in edited.json()["versions"]] == ["agent-fix", "web token"]
    late = await send(here, "PUT", "/seed16/plan", {"version": 1, "plan": {"summary": "Mine."}})
    texts = {each["where"]: each["problem"] for each in late.json()["errors"]}
    assert PLAN["summary"] in texts["the newest plan"]
    assert "summary: Mine." in texts["your edit"]
    assert "which is 2, by web token" in late.json()["detail"]
    shown = (await send(here, "GET", "/seed16")).json()
    assert (PLAN["summary"] in shown["plan"], shown["plan_version"]) == (True, 2)
    PlanVersions(here.engine, here.clock).record("seed16", Plan(summary="Round half even."))
    assert (await send(here, "GET", "/seed16")).json()["plan_version"] == 2, "a job that goes on replaces no edit"
    assert (late.status_code, "not the newest" in late.json()["detail"]) == (409, True)
    assert (await send(here, "POST", "/seed16/approve", {"version": 1})).status_code == 409
    assert (await send(here, "POST", "/seed16/approve", {"version": 2})).json() == {"id": "seed16"}
    (message,) = here.receiving.messages.since("seed16", 0, "approve")
    assert "Round once, half up." in message.text
    assert (await got(here, "/seed16"))["state"] == "queued"
    assert (await send(here, "POST", "/seed16/approve")).status_code == 409
    assert (await send(here, "PUT", "/seed16/plan", {"version": 2, "plan": PLAN})).status_code == 409
    assert (await send(here, "PUT", "/none/plan", {"version": 2, "plan": PLAN})).status_code == 404
    await got(here, "/seed21/plan", 404)


async def test_a_plan_that_nobody_edited_is_approved_as_it_is(here: WebClient) -> None:
    assert (await send(here, "POST", "/seed16/approve")).status_code == 202
    assert [each.text for each in here.receiving.messages.since("seed16", 0, "approve")] == [""]


async def test_questions_are_answered_and_paused_jobs_continued(here: WebClient) -> None:
    assert (await send(here, "POST", "/seed15/answer", {"text": "Half up."})).json() == {"id": "seed15"}
    assert [each.text for each in here.receiving.messages.since("seed15", 0, "answer")] == ["Half up."]
    assert (await send(here, "POST", "/seed15/answer", {"text": "Again."})).status_code == 409
    assert (await send(here, "POST", "/seed14/continue", {"extra": "1.25"})).status_code == 202
    assert (await got(here, "/seed14"))["limits"] == {"usd": "6.25", "minutes": 120.0, "steps": 200}
    assert (await send(here, "POST", "/seed14/continue")).status_code == 409


async def test_a_refused_answer_leaves_no_message(here: WebClient) -> None:
    with here.engine.begin() as db:  # the issue has another active job by now
        key = db.scalar(sa.select(jobs.c.key).where(jobs.c.id == "seed15"))
        db.execute(job_contexts.update().where(job_contexts.c.job == "seed21").values(active_key=key))
    assert (await send(here, "POST", "/seed15/answer", {"text": "Half up."})).status_code == 409
    assert here.receiving.messages.since("seed15", 0, "answer") == ()


async def test_a_job_is_started_again_under_a_new_id(here: WebClient) -> None:
    started = (await send(here, "POST", "/seed02/retry")).json()["id"]
    (request,) = stored(here)
    assert (request.job, request.verb, request.number) == (started, "retry", 102)
    assert (await send(here, "POST", f"/{started}/retry")).status_code == 409, "it has not begun"
    assert (await send(here, "POST", f"/{started}/cancel")).json() == {"status": "stopped"}
    again = (await send(here, "POST", f"/{started}/retry")).json()["id"]
    assert [(each.job, each.verb) for each in stored(here)] == [(again, "retry")]


async def test_a_job_is_stopped_once(here: WebClient) -> None:
    assert (await send(here, "POST", "/seed22/cancel")).json() == {"status": "stopping"}
    assert (await send(here, "POST", "/seed21/cancel")).json() == {"status": "stopped"}
    assert "web token" in (await got(here, "/seed21"))["reason"]
    assert (await send(here, "POST", "/seed21/cancel")).status_code == 409
    assert (await send(here, "POST", "/none/cancel")).status_code == 404


def test_money_is_exact() -> None:
    assert [dollars(amount) for amount in (0, 1, 10_000, 2_500_000, 1_234_567)] == [
        "0.00",
        "0.000001",
        "0.01",
        "2.50",
        "1.234567",
    ]
    assert [micro(text) for text in ("3", "2.50", "0.000001")] == [3_000_000, 2_500_000, 1]


async def test_the_operator_decides_about_money_if_that_is_locked(tmp_path: Path) -> None:
    async with web_client(tmp_path, DEFAULTS="lock: [budget.usd]") as here:
        answer = await send(here, "POST", "/seed14/continue", {"extra": "3"})
        assert answer.status_code == 409
        assert "`budget.usd`" in answer.json()["detail"]
