"""What makes an example worth nothing: its output, its failure on the base, values that everybody has seen."""

from datetime import UTC, datetime

import pytest

from app.core.examples import Because, Example, JudgedExample, OutdatedTest, PlanExamples, ProgramRun
from app.verify.examples.checks import (
    is_hidden,
    is_quoted,
    is_reporters_own,
    mark_hidden,
    refusal_of_text,
    refusal_on_base,
)
from app.verify.examples.judge import ExampleJudge
from tests.support.memory_tree import MemoryTree
from tests.support.no_sandboxes import unopened

ISSUE = "`half(7)` prints 3, but I expect 3.5.\n\nIt should also work for `half_up(9)`, which does not exist yet."
TREE = MemoryTree({"pkg/half.py": b"def half(x):\n    return x // 2\n", "README.md": b"Halves are **exact**.\n"})


def example(program: str = "print(half(7))", stdout: str = "3.5\n", **changes: object) -> Example:
    values: dict[str, object] = {
        "behaviour": "Half of an odd number is exact.",
        "because": Because(quote="but I expect 3.5", source="issue"),
        "run": "python",
        "program": program,
        "stdout": stdout,
    }
    return Example.model_validate(values | changes)


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        ("<obj at 0x7f3a2b1c>\n", "an address"),
        ("/workspace/a.txt\n", "a directory of the run"),
        ("2026-11-29\n", "the date of this run"),
        ("", "prints nothing"),
        ("x" * 5_000, "at most 4,000"),
    ],
)
def test_outputs_that_differ_by_themselves_are_refused(stdout: str, why: str) -> None:
    assert why in refusal_of_text(example(stdout=stdout), ISSUE, datetime(2026, 11, 29, tzinfo=UTC))


def test_an_output_with_what_the_issue_gives_is_taken() -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    assert refusal_of_text(example(stdout="2026-11-29\n"), "On 2026-11-29 it prints nothing.", now) == ""
    assert refusal_of_text(example(stdout="", exit=3), ISSUE, now) == ""


def runs(stdout: str = "3\n", stderr: str = "", exit_code: int = 0, **more: object) -> tuple[ProgramRun, ...]:
    return (ProgramRun.model_validate({"stdout": stdout, "stderr": stderr, "exit_code": exit_code, **more}),) * 2


@pytest.mark.parametrize(
    "base",
    [
        runs(),
        runs("", 'File "/workspace/pkg/half.py", line 2, in half\nTypeError: no', 1),
        runs("", "AttributeError: module 'pkg' has no attribute 'half_up'", 1),
        runs("", "NameError: name 'half_up' is not defined", 1),
        runs("", timed_out=True),
        runs(""),
    ],
)
def test_a_difference_on_the_base_counts(base: tuple[ProgramRun, ...]) -> None:
    assert refusal_on_base(example(), base, ISSUE, TREE) == ""


@pytest.mark.parametrize(
    "base",
    [
        runs("", "ModuleNotFoundError: No module named 'numpy'", 1),
        runs("", "SyntaxError: invalid syntax", 1),
        runs("", "File \"alpine.py\", line 1\nNameError: name 'haf' is not defined", 1),
        runs("", "locale.Error: unsupported locale setting", 1),
        runs(problem="There is no node."),
    ],
)
def test_a_failure_of_the_program_itself_is_refused(base: tuple[ProgramRun, ...]) -> None:
    assert refusal_on_base(example(), base, ISSUE, TREE)


def test_a_keeps_must_print_the_same_today() -> None:
    kept = example(kind="keeps", stdout="3\n")
    assert refusal_on_base(kept, runs(), ISSUE, TREE) == ""
    assert "today it prints '4'" in refusal_on_base(kept, runs("4\n"), ISSUE, TREE)


def test_a_shows_that_is_right_in_one_of_two_runs_says_nothing() -> None:
    both = (ProgramRun(stdout="3.5\n"), ProgramRun(stdout="3\n"))
    assert "one of two runs" in refusal_on_base(example(), both, ISSUE, TREE)


@pytest.mark.parametrize(
    ("quote", "source", "found"),
    [
        ("but I expect 3.5", "issue", True),
        ("halves are exact", "README.md", True),
        ("halves are exact", "docs/other.md", False),
        ("I want 4", "issue", False),
        ("3.5", "issue", False),
        ("but I expect 3.5", "today", False),
    ],
)
def test_a_quote_is_looked_up(quote: str, source: str, *, found: bool) -> None:
    assert is_quoted(example(because=Because(quote=quote, source=source)), ISSUE, TREE) is found


def test_only_an_example_with_the_issues_own_values_is_the_reporters() -> None:
    assert is_reporters_own(example(), ISSUE)
    assert not is_reporters_own(example("print(half(11))", "5.5\n"), ISSUE)


