"""What a job came to: everything the pull request, `job.json` and the exit code are made of."""

from app.core.errors import ExitCode
from app.core.job import JobState
from app.core.money import MicroUSD, Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.record import Record
from app.core.verification import Verdict, Verification


class AttemptSummary(Record):
    """One of several attempts, as people are told of it."""

    number: int
    exit_status: JobState
    verdict: Verdict | None = None
    reason: str = ""
    changed_lines: int = 0
    turns: int = 0
    cost: MicroUSD = 0
    taken: bool = False


class JobResult(Record):
    """Kept with the job, so that it can be told again after a crash."""

    exit_status: JobState
    reason: str = ""
    hint: str = ""
    """What a person can do about the reason, where there is something."""
    plan: Plan | None = None
    verification: Verification | None = None
    summary: str = ""
    branch: str = ""
    commit: str = ""
    url: str = ""
    """Of the pull request."""
    changes: tuple[FileStat, ...] = ()
    patch: str = ""
    """Digest of the patch among the job's blobs."""
    diff: str = ""
    """Digest of the change as `git apply` takes it, among the job's blobs, whatever became of it."""
    compare: str = ""
    """Where a person opens the pull request of the branch that was pushed, where we could not."""
    usage: Totals = Totals()
    model: str = ""
    turns: int = 0
    seconds: float = 0.0
    error_code: ExitCode | None = None
    trajectory: str = ""
    """Digest of the trajectory among the job's blobs."""
    attempts: tuple[AttemptSummary, ...] = ()
    """All that were made, where more than one was asked for."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """0 only where the verdict is `proved` or `tested` (or a plan was all that was asked for)."""
        match self.exit_status:
            case "pr_opened" | "pr_updated":
                proved = self.verification is not None and self.verification.verdict in {"proved", "tested"}
                return ExitCode.OK if proved else ExitCode.UNPROVED
            case "answered":
                return ExitCode.OK
            case _:
                return self.error_code or _CODES.get(self.exit_status, ExitCode.INTERNAL)


_CODES: dict[JobState, ExitCode] = {
    "verification_failed": ExitCode.BROKEN,
    "limit_reached": ExitCode.LIMIT_REACHED,
    "paused": ExitCode.LIMIT_REACHED,
    "no_change": ExitCode.NO_CHANGE,
    "awaiting_approval": ExitCode.AWAITING_APPROVAL,
    "needs_input": ExitCode.NEEDS_INPUT,
    "stopped": ExitCode.STOPPED,
}
