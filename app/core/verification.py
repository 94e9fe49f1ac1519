"""What the harness itself ran and observed, from which the verdict and the pull request's table are made."""

from typing import ClassVar, Literal

from app.core.examples import SourceText
from app.core.patch import FileChange, Patch
from app.core.record import Record

Status = Literal["passed", "failed", "error", "skipped"]
Outcome = Status | Literal["not_run"]
ControlOutcome = Literal["held", "failed", "not_applicable", "not_run"]
ControlName = Literal[
    "same_conditions",
    "sources_changed",
    "noise_stays_red",
    "reprint_stays_green",
    "additions_stay_red",
    "changed_line_executed",
    "failing_copies_fail",
    "exit_code_agrees",
    "repeats_agree",
    "replay_agrees",
    "conditions_agree",
    "children_end",
    "results_are_plain",
    "arguments_stay",
    "other_calls_agree",
    "altered_conditions_fail",
    "base_rules_suffice",
]


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


class Control(Record):
    """One check of the evidence itself.

    `not_run` needs a reason in `detail`; for `failed`, `detail` says what was seen.
    """

    name: ControlName
    outcome: ControlOutcome
    detail: str = ""
    too_slow: bool = False
    """Not run because one run of the tests takes too long."""


class TestSelection(Record):
    """Selected tests: the files to add to the tree and the ids to run.

    `files` are written over base or head and replace existing files. `ids` are written as the runner reports them:
    pytest node ids, dotted names for unittest, `file::name` for node, vitest, jest and mocha, `package::Test` for go,
    cargo's test names.
    """

    __test__: ClassVar[bool] = False  # pytest must not collect this class because of its name

    files: tuple[FileChange, ...] = ()
    ids: tuple[str, ...]


class TestRun(Record):
    """One execution of chosen tests on one tree."""

    __test__: ClassVar[bool] = False

    execution: Execution
    results: tuple[tuple[str, Outcome], ...]
    """One result per id, in the order of the ids."""
    texts: tuple[tuple[str, str], ...] = ()
    """The failure message of each failing id."""
    untrusted: str = ""
    """If not empty, a sentence that says why these results cannot be trusted."""
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The executed lines of each requested path; empty if they were not measured."""
    measured: bool = False
    """Whether executed lines could be measured."""
    unchecked: tuple[str, ...] = ()
    """The ids of tests that passed, and of which no copy that has to fail was made, or none was seen to fail."""


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
    """The tests behind it that fail on the base and pass on the head, as the harness's own runner executed them."""
    controls: tuple[Control, ...] = ()
    """The controls of that execution."""
    without: str = ""
    """The commit that was reverted on the base: the fix that new tests must guard."""

    @property
    def reference(self) -> str:
        """A phrase that names what the head is compared with."""
        return f"the base without {self.without[:10]}" if self.without else "the base"


class SpecifiedTest(Record):
    """One frozen test of the test author's. `sentence` is the behaviour that it asks for, in the test author's words.

    `shows` the issue: it fails on the base for the right reason. `guards`: it passes there, and has to keep passing.
    """

    __test__: ClassVar[bool] = False  # not a test class, whatever pytest makes of its name

    id: str
    sentence: str
    role: Literal["shows", "guards"]
    missing: str = ""
    """The interface that the issue names and the base does not have, if that is why the test fails there."""
    base_text: str = ""
    """What the framework says about its failure on the base."""
    head: Outcome = "not_run"
    head_text: str = ""
    withdrawn: bool = False
    """True if its author withdrew it after an objection of the fixer."""
    varies: bool = False
    """Whether it uses a value that neither the issue nor the example has."""


