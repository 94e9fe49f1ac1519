"""What an execution of chosen tests showed, and the controls that say whether it may be believed."""

from typing import ClassVar, Literal

from app.core.patch import FileChange
from app.core.record import Record

Status = Literal["passed", "failed", "error", "skipped"]
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
]


class Execution(Record):
    """One command, really run. `excerpt` is the end of its output, cleaned of control characters."""

    command: str
    exit_code: int
    seconds: float
    timed_out: bool = False
    excerpt: str = ""


class Control(Record):
    """One check of the evidence itself. `not_run` needs a reason in `detail`; `failed` says what was seen."""

    name: ControlName
    outcome: Literal["held", "failed", "not_applicable", "not_run"]
    detail: str = ""


class TestSelection(Record):
    """Chosen tests. `files` are laid over base or head and replace what stands there.

    `ids` are the runner's, as its report has them: pytest node ids, dotted names for unittest, `file::name` for node,
    vitest, jest and mocha, `package::Test` for go, cargo's test names.
    """

    __test__: ClassVar[bool] = False  # not a test class, whatever pytest makes of its name

    files: tuple[FileChange, ...] = ()
    ids: tuple[str, ...]


class TestRun(Record):
    """One execution of chosen tests on one tree."""

    __test__: ClassVar[bool] = False

    execution: Execution
    results: tuple[tuple[str, Status | Literal["not_run"]], ...]
    """One for each id, in the order of the ids."""
    texts: tuple[tuple[str, str], ...] = ()
    """The failure's text of each failing id."""
    untrusted: str = ""
    """Not empty: why these results must not be believed, in a sentence."""
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """For each path that was asked for, the lines that were executed; empty where this was not measured."""
    measured: bool = False
    """Whether executed lines could be measured."""
