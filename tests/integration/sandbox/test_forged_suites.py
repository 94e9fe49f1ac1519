"""The whole suite of each framework is executed by our own launcher: tested code cannot write its results."""

import shutil
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from app.core.verification import SuiteComparison
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandbox_projects import WITH_GO
from tests.support.selecting import Project

Files = Mapping[str, str]


class Language(NamedTuple):
    """A project with a test of `half`, a broken source, and sources that are broken and forge the result."""

    files: Files
    path: str
    right: str
    wrong: str
    test: str
    forged: Mapping[str, str]


UNITTEST = Language(
    {
        "tests/__init__.py": "",
        "tests/test_money.py": """\
            import unittest

            from money import half


            class MoneyTest(unittest.TestCase):
                def test_half(self):
                    self.assertEqual(half(4), 2)

                def test_nothing(self):
                    self.assertEqual(half(0), 0)


            if __name__ == "__main__":
                unittest.main()
            """,
    },
    "money.py",
    "def half(a):\n    return a // 2\n",
    "def half(a):\n    return a // 3\n",
    "tests.test_money.MoneyTest.test_half",
    {
        "a printed report": """\
            import os


            def half(a):
                os.write(2, b"ok\\ntest_nothing (tests.test_money.MoneyTest.test_nothing) ... ok\\n\\n")
                os.write(2, b"Ran 2 tests in 0.1s\\n\\nOK\\n")
                os._exit(0)
            """,
        "replaced assertions": """\
            import unittest

            unittest.TestCase.assertEqual = lambda *values: None


            def half(a):
                return a // 3
            """,
        "replaced recorders": """\
            import unittest

            for kind in (unittest.TestResult, *unittest.TestResult.__subclasses__()):
                kind.addFailure = lambda self, test, error: self.addSuccess(test)


            def half(a):
                return a // 3
            """,
        "an existing test is replaced by its name": """\
            import unittest

            run = unittest.TestCase.run


            def other(self, result=None):
                if self._testMethodName == "test_half":
                    self.test_half = lambda: None
                return run(self, result)


            unittest.TestCase.run = other


            def half(a):
                return a // 3
            """,
        "another exit code": "import sys\n\nsys.exit = lambda code=0: None\n\n\ndef half(a):\n    return a // 3\n",
    },
)
NODE = Language(
    {
        "package.json": '{"name": "money", "scripts": {"test": "node --test"}}\n',
        "test/money.test.js": """\
            const test = require('node:test');
            const assert = require('node:assert');
            const { half } = require('../money');

            test('half', () => {
              assert.strictEqual(half(4), 2);
            });

            test('nothing', () => {
              assert.strictEqual(half(0), 0);
            });
            """,
    },
    "money.js",
    "exports.half = (a) => a / 2;\n",
    "exports.half = (a) => Math.floor(a / 3);\n",
    "test/money.test.js::half",
    {
        "the process ends": "exports.half = () => process.exit(0);\n",
        "replaced assertions": """\
            require('node:assert').strictEqual = () => {};
            exports.half = (a) => Math.floor(a / 3);
            """,
        "a report for npm": """\
            const { globSync, readdirSync, writeFileSync } = require('node:fs');

            process.on('exit', () => {
              const cases = '<testcase name="half" classname="test"/><testcase name="nothing" classname="test"/>';
              for (const name of readdirSync('/tmp')) {
                if (name.startsWith('report-')) writeFileSync(`/tmp/${name}`, `<testsuites>${cases}</testsuites>`);
              }
              process.exitCode = 0;
            });
            exports.half = (a) => Math.floor(a / 3);
            """,
    },
)
GO = Language(
    {
        "go.mod": "module example.com/money\n\ngo 1.20\n",
        "money_test.go": """\
            package money

            import "testing"

            func TestHalf(t *testing.T) {
            \tif got := Half(4); got != 2 {
            \t\tt.Errorf("half: %d", got)
            \t}
            }

            func TestNothing(t *testing.T) {
            \tif got := Half(0); got != 0 {
            \t\tt.Errorf("got %d", got)
            \t}
            }
            """,
    },
    "money.go",
    "package money\n\nfunc Half(a int) int {\n\treturn a / 2\n}\n",
    "package money\n\nfunc Half(a int) int {\n\treturn a / 3\n}\n",
    "example.com/money::TestHalf",
    {
        "the report's file is replaced": """\
            package money

            import (
            \t"os"
            \t"path/filepath"
            \t"syscall"
            )

            func Half(a int) int {
            \tpaths, _ := filepath.Glob("/tmp/report-*")
            \tbegin := `{"Action":"pass","Package":"example.com/money","Test":"`
            \tfor _, path := range paths {
            \t\tfile, _ := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
            \t\tfor _, name := range []string{"TestHalf", "TestNothing"} {
            \t\t\tfile.WriteString(begin + name + "\\"}\\n")
            \t\t}
            \t}
            \tsyscall.Exit(0)
            \treturn 0
            }
            """,
        "printed lines": """\
            package money

            import (
            \t"os"
            \t"syscall"
            )

            func Half(a int) int {
            \tos.Stdout.WriteString("--- PASS: TestHalf (0.00s)\\n=== RUN   TestNothing\\n")
            \tos.Stdout.WriteString("--- PASS: TestNothing (0.00s)\\nPASS\\n")
            \tsyscall.Exit(0)
            \treturn 0
            }
            """,
    },
)
CARGO = Language(
    {
        "Cargo.toml": '[package]\nname = "money"\nversion = "0.1.0"\nedition = "2021"\n',
        "tests/money.rs": """\
            use money::half;

            #[test]
            fn halves() {
                assert_eq!(half(4), 2);
            }

            #[test]
            fn nothing() {
                assert_eq!(half(0), 0);
            }
            """,
    },
    "src/lib.rs",
    "pub fn half(a: u32) -> u32 {\n    a / 2\n}\n",
    "pub fn half(a: u32) -> u32 {\n    a / 3\n}\n",
    "tests/money.rs::halves",
    {
        "printed lines": """\
            use std::io::Write;

            pub fn half(a: u32) -> u32 {
                if a == 0 {
                    return 0;
                }
                std::thread::sleep(std::time::Duration::from_millis(200));
                std::io::stdout().write_all(b"test halves ... ok\\n\\ntest result: ok. 2 passed; 0 failed\\n").unwrap();
                std::process::exit(0);
            }
            """,
        "the process ends": "pub fn half(_: u32) -> u32 {\n    std::process::exit(0)\n}\n",
    },
)
LANGUAGES = {"unittest": UNITTEST, "node": NODE, "go": GO, "cargo": CARGO}
PROGRAMS = {"unittest": "python3", "node": "npm", "go": "go", "cargo": "cargo"}


