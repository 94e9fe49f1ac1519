"""A job's result, from which the pull request, `job.json` and the exit code are made."""

from app.core.errors import ExitCode
from app.core.job import JobState
from app.core.money import MicroUSD, Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.record import Record
from app.core.verification import RestOfSuite, RestState, Verdict, Verification


class AttemptSummary(Record):
    """The summary of one of several attempts, for people."""

    number: int
    exit_status: JobState
    verdict: Verdict | None = None
    reason: str = ""
    changed_lines: int = 0
    turns: int = 0
    cost: MicroUSD = 0
    taken: bool = False


class JobResult(Record):
    """The outcome of a job, stored with it so that it can be reported again after a crash."""

    exit_status: JobState
    reason: str = ""
    hint: str = ""
    """What a person can do about the reason, if anything."""
    plan: Plan | None = None
    verification: Verification | None = None
    summary: str = ""
    branch: str = ""
    commit: str = ""
    url: str = ""
    """The URL of the pull request."""
    changes: tuple[FileStat, ...] = ()
    patch: str = ""
    """Digest of the patch; its bytes are in the job's blobs."""
    rest_order: str = ""
    """Digest of a RestOrder in the job's blobs, if the rest of a long suite is run after publication."""
    diff: str = ""
    """Digest of the change as a diff for `git apply`, in the job's blobs; set whatever the outcome."""
    compare: str = ""
    """Where a person can open a pull request from the pushed branch, if we could not."""
    usage: Totals = Totals()
    model: str = ""
    turns: int = 0
    seconds: float = 0.0
    error_code: ExitCode | None = None
    trajectory: str = ""
    """Digest of the trajectory, in the job's blobs."""
    attempts: tuple[AttemptSummary, ...] = ()
    """All attempts, if more than one was requested."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def rest(self) -> RestOfSuite | None:
        """The rest of a long suite, as far as it was run after publication."""
        return self.verification.rest if self.verification else None

    @property
    def rest_pending(self) -> bool:
        """True while the rest of a long suite is still to be run."""
        return self.rest is not None and self.rest.state == "pending"

    def with_rest_state(self, state: RestState, reason: str) -> "JobResult":
        """The result with the rest of the suite in this state, if it had not ended."""
        if not self.rest_pending or self.verification is None or self.rest is None:
            return self
        rest = self.rest.model_copy(update={"state": state, "reason": reason})
        return self.model_copy(update={"verification": self.verification.model_copy(update={"rest": rest})})

    @property
    def exit_code(self) -> ExitCode:
        """0 only if the verdict is `proved` or `tested`, or if only a plan was requested."""
        match self.exit_status:
            case "pr_opened" | "pr_updated":
                if self.verification is not None and self.verification.verdict == "broken":
                    return ExitCode.BROKEN  # by the rest of a long suite
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
