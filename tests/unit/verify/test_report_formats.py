"""Reports are read by their format, whatever command made a runner write one."""

import pytest

from app.core.verification import Execution
from app.verify.report_files import NEXT_FILE, report_in_file
from app.verify.report_text import report_in_output
from app.verify.reports import Report, cause_of
from app.verify.suite import could_not_start

MINITEST = """\
Run options: -v --seed 33059

Money#test_0001_adds two = 0.00 s = .
MoneyTest#test_skipped = 0.00 s = S
MoneyTest#test_raises = 0.00 s = E
MoneyTest#test_fails = 0.00 s = F

  1) Skipped:
MoneyTest#test_skipped [money_test.rb:6]:
later

  2) Error:
MoneyTest#test_raises:
RuntimeError: x y
    money_test.rb:5:in `test_raises'

  3) Failure:
MoneyTest#test_fails [money_test.rb:4]:
Expected: 3
  Actual: 2

4 runs, 3 assertions, 1 failures, 1 errors, 1 skips
"""
TEST_UNIT = """\
Loaded suite tu_test
Started
TuTest: \n\
  test_adds:\t\t\t\thello
.: (0.000191)
  test_fails:\t\t\t\tF
===============================================================================
Failure: test_fails(TuTest)
tu_test.rb:4:in `test_fails'
  => 4:   def test_fails; assert_equal 3, 2; end
<3> expected but was
<2>
===============================================================================
: (0.011307)
  test_omits:\t\t\t\tO
===============================================================================
Omission: later [test_omits(TuTest)]
tu_test.rb:6:in `test_omits'
===============================================================================
: (0.000359)
  test_raises:\t\t\t\tE
===============================================================================
Error: test_raises(TuTest): RuntimeError: x y
tu_test.rb:5:in `test_raises'
===============================================================================
: (0.000321)
  inner: \n\
    test: a name: with colon:\t\t.: (0.000138)

Finished in 0.019167019 seconds.
"""
EXUNIT = """\
Compiling 1 file (.ex)

MoneyTest [test/money_test.exs]
  * test later [L#7]\r  * test later (skipped) [L#7]
  * test inner raises [L#9]\r  * test inner raises (4.4ms) [L#9]

  1) test inner raises (MoneyTest)
     test/money_test.exs:9
     ** (RuntimeError) x y

  * doctest Money.add/2 (1) [L#3]\r  * doctest Money.add/2 (1) (0.00ms) [L#3]
  * test adds (0.00ms)

Finished in 0.03 seconds (0.00s async, 0.03s sync)
"""
CTEST = """\
Test project /workspace/build
      Start  1: adds
 1/12 Test  #1: adds .............................   Passed    0.01 sec
      Start  2: fails
 2/12 Test  #2: fails ............................***Failed    0.01 sec
expected 3, got 2

      Start  3: crashes
 3/12 Test  #3: crashes ..........................Subprocess aborted***Exception:   0.00 sec
      Start  4: skips
 4/12 Test  #4: skips ............................***Skipped   0.02 sec
      Start  5: hangs
 5/12 Test  #5: hangs ............................***Timeout   1.01 sec
      Start  6: missing
 6/12 Test  #6: missing ..........................***Not Run   0.00 sec
      Start  7: off
 7/12 Test  #7: off ..............................***Not Run (Disabled)   0.00 sec
      Start 12: a name.with dots
12/12 Test #12: a name.with dots .................   Passed    0.00 sec

33% tests passed, 4 tests failed out of 6
"""
GO = """\
=== RUN   TestAdds
=== RUN   TestAdds/small
--- PASS: TestAdds (0.00s)
    --- PASS: TestAdds/small (0.00s)
=== RUN   TestFails
    a_test.go:7: no
--- FAIL: TestFails (0.00s)
--- SKIP: TestLater (0.00s)
FAIL
FAIL\texample.org/a\t0.003s
--- PASS: TestOther (0.10s)
ok  \texample.org/b\t(cached)
?   \texample.org/c\t[no test files]
FAIL\texample.org/d [build failed]
"""
TAP_12 = "1..3\nok 1 - adds\nnot ok 2 - fails\nok 3 # skip later\n"
TAP_14 = """\
TAP version 14
# Subtest: money.js
    # Subtest: adds
        ok 1 - equal
        1..1
    ok 1 - adds # time=1ms
    not ok 2 - fails
    1..2
not ok 1 - money.js # time=3ms
1..1
"""
PRINTED = {
    "minitest": (
        MINITEST,
        {
            "Money#test_0001_adds two": "passed",
            "MoneyTest#test_skipped": "skipped",
            "MoneyTest#test_raises": "error: RuntimeError: x y",
            "MoneyTest#test_fails": "failed: Expected: 3",
        },
    ),
    "test-unit": (
        TEST_UNIT,
        {
            "TuTest::test_adds": "passed",
            "TuTest::test_fails": "failed: Failure: test_fails(TuTest)",
            "TuTest::test_omits": "skipped",
            "TuTest::test_raises": "error: Error: test_raises(TuTest): RuntimeError: x y",
            "TuTest > inner::test: a name: with colon": "passed",
        },
    ),
    "ExUnit": (
        EXUNIT,
        {
            "test/money_test.exs::MoneyTest test later": "skipped",
            "test/money_test.exs::MoneyTest test inner raises": "failed: 1) test inner raises (MoneyTest)",
            "test/money_test.exs::MoneyTest doctest Money.add/2 (1)": "passed",
            "test/money_test.exs::MoneyTest test adds": "passed",
        },
    ),
    "CTest": (
        CTEST,
        {
            "adds": "passed",
            "fails": "failed: expected 3, got 2",
            "crashes": "failed",
            "skips": "skipped",
            "hangs": "failed",
            "missing": "failed",
            "off": "skipped",
            "a name.with dots": "passed",
        },
    ),
    "go test -v": (
        GO,
        {
            "example.org/a::TestAdds": "passed",
            "example.org/a::TestAdds/small": "passed",
            "example.org/a::TestFails": "failed",
            "example.org/a::TestLater": "skipped",
            "example.org/b::TestOther": "passed",
            "example.org/d": "error: FAIL\texample.org/d [build failed]",
        },
    ),
    "TAP 12": (TAP_12, {"adds": "passed", "fails": "failed", "3": "skipped"}),
    "TAP 14": (TAP_14, {"money.js > adds": "passed", "money.js > fails": "failed"}),
}