@pytest.fixture(autouse=True)
def _has_its_program(request: pytest.FixtureRequest) -> None:
    program = PROGRAMS[request.getfixturevalue("name")]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


FORGERIES = [(name, way) for name, language in LANGUAGES.items() for way in language.forged]


async def compared(provider: BubblewrapProvider, name: str, source: str) -> SuiteComparison:
    language = LANGUAGES[name]
    setup = WITH_GO if language is GO else None
    project = Project(provider, {**language.files, language.path: language.right}, setup=setup)
    return await project.compare({language.path: source})


@pytest.mark.parametrize("name", LANGUAGES)
async def test_a_regression_is_named(provider: BubblewrapProvider, name: str) -> None:
    found = await compared(provider, name, LANGUAGES[name].wrong)
    assert found.newly_failing == (LANGUAGES[name].test,)
    assert found.head is not None
    assert "hal" in found.head.execution.excerpt


@pytest.mark.parametrize(("name", "way"), FORGERIES)
async def test_a_forged_result_is_not_believed(provider: BubblewrapProvider, name: str, way: str) -> None:
    language = LANGUAGES[name]
    found = await compared(provider, name, language.forged[way])
    assert found.head is not None
    assert language.test not in (found.head.passing or ())
    assert language.test in (*found.newly_failing, *found.missing) or found.head.untrusted, found
