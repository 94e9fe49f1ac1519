"""One job with everything stored about it, for its page and the API."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.core.job import FINAL, Job
from app.core.money import Totals
from app.core.result import JobResult
from app.core.verification import Execution, TestCount
from app.jobs.context import JobContext
from app.jobs.job_queries import JobQueries
from app.jobs.messages import JobMessages, StoredMessage
from app.jobs.queries import EffectSummary, JobOverview, JobSummary
from app.jobs.store import JobBlobs, JobStore, ProgressRow

LINES_SHOWN = 300


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """One command on base and head, with test counts if there are any."""

    name: str
    command: str
    base: Execution | None
    head: Execution | None
    base_count: TestCount | None = None
    head_count: TestCount | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Everything about one job.

    `job_context` is None for a job from the command line; `log` holds the last lines.
    """

    listed: JobSummary
    job: Job
    job_context: JobContext | None
    result: JobResult | None
    plan: str
    totals: Totals
    messages: tuple[StoredMessage, ...]
    effects: tuple[EffectSummary, ...]
    log: tuple[ProgressRow, ...]
    attempts: int
    crashes: int

    @property
    def final(self) -> bool:
        return self.listed.state in FINAL

    @property
    def waits(self) -> bool:
        """True if the job may be waiting for its turn."""
        return self.listed.state == "queued" and self.listed.owner is None

    @property
    def may_be_stopped(self) -> bool:
        is_worked_on = not self.final or self.remaining_tests
        return self.job_context is not None and is_worked_on and not self.listed.stop_requested

    @property
    def remaining_tests(self) -> bool:
        """True while the remaining tests of a published job run or wait."""
        return self.listed.waiting_for == "rest"

    @property
    def last_seq(self) -> int:
        return self.log[-1].seq if self.log else 0

    @property
    def checks(self) -> tuple[VerificationRow, ...]:
        """The commands that were executed on base and head."""
        found = self.result.verification if self.result else None
        red, suite = (found.reproduction, found.suite) if found else (None, None)
        rows = []
        if found is not None and (frozen := found.specification) is not None and frozen.base is not None:
            passing = sum(test.head == "passed" for test in frozen.tests)
            prompts = sum(test.role == "shows" for test in frozen.tests)
            base_count = TestCount(passed=len(frozen.tests) - prompts, failed=prompts)
            head_count = TestCount(passed=passing, failed=len(frozen.tests) - passing) if frozen.head_run else None
            row = ("independent tests", frozen.base.command, frozen.base, frozen.head_run, base_count, head_count)
            rows.append(VerificationRow(*row))
        if red is not None:
            rows.append(VerificationRow("reproduction", red.command, red.base, red.head))
        if suite is not None:
            base, head = suite.base, suite.head
            counts = (base.count if base else None, head.count if head else None)
            executed = (base.execution if base else None, head.execution if head else None)
            rows.append(VerificationRow("suite", suite.command, *executed, *counts))
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class JobPages:
    """Loads the data of job pages."""

    overview: JobOverview
    store: JobStore
    job_queries: JobQueries
    messages: JobMessages
    totals: Callable[[str], Totals]
    """Returns the totals of a job's model calls."""

    def job_file(self, job_id: str, *, lines: int = LINES_SHOWN) -> JobPage | None:
        listed, row = self.overview.one(job_id), self.store.get(job_id)
        if listed is None or row is None:
            return None
        job = self.job_queries.get(job_id)
        return JobPage(
            listed=listed,
            job=row.job,
            job_context=job.job_context if job else None,
            result=_result(row.result),
            plan=self.overview.plan(job_id),
            totals=self.totals(job_id),
            messages=self.messages.since(job_id, 0),
            effects=self.overview.effects(job_id),
            log=self.overview.log_end(job_id, lines) if lines else (),
            attempts=row.epoch,
            crashes=job.crashes if job else 0,
        )

    def change(self, job_id: str) -> bytes | None:
        """The job's change as a diff for `git apply`; None if none is stored."""
        return self._blob(job_id, lambda result: result.diff)

    def trajectory(self, job_id: str) -> bytes | None:
        """The job's steps as JSON lines; None if none are stored."""
        return self._blob(job_id, lambda result: result.trajectory)

    def _blob(self, job_id: str, digest_of: Callable[[JobResult], str]) -> bytes | None:
        row = self.store.get(job_id)
        result = _result(row.result) if row else None
        digest = digest_of(result) if result else ""
        return JobBlobs(self.store.engine, job_id).get(digest) if digest else None


def _result(kept: dict[str, Any] | None) -> JobResult | None:
    """The stored result; None if an older version stored it in another shape."""
    try:
        return JobResult.model_validate(kept) if kept else None
    except ValidationError:
        return None