def ended(report: Report | None) -> dict[str, str]:
    """How each test ended, with the first line of its text."""
    found = {name: (case.status, case.text.strip().partition("\n")[0]) for name, case in (report or {}).items()}
    return {name: f"{status}: {text}" if text else status for name, (status, text) in found.items()}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_the_output_of_a_runner_is_read(name: str) -> None:
    printed, expected = PRINTED[name]
    assert ended(report_in_output(printed.encode())) == expected
    assert ended(report_in_file(printed.encode())) == expected, "a project may write it into a file"


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_output_that_breaks_off_is_read_as_far_as_it_goes(name: str) -> None:
    lines = PRINTED[name][0].encode().splitlines(keepends=True)
    for end in range(len(lines)):
        assert {*ended(report_in_output(b"".join(lines[:end]), stopped=True))} <= {*PRINTED[name][1]}


@pytest.mark.parametrize(
    "output",
    [
        "",
        "ok then\nnot ok at all\n",
        "test it: yes\nStarted\nserver: \n",
        "make: *** [Makefile:3: test] Error 1\n",
        "3/4 done\n",
        "Test #1: a\n",
        "FAIL\n",
        "#1 = 0.1 s\n",
    ],
)
def test_other_output_has_no_results(output: str) -> None:
    assert report_in_output(output.encode()) is None


