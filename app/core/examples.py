"""Examples: small programs and the text that each must print, run outside the process of their judge."""

from typing import Final, Literal, get_args

from app.core.record import Record

Run = Literal["python", "node", "typescript", "go", "rust", "java", "ruby", "php", "shell", "vitest", "jest"]
RUNS: Final[tuple[Run, ...]] = get_args(Run)
"""By the interpreter or compiler of the language, by a shell, or in a test runner as the host."""
MAX_STDOUT: Final = 4_000
"""Characters that an example may print, and that are kept of a run."""


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

    def printed(self, example: Example) -> bool:
        """True if it printed exactly what the example says and ended with its exit code."""
        if self.timed_out or self.problem:
            return False
        return self.stdout.rstrip("\n") == example.stdout.rstrip("\n") and self.exit_code == example.exit
