"""The result of running selected tests, and the controls that say whether it can be trusted."""

from typing import ClassVar, Literal

from app.core.patch import FileChange
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
    "results_are_plain",
    "arguments_stay",
    "altered_conditions_fail",
]


class Execution(Record):
    """One command that was really executed. `excerpt` is the end of its output, without control characters."""

    command: str
    exit_code: int
    seconds: float
    timed_out: bool = False
    excerpt: str = ""


class Control(Record):
    """One check of the evidence itself.

    `not_run` needs a reason in `detail`; for `failed`, `detail` says what was seen.
    """

    name: ControlName
    outcome: ControlOutcome
    detail: str = ""


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