PHPUNIT = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="" tests="3"><testsuite name="MoneyTest" file="/workspace/tests/MoneyTest.php">
<testcase name="testAdds" class="MoneyTest" classname="MoneyTest" file="/workspace/tests/MoneyTest.php" line="4"/>
<testcase name="testFails" class="MoneyTest" classname="MoneyTest" file="/workspace/tests/MoneyTest.php">
<failure type="x">MoneyTest::testFails\nFailed asserting that 3 is identical to 4.</failure></testcase>
<testcase name="testLater" class="MoneyTest" classname="MoneyTest"><skipped/></testcase>
</testsuite></testsuite></testsuites>"""
GRADLE = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="a.MoneyTest" tests="1"><properties/><testcase name="adds()" classname="a.MoneyTest" time="0.01"/>
<system-out><![CDATA[hello]]></system-out></testsuite>"""
GOOGLETEST = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="2" name="AllTests"><testsuite name="Money" tests="2">
<testcase name="Adds" status="run" result="completed" classname="Money"/>
<testcase name="DISABLED_Off" status="notrun" result="suppressed" classname="Money"/>
<testcase name="Skips" status="run" result="skipped" classname="Money"><skipped message="m.cc:3"/></testcase>
</testsuite></testsuites>"""
CTEST_XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="2"><testcase name="adds" classname="adds" time="0.1" status="run"/>
<testcase name="fails" classname="fails" status="fail"><failure message=""/><system-out>3</system-out></testcase>
<testcase name="off" classname="off" status="disabled"/></testsuite>"""
TRX = b"""\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>
<TestRun id="1" name="x" xmlns="http://microsoft.com/schemas/VisualStudio/TeamTest/2010"><Results>
<UnitTestResult testId="a" testName="Shop.MoneyTests.Adds" outcome="Passed" duration="00:00:00.01"/>
<UnitTestResult testId="b" testName="Shop.MoneyTests.Fails(x: 1)" outcome="Failed"><Output><ErrorInfo>
<Message>Assert.Equal() Failure</Message><StackTrace>at Shop</StackTrace></ErrorInfo></Output></UnitTestResult>
<UnitTestResult testId="c" testName="Shop.MoneyTests.Later" outcome="NotExecuted"/></Results>
<TestDefinitions><UnitTest name="Shop.MoneyTests.Adds" id="a"/></TestDefinitions></TestRun>"""
RSPEC = b"""{"version":"3.12.0","examples":[
{"id":"./spec/a_spec.rb[1:1]","full_description":"Money adds","status":"passed","file_path":"./spec/a_spec.rb"},
{"id":"./spec/a_spec.rb[1:2]","full_description":"Money fails","status":"failed","file_path":"./spec/a_spec.rb",
"exception":{"class":"RSpec::Expectations::ExpectationNotMetError","message":"expected: 4","backtrace":null}},
{"id":"./spec/a_spec.rb[1:3]","full_description":"Money later","status":"pending","file_path":"./spec/a_spec.rb"}],
"messages":["An error occurred while loading ./spec/b_spec.rb."],
"summary":{"example_count":3,"errors_outside_of_examples_count":1},"summary_line":"3 examples"}"""
WRITTEN = {
    "PHPUnit": (
        PHPUNIT,
        {
            "MoneyTest::testAdds": "passed",
            "MoneyTest::testFails": "failed: MoneyTest::testFails",
            "MoneyTest::testLater": "skipped",
        },
    ),
    "Gradle": (GRADLE, {"a.MoneyTest::adds()": "passed"}),
    "googletest": (
        GOOGLETEST,
        {"Money::Adds": "passed", "Money::DISABLED_Off": "skipped", "Money::Skips": "skipped: m.cc:3"},
    ),
    "CTest": (CTEST_XML, {"adds": "passed", "fails": "failed: 3", "off": "skipped"}),
    "trx": (
        TRX,
        {
            "Shop.MoneyTests.Adds": "passed",
            "Shop.MoneyTests.Fails(x: 1)": "failed: Assert.Equal() Failure",
            "Shop.MoneyTests.Later": "skipped",
        },
    ),
    "RSpec": (
        RSPEC,
        {
            "spec/a_spec.rb::Money adds": "passed",
            "spec/a_spec.rb::Money fails": "failed: RSpec::Expectations::ExpectationNotMetError: expected: 4",
            "spec/a_spec.rb::Money later": "skipped",
            "errors outside of examples": "error: An error occurred while loading ./spec/b_spec.rb.",
        },
    ),
}


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_the_file_of_a_runner_is_read(name: str) -> None:
    written, expected = WRITTEN[name]
    assert ended(report_in_file(written)) == expected


