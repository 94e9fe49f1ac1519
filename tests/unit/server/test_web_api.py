"""The pages' figures for programs: JSON, server-sent events, Prometheus' text."""

import asyncio
import json
import re
from typing import Any
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import StreamingResponse

from app.jobs.outcomes import Outcomes, outcome_totals
from app.jobs.queries import JobOverview
from app.jobs.tables import outcomes, progress
from app.server.web.api import LOOKS_PER_CHECK, MAX_FOLLOWERS, MAX_OF_ONE, LogStreams, MayRead
from app.server.web.metrics import HISTOGRAMS, MAX_MODELS, MAX_REPOSITORIES, OTHER, render
from app.server.web.sign_in import Visitor
from tests.support.web_client import WebClient


def asking(job: str, *, user: int = 0, last_event_id: str = "") -> Request:
    given = [(b"last-event-id", last_event_id.encode())] if last_event_id else []
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": given}
    visitor = Visitor(name="ada" if user else "operator", form_key=b"", user=user)
    return Request({**scope, "path_params": {"job": job}, "state": {"visitor": visitor}})


async def always() -> bool:
    return True


async def told(
    following: LogStreams, job: str, may_read: MayRead = always, *, last_event_id: str = ""
) -> list[tuple[str, Any]]:
    """Every event of a stream until it ends, as (name, data)."""
    answer = await following.events(asking(job, last_event_id=last_event_id), may_read)
    assert isinstance(answer, StreamingResponse)
    text = "".join([str(part) async for part in answer.body_iterator])
    found = re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)
    return [(name, json.loads(data)) for name, data in found]


async def test_a_log_is_followed_to_the_jobs_end(here: WebClient) -> None:
    overview = JobOverview(here.engine, here.clock)
    following = LogStreams(overview, pause=0.0)
    events = await told(following, "seed13")
    assert [name for name, _ in events] == [*["line"] * 15, "state", "end"]
    assert events[0][1] == {"at": "04:50:11", "kind": "state", "text": "planning"}
    assert events[15][1] == {
        "state": "pr_opened",
        "name": "pull request opened",
        "group": "done",
        "kind": "done",
        "unsent": 0,
    }
    seq = overview.log("seed13")[9].seq
    assert len(await told(following, "seed13", last_event_id=str(seq))) == 7


async def test_a_log_longer_than_one_read_is_sent_to_its_end(here: WebClient) -> None:
    rows = [{"job": "seed13", "at": here.clock(), "kind": "note", "text": str(n)} for n in range(2_500)]
    with here.engine.begin() as db:
        db.execute(progress.insert(), rows)
    events = await told(LogStreams(JobOverview(here.engine, here.clock), pause=0.0), "seed13")
    assert [name for name, _ in events] == [*["line"] * (15 + len(rows)), "state", "end"]


async def test_subscribers_get_every_message_until_the_end(here: WebClient) -> None:
    store = here.receiving.job_store()
    following = LogStreams(JobOverview(here.engine, here.clock), pause=0.01)
    listening = asyncio.create_task(told(following, "seed22"))
    await asyncio.to_thread(store.add_progress, "seed22", "step", "4  <b>Look</b> \x1b[31magain.")
    await asyncio.to_thread(store.finish, "seed22", "stopped", "It was stopped.", {})
    events = await asyncio.wait_for(listening, 60)
    assert ("line", "4  <b>Look</b> again.") in [(name, data.get("text")) for name, data in events]
    assert events[-2][1]["state"] == "stopped"
    assert events[-1][0] == "end"


async def test_a_stream_ends_with_its_process(here: WebClient) -> None:
    following = LogStreams(JobOverview(here.engine, here.clock), ending=lambda: True, pause=10_000.0)
    assert {name for name, _ in await told(following, "seed22")} == {"line"}


async def test_a_stream_ends_when_its_reader_may_no_longer_see_the_job(here: WebClient) -> None:
    answers = iter([True, True, False])

    async def may_read() -> bool:
        return next(answers)

    looks = 0

    def ending() -> bool:
        nonlocal looks
        looks += 1
        return False

    following = LogStreams(JobOverview(here.engine, here.clock), ending=ending, pause=0.0)
    events = await told(following, "seed22", may_read)
    assert "end" not in {name for name, _ in events}
    assert looks == 3 * LOOKS_PER_CHECK - 1


async def test_not_everybody_can_listen_at_once(here: WebClient) -> None:
    following = LogStreams(JobOverview(here.engine, here.clock), pause=10_000.0)
    streams = []
    for _ in range(MAX_FOLLOWERS):
        answer = await following.events(asking("seed22"), always)
        assert isinstance(answer, StreamingResponse)
        stream = aiter(answer.body_iterator)
        await anext(stream)
        streams.append(stream)
    assert (await following.events(asking("seed22"), always)).status_code == 503
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
    assert (await following.events(asking("seed22"), always)).status_code == 200
    assert (await following.events(asking("none"), always)).status_code == 404
    assert (await following.events(asking("seed22", last_event_id="x"), always)).status_code == 422


