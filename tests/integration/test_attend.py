"""A server's job in its own process: the engine of the command line, but what it wishes for is written down."""

import asyncio
import copy
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.bootstrap.premises import Premises
from app.entrypoints.worker import Rhythm, Worker, start_process
from app.issue import read_issue
from app.job import Job
from app.jobs.store import JobBlobs, JobRow
from app.lessons.base import Draft
from app.patch import Patch
from app.publish.intent import OpenDraftPullRequest
from app.publish.intents import intents
from app.settings import settings_from
from tests.commissions import BOT, commission, job, place, trigger
from tests.repositories import make_repository

SAMPLE = Path(str(resources.files("app.demo")))
RHYTHM = Rhythm(look=0.05, heartbeat=0.2, stop=2.0, drain=25.0)


def is_handed_over(row: JobRow) -> bool:
    return row.state == "publishing" and row.result is not None and row.owner is None


class Site:
    """A server's premises with one job on the bundled sample, whose base commit is there already."""

    def __init__(self, place_of: Path, *, failpoint: str = "", url: str = "") -> None:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"AGENT_FIX_FAILPOINT": failpoint, "AGENT_FIX_DATABASE_URL": url}
        self.settings = settings_from(environment, place_of / "state")
        self.premises = Premises(self.settings)
        self.premises.prepare()
        files = {
            str(path.relative_to(SAMPLE / "sample")): path.read_bytes()
            for path in (SAMPLE / "sample").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        self.repository = make_repository(place_of / "sample", files)

    def admit(self, **changes: Any) -> Job:
        mirror = self.premises.mirror(place().repository)
        mirror.ensure()
        base = mirror.fetch(self.repository, "HEAD")
        task = job("x").task.model_copy(update={"base": base, "issue": read_issue(SAMPLE / "issue.md")})
        values = {"task": task, "model": f"recorded/{SAMPLE / 'recorded.jsonl'}", **changes}
        made = job("job1", **values)
        self.premises.queue.admit(made, commission(), trigger("k"), ready=True)
        return made

    def disarmed(self) -> "Site":
        """The same premises, where nothing dies by itself."""
        environment = {**self.settings.environment, "AGENT_FIX_FAILPOINT": ""}
        other = copy.copy(self)
        other.settings = settings_from(environment, self.settings.state)
        return other

    def row(self) -> JobRow:
        row = self.premises.store().get("job1")
        assert row is not None
        return row

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        worker = Worker(self.premises, start_process(self.settings), rhythm=RHYTHM)
        task = asyncio.create_task(worker.work())
        try:
            yield worker
        finally:
            worker.draining.set()
            await task

    async def until(self, true: Callable[[JobRow], bool]) -> JobRow:
        async with asyncio.timeout(120):
            while not true(row := self.row()):  # noqa: ASYNC110  # another process says it through the database only
                await asyncio.sleep(0.05)
        return row

    def wished(self) -> list[dict[str, Any]]:
        with self.premises.engine.connect() as db:
            return [dict(row) for row in db.execute(sa.select(intents)).mappings()]


async def test_what_was_worked_out_is_wished_for_and_handed_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    known = site.premises.lessons(place().repository)
    known.tell(Draft(text="Money is in whole cents.", kind="told", author="ada"), "k1")
    site.premises.lessons(place().repository + 1).tell(Draft(text="Money is Decimal.", kind="told", author="eve"), "k1")
    async with site.working():
        row = await site.until(is_handed_over)
    assert row.result is not None
    assert (row.result["exit_status"], row.result["verification"]["verdict"]) == ("pr_opened", "proved")
    (wish,) = site.wished()
    intent = OpenDraftPullRequest.model_validate(wish["intent"])
    assert (intent.branch, intent.commit, wish["epoch"]) == (row.job.branch, row.result["commit"], row.epoch)
    assert intent.recipe.author == BOT
    assert "Co-authored-by" not in intent.recipe.message
    assert "[skip ci]" in intent.recipe.message
    patch = Patch.model_validate_json(JobBlobs(site.premises.engine, "job1").get(intent.recipe.patch))
    assert "duebook" in patch.paths()[0]
    assert "reproduction 🔴 → 🟢" in intent.body
    assert "- Used 1 lesson of earlier jobs here: (1) Money is in whole cents.\n" in intent.body
    assert "- 1 lesson learned: (2) `python3 -m unittest discover -v` runs the suite" in intent.body
    assert "(`/agent forget 2` takes it back.)" in intent.body
    assert [(each.number, each.job) for each in known.all()] == [(1, ""), (2, "job1")]


@pytest.mark.parametrize("point", ["turn.2.answer.done", "verify.1.done", "publish.wanted", "finished"])
async def test_a_killed_process_is_followed_by_one_that_goes_on(tmp_path: Path, point: str) -> None:
    dying = Site(tmp_path, failpoint=point)
    dying.admit()
    queue = dying.premises.queue
    start = start_process(dying.settings)
    claim = queue.claim(f"{os.uname().nodename}:{os.getpid()}:0", dying.premises.limits)
    assert claim is not None
    process = await start(claim)
    assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
    queue.release(claim, crashed=True)
    site = dying.disarmed()
    async with site.working():
        row = await site.until(is_handed_over)
    assert row.epoch == (1 if point == "finished" else 2)
    assert len(site.wished()) == 1
    with site.premises.engine.connect() as db:
        sent = db.execute(sa.text("SELECT call, count(*) FROM calls GROUP BY call HAVING count(*) > 1")).all()
    assert sent == [], "no answer is bought twice"


async def test_a_plan_waits_for_its_approval_and_goes_on_with_the_edited_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit(plan_mode="approve")
    async with site.working():
        row = await site.until(lambda row: row.state == "awaiting_approval" and row.owner is None)
        site.premises.messages.add(row.job.id, "approve", key="comment:1", who="ada")
        assert site.premises.queue.resume(row.job.id)
        row = await site.until(is_handed_over)
    assert row.epoch == 2


async def test_a_job_at_a_limit_is_paused_and_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    poor = site.admit(budget={"steps": 1})
    async with site.working():
        row = await site.until(lambda row: row.state == "paused" and row.owner is None)
        assert "turn" in row.reason
        assert site.premises.queue.resume("job1", poor.model_copy(update={"budget": job("x").budget}))
        await site.until(is_handed_over)


async def test_stop_reaches_a_job_at_work(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    async with site.working():
        await site.until(lambda row: row.state == "working")
        assert not site.premises.queue.stop("job1", "asked")
        row = await site.until(lambda row: row.final)
    assert (row.state, site.wished()) == ("stopped", [])


async def test_a_deploy_in_the_middle_of_a_job_changes_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    for state in ("planning", "working"):
        async with site.working():
            await site.until(lambda row, state=state: row.state == state or row.result is not None)  # type: ignore[misc]
        assert site.row().owner is None
    async with site.working():
        await site.until(is_handed_over)
    found = site.premises.roster.get("job1")
    assert found is not None
    assert (found.crashes, len(site.wished())) == (0, 1)
