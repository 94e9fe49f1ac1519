"""The operators' page: why each job waits, who works on which, what was given up and can be tried again, and limits."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.jobs.operations import GitHubLimit, OperationsOverview
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.tables import deliveries, effects, job_contexts, jobs
from app.jobs.trigger_log import AuditLog
from tests.support.server_jobs import issue_ref, job, job_context, trigger
from tests.support.web_client import NOW, WebClient, web_client

LIMITS = QueueLimits(jobs=3, per_repository=2)


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path, seed=False) as ready:
        yield ready


def operations(here: WebClient) -> OperationsOverview:
    return OperationsOverview(here.engine, here.clock, LIMITS)


def admit(here: WebClient, name: str, repository: int, *, ready: bool = True) -> None:
    where = issue_ref(int(name[1:]), repository)
    made = job(name, where, created_at=here.clock.now)
    JobQueue(here.engine, here.clock).admit(made, job_context(where), trigger(name, where), ready=ready)
    here.clock.now += timedelta(seconds=1)


def dead_delivery(here: WebClient, body: bytes | None) -> str:
    values = {
        "id": "d1",
        "content": "c1",
        "event": "issues",
        "body": body,
        "state": "dead",
        "attempts": 5,
        "outcome": "It broke.",
    }
    with here.engine.begin() as db:
        done = db.execute(deliveries.insert().values(**values, received_at=NOW, due_at=NOW))
        return str(done.inserted_primary_key[0]) if done.inserted_primary_key else ""


async def test_each_waiting_job_says_why_it_waits(empty: WebClient) -> None:
    for name, repository in (("j1", 1), ("j2", 1), ("j3", 1), ("j4", 2)):
        admit(empty, name, repository)
    admit(empty, "j5", 3, ready=False)
    queue = JobQueue(empty.engine, empty.clock)
    for _ in range(2):
        assert queue.claim("host:7:1", LIMITS, lease=timedelta(minutes=5)) is not None
    found = operations(empty).now()
    assert [(each.place, each.id, each.why) for each in found.queue] == [
        (1, "j3", "its repository is at its limit of 2 jobs"),
        (2, "j4", "for a free worker"),
        (3, "j5", "fetching its base commit"),
    ]
    assert [(each.host, each.pid, [lease.id for lease in each.leases]) for each in found.workers] == [
        ("host", "7", ["j1", "j2"])
    ]
    assert queue.claim("host:8:1", LIMITS, lease=timedelta(minutes=5)) is not None
    assert operations(empty).now().queue[0].why == "the server is at its limit of 3 jobs"
    assert len(operations(empty).now().workers) == 2
    empty.clock.now += timedelta(minutes=6)
    late = operations(empty).now()
    assert [each.expired for worker in late.workers for each in worker.leases] == [True, True, True]
    assert [each.id for each in late.queue][:3] == ["j1", "j2", "j3"], "what nobody holds any more is taken over"
    page = await empty.page("/operators")
    assert "fetching its base commit" in page
    for address in ("/", "/jobs/j5"):
        assert "fetching its base commit" in await empty.page(address), "the list and the job's page say the same"
    assert '<span class="no">expired</span>' in page


async def test_a_wait_for_pull_requests_and_a_stored_reason_are_shown(empty: WebClient) -> None:
    for name, values in (
        ("j1", {"waiting_for": "pull_requests"}),
        ("j2", {"ready": False}),
        ("j3", {"due": NOW.timestamp() + 90}),
        ("j4", {"due": NOW.timestamp() + 90}),
    ):
        admit(empty, name, int(name[1:]))
        with empty.engine.begin() as db:
            db.execute(job_contexts.update().where(job_contexts.c.job == name).values(values))
            if name in {"j2", "j3"}:
                db.execute(jobs.update().where(jobs.c.id == name).values(reason=f"What delays {name}."))
    assert [each.why for each in operations(empty).now().queue] == [
        "until a pull request of its repository is merged or closed",
        "What delays j2.",
        "What delays j3.",
        "retrying at 12:01:30 UTC",
    ]


async def test_a_dead_delivery_is_tried_again_from_the_page(empty: WebClient) -> None:
    number = dead_delivery(empty, b"{}")
    page = await empty.page("/operators")
    assert "It broke." in page
    fields = dict(re.findall(r'name="(seal|kind|id)" value="([^"]*)"', page))
    assert (fields["kind"], fields["id"]) == ("delivery", number)
    assert (await empty.client.post("/operators/retry", data=fields | {"seal": "x"})).status_code == 403
    assert (await empty.client.post("/operators/retry", data=fields)).status_code == 303
    with empty.engine.connect() as db:
        assert db.execute(sa.select(deliveries.c.state, deliveries.c.attempts)).one() == ("waiting", 0)
    assert (await empty.client.post("/operators/retry", data=fields)).status_code == 404
    assert "No dead letters." in await empty.page("/operators")
    (entry,) = AuditLog(empty.engine, empty.clock).newest(5)
    assert (entry.action, entry.detail) == ("retry letter", f"delivery {number}")


async def test_a_delivery_without_its_body_stays_dead(empty: WebClient) -> None:
    assert not operations(empty).retry("delivery", dead_delivery(empty, None))
    assert not operations(empty).retry("delivery", "9" * 30)
    assert not operations(empty).retry("job", "j1")


async def test_a_failed_effect_is_wanted_again(here: WebClient) -> None:
    (letter,) = [each for each in operations(here).now().letters if each.kind == "effect"]
    assert letter.reason == "The App may not write issues here any more."
    assert operations(here).retry("effect", letter.id)
    with here.engine.connect() as db:
        row = db.execute(effects.select().where(effects.c.key == letter.id)).mappings().one()
    assert (row["state"], row["attempts"], row["reason"]) == ("wanted", 0, "")
    assert not operations(here).retry("effect", letter.id)
    assert operations(here).now().letters == ()


async def test_github_limits_are_shown_as_the_newest_answer_said(empty: WebClient) -> None:
    for remaining in (4_000, 3_999):
        limit = GitHubLimit(7, "core", remaining, 5_000, NOW + timedelta(minutes=20), NOW)
        operations(empty).store_limits([limit])
    assert [each.remaining for each in operations(empty).now().limits] == [3_999]
    page = await empty.page("/operators")
    assert "3,999 of 5,000 requests left" in page
    assert "installation 7" in page
