"""What the harness checks of an example: what it prints, what it shows on the base, where its quote stands."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath

from app.core.examples import MAX_STDOUT, Example, JudgedExample, PlanExamples, ProgramRun
from app.core.patch import Tree
from app.verify.paths_of_tests import is_test_path

FEW = 2
"""Examples that differ on the base; with fewer, nothing could be hidden."""
MIN_QUOTE = 8
"""Characters of a quote; a shorter one stands nearly everywhere."""
MAX_SOURCE = 400_000
"""Bytes of a file in which a quote is searched."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_DIRECTORY = re.compile(r"(?<![\w.])/(?:workspace|tmp|env|home/agent)\b")
_WORD = re.compile(r"[^\W_]+")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\]|\\.)*)`')
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?\b")
_BOOLEAN = frozenset({"true", "false", "none", "null", "undefined", "nil", "ok", "yes", "no"})
_FRAME = re.compile(r"[\w@+.$/-]+\.\w{1,6}(?=[\"']?(?:[:(]\d|,? line \d))")
"""A file before the number of a line, as tracebacks and compilers write it."""
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`|(?m:^(?: {4}|\t).*$)", re.DOTALL)
_MISSING_NAMES = (
    r"has no attribute '(\w+)'",
    r"cannot import name '(\w+)'",
    r"No module named '(?:[\w.]*\.)?(\w+)'",
    r"name '(\w+)' is not defined",
    r"unexpected keyword argument '(\w+)'",
    r"(?:[\w$\])]+\.)?(\w+) is not a (?:function|constructor)",
    r"(\w+) is not defined",
    r"not provide an export named '(\w+)'",
    r"undefined: (?:\w+\.)?(\w+)",
    r"has no field or method (\w+)",
    r"unknown field (\w+)",
    r"cannot find (?:\w+ )+`(\w+)`",
    r"no (?:method|function or associated item|variant|field)[^`\n]*`(\w+)`",
    r"unresolved import `[\w:]*?(\w+)`",
    r"symbol:\s+\w+ (\w+)",
    r"undefined (?:local variable or )?method [`'](\w+[?!]?)'",
    r"uninitialized constant (?:\w+::)*(\w+)",
    r"undefined (?:function|method|constant) (?:[\w\\]+::)?(\w+)",
    (
        r"(?:unrecognized arguments?|[Nn]o such option|[Uu]nknown (?:option|argument|flag|command)|unexpected argument"
        r"|flag provided but not defined)[:\s'\"`]*-{0,2}([\w-]+)"
    ),
    r"Property '(\w+)' does not exist",
)
"""How languages and argument parsers say that something does not exist."""
_MISSING = re.compile("|".join(_MISSING_NAMES))


_IMPORT = re.compile(
    r"^\s*import\s*\([^)]*\)"  # Go
    r"|^\s*(?:import|export|\}).*?\bfrom\s*[\"'].*?[\"']"
    r"|^\s*import\s+(?:[\w.]+\s+)?[\"'].*?[\"']"
    r"|\b(?:require|require_relative|require_once|include|include_once|import)\b\s*\(?\s*(?:__DIR__\s*\.\s*)?[\"'].*?[\"']",
    re.MULTILINE,
)
"""What names other sources: no value of an example."""
_FORMAT = re.compile(r"%[-+ #0-9.]*[a-zA-Z]|\{[\w:.!<>^+#?-]*\}|\\[ntr]")


def refusal_of_text(example: Example, issue: str, now: datetime | None = None) -> str:
    """Why an example cannot be judged whatever it does, as the end of a sentence; empty if it can."""
    return next(_problems_of_text(example, issue, (now or datetime.now(UTC)).date().isoformat()), "")


def _problems_of_text(example: Example, issue: str, today: str) -> Iterator[str]:
    printed = example.stdout
    if len(printed) > MAX_STDOUT:
        yield f"its output has {len(printed):,} characters, at most {MAX_STDOUT:,} are compared"
    if not example.program.strip():
        yield "it has no program"
    address = _ADDRESS.search(printed)
    if address and address[0] not in issue and address[0] not in example.program:
        yield f"its output has an address ({address[0]})"
    if (place := _DIRECTORY.search(printed)) and place[0] not in issue:
        yield f"its output has a directory of the run ({place[0]})"
    if today in printed and today not in issue:
        yield "its output has the date of this run"
    if not printed.strip() and example.exit == 0:
        yield "it prints nothing, so nothing can be compared: print a value"


def refusal_on_base(example: Example, runs: Sequence[ProgramRun], issue: str, tree: Tree) -> str:
    """Why an example says nothing on the base, as the end of a sentence; empty if it shows or keeps what it should.

    A `shows` that prints what it should print already is not refused here: `PlanExamples.already` has those.
    """
    if problem := next((run.problem for run in runs if run.problem), ""):
        return f"it could not be run: {problem}"
    if example.kind == "keeps":
        return "" if all(run.printed(example) for run in runs) else f"it keeps nothing: today it {did(runs, example)}"
    if any(run.printed(example) for run in runs):
        return "" if all(run.printed(example) for run in runs) else "one of two runs on the base prints what it should"
    failed = next((run for run in runs if _failed_by_itself(run, example, issue, tree)), None)
    return f"the failure on the base is the program's own: {last_lines(failed)}" if failed else ""


def _failed_by_itself(run: ProgramRun, example: Example, issue: str, tree: Tree) -> bool:
    """True if a crash or an empty output has nothing to do with the project."""
    crashed = run.exit_code not in (0, example.exit)
    if run.timed_out or not (crashed or not run.stdout.strip()):
        return False
    if not crashed and not run.stderr.strip():
        return False  # silence is a value, too: the expected output is not
    return not (_has_frame(run.stderr, tree) or names_what_is_missing(f"{run.stderr}\n{run.stdout}", issue))


