"""Why a reproduction is red: outputs as the tools really print them, and what may count."""

import pytest

from app.core.verification import Execution, FailureReason
from app.verify.execution import excerpt, failing_pipe
from app.verify.failure_reason import ExistingNames, FailedRun, failure_reason, rightly_failing
from app.verify.frameworks import SuiteCommand
from app.verify.paths_of_tests import is_test_file, is_test_path
from app.verify.reports import CaseResult, Report
from app.verify.reproduction import changed_tests, only_reads_source, with_tests_only
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

BASE = ExistingNames(
    MemoryTree(
        {
            "src/shop/__init__.py": b"from .money import add\n",
            "src/shop/money.py": b"def add(a, b):\n    return a - b\n\nRATE = 3\n",
            "lib/cart.js": b"export function total(items) {}\nconst hidden = 1\n",
            "calc/calc.go": b"package calc\n\nfunc Add(a, b int) int { return a - b }\n",
            "src/lib.rs": b"pub fn add() {}\n#[macro_export]\nmacro_rules! report {}\n",
            "macros/src/lib.rs": b"#[proc_macro_derive(Report, attributes(report))]\npub fn derive(x: T) -> T {}\n",
            "tests/test_money.py": b"def helper_in_test(): pass\n",
        }
    )
)


def attempt(
    output: str, exit_code: int = 1, command: str = "python3 -m pytest", cases: Report | None = None
) -> FailedRun:
    return FailedRun(Execution(command=command, exit_code=exit_code, seconds=1), output, cases)


MACRO = """\
error[E0004]: non-exhaustive patterns: type `&Nothing` is non-empty
 --> tests/it.rs:7:10
  |
7 | #[derive(Report)]
  |          ^^^^^^
  = note: this error originates in the {macro} (in Nightly builds, run with -Z macro-backtrace for more info)

error: could not compile `x` (test "it") due to 1 previous error"""
RED = [
    ('Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nAssertionError', 1),
    ("E       assert -1 == 3\n\ntests/test_money.py:7: AssertionError\n=== 1 failed in 0.1s ===", 1),
    ("AttributeError: 'Cart' object has no attribute 'total'", 1),
    ("TypeError: add() got an unexpected keyword argument 'tax'", 1),
    ("ModuleNotFoundError: No module named 'shop.money'", 1),
    ("ImportError: cannot import name 'add' from partially initialized module 'shop.money' (/workspace/x.py)", 1),
    ("ImportError: cannot import name 'RATE' from 'shop' (/workspace/src/shop/__init__.py)", 1),
    ("ImportError: attempted relative import beyond top-level package", 1),
    ('  File "/workspace/src/shop/money.py", line 3\n    def (\n        ^\nSyntaxError: invalid syntax', 1),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'out/report.csv'", 1),
    ("Segmentation fault (core dumped)", 139),
    ("", 1),
    ("ValueError: fixture of the shop", 1),
    ("TypeError: total is not a function\n    at /workspace/test/cart.test.js:3:1\n", 1),
    ("Error: Cannot find module './cart'\nRequire stack:\n- /workspace/lib/index.js", 1),
    ("SyntaxError: The requested module '../lib/cart.js' does not provide an export named 'hidden'", 1),
    ("file:///workspace/lib/cart.js:2\nconst = 1\n      ^\n\nSyntaxError: Unexpected token '='", 1),
    ("--- FAIL: TestAdd (0.00s)\n    calc_test.go:5: got -1\nFAIL\nFAIL\tex/calc\t0.002s", 1),
    ("# ex/calc\ncalc/calc.go:3:10: syntax error: unexpected {\nFAIL\tex/calc [build failed]", 1),
    ("thread 'tests::add' panicked at src/lib.rs:5:79:\nassertion failed", 101),
    ("error[E0308]: mismatched types\n --> src/lib.rs:1:17\nerror: could not compile `x` (lib)", 101),
    (MACRO.format(macro="derive macro `Report`"), 101),
    (MACRO.format(macro="macro `$crate::report`"), 101),
    ("ModuleNotFoundError: No module named 'nope'\nDuring handling of the above exception:\nKeyError: 'x'", 1),
]
NOT_THERE = [
    ("bash: line 1: pytset: command not found", 127),
    ("bash: line 1: ./x.sh: Permission denied", 126),
    ("bash: -c: line 1: syntax error near unexpected token `)'", 2),
    ("ModuleNotFoundError: No module named 'shop.taxes'", 1),
    ("E   ModuleNotFoundError: No module named 'taxes'\n=== 1 error in 0.1s ===", 2),
    ("ImportError: cannot import name 'subtract' from 'shop.money' (/workspace/src/shop/money.py)", 1),
    ("ImportError: cannot import name 'helper_in_test' from 'shop.money'", 1),
    ("/usr/bin/python3: No module named shop_tools", 1),
    ("python3: can't open file '/workspace/repro.py': [Errno 2] No such file or directory", 2),
    ('  File "/workspace/tests/test_new.py", line 3\n    def (\nSyntaxError: invalid syntax', 1),
    ('  File "<string>", line 1\n    import shop;; x\nSyntaxError: invalid syntax', 1),
    ("ERROR: file or directory not found: tests/test_new.py\n\nno tests ran in 0.00s", 4),
    ("ERROR: not found: /workspace/tests/test_money.py::test_new", 4),
    ("ERROR: usage: pytest [options]\npytest: error: unrecognized arguments: --frobnicate", 4),
    ("collected 0 items\n\n=== no tests ran in 0.00s ===", 5),
    ("collected 3 items / 3 deselected / 0 selected\n=== 3 deselected in 0.01s ===\nno tests ran in 0.01s", 5),
    ("E       fixture 'cart' not found\n>       available fixtures: cache, capfd", 1),
    ("Error: Cannot find module './taxes'\nRequire stack:\n- /workspace/test/taxes.test.js", 1),
    ("Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/workspace/lib/taxes.js' imported from /workspace/x.js", 1),
    ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'left-pad' imported from /workspace/x.js", 1),
    ("SyntaxError: The requested module '../lib/cart.js' does not provide an export named 'discount'", 1),
    ("file:///workspace/test/cart.test.js:2\nconst = 1\n      ^\n\nSyntaxError: Unexpected token '='", 1),
    ("test/cart.test.ts:3:10 - error TS2305: Module has no exported member 'discount'.", 2),
    ("Could not find '/workspace/test/none.test.js'", 1),
    ("No tests found, exiting with code 1", 1),
    ("# ex/calc [ex/calc.test]\ncalc/calc_test.go:5:9: undefined: Subtract\nFAIL\tex/calc [build failed]", 1),
    ("no required module provides package ex/taxes; to add it:", 1),
    ("error[E0432]: unresolved import `x::taxes`\n --> tests/it.rs:1:5\nerror: could not compile `x` (test)", 101),
    (MACRO.format(macro="derive macro `Deserialize`"), 101),
    (MACRO.format(macro="derive macro `Report`") + "\nerror[E0432]: unresolved import `x::taxes`", 101),
    ("error: no test target named `taxes`", 101),
    ('npm error Missing script: "repro"', 1),
    ("make: *** No rule to make target 'repro'.  Stop.", 2),
]


