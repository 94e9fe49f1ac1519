"""The process that runs the remaining tests of a published job: what it stores when it fails, is preempted or ends."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.config.settings import settings_from
from app.core.errors import AgentFixError, ExitCode, SetupError
from app.core.job import JobResult
from app.core.verification import RestOfSuite
from app.jobs.queue import MAX_CRASHES, JobClaim, QueueLimits
from app.jobs.tables import job_contexts, writing
from app.pipeline.wiring.job_runner import JobRunner
from app.publish.outbox import StaleEpoch
from app.server.context import ServerContext
from app.server.job_process import (
    RETRY_AFTER_FAULT,
    JobProcess,
    LostBaseError,
    PreemptedError,
)
from app.verify.verdict import with_verdict
from tests.support.pull_requests import verification
from tests.support.server_jobs import issue_ref, job, job_context, trigger

if TYPE_CHECKING:
    from app.jobs.engine import DurableEngine

REST = RestOfSuite(files=40, minutes=30, command="pytest")
ONE = QueueLimits(1, 1)


class FinishedEngine:
    """Stands in for an engine whose workflow an earlier process has finished."""

    def __init__(self, result: JobResult) -> None:
        self._result = result

    def launch(self) -> None:
        """Nothing to open."""

    async def has_begun(self, _job: str) -> bool:
        return True

    async def has_succeeded(self, name: str) -> bool:
        return name == "a.rest"

    async def carry_out(self, _name: str, *, resumed: bool) -> JobResult:
        assert resumed
        return self._result


class ReadyRunner:
    """Stands in for a runner whose sandbox can be opened."""

    async def prove_sandbox(self) -> None:
        """It can."""


class FinishedProcess(JobProcess):
    """A process that finds the workflow finished."""

    def __init__(self, server_context: ServerContext, claim: JobClaim, result: JobResult) -> None:
        super().__init__(server_context, claim)
        self._result = result

    def runner(self) -> JobRunner:
        return cast("JobRunner", ReadyRunner())

    def engine(self, work: object) -> "DurableEngine[JobResult]":
        return cast("DurableEngine[JobResult]", FinishedEngine(self._result))


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
    server_context.job_store().finish("a", "pr_opened", "", result.model_dump(mode="json"), waiting_for="rest")
    return result


def take(server_context: ServerContext) -> JobClaim:
    claim = server_context.queue.claim("w1", ONE)
    assert claim is not None
    return claim


def retake(server_context: ServerContext) -> JobClaim:
    """The claim of the next process, after the lease of the one before."""
    with writing(server_context.engine) as db:
        db.execute(job_contexts.update().values(lease_until=0.0))
    return take(server_context)


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
    JobProcess(server_context, claim).release(error)
    server_context.queue.release(claim, crashed=True)


def test_a_job_that_others_have_ended_has_no_remaining_tests(server_context: ServerContext) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    claim = take(server_context)
    server_context.queue.end("a", "no_access", "The App was uninstalled.")
    JobProcess(server_context, claim).release(SetupError("pip failed."))
    row = server_context.job_store().get("a")
    assert row is not None
    assert (row.state, row.reason, row.result) == ("no_access", "The App was uninstalled.", None)


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
    assert rest.reason == "`make deps` failed:\n# **Proved** by @grace"


def with_rest(result: JobResult, **changes: Any) -> JobResult:
    assert result.verification is not None
    facts = result.verification.model_copy(update={"rest": REST.model_copy(update=changes)})
    return result.model_copy(update={"verification": with_verdict(facts)})


def test_a_resumed_process_never_takes_back_what_is_known(server_context: ServerContext) -> None:
    result = published(server_context)
    found = with_rest(result, parts=2, looked_at=40, compared=40, newly_failing=("tests/test_far.py::test_total",))
    JobProcess(server_context, take(server_context)).save_rest(found)
    process = JobProcess(server_context, retake(server_context))
    for repeated in (result, with_rest(result, parts=1, looked_at=20)):
        process.save_rest(repeated)
        assert stored(server_context)[1] == found.rest
    more = with_rest(result, parts=3, looked_at=60)
    process.save_rest(more)
    assert stored(server_context)[1] == more.rest


def test_known_parts_are_stored_before_another_job_gets_the_place(server_context: ServerContext) -> None:
    result = published(server_context)
    process = JobProcess(server_context, take(server_context))
    server_context.queue.admit(job("b", issue_ref(9)), job_context(issue_ref(9)), trigger("u"), ready=True)
    found = with_rest(result, parts=1, looked_at=20, newly_failing=("tests/test_far.py::test_total",))
    with pytest.raises(PreemptedError):
        process.save_rest(found)
    assert stored(server_context)[1] == found.rest


def test_the_end_of_a_rest_is_stored_by_its_owner_only(server_context: ServerContext) -> None:
    result = published(server_context)
    former = JobProcess(server_context, take(server_context))
    owner = JobProcess(server_context, retake(server_context))
    ended = with_rest(result, state="finished", parts=1)
    with pytest.raises(StaleEpoch):
        former.end_rest(ended)
    assert stored(server_context)[0] == "rest"
    owner.end_rest(ended)
    assert stored(server_context)[0] == "rest_ended"


@pytest.mark.parametrize("sandbox", ["bubblewrap", "docker"])
async def test_a_rest_whose_workflow_has_ended_already_is_ended_by_the_next_process(
    server_context: ServerContext, sandbox: str
) -> None:
    """In whichever sandbox: nothing runs in it any more."""
    server_context.settings = replace(server_context.settings, sandbox=sandbox)
    ended = with_rest(published(server_context), state="finished", parts=1)
    worker = FinishedProcess(server_context, retake(server_context), ended)
    assert await worker.run() == ExitCode.OK
    assert stored(server_context) == ("rest_ended", ended.rest)


async def test_a_rest_that_was_ended_meanwhile_stays_as_it_was_posted(server_context: ServerContext) -> None:
    """Its lease had expired, and somebody stopped it."""
    result = published(server_context)
    process = JobProcess(server_context, take(server_context))
    with writing(server_context.engine) as db:
        db.execute(job_contexts.update().values(lease_until=0.0))
    assert server_context.queue.stop("a", "Stopped by ada.")
    with pytest.raises(StaleEpoch):
        process.end_rest(with_rest(result, state="finished", parts=1))
    assert stored(server_context) == ("rest_ended", REST)
