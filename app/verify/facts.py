"""What the harness itself ran and saw; the pull request's table and the verdict are made from these facts alone."""

from typing import ClassVar, Literal

from app.noun import Noun
from app.patch import Patch
from app.verify.evidence import Execution

Verdict = Literal["proved", "tested", "unproved", "broken"]
Redness = Literal["green", "red", "was_not_there", "not_run"]
"""How a reproduction ended: `was_not_there` is a red that is only an import, collection or syntax error."""


class Reproduction(Noun):
    """The same command on base plus the changed tests, and on the head. `origin` says who wrote it."""

    command: str
    origin: Literal["agent", "asked", "changed tests", "issue"] = "agent"
    base: Execution | None = None
    head: Execution | None = None
    on_base: Redness = "not_run"
    on_head: Redness = "not_run"
    note: str = ""
    unanswered: str = ""
    """Not empty: this is an earlier one of the agent's that its last one, which shows nothing, does not replace."""
    without: str = ""
    """The commit that was taken back on the base: the fix that new tests are to guard."""

    @property
    def reference(self) -> str:
        """What the head is compared with, in words."""
        return f"the base without {self.without[:10]}" if self.without else "the base"


class TestCount(Noun):
    """How many tests had which status."""

    __test__: ClassVar[bool] = False  # not a test class, whatever pytest makes of its name

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class SuiteResult(Noun):
    """One execution of the suite. `failing` are test ids (failed or error); None where the runner names no tests."""

    execution: Execution
    count: TestCount | None = None
    failing: tuple[str, ...] | None = None
    passing: tuple[str, ...] | None = None
    partial: str = ""
    """Not empty: what was left out and why, in a sentence."""


class Suite(Noun):
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


class Gate(Noun):
    """One check of the patch. `blocked` stops publishing; `warned` is shown in the pull request."""

    name: str
    outcome: Literal["passed", "blocked", "warned", "not_run"]
    details: tuple[str, ...] = ()


class Verification(Noun):
    """All the facts and the verdict that follows from them (`app.verify.verdict`)."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    reproduction: Reproduction | None = None
    suite: Suite | None = None
    gates: tuple[Gate, ...] = ()
    isolated: bool = True
    sandbox: str = ""


class Known(Noun):
    """What is known of the base before the first step: its suite, or why there is no result."""

    suite: SuiteResult | None = None
    brief: str = ""


class Unanswered(Noun):
    """An agent's reproduction that failed on base and head, and the patch with the tests that it ran.

    A later one that shows nothing does not take its place.
    """

    command: str
    patch: Patch


class Verified(Noun):
    """A patch with what the harness found out about it; `feedback` is told to the agent."""

    patch: Patch
    verification: Verification
    feedback: str = ""