@pytest.mark.parametrize(("output", "exit_code"), RED)
def test_existing_behaviour_that_is_wrong_is_red(output: str, exit_code: int) -> None:
    assert failure_reason(attempt(output, exit_code), BASE) == ("red", "")


@pytest.mark.parametrize(("output", "exit_code"), NOT_THERE)
def test_a_stage_that_was_not_reached_is_missing(output: str, exit_code: int) -> None:
    found, reason = failure_reason(attempt(output, exit_code), BASE)
    assert found == "was_not_there", reason
    assert reason


GREEN: list[tuple[str, FailureReason]] = [
    ("", "green"),
    ("3 passed in 0.1s", "green"),
    ("Ran 5 tests in 0.1s\n\nOK", "green"),
    ("Ran 0 tests in 0.000s\n\nOK", "was_not_there"),
    ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 3 filtered out", "was_not_there"),
    ("running 0 tests\n\nrunning 2 tests\n\ntest result: ok. 2 passed; 0 failed", "green"),
    ("ok  \tex/calc\t0.002s [no tests to run]", "was_not_there"),
    ("?   \tex/cmd\t[no test files]\nok  \tex/calc\t0.002s", "green"),
    ("\u2139 tests 0\n\u2139 pass 0", "was_not_there"),
    ("\u2139 tests 2\n\u2139 pass 2", "green"),
]


@pytest.mark.parametrize(("output", "expected"), GREEN)
def test_an_exit_code_of_zero_needs_a_test_that_ran(output: str, expected: FailureReason) -> None:
    assert failure_reason(attempt(output, 0), BASE)[0] == expected


def test_all_skipped_is_not_green() -> None:
    assert failure_reason(attempt("", 0, cases={"a": CaseResult("skipped")}), BASE) == (
        "was_not_there",
        "every test was skipped",
    )
    assert failure_reason(attempt("", 0, cases={"a": CaseResult("skipped"), "b": CaseResult("passed")}), BASE) == (
        "green",
        "",
    )
    assert failure_reason(attempt("", 0, cases={}), BASE) == ("was_not_there", "no test was run")
    counted = "..\n" + "-" * 70 + "\nRan 2 tests in 0.000s\n\nOK\n"
    assert failure_reason(attempt(counted, 0, cases={}), BASE) == ("green", ""), "they are counted and not named"


