"""A server's job in its own process: the same engine as on the command line, but its effects are stored."""

import asyncio
import copy
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.agent.base import RunnerEnding
from app.cli.demo import demo_files
from app.config.settings import settings_from
from app.core.errors import ExitCode, OutputError
from app.core.issue_file import read_issue
from app.core.job import Job, JobResult
from app.core.lessons import LessonDraft
from app.core.patch import Patch
from app.core.processes import this_process
from app.core.task import Person
from app.jobs.context import JobContext
from app.jobs.queue import JobClaim
from app.jobs.store import JobBlobs, JobRow
from app.jobs.tables import effects
from app.llm.errors import BudgetError
from app.publish.effects import OpenDraftPullRequest
from app.server.context import ServerContext
from app.server.job_process import JobProcess
from app.server.launch.base import ChildProcesses
from app.server.worker import Intervals, Worker
from tests.support.loopback import free_port
from tests.support.process_tree import descendants
from tests.support.repositories import make_repository
from tests.support.server_jobs import BOT, issue_ref, job, job_context, trigger

SAMPLE = demo_files()
RHYTHM = Intervals(poll=0.05, heartbeat=0.2, stop=2.0, drain=25.0)


def is_handed_over(row: JobRow) -> bool:
    kept_for_later = row.result is None or row.result.get("unpublished")
    return row.state == "publishing" and not kept_for_later and row.owner is None


