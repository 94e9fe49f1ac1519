"""A job at a limit: what its agent had changed is stored for people."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app.config.settings import Settings
from app.core.errors import AgentFixError, ExitCode
from app.core.job import JobResult, JobState, WaitingForUser
from app.jobs.queue import QueueLimits
from app.llm.errors import BudgetError, ModelError
from app.pipeline.wiring.job_runner import JobRunner
from app.server.context import ServerContext
from app.server.job_process import JobProcess
from tests.support.server_jobs import job, job_context, trigger


class StoppedRunner:
    """Stands in for a runner whose agent has changed something, or nothing."""

    plan = None
    inputs = SimpleNamespace(job=job("a"))

    def __init__(self, diff: str) -> None:
        self._diff = diff

    def so_far(self, reason: str, state: JobState, *, at_limit: bool) -> JobResult:
        return JobResult(exit_status=state, reason=reason, diff=self._diff if at_limit else "")


@pytest.fixture
def server_context(tmp_path: Path) -> Iterator[ServerContext]:
    found = ServerContext(Settings(state=tmp_path))
    found.prepare()
    found.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    yield found
    found.engine.dispose()


@pytest.mark.parametrize(
    ("error", "diff", "kept"),
    [
        (BudgetError("Nothing is left."), "d", "d"),
        (WaitingForUser("paused", "All 9 turns are used.", code=ExitCode.LIMIT_REACHED), "d", "d"),
        (BudgetError("Nothing is left."), "", ""),
        (ModelError("No key.", kind="give_up", reason="no_key"), "d", None),
    ],
)
def test_change_is_kept_at_a_limit(
    server_context: ServerContext, error: AgentFixError, diff: str, kept: str | None
) -> None:
    claim = server_context.queue.claim("w1", QueueLimits(1, 1))
    assert claim is not None
    JobProcess(server_context, claim).release(error, cast("JobRunner", StoppedRunner(diff)))
    row = server_context.job_store().get("a")
    assert row is not None
    assert (row.state, (row.result or {}).get("diff") or "") == ("paused", kept or "")
