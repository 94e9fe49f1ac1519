"""The output of runners of JavaScript that print TAP, or only count: which tests are read from it."""

import pytest

from app.verify.recognise import recognise
from app.verify.report_text import report_in_output
from tests.support.memory_tree import MemoryTree

NESTED = b"""TAP version 14
1..3
# Subtest: tests/a.js
    # Subtest: first
        ok 1 - should be equal
        1..1
    ok 1 - first # time=16.313ms
    
    # Subtest: second
        not ok 1 - should be equal
          ---
          compare: ===
          ...
        
        1..1
    not ok 2 - second # time=45.613ms
      ---
      at: tests/a.js
      ...
    
    ok 3 - third # SKIP later
    1..3
not ok 1 - tests/a.js # time=5815.776ms
  ---
  exitCode: 1
  ...

# Subtest: tests/b.js
    ok 1 - plain
    1..1
ok 2 - tests/b.js # time=5531.887ms
Error: why
# Subtest: tests/c.js
    1..0 # no tests found
not ok 3 - tests/c.js # time=4565.611ms
# Subtest: tests/d.js
    ok 1 - passes
    1..1
not ok 4 - tests/d.js # time=5.1ms
# { total: 8, pass: 5, fail: 2, skip: 1 }
"""  # noqa: W293  # as it is printed
BUFFERED = b"""TAP version 13
# Subtest: all
ok 1 - tests/a.js # time=5.2ms {
    # Subtest: first
        ok 1 - should be equal
    ok 1 - first # time=1ms
    1..1
}
ok 2 - tests/b.js # time=1ms
1..2
"""


def test_nested_tap_is_read_file_by_file_and_test_by_test() -> None:
    report = report_in_output(NESTED)
    assert report is not None
    assert {name: case.status for name, case in report.items()} == {
        "tests/a.js > first": "passed",
        "tests/a.js > second": "failed",
        "tests/a.js > third": "skipped",
        "tests/b.js > plain": "passed",
        "tests/c.js": "failed",
        "tests/d.js > passes": "passed",
        "tests/d.js": "failed",
    }
    assert "compare: ===" in report["tests/a.js > second"].text


def test_subtests_may_follow_in_braces() -> None:
    report = report_in_output(BUFFERED)
    assert report is not None
    assert {name: case.status for name, case in report.items()} == {
        "tests/a.js > first": "passed",
        "tests/b.js": "passed",
    }


def test_titles_of_tap_may_have_signs_that_mean_something_at_its_end() -> None:
    titles = ["parses {a: 1}", "colour #fff", "issue #12", "C# is # a language"]
    lines = [f"ok {at} - {title}" for at, title in enumerate(titles, 1)]
    lines += [
        "ok 5 later # SKIP",
        "not ok 6 one {x} # TODO",
        "ok 7 two # time=3ms",
        "not ok 8 ends {",
        "not ok 9 {",
    ]
    report = report_in_output("\n".join(["1..9", *lines]).encode())
    assert report is not None
    assert [*report] == [*titles, "later", "one {x}", "two", "ends", "9"]
    statuses = [case.status for case in report.values()]
    assert statuses == [*["passed"] * 4, "skipped", "skipped", "passed", "failed", "failed"]


UVU = """\x1b[1m\x1b[4m\x1b[37msub/x.js\x1b[22m\x1b[24m\x1b[39m
\x1b[90m• \x1b[39m\x1b[31m✘ \x1b[39m\x1b[31m  (1 / 2)
\x1b[39m
  \x1b[1m\x1b[41m FAIL \x1b[22m\x1b[49m \x1b[2m"\x1b[22mbad one\x1b[39m\x1b[22m\x1b[2m"\x1b[22m
    Expected values to be strictly equal:  (is)

 the other • •   (2 / 2)

  Total:     4
  Passed:    3
  Skipped:   1
  Duration:  13.45ms
"""


def test_uvu_names_what_fails_and_counts_the_rest() -> None:
    report = report_in_output(UVU.encode())
    assert report is not None
    assert {name: case.status for name, case in report.items()} == {
        "sub/x.js > 1": "passed",
        'sub/x.js > "bad one"': "failed",
        "sub/x.js > the other > 1": "passed",
        "sub/x.js > the other > 2": "passed",
        "skipped 1": "skipped",
    }
    assert "strictly equal" in report['sub/x.js > "bad one"'].text


@pytest.mark.parametrize("output", [b"", b"Error: Cannot find module 'x'\n", UVU.partition("  Total")[0].encode()])
def test_uvu_that_did_not_end_gives_no_results(output: bytes) -> None:
    assert report_in_output(output) is None


def test_uvu_may_print_anything() -> None:
    report = report_in_output(UVU.replace("Skipped:   1", f"Skipped:   {'9' * 5_000}").encode())
    assert report is not None
    assert "skipped 1" not in report
    assert report_in_output(f"x.js\n{'• ' * 200_000}x\n  Total: 1\n".encode()) is None, "in no time"


@pytest.mark.parametrize(
    ("command", "executed"),
    [
        ("npx --no-install tap run test/*.js", "npx --no-install tap run test/*.js --reporter=tap"),
        ("npx --no-install tap --reporter=tap", "npx --no-install tap --reporter=tap"),
        ("npx tap@18", "npx tap@18 --reporter=tap"),
        ("npx --no-install qunit", "npx --no-install qunit"),
        ("npx --no-install uvu -r esm test", "npx --no-install uvu -r esm test"),
        ("npx --no-install tap-out", "npx --no-install tap-out"),
    ],
)
def test_the_reporter_that_is_asked_for(command: str, executed: str) -> None:
    assert recognise(MemoryTree({}), command, None).command == executed