def runs_tests(pid: int) -> bool:
    with suppress(OSError):
        return b"unittest" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class Site:
    """A server's premises with one job on the bundled sample, whose base commit is there already."""

    def __init__(self, place_of: Path, *, failpoint: str = "", url: str = "") -> None:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"AGENT_FIX_FAILPOINT": failpoint, "AGENT_FIX_DATABASE_URL": url}
        self.settings = settings_from(environment, place_of / "state")
        self.server_context = ServerContext(self.settings)
        self.server_context.prepare()
        files = {
            str(path.relative_to(SAMPLE / "sample")): path.read_bytes()
            for path in (SAMPLE / "sample").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        self.repository = make_repository(place_of / "sample", files)

    def admit(self, *, where: JobContext | None = None, **changes: Any) -> Job:
        mirror = self.server_context.mirror(issue_ref().repository)
        mirror.ensure()
        base = mirror.fetch(self.repository, "HEAD")
        task = job("x").task.model_copy(update={"base": base, "issue": read_issue(SAMPLE / "issue.md")})
        values = {"task": task, "model": f"recorded/{SAMPLE / 'recorded.jsonl'}", **changes}
        made = job("job1", **values)
        self.server_context.queue.admit(made, where or job_context(), trigger("k"), ready=True)
        return made

    def with_variables(self, **variables: str) -> "Site":
        """The same premises, where processes get other variables."""
        other = copy.copy(self)
        other.settings = settings_from({**self.settings.environment, **variables}, self.settings.state)
        return other

    def row(self) -> JobRow:
        row = self.server_context.job_store().get("job1")
        assert row is not None
        return row

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        worker = Worker(self.server_context, ChildProcesses(self.settings), intervals=RHYTHM)
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

    def requested(self) -> list[dict[str, Any]]:
        with self.server_context.engine.connect() as db:
            return [dict(row) for row in db.execute(sa.select(effects)).mappings()]


async def test_a_finished_job_adds_its_effects_to_the_outbox(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    known = site.server_context.lessons(issue_ref().repository)
    known.remember(LessonDraft(text="Money is in whole cents.", kind="remembered", author="ada"), "k1")
    site.server_context.lessons(issue_ref().repository + 1).remember(
        LessonDraft(text="Money is Decimal.", kind="remembered", author="eve"), "k1"
    )
    async with site.working():
        row = await site.until(is_handed_over)
    assert row.result is not None
    assert (row.result["exit_status"], row.result["verification"]["verdict"]) == ("pr_opened", "proved")
    (requested,) = site.requested()
    effect = OpenDraftPullRequest.model_validate(requested["effect"])
    assert (effect.branch, effect.commit, requested["epoch"]) == (row.job.branch, row.result["commit"], row.epoch)
    assert effect.recipe.author == BOT
    assert "Co-authored-by" not in effect.recipe.message
    assert "[skip ci]" in effect.recipe.message
    patch = Patch.model_validate_json(JobBlobs(site.server_context.engine, "job1").get(effect.recipe.patch))
    assert "duebook" in patch.paths()[0]
    assert "| Program | Before | After |" in effect.body
    assert "- Used 1 lesson of earlier jobs here: (1) Money is in whole cents.\n" in effect.body
    assert [(each.number, each.job) for each in known.all()] == [(1, "")]


def test_jobs_run_in_the_sandbox_of_the_worker_that_runs_them(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit(sandbox="none")
    site.server_context.settings = replace(site.settings, sandbox="docker")
    runner = JobProcess(site.server_context, JobClaim("job1", 1, "w", resumed=False)).runner()
    assert (runner.provider.name, runner.inputs.job.sandbox) == ("docker", "docker")


async def test_a_job_that_began_in_another_sandbox_is_paused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit(sandbox="none", plan_mode="approve")
    async with site.working():
        row = await site.until(lambda row: row.state == "awaiting_approval" and row.owner is None)
    assert row.job.sandbox == "bubblewrap"
    site.server_context.messages.add("job1", "approve", key="comment:1", who="ada")
    assert site.server_context.queue.resume("job1")
    async with site.with_variables(AGENT_FIX_SANDBOX="none").working():
        row = await site.until(lambda row: row.state == "paused" and row.owner is None)
    assert "began in the sandbox bubblewrap, and the worker's is none now" in row.reason
    assert "`/agent retry` starts again" in row.reason
    assert site.server_context.queue.resume("job1")
    async with site.working():
        row = await site.until(is_handed_over)
    assert row.result is not None
    assert (row.job.sandbox, row.result["verification"]["sandbox"]) == ("bubblewrap", "bubblewrap")


class UnreadableChange:
    """Stands in for an agent whose change is not to be had."""

    name = "unreadable"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def work(self, *_: object) -> RunnerEnding:
        raise AssertionError("it has worked")

    def last_change(self) -> Patch:
        raise self._error

    def trajectory(self) -> Iterator[str]:
        return iter(())


@pytest.mark.parametrize("error", [OutputError("The disk is full."), KeyError("digest"), OSError(28, "No space")])
def test_limit_is_what_ended_the_job_if_its_change_cannot_be_read(tmp_path: Path, error: Exception) -> None:
    site = Site(tmp_path)
    site.admit()
    claim = site.server_context.queue.claim("w", site.server_context.limits)
    assert claim is not None
    process = JobProcess(site.server_context, claim)
    runner = process.runner()
    runner.runners.append(UnreadableChange(error))
    process.release(BudgetError("Nothing is left."), runner)
    assert (site.row().state, site.row().reason, site.row().result) == ("paused", "Nothing is left.", None)
    store = site.server_context.job_store()
    assert any("could not be stored" in line.text for line in store.progress_since("job1"))


async def test_an_error_while_publishing_is_told_with_its_cause_and_the_change_is_kept(tmp_path: Path) -> None:
    """Git refuses a commit whose author has no name."""
    site = Site(tmp_path)
    site.admit(where=job_context(author=Person(name="", email="")))
    async with site.working():
        row = await site.until(lambda row: row.state == "error")
    assert "GitError: git commit-tree failed" in row.reason
    assert "3 times at the same step" in row.reason
    result = JobResult.read(row.result)
    assert result is not None
    assert result.unpublished
    assert b"duebook" in JobBlobs(site.server_context.engine, "job1").get(result.diff)
    with site.server_context.engine.connect() as db:
        sent = db.execute(sa.text("SELECT call, count(*) FROM calls GROUP BY call HAVING count(*) > 1")).all()
    assert sent == [], "no answer is bought twice"


@pytest.mark.parametrize("point", ["turn.2.answer.done", "verify.1.done", "publish.wanted", "finished"])
async def test_a_killed_process_is_followed_by_one_that_goes_on(tmp_path: Path, point: str) -> None:
    dying = Site(tmp_path, failpoint=point)
    dying.admit()
    queue = dying.server_context.queue
    start = ChildProcesses(dying.settings).start
    claim = queue.claim(f"{os.uname().nodename}:{os.getpid()}:0", dying.server_context.limits)
    assert claim is not None
    process = await start(claim)
    assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
    queue.release(claim, crashed=True)
    site = dying.with_variables(AGENT_FIX_FAILPOINT="")
    async with site.working():
        row = await site.until(is_handed_over)
    assert row.epoch == (1 if point == "finished" else 2)
    assert len(site.requested()) == 1
    with site.server_context.engine.connect() as db:
        sent = db.execute(sa.text("SELECT call, count(*) FROM calls GROUP BY call HAVING count(*) > 1")).all()
    assert sent == [], "no answer is bought twice"


async def test_a_plan_waits_for_its_approval_and_goes_on_with_the_edited_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit(plan_mode="approve")
    async with site.working():
        row = await site.until(lambda row: row.state == "awaiting_approval" and row.owner is None)
        site.server_context.messages.add(row.job.id, "approve", key="comment:1", who="ada")
        assert site.server_context.queue.resume(row.job.id)
        row = await site.until(is_handed_over)
    assert row.epoch == 2
    entered = [line.text for line in site.server_context.job_store().progress_since("job1") if line.kind == "state"]
    assert entered.count("planning") == 1, "approved work is not planned again"


async def test_a_job_at_a_limit_is_paused_and_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    poor = site.admit(budget={"steps": 1})
    async with site.working():
        row = await site.until(lambda row: row.state == "paused" and row.owner is None)
        assert "turn" in row.reason
        assert site.server_context.queue.resume("job1", poor.model_copy(update={"budget": job("x").budget}))
        await site.until(is_handed_over)


async def test_stop_reaches_a_job_at_work(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    async with site.working():
        await site.until(lambda row: row.state == "working")
        assert not site.server_context.queue.stop("job1", "asked")
        row = await site.until(lambda row: row.final)
    assert (row.state, site.requested()) == ("stopped", [])


async def test_a_deploy_in_the_middle_of_a_job_changes_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.admit()
    for state in ("planning", "working"):
        async with site.working():
            await site.until(lambda row, state=state: row.state == state or row.result is not None)  # type: ignore[misc]
        assert site.row().owner is None
    async with site.working():
        await site.until(is_handed_over)
    found = site.server_context.job_queries.get("job1")
    assert found is not None
    assert (found.crashes, len(site.requested())) == (0, 1)


async def test_a_signal_to_all_processes_of_a_service_changes_no_result(tmp_path: Path) -> None:
    """As systemd does without `KillMode=mixed`: the commands in sandboxes end with it as well."""
    site = Site(tmp_path)
    site.admit()
    async with site.working():
        await site.until(lambda row: row.state == "verifying")
        async with asyncio.timeout(60):
            while not any(map(runs_tests, descendants(os.getpid()))):  # noqa: ASYNC110  # nothing reports it
                await asyncio.sleep(0.01)
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    async with site.working():
        row = await site.until(lambda row: row.final or is_handed_over(row))
    assert row.result is not None
    found = site.server_context.job_queries.get("job1")
    assert found is not None
    assert (row.result["verification"]["verdict"], found.crashes) == ("proved", 0)


@pytest.mark.parametrize(
    ("database", "code"),
    [("postgresql+psycopg://x@127.0.0.1:{port}/x", ExitCode.INTERRUPTED), ("sqlite:///{empty}", ExitCode.INTERNAL)],
)
def test_a_database_that_cannot_be_reached_is_no_crash_of_the_job(
    tmp_path: Path, database: str, code: ExitCode
) -> None:
    """R13: only crashes are counted, and after three at one step a job is given up."""
    url = database.format(port=free_port(), empty=tmp_path / "no-tables.db")
    ended = subprocess.run(
        [sys.executable, "-I", "-m", "app.server.job_process", "a", "1", this_process()],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AGENT_FIX_DATABASE_URL": url},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == code, ended.stderr.decode()[-2_000:]
    assert b"job a failed" in ended.stderr
