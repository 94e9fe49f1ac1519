"""Reports of every framework become the same thing, and garbage becomes nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.verify.report_files import MAX_DEPTH, report_in_file
from app.verify.report_text import go_output, report_in_output
from app.verify.reports import MAX_ID, CaseResult, Report


def statuses(report: Report | None) -> dict[str, str]:
    assert report is not None
    return {name: case.status for name, case in report.items()}


def junit(*cases: str, suite: str = "pytest") -> bytes:
    return (
        f'<?xml version="1.0"?><testsuites><testsuite name="{suite}">{"".join(cases)}</testsuite></testsuites>'.encode()
    )


PYTEST = junit(
    '<testcase classname="" name="tests.test_bad" file="tests/test_bad.py">'
    '<error message="collection failure">ModuleNotFoundError: No module named nope</error></testcase>',
    '<testcase classname="tests.test_x.TestA" name="test_inherited" file="tests/base_case.py">'
    '<failure message="E"/></testcase>',
    '<testcase classname="tests.test_x.TestA" name="test_b[1]" file="tests/test_x.py"/>',
    '<testcase classname="tests.test_x.TestA" name="test_b[a b]" file="tests/test_x.py">'
    '<failure message="AssertionError: boom">trace</failure></testcase>',
    '<testcase classname="tests.test_x.TestA.TestIn" name="test_c" file="tests/test_x.py"/>',
    '<testcase classname="tests.test_x" name="test_xf" file="tests/test_x.py">'
    '<skipped type="pytest.xfail"/></testcase>',
    '<testcase classname="tests.test_x" name="test_td" file="tests/test_x.py"/>',
    '<testcase classname="tests.test_x" name="test_td" file="tests/test_x.py"><error message="teardown"/></testcase>',
)


def test_pytest_ids_are_the_ones_that_pytest_takes_back() -> None:
    assert statuses(report_in_file(PYTEST)) == {
        "tests/test_bad.py": "error",
        "tests/test_x.py::TestA::test_inherited": "failed",
        "tests/test_x.py::TestA::test_b[1]": "passed",
        "tests/test_x.py::TestA::test_b[a b]": "failed",
        "tests/test_x.py::TestA::TestIn::test_c": "passed",
        "tests/test_x.py::test_xf": "skipped",
        "tests/test_x.py::test_td": "error",
    }


def test_a_failure_keeps_its_reason() -> None:
    report = report_in_file(PYTEST)
    assert report is not None
    assert report["tests/test_x.py::TestA::test_b[a b]"].text == "AssertionError: boom\ntrace"
    assert report["tests/test_x.py::TestA::test_b[1]"] == CaseResult("passed")


BUN = (
    b'<testsuites name="bun test"><testsuite name="a.test.ts" file="a.test.ts">'
    b'<testsuite name="outer" file="a.test.ts"><testsuite name="inner &gt; x" file="a.test.ts">'
    b'<testcase name="one" classname="inner &gt; x &gt; outer" file="a.test.ts"/></testsuite>'
    b'<testcase name="later" classname="outer" file="a.test.ts"><skipped message="TODO"/></testcase></testsuite>'
    b'<testcase name="fails" classname="" file="a.test.ts"><failure type="E" message="boom">trace</failure></testcase>'
    b'</testsuite><testsuite name="b.test.ts" file="b.test.ts"><testsuite name="outer" file="b.test.ts">'
    b'<testcase name="later" classname="outer" file="b.test.ts"/></testsuite></testsuite></testsuites>'
)


def test_tests_of_bun_are_named_by_file_and_titles() -> None:
    assert statuses(report_in_file(BUN)) == {
        "a.test.ts::outer > inner > x > one": "passed",
        "a.test.ts::outer > later": "skipped",
        "a.test.ts::fails": "failed",
        "b.test.ts::outer > later": "passed",
    }
    assert report_in_file(b"no report") is None


def test_a_subtest_that_fails_twice_fails_once() -> None:
    report = junit(
        '<testcase classname="t" name="a" file="t.py"><failure message="1"/><failure message="2"/></testcase>'
    )
    assert statuses(report_in_file(report)) == {"t.py::a": "failed"}


NODE = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites>
  <testcase name="top &amp; bottom" classname="test"/>
  <testsuite name="S"><testcase name="one" classname="test"/>
    <testsuite name="T"><testcase name="two" classname="test" failure="x"><failure message="x">why</failure></testcase>
      <testcase name="td" classname="test"><skipped type="todo"/><failure message="later"/></testcase></testsuite>
  </testsuite>
  <testcase name="/workspace/test/b.test.js" classname="test" failure="test failed">
    <failure message="test failed"/></testcase>
  <testcase name="named" classname="test" file="/workspace/test/c.test.js"/>
  <!-- tests 6 -->
</testsuites>"""


