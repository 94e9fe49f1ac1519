"""Examples: small programs and the text that each must print, run outside the process of their judge."""

import re
from typing import Final, Literal, get_args

from app.core.record import Record

Run = Literal["python", "node", "typescript", "go", "rust", "java", "ruby", "php", "shell", "vitest", "jest"]
RUNS: Final[tuple[Run, ...]] = get_args(Run)
"""By the interpreter or compiler of the language, by a shell, or in a test runner as the host."""
MAX_STDOUT: Final = 4_000
"""Characters that an example may print, and that are kept of a run."""


_ERROR = re.compile(
    r"panic: |fatal error: |thread '.*' panicked at|Exception in thread |Caused by: |PHP \w+ error: "
    r"|.+:in [`'].*\([\w:]+\)$|error(\[\w+\])?: (?!aborting)|[\w.$:]*(Error|Exception)\b"
)
"""How Go, Rust, Java, PHP, Ruby, compilers and JavaScript begin the line that names an error. Python's is the last."""


class SourceText(Record):
    """A text file."""

    path: str
    text: str


class Because(Record):
    """The words from which an example's output follows: a verbatim quote, and where it stands.

    `source` is `issue`, `today` (for what must go on as it is), or a path in the repository.
    """

    quote: str
    source: str


class Example(Record):
    """A program and what it prints when the change is right.

    `shows`: it prints something else today. `keeps`: it prints this today and must go on. `behaviour` is one sentence
    in general words, without values: all that the fixer learns if an example that it has not seen fails. `files` are
    laid beside the program; `exit` is the exit code.
    """

    name: str = ""
    """Given by the harness, unique within a job."""
    behaviour: str
    because: Because
    kind: Literal["shows", "keeps"] = "shows"
    run: Run
    program: str
    args: tuple[str, ...] = ()
    stdin: str = ""
    files: tuple[SourceText, ...] = ()
    stdout: str = ""
    exit: int = 0
    origin: Literal["plan", "person", "reviewer"] = "plan"

    @property
    def whole_program(self) -> str:
        """The program with all that is needed to run it again."""
        more = [
            f"arguments: {' '.join(self.args)}" if self.args else "",
            self.stdin and f"input:\n{self.stdin}",
            *(f"{file.path}:\n{file.text}" for file in self.files),
        ]
        return "\n\n".join(filter(None, (self.program.strip("\n"), *more)))


class ProgramRun(Record):
    """What a program did in one fresh process. `stderr` is its end.

    `problem` says that the program could not be run at all (no interpreter, a failed build), as a sentence.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    timed_out: bool = False
    problem: str = ""

    @property
    def error(self) -> str:
        """The line of `stderr` that names the last error, in the words of its language; else its last line."""
        lines = self.stderr.strip().splitlines() or [""]
        if not any(line.startswith("Traceback (") for line in lines):
            lines = next((lines[at:] for at in reversed(range(len(lines))) if _ERROR.match(lines[at])), lines[-1:])
            return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).strip()  # Rust's message is below
        return lines[-1].strip()

    def printed(self, example: Example) -> bool:
        """True if it printed exactly what the example says and ended with its exit code."""
        if self.timed_out or self.problem:
            return False
        return self.stdout.rstrip("\n") == example.stdout.rstrip("\n") and self.exit_code == example.exit


class JudgedExample(Example):
    """An example with what it printed. Each tuple has one run for each condition; empty if it was not run there."""

    hidden: bool = False
    """Whether the agent that makes the change has seen none of its values."""
    quoted: bool = False
    """Whether the harness found the quote where `because` says it stands."""
    base: tuple[ProgramRun, ...] = ()
    change: tuple[ProgramRun, ...] = ()
    disputed: str = ""
    """The fixer's reason why the issue does not ask for this; empty if nobody disputes it."""
    unconfirmed: str = ""
    """Why it is only a question if it fails on somebody's change: nobody else derived the same output."""

    @property
    def written(self) -> Example:
        """Without what became of it."""
        return Example.model_validate(self.model_dump(include=set(Example.model_fields)))

    @property
    def holds(self) -> bool:
        """True if it printed what was expected in every run on the change."""
        return bool(self.change) and all(run.printed(self) for run in self.change)

    @property
    def differs_on_base(self) -> bool:
        """True if no run on the base printed what was expected."""
        return bool(self.base) and not any(run.printed(self) for run in self.base)

    @property
    def turns(self) -> bool:
        """True if it shows the issue on the base and holds on the change."""
        return self.kind == "shows" and self.differs_on_base and self.holds

    @property
    def fails(self) -> bool:
        """True if it was run on the change and did not hold."""
        return bool(self.change) and not self.holds

    @property
    def is_question(self) -> bool:
        """True if it fails and people decide whether it is wanted: if it is unconfirmed, or a reviewer's that fails on
        base and change alike."""
        return self.fails and (bool(self.unconfirmed) or (self.origin == "reviewer" and self.differs_on_base))


class OutdatedTest(Record):
    """An existing test that contradicts the issue, and the words of the issue that say so."""

    test: str
    because: str


class PlanExamples(Record):
    """A plan's examples as they were run on the base, before the work began; the one that is shown first.

    `refused` are those that were not kept, each with the reason; without examples, `absent` says why there are none.
    """

    examples: tuple[JudgedExample, ...] = ()
    refused: tuple[str, ...] = ()
    already: tuple[JudgedExample, ...] = ()
    """Those that should show the issue and print today what they should print."""
    absent: str = ""
    outdated: tuple[OutdatedTest, ...] = ()

    @property
    def shown(self) -> JudgedExample | None:
        """The only one that the fixer sees; None if nothing is hidden from it."""
        return next((one for one in self.examples if one.kind == "shows"), None)

    @property
    def why_not_shown(self) -> tuple[str, ...]:
        """Of those that do not show the issue, what became of each, as a sentence."""
        today = (f"{one.behaviour.rstrip('.')}: it prints today what it should print" for one in self.already)
        return (*self.refused, *today)

    @property
    def best(self) -> JudgedExample | None:
        """For people: the first that shows the issue, if possible one whose quote was found."""
        showing = [one for one in self.examples if one.kind == "shows"]
        return next((one for one in showing if one.quoted), next(iter(showing), None))


class FrozenExamples(Record):
    """The examples of a verification, its author's and its reviewer's, for the next commit of the same change."""

    author: tuple[JudgedExample, ...] = ()
    reviewer: tuple[JudgedExample, ...] = ()

    def doubt_about(self, example: Example) -> str:
        """Why this one was unconfirmed when it failed before; empty if it was not."""
        same = (one for one in (*self.author, *self.reviewer) if one.program == example.program)
        return next((one.unconfirmed for one in same if one.stdout == example.stdout), "")


class Review(Record):
    """A reviewer's counter-examples against a submitted change, as they were run on it and on the base.

    `nothing` is the reviewer's reason for writing none, `absent` why no reviewer was asked or answered.
    """

    examples: tuple[JudgedExample, ...] = ()
    refused: tuple[str, ...] = ()
    nothing: str = ""
    absent: str = ""
    short_of_money: bool = False
    """Whether nobody was asked because there was no money for it: asked again at the next submission."""
    model: str = ""
    turns: int = 0
    tokens: int = 0
    cost: int = 0
    """In micro-dollars."""
    seconds: float = 0.0

    @property
    def answered(self) -> bool:
        return not self.absent