def _has_frame(stderr: str, tree: Tree) -> bool:
    """True if an output names a line of one of the project's own sources."""
    named = {
        PurePosixPath(path).name
        for path in re.findall(r"[\w@+.$/-]+\.\w{1,6}(?=[\"']?(?:[:(]\d|, line \d| line \d|:\d))", stderr)
    }
    return any(PurePosixPath(path).name in named for path in tree.entries() if not is_test_path(path))


def names_what_is_missing(output: str, issue: str) -> str:
    """The name that an output says is missing, if the issue writes it as code; else an empty text."""
    code = " ".join(_CODE.findall(issue))
    for found in _MISSING.finditer(output):
        name = next(filter(None, found.groups()), "").lstrip("-")
        word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        if name and (re.search(word, code) or re.search(rf"(?:\.|--){re.escape(name)}\b|{word}\(", issue)):
            return name
    return ""


def did(runs: Sequence[ProgramRun], example: Example) -> str:
    """What a program did instead of what it should have done, for its author."""
    run = next((run for run in runs if not run.printed(example)), runs[0])
    if run.problem:
        return f"could not be run: {run.problem}"
    if run.timed_out:
        return f"did not end within {run.seconds:.0f} s"
    code = f" and exits with {run.exit_code}" if run.exit_code != example.exit else ""
    printed = f"prints {run.stdout.rstrip()[:600]!r}" if run.stdout.strip() else "prints nothing"
    why = f" ({last_lines(run)})" if run.exit_code and run.stderr.strip() else ""
    return f"{printed}{code}{why}"


def last_lines(run: ProgramRun, characters: int = 400) -> str:
    end = (run.stderr.strip() or run.stdout.strip() or f"exit code {run.exit_code}")[-characters:]
    return end if run.error in end else f"{run.error[:characters]} … {end}"


def is_quoted(example: Example, issue: str, tree: Tree) -> bool:
    """True if the quote of `because` is in the issue, or in the file of the repository that it names. Blocking."""
    quote = example.because.quote
    if example.because.source == "today":
        return False
    if in_text(quote, issue):
        return True
    path = example.because.source.removeprefix("/workspace/").removeprefix("./").partition(":")[0].strip()
    entry = tree.entries().get(path)
    if entry is None or entry.size > MAX_SOURCE:
        return False
    return in_text(quote, tree.read(path).decode("utf-8", "replace"))


def in_text(quote: str, text: str) -> bool:
    """True if a text has the words of a quote that is long enough to say something."""
    return len(_squeezed(quote)) >= MIN_QUOTE and _squeezed(quote) in _squeezed(text)


def _squeezed(text: str) -> str:
    """Letters and digits in lower case: quotes lose Markdown, quotation marks and line breaks."""
    return "".join(_WORD.findall(text)).casefold()


def is_reporters_own(example: Example, issue: str) -> bool:
    """True if input and output of an example are the issue's, by all of their values, as whole words."""
    known = " ".join(issue.split())
    values = [" ".join(value.split()) for value in values_of(example) if _squeezed(value)]
    return bool(_inputs_of(example)) and all(_has_word(known, value) for value in values)


def values_of(example: Example) -> tuple[str, ...]:
    """The literals of an example's program and input, and the lines that it prints."""
    lines = (line.strip() for line in example.stdout.splitlines())
    return _telling((*_inputs_of(example), *lines))


def _inputs_of(example: Example) -> tuple[str, ...]:
    program = _IMPORT.sub("", example.program)
    text = "\n".join((program, example.stdin, *example.args, *(file.text for file in example.files)))
    literals = [next(filter(None, groups), "") for groups in _STRING.findall(text)]
    literals = [literal for literal in literals if _FORMAT.sub("", literal).strip()]
    return _telling((*literals, *_NUMBER.findall(text)))


def _telling(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value and value.casefold() not in _BOOLEAN))


def text_of(example: Example) -> str:
    """All of an example that the fixer sees if it is shown."""
    files = (file.text for file in example.files)
    return "\n".join((example.program, example.stdin, *example.args, *files, example.stdout))


def is_hidden(example: Example, known: Iterable[str], conversation: str) -> bool:
    """True if an example has values of its own, and the conversation that the fixer sees has none of them.

    `known` are texts that everybody has: the issue, the shown example. `conversation` has what the plan's author wrote
    and typed while looking, which the fixer sees; a value of one or two characters found there says nothing.
    """
    open_text = "\n".join(known)
    own = [value for value in values_of(example) if not _has_word(open_text, value)]
    telling = [value for value in own if len(value) > 2]
    return bool(own) and not any(_has_word(conversation, value) for value in telling)


def mark_hidden(found: PlanExamples, known: Sequence[str], conversation: str) -> PlanExamples:
    """The examples, each marked if the fixer sees none of its values; with fewer than two that differ, none is."""
    shown = found.shown
    if shown is None or sum(one.kind == "shows" for one in found.examples) < FEW:
        return found
    open_text = (*known, text_of(shown))
    examples = tuple(
        one.model_copy(update={"hidden": one is not shown and is_hidden(one, open_text, conversation)})
        for one in found.examples
    )
    return found.model_copy(update={"examples": examples})


def _has_word(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w])", text) is not None


def named(examples: Sequence[JudgedExample], taken: Iterable[str] = (), prefix: str = "") -> tuple[JudgedExample, ...]:
    """The same with names: numbers, behind a letter for a reviewer's."""
    used = set(taken)
    free = (name for name in (f"{prefix}{number}" for number in range(1, 1_000)) if name not in used)
    return tuple(one.model_copy(update={"name": next(free)}) for one in examples)