def test_a_hang_is_red() -> None:
    execution = Execution(command="x", exit_code=124, seconds=60, timed_out=True)
    assert failure_reason(FailedRun(execution, ""), BASE) == ("red", "did not finish within its limit (60 s)")


def test_one_right_reason_among_wrong_ones_is_enough() -> None:
    cases = {
        "tests/test_a.py": CaseResult("error", "E   ModuleNotFoundError: No module named 'taxes'"),
        "tests/test_b.py::test_x": CaseResult("failed", "AssertionError: assert 1 == 2"),
        "tests/test_b.py::test_ok": CaseResult("passed"),
    }
    assert failure_reason(attempt("", 1, cases=cases), BASE) == ("red", "")
    assert rightly_failing(attempt("", 1, cases=cases), BASE) == {"tests/test_b.py::test_x"}
    del cases["tests/test_b.py::test_x"]
    assert failure_reason(attempt("", 1, cases=cases), BASE) == ("was_not_there", "the module taxes does not exist")


def test_an_import_inside_a_test_follows_the_same_rule() -> None:
    new = {
        "t.py::test_a": CaseResult(
            "failed", "ImportError: cannot import name 'subtract' from 'shop.money'\ndef test_a():\n"
        )
    }
    assert failure_reason(attempt("", 1, cases=new), BASE)[0] == "was_not_there"
    old = {"t.py::test_a": CaseResult("failed", "ImportError: cannot import name 'RATE' from 'shop'\ndef test_a():\n")}
    assert failure_reason(attempt("", 1, cases=old), BASE)[0] == "red"


def test_a_test_that_unittest_does_not_find_was_not_there() -> None:
    text = "AttributeError: module 'tests.test_money' has no attribute 'TestNew'"
    cases = {"unittest.loader._FailedTest.TestNew": CaseResult("error", text)}
    assert failure_reason(attempt("", 1, cases=cases), BASE) == ("was_not_there", "the test does not exist")


def test_a_file_that_node_could_not_load_is_explained_by_the_output() -> None:
    silent = "test failed\n[Error: test failed] { code: 'ERR_TEST_FAILURE', cause: 'test failed', exitCode: 1 }"
    cases = {"test/taxes.test.js": CaseResult("failed", silent)}
    output = "Error: Cannot find module '../lib/taxes'\n"
    assert failure_reason(attempt(output, 1, cases=cases), BASE)[0] == "was_not_there"


def test_a_file_that_the_command_names_and_nobody_has() -> None:
    gone = "cat: data/new.csv: No such file or directory"
    assert failure_reason(attempt("wc: 'data/new.csv': No such file", 1, "wc data/new.csv"), BASE)[0] == "was_not_there"
    assert failure_reason(attempt(f"E   OSError: {gone}", 1, "python3 x.py"), BASE)[0] == "red"


PATCH = patch_of(
    {
        "src/shop/money.py": "fixed",
        "tests/test_money.py": "new",
        "tests/data/in.csv": "1",
        "tests/test_old.py": None,
        "repro.py": "import shop",
        "other.py": "x",
    }
)


def test_only_tests_and_new_scripts_that_the_command_names_go_onto_the_base() -> None:
    tests = with_tests_only(PATCH, "python3 ./repro.py && cat src/shop/money.py", BASE.tree)
    assert tests is not None
    assert tests.paths() == ("repro.py", "tests/data/in.csv", "tests/test_money.py", "tests/test_old.py")
    assert with_tests_only(patch_of({"src/shop/money.py": "x"}), "python3 src/shop/money.py", BASE.tree) is None


@pytest.mark.parametrize(
    ("command", "poll_cursors"),
    [
        ("grep -q 'a + b' src/shop/money.py", True),
        ("! grep -rn TODO src", True),
        ("cd src && test -n \"$(grep -c 'a + b' shop/money.py)\"", True),
        ("if grep -q x lib/cart.js; then exit 0; else exit 1; fi", True),
        ("find . -name '*.py' | xargs grep -l subtract", True),
        ("LC_ALL=C sed -n 2p src/shop/money.py | grep +", True),
        ("[ `wc -l < src/shop/money.py` -gt 3 ]", True),
        ("git diff --exit-code -- src/shop/money.py", True),
        ("python3 -m pytest tests/test_money.py", False),
        ("python3 src/shop/money.py | grep -q 3", False),
        ('test "$(python3 src/shop/money.py)" = 3', False),
        ('test "$(cat $(python3 src/shop/money.py))" = 3', False),
        ("find src -name 'money.py' -exec python3 {} +", False),
        ("sed -f src/edit.sed src/shop/money.py", False),
        ("grep -q teh README.md", False),
        ("test -f setup.cfg", False),
        ("./check.sh src/shop/money.py", False),
        ("grep 'unclosed src/shop/money.py", False),
        ("true", False),
        ("", False),
    ],
)
def test_tests_that_only_read_source_text(command: str, *, poll_cursors: bool) -> None:
    assert only_reads_source(command, BASE.tree) is poll_cursors