class Specification(Record):
    """The test author's tests as they were frozen before the work began; the example, shown to the fixer, first.

    `digest` covers files and ids. Without tests, `absent` says why there are none, as a sentence after a colon.
    """

    files: tuple[SourceText, ...] = ()
    tests: tuple[SpecifiedTest, ...] = ()
    digest: str = ""
    example: str = ""
    """The path of the file that contains only the example; empty if there is none."""
    reported_passes: bool = False
    """Whether the reporter's own example passes on the base; another test is shown to the fixer then."""
    dropped: tuple[str, ...] = ()
    """What was written and not kept, each with the reason."""
    outdated: tuple[str, ...] = ()
    """Existing tests that, by the author, pin what the issue calls wrong."""
    absent: str = ""
    base: Execution | None = None
    """The tests' last execution on the base."""
    runs: int = 0
    """How often they were executed on the base, each time with the same results."""
    model: str = ""
    turns: int = 0
    tokens: int = 0
    cost: int = 0
    """In micro-dollars."""
    seconds: float = 0.0

    @property
    def held_back(self) -> tuple[SpecifiedTest, ...]:
        """The tests that show the issue and that the fixer does not see, without withdrawn ones."""
        hidden = self.tests[1 if self.example else 0 :]
        return tuple(test for test in hidden if test.role == "shows" and not test.withdrawn)

    @property
    def selection(self) -> TestSelection:
        files = (FileChange(path=file.path, mode="100644", content=file.text.encode()) for file in self.files)
        return TestSelection(files=tuple(files), ids=tuple(test.id for test in self.tests))


class Settlement(Record):
    """What a third call decided when the fixer objected to failing specification tests."""

    objection: str
    kept: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    reason: str = ""


class SpecificationResult(Specification):
    """The frozen tests, executed on the head.

    Of a second author's tests, which are written against a submitted change: `absent` says why there are none, and
    tests that guard suffice. They can only make a verdict worse.
    """

    head_run: Execution | None = None
    controls: tuple[Control, ...] = ()
    settlement: Settlement | None = None

    @property
    def failing(self) -> tuple[SpecifiedTest, ...]:
        """Those that do not pass on the head and were not withdrawn."""
        return tuple(test for test in self.tests if test.head != "passed" and not test.withdrawn)


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
    launched: bool = False
    """Whether the harness's own launcher executed it, so that the tested code could not write the results."""
    control: str = ""
    """The test file beside which a test that always fails was put, and reported as failed; it is not counted."""
    untrusted: str = ""
    """If not empty, a sentence that says why its results are not believed; then there are none."""


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


CapRule = Literal[
    "sources_changed",
    "watches_tests",
    "own_equality",
    "literal_branches",
    "keeps_state",
    "shared_names",
    "existing_tests_changed",
    "left_to_framework",
    "proposed_suite",
]


class Cap(Record):
    """Something about the patch itself that limits the verdict, and where or why."""

    rule: CapRule
    findings: tuple[str, ...]


class Facts(Record):
    """Everything that the harness found out about one submission."""

    specification: SpecificationResult | None = None
    """None if the task expects no red."""
    second_tests: SpecificationResult | None = None
    """The tests of a second author, who saw the change; None until one was asked."""
    reproduction: Reproduction | None = None
    suite: SuiteComparison | None = None
    gates: tuple[GateResult, ...] = ()
    rest: RestOfSuite | None = None
    """None if the verdict left nothing out, or if the rest is not to be run."""
    caps: tuple[Cap, ...] = ()
    expects_red: bool = True
    """False for tasks that change no behaviour: there the suite is all that can be compared."""
    submission: int = 1
    """Which of the job's submissions this is; all of them count."""
    isolated: bool = True
    sandbox: str = ""


class Verification(Facts):
    """The facts and the verdict that follows from them (`app.verify.verdict`)."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """The names of the rules that kept the verdict from being better, the most serious first."""
    controls: tuple[Control, ...] = ()
    """Of the tests that the verdict rests on."""


class BaselineResult(Record):
    """The suite's result on the base before the first step, or why there is none."""

    suite: SuiteResult | None = None
    brief: str = ""
    specification: Specification | None = None
    """The independent test author's tests, or why there are none; None if nothing is to be red."""
    second_tests: Specification | None = None
    """The second author's tests, written against an earlier submission."""


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
