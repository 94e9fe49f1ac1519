"""What the harness itself ran and observed, from which the verdict and the pull request's table are made."""

from typing import ClassVar, Literal

from app.core.examples import JudgedExample, PlanExamples, Review
from app.core.patch import Patch
from app.core.record import Record

Status = Literal["passed", "failed", "error", "skipped"]
Outcome = Status | Literal["not_run"]


class Execution(Record):
    """One command that was really executed. `excerpt` is the end of its output, without control characters."""

    command: str
    exit_code: int
    seconds: float
    timed_out: bool = False
    excerpt: str = ""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


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
    ids: tuple[str, ...] = ()
    """The tests behind it that fail on the base and pass on the change."""
    without: str = ""
    """The commit that was reverted on the base: the fix that new tests must guard."""

    @property
    def reference(self) -> str:
        """A phrase that names what the head is compared with."""
        return f"the base without {self.without[:10]}" if self.without else "the base"


class TestCount(Record):
    """The number of tests with each status."""

    __test__: ClassVar[bool] = False

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
    shared_cause: str = ""
    """The error for which most tests fail, as one line, if a whole suite fails in the same way."""
    other_failures: tuple[str, ...] = ()
    """The failing tests that do not share it."""


class ExistingTestChange(Record):
    """A file of the base's tests, or of their settings, that the patch had to change, or of which tests are gone.

    `added`: a new test file, without which existing tests fail.
    """

    path: str
    added: bool = False
    failing: tuple[str, ...] = ()
    """Tests that fail on the head with the base's files, and pass with those of the patch."""
    removed: tuple[str, ...] = ()
    """Names of tests that the patch removes or renames."""
    diff: str = ""


class SuiteComparison(Record):
    """The suite's results on base and on head.

    The head has the base's own tests and settings of tests. What the patch changes of these is run afterwards.
    """

    command: str
    base: SuiteResult | None = None
    head: SuiteResult | None = None
    newly_failing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Tests that passed on base and are missing or skipped on head."""
    own_tests: SuiteResult | None = None
    """The new and changed tests, on the head with all that the patch changes; None if it changes no tests."""
    changed_tests: tuple[ExistingTestChange, ...] = ()
    recheck: Execution | None = None
    """The newly failing tests, run once more alone on the head."""
    notes: tuple[str, ...] = ()
    """What readers must know about the numbers: flaky tests, other suites that were found, partial runs."""
    not_run: str = ""
    """If not empty, a sentence that says why there is no suite result (for example that no test command was found)."""
    by_exit_code: bool = False
    """Whether no report of single tests could be read on one of the sides, so that only the exit codes are compared."""
    nearest: tuple[str, ...] = ()
    """The test files nearest to the change, if only these were run because the suite is longer than its limit."""


RestState = Literal["pending", "finished", "out_of_time", "stopped", "given_up"]


class RestPart(Record):
    """Test files that were compared on base and head after the change was published."""

    compared: int = 0
    """Files that were executed on both."""
    base: TestCount = TestCount()
    head: TestCount = TestCount()
    newly_failing: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Tests that passed on base and are missing or skipped on head."""
    worse: str = ""
    """If not empty, a sentence that says how the head is worse if no single test is named."""
    changed: tuple[str, ...] = ()
    """Changes of existing tests without which tests would fail, although the test author did not call them wrong."""
    recheck: Execution | None = None
    """Newly failing tests, run once more alone on the head."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class RestOfSuite(RestPart):
    """The test files of a long suite that the verdict left out: the sum of the parts that were compared so far."""

    state: RestState = "pending"
    files: int
    """The number of files that were left out."""
    minutes: float
    """The time limit for all of them."""
    command: str = ""
    parts: int = 0
    looked_at: int = 0
    """Files of these parts. Each file is looked at once; one without results on the base is not compared."""
    reason: str = ""
    """Why it ended early, as a sentence."""


class GateResult(Record):
    """One check of the patch. `blocked` stops publishing; `warned` is shown in the pull request."""

    name: str
    outcome: Literal["passed", "blocked", "warned", "not_run"]
    details: tuple[str, ...] = ()


class EarlierProof(Record):
    """What was verified on the same pull request before a follow-up: every later commit is run on its examples, too.

    What they printed on the base is of the pull request's base, not of the commit that the follow-up starts from.
    """

    commit: str
    verdict: Verdict
    examples: tuple[JudgedExample, ...] = ()


class Facts(Record):
    """Everything that the harness found out about one submission."""

    earlier: EarlierProof | None = None
    """None unless this is a follow-up on our own pull request."""
    tests_or_text_only: bool = False
    """Whether the change touches nothing but tests and documentation."""

    examples: PlanExamples | None = None
    """The plan's examples, on base and change; None if the task changes no behaviour."""
    review: Review | None = None
    """A reviewer's counter-examples; None if none was asked yet."""
    reproduction: Reproduction | None = None
    suite: SuiteComparison | None = None
    gates: tuple[GateResult, ...] = ()
    rest: RestOfSuite | None = None
    """None if the verdict left nothing out, or if the rest is not to be run."""
    expects_red: bool = True
    """False for tasks that change no behaviour: there the suite is all that can be compared."""
    submission: int = 1
    """Which of the job's submissions this is; all of them count."""
    isolated: bool = True
    sandbox: str = ""
    of_others: bool = False
    """The change was there before the job: its author saw none of the examples, and nobody can object to one."""
    frozen: bool = False
    """The examples were written for an earlier commit of the change, and no reviewer has seen this one."""


class Verification(Facts):
    """The facts and the verdict that follows from them (`app.verify.verdict`)."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """The names of the rules that kept the verdict from being better, the most serious first."""


class BaselineResult(Record):
    """The suite's result on the base before the first step, or why there is none."""

    suite: SuiteResult | None = None
    brief: str = ""
    examples: PlanExamples | None = None
    """The plan's examples, or why there are none; None if the task changes no behaviour."""
    review: Review | None = None
    """The reviewer's examples, written against an earlier submission."""


class RestOrder(Record):
    """What the rest of a long suite is run from."""

    patch: Patch
    known: SuiteResult
    """The whole suite on the base, as far as it got."""
    nearest: tuple[str, ...]
    """The test files that were executed on base and head."""


class UnchangedSubmission(Record):
    """An agent's reproduction that failed on both base and head, and the patch with the tests that it ran.

    A later reproduction that shows nothing does not replace it.
    """

    command: str
    patch: Patch


class VerifiedPatch(Record):
    """A patch with the harness's findings; `feedback` is sent to the agent."""

    patch: Patch
    reproduction: str = ""
    """The command, as it was submitted."""
    verification: Verification
    feedback: str = ""