def test_changed_tests_are_a_reproduction_where_the_suite_can_run_them_alone() -> None:
    suite = SuiteCommand("python3 -m pytest", "pytest", narrowed="python3 -m pytest")
    subject = changed_tests(PATCH, suite)
    assert subject is not None
    assert (subject.command, subject.origin) == ("python3 -m pytest tests/test_money.py", "changed tests")
    assert changed_tests(PATCH, SuiteCommand("make test")) is None
    assert changed_tests(PATCH, None) is None
    assert changed_tests(patch_of({"src/a.py": "x"}), suite) is None


@pytest.mark.parametrize(
    ("path", "test", "runnable"),
    [
        ("tests/test_a.py", True, True),
        ("test_a.py", True, True),
        ("pkg/a_test.py", True, True),
        ("tests/conftest.py", True, False),
        ("conftest.py", True, False),
        ("tests/data/x.json", True, False),
        ("pkg/tests/helper.py", True, False),
        ("django/test/client.py", False, False),
        ("src/testing/tools.py", False, False),
        ("src/attest.py", False, False),
        ("src/contest_test_data.txt", False, False),
        ("test/helper.py", True, False),
        ("src/a.test.ts", True, True),
        ("src/a.spec.jsx", True, True),
        ("src/__tests__/a.js", True, True),
        ("src/__snapshots__/a.snap", True, False),
        ("lib/test/helper.js", True, False),
        ("a_test.go", True, True),
        ("testdata/in.txt", True, False),
        ("net/httptest/server.go", False, False),
        ("tests/it.rs", True, True),
        ("src/lib.rs", False, False),
        ("src/test/java/x/ATest.java", True, True),
        ("src/main/java/x/Latest.java", False, False),
        ("spec/models/a_spec.rb", True, True),
        ("spec/spec_helper.rb", True, False),
        ("test/test_a.c", True, True),
        ("src/a.py", False, False),
        ("docs/test.md", False, False),
    ],
)
def test_which_paths_are_tests(path: str, *, test: bool, runnable: bool) -> None:
    assert (is_test_path(path), is_test_file(path)) == (test, runnable)


@pytest.mark.parametrize(
    ("command", "guarded"),
    [
        ("pytest -q | tail -5", True),
        ("pytest -q 2>&1 | tee out.txt", True),
        ("pytest |& head", True),
        ("yes | ./x", False),
        ("./x | grep -q ok", False),
        ("tail -5 x", False),
        ("pytest | tail -5; ./check", False),
    ],
)
def test_output_that_is_cut_for_display_does_not_cost_the_exit_code(command: str, *, guarded: bool) -> None:
    assert failing_pipe(command).startswith("set -o pipefail; ") is guarded


def test_excerpts_name_the_place_of_a_crash_and_not_what_was_compiled() -> None:
    frames = "".join(f"example.com/p.f{at}(0x1)\n\t/workspace/p.go:{at} +0x1d\n" for at in range(300))
    stacks = "".join(f"goroutine {number} [running]:\n{frames}\n" for number in (7, 1))
    text = excerpt(f"panic: boom\n\n{stacks.rstrip()}\nexit status 2\nFAIL\texample.com/p\t0.01s\n".encode())
    assert text.startswith("panic: boom\n\ngoroutine 7 [running]:\nexample.com/p.f0(0x1)\n")
    assert text.endswith("exit status 2\nFAIL\texample.com/p\t0.01s")
    assert "goroutine 1 " not in text
    head = "File  | % Stmts | % Branch | % Funcs | % Lines | Lines \n------|-------|-------|-------|-------|---\n"
    table = f"{head} a.js |       0 |        0 |     9.5 |       0 | 6-62 \n"
    assert excerpt(f"Error: x\n{table}| a | b | c | d |".encode()) == "Error: x\n| a | b | c | d |"
    assert excerpt(b"   Compiling a v0.1.0 (/workspace)\n    Finished `test` profile\n") == "Finished `test` profile"


def test_excerpts_are_clean_and_end_with_the_end() -> None:
    output = (
        b"\x1b[31mred\x1b[0m\x07\n--- generated xml file: /tmp/report-0123456789abcdef ---\n"
        + b"line\n" * 5_000
        + b"end"
    )
    text = excerpt(output)
    assert len(text) <= 4_000
    assert text.startswith("line\n")
    assert text.endswith("end")
    assert excerpt(b"\x1b[31mred\x1b[0m\n--- generated xml file: /tmp/report-0123456789abcdef ---\nx") == "red\nx"
