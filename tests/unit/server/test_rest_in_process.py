"""The process that runs the remaining tests of a published job: what it stores when it fails, is preempted or ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import settings_from
from app.core.errors import AgentFixError, SetupError
from app.core.result import JobResult
from app.core.verification import RestOfSuite
from app.jobs.queue import MAX_CRASHES, JobClaim, QueueLimits
from app.jobs.tables import job_contexts, writing
from app.server.job_process import RETRY_AFTER_FAULT, JobWorker
from app.server.wiring.context import ServerContext
from app.server.wiring.job_process import JobProcess, LostBaseError
from tests.support.pull_requests import verification
from tests.support.server_jobs import job, job_context, trigger

REST = RestOfSuite(files=40, minutes=30, command="pytest")
ONE = QueueLimits(1, 1)


@pytest.fixture
def server_context(tmp_path: Path) -> Iterator[ServerContext]:
    found = ServerContext(settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path / "state")}))
    found.prepare()
    yield found
    found.engine.dispose()


def published(server_context: ServerContext) -> JobResult:
    """A job whose pull request is open, and of whose suite a rest is to be run."""
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    result = JobResult(exit_status="pr_opened", verification=verification(rest=REST))
    claim = take(server_context)
    server_context.queue.hand_over(claim, result.model_dump(mode="json"))
    server_context.queue.release(claim)
    server_context.store().finish("a", "pr_opened", "", result.model_dump(mode="json"), waiting_for="rest")
    return result


def take(server_context: ServerContext) -> JobClaim:
    claim = server_context.queue.claim("w1", ONE)
    assert claim is not None
    return claim


def stored(server_context: ServerContext) -> tuple[str, RestOfSuite]:
    """What the job waits for, and the rest of its suite."""
    found = server_context.job_queries.get("a")
    assert found is not None
    assert found.row.state == "pr_opened"
    rest = JobResult.model_validate(found.row.result).rest
    assert rest is not None
    return found.waiting_for, rest


def fail(server_context: ServerContext, error: AgentFixError) -> None:
    """What a process does that this error ends, and its worker after it."""
    claim = take(server_context)
    JobWorker(JobProcess(server_context, claim)).release(error)
    server_context.queue.release(claim, crashed=True)


def test_a_fault_that_may_pass_is_waited_for_as_with_every_job(server_context: ServerContext) -> None:
    published(server_context)
    for number in range(1, MAX_CRASHES + 1):
        before = server_context.clock()
        fail(server_context, LostBaseError("The base commit has not arrived."))
        waiting_for, rest = stored(server_context)
        assert rest.reason == "The base commit has not arrived."
        assert waiting_for == ("rest" if number < MAX_CRASHES else "rest_ended")
        assert server_context.queue.claim("w1", ONE) is None
        with writing(server_context.engine) as db:
            due = db.execute(job_contexts.select()).one().due
            assert due >= (before + RETRY_AFTER_FAULT).timestamp()
            db.execute(job_contexts.update().values(due=0.0))


def test_a_fault_that_stays_ends_the_remaining_tests_at_once(server_context: ServerContext) -> None:
    published(server_context)
    fail(server_context, SetupError("`make deps` failed:\n# **Proved** by @grace"))
    waiting_for, rest = stored(server_context)
    assert (waiting_for, rest.state) == ("rest_ended", "given_up")
    assert rest.reason == "`make deps` failed: # \\*\\*Proved\\*\\* by `@grace`", "nothing in it acts on GitHub"