def test_node_tests_are_named_by_their_path_of_suites() -> None:
    assert statuses(report_in_file(NODE)) == {
        "top & bottom": "passed",
        "S > one": "passed",
        "S > T > two": "failed",
        "S > T > td": "skipped",
        "test/b.test.js": "failed",
        "test/c.test.js::named": "passed",
    }


ENTITIES = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "aaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuites><testsuite name="pytest"><testcase classname="t" name="&b;" file="t.py"/></testsuite></testsuites>"""
EXTERNAL = b"""<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><testsuites><testcase name="&e;"/></testsuites>"""


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00\xff",
        b"not xml",
        PYTEST[:-30],
        ENTITIES,
        EXTERNAL,
        b"<testsuite>" * (MAX_DEPTH + 1) + b"</testsuite>" * (MAX_DEPTH + 1),
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        PYTEST + b"<again/>",
    ],
)
def test_a_broken_report_is_ignored(garbage: bytes) -> None:
    assert report_in_file(garbage) is None


@given(st.binary(max_size=300))
def test_no_bytes_are_an_error(data: bytes) -> None:
    for read in (report_in_file, report_in_output):
        report = read(data)
        assert report is None or isinstance(report, dict)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["passed", "failed", "", "a"]),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["Action", "Package", "Test"]), x),
        max_leaves=8,
    )
)
def test_no_json_is_an_error(document: object) -> None:
    data = json.dumps(document).encode()
    report_in_file(data, stopped=True)
    report_in_output(data)


LINES = b"""\
[1, "/workspace/test/a.test.js::S > one", "failed", "Error: \\u001b[31mno\\u001b[0m"]
[1, "test/a.test.js::top", "passed", ""]
what a test prints
[1, "test/a.test.js::later", "skipped", ""]
[1, "", "error", "outside of all tests"]
[2, "test/c.test.js::other", "passed", ""]
[1, "test/b.test.js", "error", "Cannot find module"]
[1]
[2, "test/c.test.js::cut"""


def test_lines_count_if_their_process_has_ended_or_the_suite_was_stopped() -> None:
    ended = {
        "test/a.test.js::S > one": "failed",
        "test/a.test.js::top": "passed",
        "test/a.test.js::later": "skipped",
        "test/b.test.js": "error",
    }
    report = report_in_file(LINES)
    assert statuses(report) == ended
    assert report is not None
    assert report["test/a.test.js::S > one"].text == "Error: no"
    assert statuses(report_in_file(LINES, stopped=True)) == {**ended, "test/c.test.js::other": "passed"}
    assert report_in_file(b'[1, "a", "passed", ""]') is None
    assert report_in_file(b"[1]") == {}, "a runner that ended and found no tests"
    assert report_in_file(b"[" * 100_000) is None


GO = "\n".join(
    [
        '{"ImportPath":"ex/bad [ex/bad.test]","Action":"build-output","Output":"b_test.go:3:28: undefined: nope\\n"}',
        '{"ImportPath":"ex/bad [ex/bad.test]","Action":"build-fail"}',
        '{"Action":"run","Package":"ex","Test":"TestOK"}',
        '{"Action":"pass","Package":"ex","Test":"TestOK","Elapsed":0}',
        '{"Action":"output","Package":"ex","Test":"TestBad","Output":"    f_test.go:4: want 2\\n"}',
        '{"Action":"fail","Package":"ex","Test":"TestBad"}',
        '{"Action":"fail","Package":"ex","Test":"TestSub/a_b"}',
        '{"Action":"skip","Package":"ex","Test":"TestSk"}',
        '{"Action":"fail","Package":"ex"}',
        '{"Action":"output","Package":"ex/bad","Output":"FAIL\\tex/bad [build failed]\\n"}',
        '{"Action":"fail","Package":"ex/bad","FailedBuild":"ex/bad [ex/bad.test]"}',
        '{"ImportPath":"ex/out_test [ex/out.test]","Action":"build-output","Output":"o_test.go:5: undefined: more\\n"}',
        '{"Action":"fail","Package":"ex/out","FailedBuild":"ex/out_test [ex/out.test]"}',
        '{"ImportPath":"ex/a_test","Action":"build-output","Output":"a.go:1:1: expected \'package\'\\n"}',
        '{"Action":"fail","Package":"ex/a_test","FailedBuild":"ex/a_test"}',
        "{not json",
        "go: downloading something",
    ]
).encode()


def test_go_events() -> None:
    report = report_in_output(GO)
    assert statuses(report) == {
        "ex::TestOK": "passed",
        "ex::TestBad": "failed",
        "ex::TestSub/a_b": "failed",
        "ex::TestSk": "skipped",
        "ex/bad": "error",
        "ex/out": "error",
        "ex/a_test": "error",
    }
    assert report is not None
    assert "undefined: nope" in report["ex/bad"].text
    assert "undefined: more" in report["ex/out"].text
    assert "expected 'package'" in report["ex/a_test"].text
    assert b"want 2" in go_output(GO)
    assert b"Action" not in go_output(GO)


