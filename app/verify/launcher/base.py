"""The port to a launcher: it reports how each chosen test ended, and reasons not to trust that.

Its programs are run inside a sandbox through the supervisor. Copies of tests, which must pass or must fail whenever the
original passes, show whether its reports are true.
"""

import base64
import binascii
import json
import re
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from tree_sitter import Node

from app.core.patch import FileChange
from app.core.record import Record
from app.core.verification import Execution
from app.sandbox.base import Sandbox
from app.verify.execution import as_inside, excerpt
from app.verify.frameworks import SuiteCommand
from app.verify.reports import Outcomes

START = (
    "import sys;sys.path[:]=filter(None,sys.path);"
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),{'__name__':'__main__'})"
)
"""Python that executes a program from its input: the length in bytes, a line end, the program.

Nothing is imported from the directory that it starts in.
"""
PYTHON = ("python3", "-I", "-S", "-c", START)
GRACE = 30.0
MAX_ANSWER = 256 * 1024**2


class SupervisorStep(Record):
    """One program. `drop` are prefixes of variables that it does not get."""

    argv: tuple[str, ...]
    timeout: float
    cwd: str = ""
    env: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    prelude: str = ""
    """The start of its input, before the line with its channel."""
    input: str = ""
    channel: bool = False
    coverage: tuple[str, ...] = ()
    """Scripts of the work tree whose executed lines are read from V8's reports in `{place}/coverage`."""
    collect: tuple[str, ...] = ()
    """Files that the program leaves in `{place}`."""
    keep: int = 1024**2
    """Bytes of output that are kept."""


class StepEnd(Record):
    """How one program ended. `broken` says that something else wrote to its channel."""

    exit_code: int = 127
    seconds: float = 0.0
    timed_out: bool = False
    output: bytes = b""
    dropped: int = 0
    messages: tuple[str, ...] = ()
    broken: str = ""
    lines: tuple[tuple[str, tuple[int, ...]], ...] = ()
    collected: Mapping[str, bytes] = {}
    not_started: str = ""

    @property
    def problem(self) -> str:
        """Why its messages must not be trusted, or there are none."""
        return self.not_started or self.broken


class SupervisorAnswer(Record):
    """The supervisor's answer; `problem` says why there is none, or why it may not be the supervisor's."""

    steps: tuple[StepEnd, ...] = ()
    files: Mapping[str, bytes] = {}
    problem: str = ""


