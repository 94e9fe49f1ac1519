"""The pages: what they show of a busy day, what they leave of hostile text, and what their button does."""

import re
import unicodedata
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from app.core.job import Job, JobResult
from app.core.task import Issue
from app.core.verification import Execution, Reproduction
from app.jobs.queries import MAX_REPOSITORIES
from app.jobs.store import JobBlobs
from app.jobs.tables import job_contexts, jobs
from app.jobs.trigger_log import Trigger
from app.llm.sql_ledger import calls, job_costs
from app.publish.effects import Effect, Receipt, UpdateStatusComment
from app.publish.outbox import Outbox
from app.server.web.formatting import effect_name
from tests.support.job_queue import Server
from tests.support.pull_requests import verification
from tests.support.server_jobs import issue_ref, job, job_context, trigger
from tests.support.web_client import NOW, WebClient, web_client


class ParsedPage(HTMLParser):
    """A page as a browser takes it: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for attributes in self.all("a") if "href" in attributes]

    @property
    def jobs(self) -> list[str]:
        return [link.removeprefix("/jobs/") for link in self.links if re.fullmatch(r"/jobs/[^/]+", link)]


async def seen(here: WebClient, path: str, status: int = 200) -> ParsedPage:
    return ParsedPage(await here.page(path, status))


async def test_the_list_shows_jobs_that_need_a_person_first_with_who_asked_and_what_it_cost(here: WebClient) -> None:
    page = await seen(here, "/")
    needed = [16, 15, 14]
    others = [number for number in range(22, -1, -1) if number not in needed]
    assert page.jobs == [f"seed{number:02}" for number in (*needed, *others)]
    for word in ("Invoice totals are a cent too low", "octo-org/invoices#115", "grace-hopper", "$4.86", "of $5.00"):
        assert word in page.text
    assert "No delays" in page.text


@pytest.mark.parametrize("kind", [kind.model_fields["kind"].default for kind in get_args(get_args(Effect)[0])])
def test_effects_have_names_for_people(kind: str) -> None:
    assert not {"dress", "tell", "pr"} & set(effect_name(kind).split())


async def test_a_job_from_the_command_line_made_a_branch(here: WebClient) -> None:
    assert "pull request opened" in (await seen(here, "/jobs/seed13")).text
    with here.engine.begin() as db:
        result = db.execute(sa.select(jobs.c.result).where(jobs.c.id == "seed13")).scalar_one()
        db.execute(jobs.update().where(jobs.c.id == "seed13").values(result={**result, "url": ""}))
    shown = (await seen(here, "/jobs/seed13")).text
    assert "branch made" in shown
    assert "pull request opened" not in shown


async def test_list_and_page_show_model_and_runner(here: WebClient) -> None:
    listed = await seen(here, "/")
    assert listed.text.count("anthropic/claude-sonnet-4-5") == 23
    assert listed.text.count("anthropic/claude-sonnet-4-5 · codex") == 1, "our own needs no mention"
    page = "".join((await seen(here, "/jobs/seed12")).text.split())
    assert "Modelanthropic/claude-sonnet-4-5Runnercodex" in page


async def test_the_list_is_filtered_by_state_and_repository(here: WebClient) -> None:
    assert (await seen(here, "/?state=paused")).jobs == ["seed14"]
    waiting = await seen(here, "/?state=waiting")
    assert waiting.jobs == ["seed16", "seed15", "seed14", "seed21", "seed20"]
    assert next(tile for tile in waiting.all("a") if tile.get("aria-current"))["href"] == "/?state=waiting"
    mine = await seen(here, "/?repository=ada%2Fsample&state=done")
    assert mine.jobs
    assert all(int(name[4:]) % 3 == 2 for name in mine.jobs)
    assert "/?state=active&repository=ada%2Fsample" in mine.links
    assert (await seen(here, "/?state=nonsense")).jobs == (await seen(here, "/")).jobs
    assert "This repository has no jobs" in (await seen(here, "/?repository=no/such", 404)).text


async def test_a_repository_that_is_found_is_selected(here: WebClient) -> None:
    async def selected(path: str) -> list[str | None]:
        options = (await seen(here, path)).all("option")
        return [option["value"] for option in options if "selected" in option and "/" in (option["value"] or "")]

    assert await selected("/?repository=Ada%2FSAMPLE") == ["ada/sample"]
    server = Server(here.engine)
    for number in range(MAX_REPOSITORIES):
        server.admit(f"zz{number:03}", repository=1_000 + number)
    assert await selected("/?repository=octo-org%2Fweb-shop-frontend") == ["octo-org/web-shop-frontend"]
    assert await selected("/") == []


async def test_a_long_list_is_turned_page_by_page(here: WebClient) -> None:
    for number in range(60):
        made, where = job(f"more{number:02}", issue_ref(900 + number)), issue_ref(900 + number)
        here.receiving.queue.admit(made, job_context(where), trigger(f"more/{number}", where))
    first = await seen(here, "/")
    assert len(first.jobs) == 50
    older = next(link for link in first.links if "page=" in link)
    second = await seen(here, older)
    assert not set(first.jobs) & set(second.jobs)
    assert len(first.jobs) + len(second.jobs) == 83
    assert "Page 2" in second.text
    assert not [link for link in second.links if "page=" in link]
    assert "/" in second.links
    assert "This page is empty" in (await seen(here, "/?page=99")).text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=LEAP+YEARS", ["seed16", "seed06"]),
        ("q=%23115", ["seed15"]),
        ("q=seed07", ["seed07"]),
        ("q=100%25", []),
        ("person=%40Ada&verdict=proved", ["seed00"]),
        ("verdict=broken", ["seed08"]),
        ("since=2026-11-22&until=2026-11-22&state=ended", ["seed08", "seed07", "seed06"]),
        ("until=2026-11-21&sort=oldest&state=done", ["seed00", "seed01", "seed02", "seed03"]),
        ("since=2026-11-23", []),
    ],
)
async def test_the_list_is_searched_and_filtered(here: WebClient, query: str, found: list[str]) -> None:
    assert (await seen(here, f"/?{query}")).jobs == found


async def test_the_list_is_sorted_and_keeps_its_filter_while_paging(here: WebClient) -> None:
    everything = (await seen(here, "/")).jobs
    oldest = await seen(here, "/?sort=oldest")
    assert oldest.jobs == sorted(everything)
    assert (await seen(here, "/?sort=newest")).jobs == oldest.jobs[::-1]
    assert (await seen(here, "/?sort=cost")).jobs[0] == "seed14"
    here.receiving.job_store().enter("seed03", "working")
    assert (await seen(here, "/?sort=changed")).jobs[0] == "seed03"
    assert "/?state=done&sort=oldest" in oldest.links
    assert (await seen(here, "/?sort=nonsense&since=nonsense&until=9999-12-31&page=0")).jobs == everything


async def test_the_charts_say_what_they_show(here: WebClient) -> None:
    page = await seen(here, "/")
    verdicts, days = (picture["aria-label"] or "" for picture in page.all("svg"))
    assert verdicts == "Jobs by verdict: proved: 7, tested: 0, unproved: 0, broken: 1"
    assert re.search(r", 20 Nov: \$0\.00, 21 Nov: \$0\.[1-9]\d, 22 Nov: \$[1-9]", days)
    with here.engine.begin() as db:
        db.execute(sa.update(calls).values(at=0.0))
    call = sa.update(calls).where(calls.c.job_id == "seed13", calls.c.call == "turn-0")
    with here.engine.begin() as db:
        db.execute(call.values(at=(NOW - timedelta(hours=13)).timestamp(), cost=1_250_000))
    here.clock.now += timedelta(minutes=1)
    page = await seen(here, "/?repository=octo-org%2Fweb-shop-frontend")
    assert "21 Nov: $1.25, 22 Nov: $0.00" in (page.all("svg")[1]["aria-label"] or "")
    page = await seen(here, "/?repository=ada%2Fsample")
    assert "$1.25" not in (page.all("svg")[1]["aria-label"] or "")


async def test_an_empty_server_says_how_to_begin(tmp_path: Path) -> None:
    async with web_client(tmp_path, seed=False) as here:
        assert "Add the label agent-fix to an issue" in (await seen(here, "/")).text


async def test_a_job_is_shown_with_plan_proof_log_cost_and_effects(here: WebClient) -> None:
    page = await seen(here, "/jobs/seed13")
    for word in ("pull request opened", "requested by", "Amounts are rounded per line", "Steps", "proved"):
        assert word in page.text
    proof = (
        "41 passed",
        "1 failed",
        "fails",
        "passes",
        "exit code 1",
        "passed: syntax, secrets",
        "dependencies (review)",
    )
    for word in proof:
        assert word in re.sub(r"\s+", " ", page.text)
    for word in ("grep -rn quantize", "16 model calls", "status comment", "f6e7d8c9b0f6"):
        assert word in page.text
    server = "https://github.com/octo-org"
    for link in (f"{server}/web-shop-frontend/issues/113", f"{server}/invoices/pull/77"):
        assert link in page.links
    assert [form["action"] for form in page.all("form")] == ["/jobs/seed13/retry"]


async def test_remaining_tests_can_be_stopped(here: WebClient) -> None:
    with here.engine.begin() as db:
        db.execute(job_contexts.update().where(job_contexts.c.job == "seed13").values(waiting_for="rest"))
    page = await seen(here, "/jobs/seed13")
    assert "Stop the remaining tests" in page.text
    assert [form["action"] for form in page.all("form")] == ["/jobs/seed13/stop", "/jobs/seed13/retry"]


async def test_a_job_that_waits_for_people_says_what_they_can_do(here: WebClient) -> None:
    text = (await seen(here, "/jobs/seed14")).text
    assert "Of the budget of $5.00, $4.86 is spent" in text
    assert "/agent continue" in text
    assert "/agent approve" in (await seen(here, "/jobs/seed16")).text
    said = (await seen(here, "/jobs/seed15")).text
    assert "Keep the public signature" in said


async def test_the_button_stops_the_job_and_the_page_says_so(here: WebClient) -> None:
    page = await seen(here, "/jobs/seed22")
    (form,) = [form for form in page.all("form") if form.get("method") == "post"]
    fields = {field["name"] or "": field["value"] or "" for field in page.all("input") if field.get("type") == "hidden"}
    answer = await here.client.post(form["action"] or "", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/seed22")
    after = await seen(here, "/jobs/seed22")
    assert "Stop requested" in after.text
    assert not after.all("form")
    queued = await seen(here, "/jobs/seed21")
    fields = {field["name"] or "": field["value"] or "" for field in queued.all("input")}
    await here.client.post("/jobs/seed21/stop", data=fields)
    assert "Stopped on the dashboard by operator." in (await seen(here, "/jobs/seed21")).text


async def test_pages_work_without_scripts_and_load_nothing_from_elsewhere(here: WebClient) -> None:
    for path in ("/", "/jobs/seed22", "/jobs/seed13", "/jobs/none"):
        page = ParsedPage((await here.client.get(path)).text)
        assert [script for script in page.all("script") if script.get("src") != "/live.js"] == []
        loaded = [
            value for _, attributes in page.elements for name in ("src", "action") if (value := attributes.get(name))
        ]
        loaded += [link["href"] or "" for link in page.all("link")]
        assert all(value.startswith("/") and not value.startswith("//") for value in loaded)
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert not [attributes for _, attributes in page.elements if "style" in attributes]


async def test_the_assets_are_there(here: WebClient) -> None:
    for path, kind in (("/style.css", "text/css"), ("/live.js", "text/javascript"), ("/icon.svg", "image/svg+xml")):
        answer = await here.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    assert "innerHTML" not in (await here.page("/live.js"))
    assert "http" not in (await here.page("/style.css"))


async def test_the_whole_log_is_text(here: WebClient) -> None:
    answer = await here.client.get("/jobs/seed13/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.count("UTC  ") == 15
    assert (await here.client.get("/jobs/none/log")).status_code == 404


async def test_a_change_that_was_not_published_can_be_had(here: WebClient) -> None:
    """Whatever bytes are in it, it is a file, and never a page."""
    diff = b"diff --git a/x b/x\n+<script>alert(1)</script>\n+caf\xe9\n"
    store = here.receiving.job_store()
    kept = JobResult(exit_status="error", diff=JobBlobs(store.engine, "seed05").put(diff))
    store.finish("seed05", "error", "It was refused.", kept.model_dump(mode="json"))
    assert "/jobs/seed05/change.patch" in (await seen(here, "/jobs/seed05")).links
    answer = await here.client.get("/jobs/seed05/change.patch")
    assert (answer.status_code, answer.content) == (200, diff)
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for other in ("seed13", "none"):
        assert (await here.client.get(f"/jobs/{other}/change.patch")).status_code == 404


async def test_calls_whose_price_is_not_known_are_not_shown_as_free(here: WebClient) -> None:
    with here.engine.begin() as db:
        db.execute(calls.update().values(cost=0))
        db.execute(job_costs.update().values(cost=0))
    assert '<b class="number">price unknown</b>' in await here.page("/jobs/seed13")
    assert re.search(r'class="spent">price unknown of [0-9]+ model calls<', await here.page("/"))


async def test_a_job_shows_its_outputs_side_by_side_its_diff_and_what_each_call_cost(here: WebClient) -> None:
    diff = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old <b>\n+new \x1b[31m caf\xe9\n"
    store = here.receiving.job_store()
    red = Execution(command="pytest", exit_code=1, seconds=1.0, excerpt="AssertionError: 0.12 != 0.13")
    green = Execution(command="pytest", exit_code=0, seconds=1.0, excerpt="1 passed in 0.1s")
    shown = Reproduction(command="pytest", base=red, head=green)
    proof = verification().model_copy(update={"reproduction": shown})
    result = JobResult(exit_status="pr_opened", diff=JobBlobs(store.engine, "seed13").put(diff), verification=proof)
    store.finish("seed13", "pr_opened", "", result.model_dump(mode="json"))
    page = await seen(here, "/jobs/seed13")
    kinds = [each.get("class") for each in page.all("span") if each.get("class") in {"add", "del", "at", "file"}]
    assert kinds == ["file", "file", "file", "at", "del", "add"]
    assert "-old <b>" in page.text
    assert "\x1b" not in page.text
    text = re.sub(r"\s+", " ", page.text)
    assert "Base: exit code 1, 1.0 sAssertionError: 0.12 != 0.13" in text
    assert "Change: exit code 0, 1.0 s1 passed in 0.1s" in text
    assert "turn-15" in text


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b]0;owned\x07\x1b[31mred\x1b[0m",
    "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07",
    "\u202egnp.exe\u202c \u2066x\u2069",
    "zero\u200bwidth\u2060joiner \U000e0041\U000e0042",
    "</textarea></title></style></pre><base href=//evil.example>",
    "javascript:alert(1)",
    "a\x00b\x08c\rd",
    "&lt;b&gt; &amp;amp;",
    "<!--",
    "-->",
    "]]>",
    "😀" * 400,
)


def hostile_job(name: str, text: str) -> Job:
    made = job(name, issue_ref(7))
    named = re.sub(r"[^\x20-\x7e]", "", text)[:60] or "x"
    task = made.task.model_copy(
        update={"issue": Issue(title=text, body=text, number=7), "repository": text, "base_ref": text}
    )
    return made.model_copy(update={"task": task, "branch": named, "model": text, "sandbox": text})


def fill(here: WebClient, text: str) -> str:
    """A job that consists of this text wherever a text can be."""
    receiving, name = here.receiving, "h0st1le"
    where = issue_ref(7).model_copy(update={"owner": text[:80], "name": text[:80]})
    asked = Trigger(key="hostile", repository=2, number=7, actor=1, verb=text[:30], at=NOW)
    assert receiving.queue.admit(hostile_job(name, text), job_context(where, login=text), asked) == name
    store = receiving.job_store()
    for kind in ("plan", "step", "command", "observation", "note", "warning", "verification"):
        store.add_progress(name, kind, text)
    receiving.messages.add(name, "steer", key="hostile", who=text[:80], text=text)
    effects = Outbox(here.engine, here.clock)
    effects.add(name, 0, issue_ref(7), UpdateStatusComment(body="ours"))
    claim = effects.claim("publisher")
    assert claim is not None
    effects.done(claim, Receipt(url=text))
    proof = verification(reasons=(text, text))
    result = JobResult(exit_status="error", reason=text, verification=proof, url=text, commit=text, model=text)
    store.finish(name, "error", text, result.model_dump(mode="json"))
    return name


def shape(page: ParsedPage) -> list[Any]:
    """Everything of a page that is not text: what it would be with harmless text."""
    return [(tag, sorted(attributes)) for tag, attributes in page.elements]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_shown_as_text_and_changes_nothing_of_the_page(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pages: list[dict[str, ParsedPage]] = []
    for part, said in (("a", "harmless"), ("b", text)):
        async with web_client(tmp_path / part, seed=False) as here:
            name = fill(here, said)
            pages.append({path: await seen(here, path) for path in ("/", f"/jobs/{name}")})
    for path, page in pages[1].items():
        assert shape(page) == shape(pages[0][path])
        assert all(link.startswith(("/", "https://github.com/")) for link in page.links)
        hidden = {char for char in page.text if unicodedata.category(char) in {"Cc", "Cf", "Co"}} - {"\n", "\t"}
        assert not hidden


@pytest.mark.parametrize("text", HOSTILE)
async def test_the_log_as_text_has_no_control_characters(tmp_path: Path, text: str) -> None:
    async with web_client(tmp_path, seed=False) as here:
        name = fill(here, text)
        for path in (f"/jobs/{name}/log", f"/api/jobs/{name}/log"):
            body = await here.page(path)
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069]", body)


async def test_an_id_from_the_address_is_not_repeated(here: WebClient) -> None:
    page = await here.page("/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404)
    assert "alert" not in page


async def test_a_result_of_another_shape_is_left_out(here: WebClient) -> None:
    here.receiving.job_store().finish("seed05", "error", "", {"exit_status": "error", "of": "another version"})
    page = await seen(here, "/jobs/seed05")
    assert "Verification" not in page.text


async def test_a_database_that_does_not_answer_is_reported_with_its_status(here: WebClient) -> None:
    with here.engine.begin() as db:
        db.exec_driver_sql("ALTER TABLE jobs RENAME TO gone")
    for path in ("/", "/jobs/seed05"):
        assert "The database is not responding" in (await seen(here, path, 503)).text
    assert (await here.stranger.get("/healthz")).status_code == 503