def test_hidden_is_what_has_values_that_nobody_has_seen() -> None:
    other = example("print(half(123))", "61.5\n")
    assert is_hidden(other, (ISSUE,), "")
    assert not is_hidden(other, (ISSUE,), "I tried half(123).")
    assert not is_hidden(example(), (ISSUE,), "")
    assert not is_hidden(example("print(is_half(7))", "True\n"), (ISSUE,), ""), "a boolean alone can be guessed"


def test_with_one_example_nothing_is_hidden() -> None:
    one = JudgedExample(**dict(example("print(half(123))", "61.5\n")))
    two = JudgedExample(**dict(example()))
    assert not any(each.hidden for each in mark_hidden(PlanExamples(examples=(one,)), (ISSUE,), "").examples)
    marked = mark_hidden(PlanExamples(examples=(two, one)), (ISSUE,), "").examples
    assert [each.hidden for each in marked] == [False, True]


async def test_a_test_is_outdated_only_by_words_of_the_issue() -> None:
    said = OutdatedTest(test="test_half", because="I expect 3.5")
    unsaid = OutdatedTest(test="test_third", because="It is plainly wrong.")
    found, answer = await ExampleJudge(unopened(), ISSUE).freeze((), (said, unsaid))
    assert found.outdated == (said,)
    assert found.refused == ("outdated test test_third: the words of `because` were not found in the issue",)
    assert answer == "test_third: not taken as outdated: the words of `because` were not found in the issue."


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        ("panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/w/main.go:15 +0xdb", "panic: boom"),
        ("Traceback (most recent call last):\n  File 'p.py', line 1\nValueError: no", "ValueError: no"),
        (
            "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling of it:\n\nmy.Stop: two",
            "my.Stop: two",
        ),
        (
            "/w/a.js:3\n  throw x\n\nTypeError: x is no function\n    at /w/a.js:3\n\nNode.js v20",
            "TypeError: x is no function",
        ),
        ('Exception in thread "main" a.B: no\n\tat a.C(C.java:1)', 'Exception in thread "main" a.B: no'),
        (
            "thread 'main' panicked at src/x.rs:3:5:\nthe len is 1\nnote: run with",
            "thread 'main' panicked at src/x.rs:3:5: the len is 1",
        ),
        ("a.rb:2:in `x': boom (RuntimeError)\n\tfrom a.rb:4:in `<main>'", "a.rb:2:in `x': boom (RuntimeError)"),
        ("error[E0425]: no `x`\n --> a.rs:2:3\n\nerror: aborting due to 1 previous error", "error[E0425]: no `x`"),
        ("usage: tool FILE\ntool: no such file", "tool: no such file"),
        ("", ""),
    ],
)
def test_a_failure_is_told_by_the_line_that_names_it(stderr: str, error: str) -> None:
    assert ProgramRun(stderr=stderr).error == error


@pytest.mark.parametrize(
    "program",
    [
        'import (\n\t"fmt"\n\n\tother "github.com/acme/half"\n)\n\nfunc main() { fmt.Printf("%.1f\\n", half(7)) }',
        'import "acme/half"\nfunc main() { println(half(7)) }',
        "import half from './lib/index.js';\nconsole.log(half(7));",
        "import {\n  half,\n} from '../src/half.mjs';\nimport 'tape';\nconsole.log(half(7));",
        "const { half } = require('./build/half');\nconst m = await import('node:fs');\nconsole.log(half(7));",
        "require 'bigdecimal'\nrequire_relative 'lib/acme'\nputs half(7)",
        "<?php require_once __DIR__ . '/vendor/autoload.php'; printf('%.1f', half(7));",
        'fn main() { println!("{:.1}", acme::half(7)); }',
    ],
)
def test_imports_and_formats_are_no_values_of_the_reporters_own_example(program: str) -> None:
    assert is_reporters_own(example(program), ISSUE)
    assert not is_reporters_own(example(program.replace("7", "11")), ISSUE)
    assert not is_reporters_own(example(program.replace("7", "'seven'")), ISSUE)


def test_a_part_of_a_word_is_not_the_reporters_output() -> None:
    assert not is_reporters_own(example(stdout="3.\n"), "`half(7)` prints 3.5 Bytes.")
    assert not is_reporters_own(example(stdout="3.5 Byte\n"), "`half(7)` prints 3.5 Bytes.")
    assert is_reporters_own(example(stdout="3.5 Bytes\n"), "`half(7)` prints `3.5\nBytes`.")


def test_nothing_works_already_by_one_example_alone() -> None:
    own = JudgedExample(**dict(example()), quoted=True, base=runs("3.5\n"))
    judge = ExampleJudge(unopened(), ISSUE)
    assert judge.works_already(PlanExamples(already=(own,))) is None
    assert judge.works_already(PlanExamples(already=(own, own))) == own
    assert judge.works_already(PlanExamples(already=(own, own), examples=(own,))) is None


def test_an_output_without_an_input_of_the_issue_is_not_the_reporters_own() -> None:
    assert not is_reporters_own(example("print(half())", "3\n"), ISSUE)
