"""What the harness itself ran and saw; the pull request's table and the verdict are made from these facts alone."""

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
    """Not empty: this is an earlier one of the agent's that its last one, which shows nothing, does not replace."""
    without: str = ""
    """The commit that was taken back on the base: the fix that new tests are to guard."""

    @property
    def reference(self) -> str:
        """What the head is compared with, in words."""
        return f"the base without {self.without[:10]}" if self.without else "the base"


class TestCount(Record):
    """How many tests had which status."""

    __test__: ClassVar[bool] = False  # not a test class, whatever pytest makes of its name

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class SuiteResult(Record):
    """One execution of the suite. `failing` are test ids (failed or error); None where the runner names no tests."""

    execution: Execution
    count: TestCount | None = None
    failing: tuple[str, ...] | None = None
    passing: tuple[str, ...] | None = None
    partial: str = ""
    """Not empty: what was left out and why, in a sentence."""


class SuiteComparison(Record):
    """The suite on base and on head."""

    command: str
    base: SuiteResult | None = None
    head: SuiteResult | None = None
    newly_failing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Tests that passed on base and are gone, or skipped, on head."""
    recheck: Execution | None = None
    """The tests that newly failed, once more and alone on the head."""
    notes: tuple[str, ...] = ()
    """What has to be known to read the numbers: flaky tests, other suites that were found, narrowed runs."""
    not_run: str = ""
    """Not empty: why there is no suite result, in a sentence (for example that no test command was found)."""


class GateResult(Record):
    """One check of the patch. `blocked` stops publishing; `warned` is shown in the pull request."""

    name: str
    outcome: Literal["passed", "blocked", "warned", "not_run"]
    details: tuple[str, ...] = ()


class Verification(Record):
    """All the facts and the verdict that follows from them (`app.verify.verdict`)."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    reproduction: Reproduction | None = None
    suite: SuiteComparison | None = None
    gates: tuple[GateResult, ...] = ()
    isolated: bool = True
    sandbox: str = ""


class BaselineResult(Record):
    """What is known of the base before the first step: its suite, or why there is no result."""

    suite: SuiteResult | None = None
    brief: str = ""


class UnchangedSubmission(Record):
    """An agent's reproduction that failed on base and head, and the patch with the tests that it ran.

    A later one that shows nothing does not take its place.
    """

    command: str
    patch: Patch


class VerifiedPatch(Record):
    """A patch with what the harness found out about it; `feedback` is told to the agent."""

    patch: Patch
    verification: Verification
    feedback: str = ""