async def test_one_person_cannot_take_all_streams(here: WebClient) -> None:
    following = LogStreams(JobOverview(here.engine, here.clock), pause=10_000.0)
    streams = []
    for _ in range(MAX_OF_ONE):
        answer = await following.events(asking("seed22", user=7), always)
        assert isinstance(answer, StreamingResponse)
        stream = aiter(answer.body_iterator)
        await anext(stream)
        streams.append(stream)
    assert (await following.events(asking("seed22", user=7), always)).status_code == 503
    assert (await following.events(asking("seed22", user=8), always)).status_code == 200
    await streams[0].aclose()  # type: ignore[attr-defined]  # an async generator
    assert (await following.events(asking("seed22", user=7), always)).status_code == 200
    for stream in streams[1:]:
        await stream.aclose()  # type: ignore[attr-defined]


def samples(text: str) -> dict[str, float]:
    """As Prometheus' own parser reads them."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_metrics_are_what_prometheus_reads(here: WebClient) -> None:
    Outcomes(here.engine, here.clock).record_ended()
    answer = await here.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    values = samples(answer.text)
    assert values['agent_fix_jobs{state="pr_opened"}'] == 5
    assert values['agent_fix_jobs{state="queued"}'] == 2
    assert values["agent_fix_queue_oldest_seconds"] == 11 * 60
    assert values["agent_fix_model_cost_dollars_total"] > 10
    assert values["agent_fix_deliveries_dead"] == 0
    assert values['agent_fix_effects{state="done"}'] > 20
    labels = 'kind="bug",model="anthropic/claude-sonnet-4-5",repository="octo-org/invoices",state="pr_opened"'
    assert values[f'agent_fix_jobs_ended_total{{{labels},verdict="proved"}}'] >= 1
    assert values[f'agent_fix_jobs_cost_dollars_total{{{labels},verdict="proved"}}'] > 0
    assert values['agent_fix_pull_requests{state="open"}'] == 3
    for name in HISTOGRAMS:
        counted = values.get(f'agent_fix_{name}_bucket{{kind="bug",le="+Inf"}}')
        assert counted == values.get(f'agent_fix_{name}_count{{kind="bug"}}')
    assert values['agent_fix_job_tokens_count{kind="bug"}'] == 14
    assert values['agent_fix_first_reaction_seconds_count{kind="bug"}'] == 14


def ended(here: WebClient, *numbers: int) -> dict[str, float]:
    """The metrics after each of these jobs, of a repository and a model of its own, has ended once more.

    Of two of them, the one that ended later was requested earlier.
    """
    counted = {"kind": "bug", "verdict": "proved", "state": "pr_opened", "pull_request_seconds": 20.0, "cost": 9}
    with here.engine.begin() as db:
        for number in numbers:
            names = {"job": uuid4().hex, "repository": f"octo/r{number}", "model": f"acme/m{number}"}
            times = {"created_at": 1_000.0 - number, "ended_at": 1_000.0 + number}
            db.execute(outcomes.insert().values(**names, **counted, **times))
    return samples(render(here.receiving.operations.figures(), {}, outcome_totals(here.engine)))


def test_number_of_series_is_bounded(here: WebClient) -> None:
    values = ended(here, *range(400))
    series = [name for name in values if name.startswith("agent_fix_jobs_ended_total")]
    assert len(series) <= MAX_REPOSITORIES + MAX_MODELS + 1
    rest = f'kind="bug",model="{OTHER}",repository="{OTHER}",state="pr_opened",verdict="proved"'
    assert values[f"agent_fix_jobs_ended_total{{{rest}}}"] == 400 - MAX_REPOSITORIES
    assert values['agent_fix_pull_request_seconds_bucket{kind="bug",le="15"}'] == 0
    assert values['agent_fix_pull_request_seconds_bucket{kind="bug",le="30"}'] == 400
    more = ended(here, 7, 399, 500)
    assert all(more[name] >= values[name] for name in series), "no counter decreases"


async def test_webhook_answers_are_counted(here: WebClient) -> None:
    await here.stranger.post("/webhook", content=b"{}")
    assert 'agent_fix_webhooks_total{answer="no_signature"} 1' in await here.page("/metrics")


def test_a_label_cannot_leave_its_quotes(here: WebClient) -> None:
    text = render(here.receiving.operations.figures(), {'a"} 1\nevil{x="\\': 2}, outcome_totals(here.engine))
    assert '{answer="a\\"} 1\\nevil{x=\\"\\\\"} 2' in text
