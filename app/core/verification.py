"""What the harness itself ran and observed, from which the verdict and the pull request's table are made."""

from typing import ClassVar, Literal

from app.core.evidence import Execution
from app.core.patch import Patch
from app.core.record import Record

Verdict = Literal["proved", "tested", "unproved", "broken"]
FailureReason = Literal["green", "red", "was_not_there", "not_run"]
"""How a reproduction ended: `was_not_there` is a red that is only an import, collection or syntax error."""


class Reproduction(Record):
    """The same command on base plus the changed tests, and on the head. `origin` says who wrote it."""

    command: str
    origin: Literal["agent", "asked", "changed tests", "issue"] = "agent"
    base: Execution | None = None
    head: Execution | None = None
    on_base: FailureReason = "not_run"
    on_head: FailureReason = "not_run"
    note: str = ""
    unanswered: str = ""
    """If not empty, this is the agent's earlier reproduction, kept because its last one shows nothing."""
    without: str = ""
    """The commit that was reverted on the base: the fix that new tests must guard."""

    @property
    def reference(self) -> str:
        """A phrase that names what the head is compared with."""
        return f"the base without {self.without[:10]}" if self.without else "the base"


class TestCount(Record):
    """The number of tests with each status."""

    __test__: ClassVar[bool] = False  # pytest must not collect this class because of its name

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class SuiteResult(Record):
    """One execution of the suite.

    `failing` are the ids of tests that failed or had an error; None if the runner does not name tests.
    """

    execution: Execution
    count: TestCount | None = None
    failing: tuple[str, ...] | None = None
    passing: tuple[str, ...] | None = None
    partial: str = ""
    """If not empty, a sentence that says what was left out and why."""


class SuiteComparison(Record):
    """The suite's results on base and on head."""

    command: str
    base: SuiteResult | None = None
    head: SuiteResult | None = None
    newly_failing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Tests that passed on base and are missing or skipped on head."""
    recheck: Execution | None = None
    """The newly failing tests, run once more alone on the head."""
    notes: tuple[str, ...] = ()
    """What readers must know about the numbers: flaky tests, other suites that were found, partial runs."""
    not_run: str = ""
    """If not empty, a sentence that says why there is no suite result (for example that no test command was found)."""


class GateResult(Record):
    """One check of the patch. `blocked` stops publishing; `warned` is shown in the pull request."""

    name: str
    outcome: Literal["passed", "blocked", "warned", "not_run"]
    details: tuple[str, ...] = ()


class Verification(Record):
    """All facts and the verdict that follows from them (`app.verify.verdict`)."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    reproduction: Reproduction | None = None
    suite: SuiteComparison | None = None
    gates: tuple[GateResult, ...] = ()
    isolated: bool = True
    sandbox: str = ""


class BaselineResult(Record):
    """The suite's result on the base before the first step, or why there is none."""

    suite: SuiteResult | None = None
    brief: str = ""


class UnchangedSubmission(Record):
    """An agent's reproduction that failed on both base and head, and the patch with the tests that it ran.

    A later reproduction that shows nothing does not replace it.
    """

    command: str
    patch: Patch


class VerifiedPatch(Record):
    """A patch with the harness's findings; `feedback` is sent to the agent."""

    patch: Patch
    verification: Verification
    feedback: str = ""