CARGO = b"""   Compiling cr v0.1.0 (/workspace)
     Running unittests src/lib.rs (target/debug/deps/cr-f73a538893013b88)

running 4 tests
test tests::ig ... ignored
test tests::ok ... ok
test tests::bad ... FAILED
test tests::sp - should panic ... ok

failures:

---- tests::bad stdout ----

thread 'tests::bad' panicked at src/lib.rs:5:79:
assertion `left == right` failed


failures:
    tests::bad

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.37s

     Running tests/it.rs (target/debug/deps/it-c402cc767e4d8483)

test it ... ok
   Doc-tests cr

test src/lib.rs - f (line 17) ... ok
"""


def test_cargo_ids_have_the_binary_and_do_not_change_with_the_lines() -> None:
    report = report_in_output(CARGO)
    assert statuses(report) == {
        "src/lib.rs::tests::ig": "skipped",
        "src/lib.rs::tests::ok": "passed",
        "src/lib.rs::tests::bad": "failed",
        "src/lib.rs::tests::sp": "passed",
        "tests/it.rs::it": "passed",
        "doc cr::src/lib.rs - f": "passed",
    }
    assert report is not None
    assert "assertion `left == right` failed" in report["src/lib.rs::tests::bad"].text
    assert statuses(report_in_output(CARGO.replace(b"(line 17)", b"(line 99)"))) == statuses(report)


UNITTEST = b"""test_imp (unittest.loader._FailedTest.test_imp) ... ERROR
tests.test_in (unittest.loader._FailedTest.tests.test_in) ... ERROR
test_bad (test_u.A.test_bad) ... FAIL
test_doc (test_u.A.test_doc)
Docs here. ... ok
test_print (test_u.A.test_print) ... noise
ok
test_sk (test_u.A.test_sk) ... skipped 'why'
test_sub (test_u.A.test_sub) ...
  test_sub (test_u.A.test_sub) [m] (i=1) ... FAIL
test_us (test_u.A.test_us) ... unexpected success
test_xf (test_u.A.test_xf) ... expected failure
test_old (test_u.A) ... ok
ERROR

======================================================================
ERROR: test_imp (unittest.loader._FailedTest.test_imp)
----------------------------------------------------------------------
ModuleNotFoundError: No module named 'nope'

======================================================================
ERROR: tests.test_in (unittest.loader._FailedTest.tests.test_in)
----------------------------------------------------------------------
ImportError: cannot import name 'gone'

======================================================================
ERROR: setUpClass (test_u.B)
----------------------------------------------------------------------
ValueError

======================================================================
FAIL: test_bad (test_u.A.test_bad)
----------------------------------------------------------------------
AssertionError: 1 != 2

======================================================================
FAIL: test_sub (test_u.A.test_sub) [m] (i=1)
----------------------------------------------------------------------
AssertionError: 1 != 0

----------------------------------------------------------------------
Ran 12 tests in 0.001s

FAILED (failures=2, errors=3)
"""


def test_unittest_lines_of_old_and_new_pythons() -> None:
    report = report_in_output(UNITTEST)
    assert statuses(report) == {
        "unittest.loader._FailedTest.test_imp": "error",
        "unittest.loader._FailedTest.tests.test_in": "error",
        "test_u.A.test_bad": "failed",
        "test_u.A.test_doc": "passed",
        "test_u.A.test_print": "passed",
        "test_u.A.test_sk": "skipped",
        "test_u.A.test_sub": "failed",
        "test_u.A.test_us": "failed",
        "test_u.A.test_xf": "passed",
        "test_u.A.test_old": "passed",
        "test_u.B.setUpClass": "error",
    }
    assert report is not None
    assert report["test_u.A.test_bad"].text == "AssertionError: 1 != 2"


def test_a_stopped_unittest_keeps_what_it_reported() -> None:
    lines = (
        b"test_a (t.A.test_a) ... ok\ntest_b (t.A.test_b) ... Traceback (most recent call last):\nKeyboardInterrupt\n"
    )
    assert statuses(report_in_output(lines, stopped=True)) == {"t.A.test_a": "passed"}
    assert report_in_output(lines) is None


def test_output_without_a_summary_is_not_a_result() -> None:
    assert report_in_output(UNITTEST.split(b"Ran 12")[0]) is None
    assert report_in_output(b"error: could not compile `cr`") is None
    assert report_in_output(b"go: cannot find main module") is None


def test_ids_have_no_control_characters_and_an_end() -> None:
    name = "a&#10;b" + "c" * 2_000
    report = report_in_file(junit(f'<testcase classname="t" name="{name}" file="t.py"/>'))
    assert report is not None
    (only,) = report
    assert "\n" not in only
    assert len(only) == MAX_ID