async def supervise(
    sandbox: Sandbox,
    steps: Sequence[SupervisorStep],
    *,
    read: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> SupervisorAnswer:
    """Run the programs in order. `read`: files whose contents are returned as they were before the first program.

    Paths in output and messages are rewritten to /workspace.

    `files` are written to a directory that replaces `{place}` in arguments and variables.
    """
    nonce = secrets.token_hex(16)
    job: dict[str, Any] = {"nonce": nonce, "read": list(read), "files": dict(files or {})}
    job["steps"] = [step.model_dump(mode="json") for step in steps]
    timeout = sum(step.timeout for step in steps) + GRACE
    stdin = with_program("supervise.py") + json.dumps(job)
    done = await sandbox.exec(PYTHON, stdin=stdin.encode(), timeout=timeout, separate_stderr=True)
    parts = done.output.split(nonce.encode())
    if len(parts) != 3:
        return SupervisorAnswer(problem="The program that starts the tests did not finish.")
    answer = _answer(parts[1], isolated=sandbox.isolated)
    return answer.model_copy(update={"steps": tuple([await _as_inside(sandbox, step) for step in answer.steps])})


async def _as_inside(sandbox: Sandbox, step: StepEnd) -> StepEnd:
    """The same with the work tree at its usual path."""
    reported = "\0".join(step.messages).encode("utf-8", "surrogatepass")
    mapped = (await as_inside(sandbox, reported)).decode("utf-8", "surrogatepass")
    messages = tuple(mapped.split("\0")) if step.messages else ()
    return step.model_copy(update={"messages": messages, "output": await as_inside(sandbox, step.output)})


def execution_of_steps(command: str, answer: SupervisorAnswer, output: bytes) -> Execution:
    """All programs as one execution of the command: the first exit code that is not 0, and their time together."""
    codes = [step.exit_code for step in answer.steps if step.exit_code]
    return Execution(
        command=command,
        exit_code=codes[0] if codes else 0 if answer.steps else 127,
        seconds=round(sum(step.seconds for step in answer.steps), 2),
        timed_out=any(step.timed_out for step in answer.steps),
        excerpt=excerpt(output),
    )


@cache
def with_program(name: str) -> str:
    """The input of a Python that is started by START, up to the program's own input."""
    source = Path(__file__).with_name(name).read_text("utf-8")
    return f"{len(source.encode())}\n{source}"


def _answer(text: bytes, *, isolated: bool) -> SupervisorAnswer:
    try:
        unpacked = zlib.decompressobj()
        answer: dict[str, Any] = json.loads(unpacked.decompress(base64.b64decode(text), MAX_ANSWER))
        steps = tuple(_ended(step) for step in answer["steps"])
        files = {path: base64.b64decode(content) for path, content in answer["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        return SupervisorAnswer(problem="The program that starts the tests was disturbed.")
    if isolated and not answer.get("hidden"):
        return SupervisorAnswer(problem="The program that starts the tests could not hide its memory from them.")
    return SupervisorAnswer(steps=steps, files=files)


def _ended(step: dict[str, Any]) -> StepEnd:
    collected = {name: base64.b64decode(content) for name, content in step.get("collected", {}).items()}
    return StepEnd(**{**step, "output": base64.b64decode(step.get("output", "")), "collected": collected})


UNKNOWN_FORM = "A result has a form that our program does not send."
AFTER_END = "Results came after the end of the tests."


class LauncherReport(Record):
    """The reports. A parametrized or grouped id has one outcome for each of its tests."""

    outcomes: Mapping[str, Outcomes] = {}
    problem: str = ""
    """If not empty: why this must not be trusted."""
    hanging: str = ""
    """The id of the test that was running when the time was over."""
    unbegun: tuple[str, ...] = ()
    """The ids without a result because another test ended the program that they share."""
    executed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    measured: bool = False


def exit_code_problem(ended: StepEnd, *, finished: bool = True, failed: bool, complete: bool) -> str:
    """Why an exit code does not fit the results; empty if it does, or if the program was stopped at its limit.

    `complete`: each of the tests is known, so nothing but a failed one explains another code than 0.
    """
    if ended.timed_out:
        return ""
    if not finished:
        return f"The tests did not finish (exit code {ended.exit_code})."
    if failed and ended.exit_code == 0:
        return "The exit code is 0 although a test failed."
    if complete and not failed and ended.exit_code != 0:
        return f"The exit code is {ended.exit_code} although no test failed."
    return ""


class CopiedTests(Record):
    """Files with copies of tests, whose known outcomes show whether the results are true.

    `same` and `altered` name the original of each copy: the first must end like it, the second must fail if it passes.
    `failing` always fail.
    """

    files: tuple[FileChange, ...] = ()
    same: Mapping[str, str] = {}
    altered: Mapping[str, str] = {}
    failing: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (*self.same, *self.altered, *self.failing)


class ReplayProgram(Record):
    """Programs that call the functions of tests without their framework. `paths` are the files with the tests."""

    ids: tuple[str, ...]
    paths: tuple[str, ...]
    steps: tuple[SupervisorStep, ...]
    token: str = ""
    """What begins each line of output that is a message, if there is no channel."""


class OddResult(NamedTuple):
    """A result of a class that changes a built-in type: (name, file, line) of each of its methods that do so."""

    test: str
    kind: str
    methods: tuple[tuple[str, str, int], ...]


class ReplayReport(NamedTuple):
    """By phase and id: the kind of failure and its text, both empty for a test that passed."""

    outcomes: Mapping[str, Mapping[str, tuple[str, str]]]
    odd: tuple[OddResult, ...] = ()
    problem: str = ""
    unfinished: bool = False
    """A program did not finish."""
    left: frozenset[str] = frozenset()
    """Tests that turned out to need their framework."""


@dataclass(frozen=True)
class Launcher(ABC):
    """Executes chosen tests of one suite."""

    suite: SuiteCommand

    @abstractmethod
    def steps(self, ids: Sequence[str], watch: Sequence[str], timeout: float) -> tuple[SupervisorStep, ...]:
        """The programs that execute these tests, in this order."""

    @abstractmethod
    def program(self, command: str, timeout: float) -> tuple[SupervisorStep, ...]:
        """What executes all tests of a command: the suite's own, or the narrowed one with chosen tests.

        Raises ValueError for a command that this launcher cannot execute.
        """

    @property
    def files(self) -> Mapping[str, str]:
        """Programs that the steps find in `{place}`, by name."""
        return {}

    @abstractmethod
    def read(self, ids: Sequence[str], answer: SupervisorAnswer, watch: Sequence[str]) -> LauncherReport:
        """The reports about these ids. Raises ValueError if the framework cannot run them."""

    @abstractmethod
    def read_all(self, answer: SupervisorAnswer) -> LauncherReport:
        """The reports about all tests, by their ids; a file that could not be loaded is one of them."""

    @property
    def why_not_replayed(self) -> str:
        """Why none of its tests is called without the framework; empty if some are."""
        return ""

    @abstractmethod
    def replay(self, ids: Sequence[str], contents: Mapping[str, bytes], seconds: float) -> ReplayProgram | None:
        """Programs that call those of these tests which do not need their framework; None if all do.

        `contents` has the files with the tests; the calls are repeated for `seconds`.
        """

    def readable(self, output: bytes) -> bytes:
        """The output in a readable form for people."""
        return output

    @abstractmethod
    def sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Existing files that copies are made of."""

    def own_files(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Patterns of the files that each test may be written in, without those that its copies share with others."""
        return {name: self.sources((name,)) for name in names}

    def group(self, name: str) -> str:
        """The group of tests that keep their order."""
        return name

    @abstractmethod
    def copier(self, contents: Mapping[str, bytes], random: Random) -> "CopiesOfTests[Any]":
        """Makes copies of tests in files with these contents."""


_WORDS = re.findall(
    r"\w+",
    """
    amount average balance basic border branch bulk cached case chain column config count created cycle date
    default detail digits draft edge empty entry event exact field filter final first flags format group header
    index inner input item kept label large last layout length level limit line list long lookup margin marks
    match merged middle mixed model month names narrow nested next number offset option order other outer output
    pages pair parts path plain point price prior query quote range record repeat report result rounded rows
    sample scale second segment short simple single sorted source span spread state steps sums table tail third
    title total trail types unit update usage value views whole width window words year zero zone
    """,
)


class CopyNames:
    """Fresh names from a seeded source; never repeated, and none of `taken`."""

    def __init__(self, random: Random, taken: Iterable[str] = ()) -> None:
        self._random = random
        self._taken = set(taken)

    def fresh(self, separator: str = "_") -> str:
        while True:
            name = separator.join(self._random.sample(_WORDS, 3))
            if name not in self._taken:
                self._taken.add(name)
                return name


class ByteEdit(NamedTuple):
    """Bytes from `start` to `end` become `text`."""

    start: int
    end: int
    text: bytes


class Alteration(NamedTuple):
    """`value`: the compared value is replaced; `inverse`: the assertion is negated."""

    kind: Literal["value", "inverse"]
    edits: list[ByteEdit]


def apply_edits(content: bytes, edits: Sequence[ByteEdit], start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a range with the edits applied."""
    text, at = b"", start
    for edit in sorted(edits):
        text += content[at : edit.start] + edit.text
        at = edit.end
    return text + content[at : len(content) if end is None else end]


def different_number(value: float, random: Random) -> float:
    """Another number of the same kind, as plausible as the first."""
    if isinstance(value, int):
        return value + random.choice((-2, -1, 1, 2, 3, 10))
    other = value + random.choice((-1.0, -0.5, 0.5, 1.0))
    return other if other != value else value / 2 if value / 2 != value else 1.5


def different_digits(text: bytes, random: Random) -> bytes:
    """Another whole number, which is not negative; a small one becomes larger."""
    number = int(text)
    return str(abs(different_number(number, random)) if number > 9 else number + random.randint(1, 4)).encode()


_SIGNS = frozenset(" -_.,:;/+")


def different_text(text: str, random: Random) -> str:
    """The text with one letter or digit changed, or one sign doubled or removed: cheating code may ignore signs."""
    places = [at for at, letter in enumerate(text) if letter in _SIGNS or (letter.isascii() and letter.isalnum())]
    if not places:
        return text + random.choice("aeost")
    at = random.choice(places)
    if text[at] in _SIGNS:
        return text[:at] + random.choice(("", 2 * text[at])) + text[at + 1 :]
    kind = "0123456789" if text[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    letter = random.choice([one for one in kind if one != text[at].lower()])
    return text[:at] + (letter.upper() if text[at].isupper() else letter) + text[at + 1 :]


def written(path: str, content: bytes | None) -> FileChange:
    return FileChange(path=path, mode="100644", content=content)


_ALTERED_COPIES = 2
"""Maximum number of altered copies of one test."""
T = TypeVar("T")


class LocatedTest(NamedTuple, Generic[T]):
    """A test in a file: its bytes with what belongs to it, the bytes of its name, and what its language knows of it."""

    path: str
    start: int
    end: int
    name: tuple[int, int]
    inner: T


class CopiesOfTests(ABC, Generic[T]):
    """Makes copies of chosen tests. `contents` has the files that may contain them."""

    between = b"\n\n"
    """What separates two tests."""
    moves = False
    """The file with the copies takes the place of the original."""

    def __init__(self, contents: Mapping[str, bytes], random: Random, taken: Iterable[str] = ()) -> None:
        self.contents = contents
        self.random = random
        self.names = CopyNames(random, taken)

    def numbers(self) -> tuple[int, int]:
        """Two different ones."""
        one, other = self.random.sample(range(2, 99), 2)
        return one, other

    @abstractmethod
    def locate(self, name: str) -> LocatedTest[T] | None:
        """Where the test of an id is written."""

    @abstractmethod
    def notices(self, path: str, tests: Sequence[LocatedTest[T]]) -> bool:
        """True if a test of the file may notice its own name, its file's, or its text: then it is not renamed."""

    @abstractmethod
    def renamed_id(self, original: str, test: LocatedTest[T], path: str, name: str) -> str: ...

    @abstractmethod
    def fresh_name(self, test: LocatedTest[T]) -> str: ...

    @abstractmethod
    def fresh_path(self, path: str) -> str:
        """Another name for the file of the copies; the same name if they have to stay where they are."""

    @abstractmethod
    def alterations(self, test: LocatedTest[T]) -> Iterator[Alteration]: ...

    @abstractmethod
    def failing_end(self, test: LocatedTest[T]) -> ByteEdit: ...

    @abstractmethod
    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        """A new file with a test that fails."""

    def made(self, ids: Sequence[str], *, in_place: bool) -> CopiedTests:
        """Renamed copies, unchanged and altered, unless the test may notice its name; or altered ones `in_place`."""
        files: dict[str, dict[int, tuple[LocatedTest[T], list[str]]]] = {}
        for name in ids:  # several may be one function with other parameters
            if test := self.locate(name):
                files.setdefault(test.path, {}).setdefault(test.start, (test, []))[1].append(name)
        copies = [self.plain_failure(ids)]
        for path, by_start in files.items():
            tests = list(by_start.values())
            stay = in_place or self.notices(path, [test for test, _ in tests])
            copies.append(self._in_place(path, tests) if stay else self._elsewhere(path, tests))
        return CopiedTests(
            files=tuple(file for one in copies for file in one.files),
            same={copy: original for one in copies for copy, original in one.same.items()},
            altered={copy: original for one in copies for copy, original in one.altered.items()},
            failing=tuple(name for one in copies for name in one.failing),
        )

    def _elsewhere(self, path: str, tests: Sequence[tuple[LocatedTest[T], list[str]]]) -> CopiedTests:
        content, fresh = self.contents[path], self.fresh_path(path)
        edits: list[ByteEdit] = []
        same, altered = dict[str, str](), dict[str, str]()
        for test, originals in tests:
            for change in self._changes(test)[:_ALTERED_COPIES]:
                name = self.fresh_name(test)
                renamed = [*change, ByteEdit(*test.name, name.encode())]
                text = apply_edits(content, renamed, test.start, test.end)
                at = self.random.choice((test.start, test.end))
                edits.append(ByteEdit(at, at, text + self.between if at == test.start else self.between + text))
                altered |= {self.renamed_id(one, test, fresh, name): one for one in originals}
            name = self.fresh_name(test)
            edits.append(ByteEdit(*test.name, name.encode()))
            same |= {self.renamed_id(one, test, fresh, name): one for one in originals}
        gone = [written(path, None)] if self.moves and fresh != path else []
        return CopiedTests(files=(written(fresh, apply_edits(content, edits)), *gone), same=same, altered=altered)

    def _in_place(self, path: str, tests: Sequence[tuple[LocatedTest[T], list[str]]]) -> CopiedTests:
        edits = [edit for test, _ in tests for edit in self._changes(test)[0]]
        altered = {name: name for _, originals in tests for name in originals}
        return CopiedTests(files=(written(path, apply_edits(self.contents[path], edits)),), altered=altered)

    def _changes(self, test: LocatedTest[T]) -> list[list[ByteEdit]]:
        """In random order, values first, because an object that equals everything passes a negated comparison too."""
        found = list(self.alterations(test))
        mixed = sorted(self.random.sample(found, len(found)), key=lambda one: one.kind != "value")
        return [one.edits for one in mixed] or [[self.failing_end(test)]]


def always_reached(block: Node, endings: frozenset[str], functions: frozenset[str]) -> Iterator[Node]:
    """Statements that are always executed, as far as that is certain."""

    def inside(node: Node) -> Iterator[Node]:
        yield node
        for child in node.named_children:
            if child.type not in functions:
                yield from inside(child)

    for statement in block.named_children:
        if any(node.type in endings for node in inside(statement)):
            return
        yield statement