def test_several_reports_are_one_and_a_broken_one_does_not_spoil_the_others() -> None:
    files = (GRADLE, GOOGLETEST[:-9], b"<html><body/></html>", TRX, b"", b'[1, "a.js::a", "passed", ""]\n[1]')
    found = report_in_file(NEXT_FILE.join(files))
    assert set(found or ()) == {*WRITTEN["Gradle"][1], *WRITTEN["trx"][1], "a.js::a"}
    assert report_in_file(NEXT_FILE.join([b"<html/>", b""])) is None


@pytest.mark.parametrize(
    ("exit_code", "output", "sentence"),
    [
        (127, "bash: line 1: bundle: command not found", "bundle is not in the sandbox. Debian's package bundler or"),
        (
            127,
            "bash: line 1: mix: command not found",
            "mix is not in the sandbox. Debian's package elixir or the image",
        ),
        (127, "sh: 1: dotnet: not found", "The command dotnet is not in the sandbox. The image dotnet/sdk has it."),
        (
            2,
            "/bin/sh: 1: composer: not found\nmake: *** [Makefile:3: test] Error 127",
            "composer is not in the sandbox.",
        ),
        (2, "make: gradle: No such file or directory\nmake: *** [Makefile:2: test] Error 127", "gradle is not in the"),
        (
            127,
            "env: \u2018php\u2019: No such file or directory",
            "php is not in the sandbox. Debian's package php-cli or",
        ),
        (127, "bundler: command not found: rspec", "rspec is not in the sandbox. Debian's package ruby-rspec has it."),
        (
            127,
            "bash: line 1: vendor/bin/phpunit: No such file or directory",
            "phpunit does not exist: `composer install`",
        ),
        (127, "bash: line 1: frobnicate: command not found", "The command frobnicate is not in the sandbox."),
        (
            7,
            "/usr/lib/x.rb:1:in `y': Could not find gem 'a' in gems. (Bundler::GemNotFound)",
            "`bundle install` belongs",
        ),
        (
            1,
            "** (Mix) Could not find an SCM for dependency :ex_doc from A.Mixfile",
            "`mix local.hex --force; mix deps.get`",
        ),
        (
            255,
            "PHP Warning: require(/w/vendor/autoload.php): Failed to open stream: No such file",
            "`composer install`",
        ),
        (1, "cat: notes.txt: No such file or directory", ""),
        (1, "FileNotFoundError: x: No such file or directory", ""),
    ],
)
def test_a_missing_program_is_named_with_what_has_it(exit_code: int, output: str, sentence: str) -> None:
    execution = Execution(command="x", exit_code=exit_code, seconds=1, excerpt=output)
    found = could_not_start(execution)
    assert sentence in found
    assert bool(found) is bool(sentence)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            'Exception in thread "main" java.net.UnknownHostException: a.test\n\tat java.base/x.connect(Y.java:1)\n',
            'Exception in thread "main" java.net.UnknownHostException: a.test',
        ),
        (
            "java.lang.RuntimeException: a\n\tat x\nCaused by: java.io.IOException: b\n\t... 3 more\n",
            "Caused by: java.io.IOException: b",
        ),
        (
            "/usr/lib/x.rb:271:in `verify!': Could not find gem 'rspec' in gems. (Bundler::GemNotFound)\n\tfrom /x:1\n",
            "Could not find gem 'rspec' in gems. (Bundler::GemNotFound)",
        ),
        (
            "CMake Error at CMakeLists.txt:9 (find_package):\n  By not providing FindX\n\nSee also x.log.\n",
            "CMake Error at CMakeLists.txt:9 (find_package): By not providing FindX",
        ),
        ("** (Mix) Could not find an SCM for dependency :x\n", "** (Mix) Could not find an SCM for dependency :x"),
        (
            "PHP Fatal error:  Uncaught Error: x in a.php:3\n#0 {main}\n",
            "PHP Fatal error:  Uncaught Error: x in a.php:3",
        ),
        ("a.c:3:5: error: expected ';'\n    3 | x\n", "a.c:3:5: error: expected ';'"),
        ("error[E0425]: cannot find value `x`\n --> src/a.rs:1\n", "error[E0425]: cannot find value `x`"),
        ("it went wrong\n    at a (b.js:1)\n", "it went wrong"),
    ],
)
def test_the_cause_of_a_failure_in_each_language(output: str, cause: str) -> None:
    assert cause_of(output) == " ".join(cause.split())
