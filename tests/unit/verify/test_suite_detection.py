"""The suite that a repository's own files speak for, and how a command is asked for results."""

import json
from dataclasses import replace

import pytest

from app.verify.detect import find_suite
from app.verify.frameworks import REPORTER_OPTIONS, SuiteCommand, narrow, report_command, report_environment
from tests.support.memory_tree import MemoryTree

UNITTEST = "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"
MAVEN = "mvn --batch-mode --offline --fail-at-end test"
PLAIN = "def test_a():\n    assert 1\n"


def tree(**files: str) -> MemoryTree:
    """A tree from keyword names, for `tests__test_a_py` see `files`."""
    return MemoryTree({path: content.encode() for path, content in files.items()})


def found(files: dict[str, str], configured: str | None = None) -> SuiteCommand | None:
    return find_suite(tree(**files), configured)


def command_of(files: dict[str, str], configured: str | None = None) -> str:
    suite = found(files, configured)
    return suite.command if suite else ""


DETECTED = [
    ({"tests/test_a.py": PLAIN}, "python3 -m pytest"),
    ({"tests/test_a.py": "import pytest\n"}, "python3 -m pytest"),
    ({"tests/test_a.py": "class TestA:\n    def test_b(self): pass\n"}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "pytest.ini": ""}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, ".pytest.toml": ""}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "conftest.py": ""}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "setup.cfg": "[tool:pytest]\n"}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "tox.ini": "[testenv]\ncommands = pytest\n"}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "pyproject.toml": '[dependency-groups]\ntest = ["pytest>=8"]\n'}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST, "requirements-dev.txt": "pytest==8\n"}, "python3 -m pytest"),
    ({"test_a.py": UNITTEST}, "python3 -m unittest discover -v"),
    ({"tests/__init__.py": "", "tests/test_a.py": UNITTEST}, "python3 -m unittest discover -v"),
    ({"tests/test_a.py": UNITTEST}, "python3 -m unittest discover -v -s tests"),
    ({"pkg/__init__.py": "", "pkg/test_a.py": UNITTEST}, "python3 -m unittest discover -v"),
    ({"a_test.py": UNITTEST}, 'python3 -m unittest discover -v -p "*_test.py"'),
    ({"manage.py": "", "shop/tests.py": "from django.test import TestCase\n"}, "python3 manage.py test -v 2"),
    ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
    ({"package.json": '{"scripts": {"test": "make lint && node --test"}}'}, "npm test"),
    ({"package.json": '{"scripts": {"test": "jest"}}', ".pnp.cjs": ""}, "yarn test"),
    (
        {
            "package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}',
            "test/a.test.js": "",
        },
        "node --test",
    ),
    ({"package.json": "{}", "src/a.test.mjs": ""}, "node --test"),
    ({"a.test.js": "const test = require('node:test')"}, "node --test"),
    ({"package.json": '{"scripts": {"test": 3}}'}, ""),
    ({"package.json": "[" * 100_000}, ""),
    ({"docs/test.js": "", "README.md": ""}, ""),
    (
        {
            "pyproject.toml": "[tool.ruff]\n",
            "checks/test_all.py": PLAIN,
            "a/setup.py": "setup()",
            "a/tests/test_a.py": PLAIN,
        },
        "cd a && python3 -m pytest",
    ),
    (
        {"pyproject.toml": "[tool.uv]\n", "checks/test_all.py": PLAIN, "a/setup.py": "setup()"},
        "python3 -m pytest",
    ),
    ({"go.mod": "module x\n", "a_test.go": ""}, "go test ./..."),
    ({"go.mod": "module x\n", "a.go": ""}, ""),
    ({"Cargo.toml": "[package]\n", "src/lib.rs": "#[test] fn a() {}"}, "cargo test --no-fail-fast"),
    ({"Cargo.toml": "[workspace]\n", "a/tests/b.rs": ""}, "cargo test --no-fail-fast --workspace"),
    ({"Cargo.toml": "[package]\n", "src/lib.rs": ""}, ""),
    ({"Makefile": "all:\n\ntest: all\n\t./check\n"}, "make test"),
    ({"Makefile": "all:\n\techo test:\n"}, ""),
    ({"Makefile": "test :: all\n\t./check\n"}, "make test"),
    ({"Makefile": "test:=1\ntest ::= 2\nall:\n"}, ""),
    ({"pom.xml": "", "src/test/java/ATest.java": ""}, MAVEN),
    ({"Makefile": "test:\n", "tests/test_a.py": PLAIN}, "python3 -m pytest"),
    ({"backend/pyproject.toml": "", "backend/tests/test_a.py": "import pytest"}, "cd backend && python3 -m pytest"),
    ({"a/b/go.mod": "", "a/b/c_test.go": ""}, "cd a/b && go test ./..."),
    ({"a/b/c/go.mod": "", "a/b/c/c_test.go": ""}, ""),
    ({"README.md": "hello"}, ""),
    ({}, ""),
    ({"node_modules/x/package.json": '{"scripts": {"test": "jest"}}'}, ""),
    ({"pyproject.toml": "broken [", "test_a.py": UNITTEST}, "python3 -m unittest discover -v"),
]


@pytest.mark.parametrize(("files", "command"), DETECTED)
def test_detection(files: dict[str, str], command: str) -> None:
    assert command_of(files) == command


def test_a_project_below_the_top_is_run_where_it_is() -> None:
    suite = found({"README.md": "", "my app/package.json": '{"scripts": {"test": "jest"}}'})
    assert suite is not None
    assert suite.command == "cd 'my app' && npm test"
    assert narrow(suite, ["my app/src/a.test.js"]) == "cd 'my app' && npm test -- src/a.test.js"


def test_the_ecosystem_with_most_tests_is_run_and_others_are_named() -> None:
    files = {
        "package.json": '{"scripts": {"test": "jest"}}',
        "a.test.js": "",
        "t/test_a.py": PLAIN,
        "t/test_b.py": PLAIN,
    }
    suite = found(files)
    assert suite is not None
    assert suite.command == "python3 -m pytest"
    assert "`npm test`" in suite.note


def test_projects_that_the_top_covers_are_not_named() -> None:
    files = {"pyproject.toml": "", "test_a.py": PLAIN, "sub/pyproject.toml": "", "sub/test_b.py": PLAIN}
    suite = found(files)
    assert suite is not None
    assert (suite.command, suite.note) == ("python3 -m pytest", "")


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("mocha packages/*/test/*.js", ""),
        ("mocha", "Also found, but not run: `cd packages/a && npm test`, `cd packages/b && npm test`, "),
        ("jest", ""),
    ],
)
def test_packages_whose_tests_the_top_runs_are_not_named(script: str, note: str) -> None:
    text = json.dumps({"scripts": {"test": script}, "workspaces": ["packages/*"]})
    inner = json.dumps({"scripts": {"test": script.partition(" ")[0]}})
    below = {f"packages/{name}/package.json": inner for name in "abcde"}
    suite = found({"package.json": text, **below})
    assert suite is not None
    assert suite.command == "npm test"
    assert suite.note.startswith(note)
    assert bool(suite.note) is ("`cd packages/c && npm test` and 2 more. Set" in suite.note) is bool(note)


def test_members_of_a_cargo_workspace_are_not_named_and_what_it_excludes_is() -> None:
    crates = {f"{name}/{path}": text for name in "ab" for path, text in (("Cargo.toml", ""), ("tests/c.rs", ""))}
    suite = found({"Cargo.toml": '[workspace]\nmembers = ["a"]\nexclude = ["b"]\n', **crates})
    assert suite is not None
    assert suite.command == "cargo test --no-fail-fast --workspace"
    assert suite.note.startswith("Also found, but not run: `cd b && cargo test --no-fail-fast`. ")


def test_tests_of_bun_need_no_script() -> None:
    suite = found({"package.json": "{}", "bun.lock": "", "src/a.test.ts": 'import { test } from "bun:test"'})
    assert suite is not None
    assert (suite.command, suite.framework) == ("bun test", "bun")


CONFIGURED = [
    ("pytest -q tests", "pytest", "pytest -q"),
    ("python -m pytest -k tests tests/test_a.py", "pytest", "python -m pytest -k tests"),
    ("uv run --frozen pytest", "pytest", "uv run --frozen pytest"),
    ("PYTHONPATH=src python3 -m pytest .", "pytest", "PYTHONPATH=src python3 -m pytest"),
    ("coverage run -m pytest", "pytest", "coverage run -m pytest"),
    ("PYTHONPATH=$PWD/src pytest -q", "pytest", "PYTHONPATH=$PWD/src pytest -q"),
    ("PYTHONPATH=src:${PYTHONPATH} pytest", "pytest", "PYTHONPATH=src:${PYTHONPATH} pytest"),
    ("ROOT=$PWD pytest", "pytest", ""),
    ("pytest --rootdir=$PWD", "pytest", ""),
    ('pytest "--rootdir=$PWD"', "pytest", ""),
    ("pytest '--rootdir=$PWD'", "pytest", "pytest '--rootdir=$PWD'"),
    ("pytest -c ~/pytest.ini", "pytest", ""),
    ("pytest -q tests/test_*.py", "pytest", "pytest -q"),
    ("pytest -k 'a or b[1]' t*", "pytest", "pytest -k 'a or b[1]'"),
    ("node --test --import $HOME/x.mjs", "pytest", ""),
    ("make test", "pytest", ""),
    ("tox -e py311", "pytest", ""),
    ("pytest tests && ruff check", "pytest", ""),
    ("python3 -m unittest discover -s tests", "unittest", "python3 -m unittest -v"),
    ("python manage.py test", "unittest", "python manage.py test -v 2"),
    ("npx jest --ci", "jest", "npx jest --ci"),
    ("npx jest@29 --ci", "jest", "npx jest@29 --ci"),
    ("npx mocha.js test", "pytest", ""),
    ("vitest run", "vitest", "vitest run"),
    ("node --import ./x.mjs --test test/", "node", "node --import ./x.mjs --test"),
    ("node --conditions src --test test/a.test.js", "node", "node --conditions src --test"),
    ("node --test --test-timeout 5000 test", "node", "node --test --test-timeout 5000"),
    ("node --disable-warning ExperimentalWarning --test", "node", "node --disable-warning ExperimentalWarning --test"),
    ("node --env-file-if-exists x.mjs --test ./", "node", "node --env-file-if-exists x.mjs --test"),
    ("node --test --test-name-pattern test dist/a.test.js", "node", "node --test --test-name-pattern test"),
    ("node --test 'test/**/*.test.js'", "node", "node --test"),
    ("node --enable-source-maps --test dist", "node", "node --enable-source-maps --test"),
    ("node --test --experimental-test-coverage --test-coverage-lines 90 src", "node", "node --test"),
    ("node --test --test-reporter=tap", "other", ""),
    ("npx --no-install borp --timeout 9 test/*.js", "borp", "npx --no-install borp --timeout 9"),
    ("bun test --timeout 9 src/a.test.ts", "bun", "bun test --timeout 9"),
    ("go test -race ./...", "go", "go test -race"),
    ("cargo test --all-features", "cargo", "cargo test --all-features"),
    ("MIX_ENV=test mix test", "mix", ""),
    ("dotnet test --no-build", "dotnet", ""),
    ("php vendor/bin/phpunit --testdox", "phpunit", ""),
    ("vendor/bin/pest", "phpunit", ""),
    ("composer test", "other", ""),
    ("phpunit-watcher watch", "pytest", ""),
    ("python -m django test -v1 --settings a.b shop", "unittest", "python -m django test -v 2 --settings a.b"),
    ("django-admin test", "unittest", "django-admin test -v 2"),
    ("python3 src/manage.py test --verbosity=2", "unittest", "python3 src/manage.py test -v 2"),
]


@pytest.mark.parametrize(("command", "framework", "narrowed"), CONFIGURED)
def test_a_configured_command_wins_and_is_recognised(command: str, framework: str, narrowed: str) -> None:
    suite = found({"tests/test_a.py": PLAIN, "src/a.py": "", "x.mjs": "", "test/a.test.js": ""}, command)
    assert suite is not None
    assert (suite.framework, suite.narrowed) == (framework, narrowed)
    if framework != "unittest":
        assert suite.command == command


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("composer test", "composer test -- --log-junit /tmp/r"),
        ("composer run-script unit", "composer run-script unit -- --log-junit /tmp/r"),
        ("composer lint", "composer lint"),
        ("php vendor/bin/phpunit --testdox", "php vendor/bin/phpunit --testdox --log-junit /tmp/r"),
        ("mix test --cover", "mix test --cover --trace"),
        ("dotnet test", "dotnet test --logger trx --results-directory /tmp/r.found"),
    ],
)
def test_runners_are_asked_for_a_report_behind_their_own_arguments(command: str, asked: str) -> None:
    scripts = {"test": ["@php phpunit"], "unit": "pest --parallel", "lint": "phpcs"}
    suite = found({"composer.json": json.dumps({"scripts": scripts})}, command)
    assert suite is not None
    assert report_command(suite, "/tmp/r").rpartition("; ")[2] == asked


def test_modules_of_a_go_workspace_are_not_named_as_left_out() -> None:
    files = {"go.work": "use (\n\t.\n\t./a\n)\n", "go.mod": "", "x_test.go": "", "a/go.mod": "", "a/a_test.go": ""}
    suite = found({**files, "b/go.mod": "", "b/b_test.go": ""})
    assert suite is not None
    assert suite.note == "Also found, but not run: `cd b && go test ./...`. Set `test:` in the configuration to choose."


def test_a_configured_command_that_nobody_knows_is_run_as_it_is() -> None:
    assert found({}, "./check.sh") == SuiteCommand(command="./check.sh")


def test_a_blank_configuration_is_none() -> None:
    assert command_of({"tests/test_a.py": PLAIN}, "  ") == "python3 -m pytest"


def test_npm_test_as_configuration_is_read_through_the_package() -> None:
    suite = found({"package.json": '{"scripts": {"test": "vitest run"}}'}, "npm test")
    assert suite is not None
    assert (suite.framework, suite.narrowed) == ("vitest", "npm test --")


LIMITS = '{"coverageThreshold": {"global": {"lines": 90}}}'


@pytest.mark.parametrize(
    ("scripts", "files", "narrowed"),
    [
        ({"test": "jest"}, {}, "npm test --"),
        ({"test": "jest --coverage"}, {}, "npm test --"),
        ({"test": "jest --coverage"}, {"jest.config.json": LIMITS}, "npx --no-install jest --no-coverage"),
        (
            {"test": "NODE_ENV=test jest"},
            {"jest.config.json": LIMITS},
            "NODE_ENV=test npx --no-install jest --no-coverage",
        ),
        ({"test": "jest"}, {"jest.config.json": LIMITS, ".pnp.cjs": ""}, "yarn test --"),
        (
            {"test": "vitest --coverage.thresholds.lines=90"},
            {},
            "npx --no-install vitest run --no-coverage",
        ),
        ({"test": "nyc mocha -r x test/*.js"}, {}, "npm test --"),
        (
            {"test": "nyc mocha -r x test/*.js"},
            {".nycrc": '{"check-coverage": true}'},
            "npx --no-install mocha -r x test/*.js",
        ),
        ({"test": "c8 --100 mocha"}, {}, "npx --no-install mocha"),
        ({"test": "mocha", "posttest": "eslint ."}, {}, "npx --no-install mocha"),
        ({"pretest": "tsc", "test": "mocha", "posttest": "x"}, {}, "npm run pretest && npx --no-install mocha"),
    ],
)
def test_chosen_tests_do_not_fail_for_too_little_coverage_or_a_script_after_them(
    scripts: dict[str, str], files: dict[str, str], narrowed: str
) -> None:
    package = json.dumps({"scripts": scripts})
    for configured in (None, "npm test"):
        suite = found({"package.json": package, **files}, configured)
        assert suite is not None
        assert suite.narrowed == narrowed
        assert suite.unnarrowed in ("npm test --", "yarn test --")
        ending = "mjs" if suite.framework == "vitest" else "cjs"
        asked = REPORTER_OPTIONS[suite.framework].format(reporter=f"/tmp/r.{suite.framework}.{ending}")
        assert report_command(suite, "/tmp/r").endswith(f" {suite.unnarrowed} {asked}")
        assert report_command(suite, "/tmp/r", ("a.test.js",)).endswith(f" {narrowed} {asked} a.test.js")


def test_a_configured_runner_does_not_fail_for_too_little_coverage_of_chosen_tests() -> None:
    suite = found({"jest.config.json": LIMITS}, "npx jest")
    assert suite is not None
    assert (suite.narrowed, suite.unnarrowed) == ("npx jest --no-coverage", "npx jest")


NARROWED = [
    ({"tests/test_a.py": PLAIN}, ("tests/test_a.py::test_b[a b]",), "python3 -m pytest 'tests/test_a.py::test_b[a b]'"),
    (
        {"tests/__init__.py": "", "tests/test_a.py": UNITTEST},
        (
            "tests/test_a.py",
            "tests.test_a.A.test_a",
            "tests.test_a.A.setUpClass",
            "unittest.loader._FailedTest.tests.x",
        ),
        "python3 -m unittest -v tests.test_a tests.test_a.A.test_a tests.test_a.A tests.x",
    ),
    ({"tests/test_a.py": UNITTEST}, ("tests/test_a.py",), "PYTHONPATH=tests python3 -m unittest -v test_a"),
    ({"package.json": "{}", "a.test.js": ""}, ("a.test.js::S > one", "a.test.js"), "node --test a.test.js"),
    ({"go.mod": "", "p/a_test.go": ""}, ("ex/p::TestA/b c", "ex/p::TestB"), "go test -run '^(TestA|TestB)$' ex/p"),
    ({"go.mod": "", "p/a_test.go": ""}, ("p/a_test.go",), "go test ./p"),
    ({"go.mod": "", "a_test.go": ""}, ("a_test.go",), "go test ."),
    ({"Cargo.toml": "", "tests/it.rs": ""}, ("tests/it.rs",), "cargo test --no-fail-fast --test it"),
    (
        {"Cargo.toml": "", "tests/it.rs": ""},
        ("src/lib.rs::tests::a",),
        "cargo test --no-fail-fast -- --exact tests::a",
    ),
    (
        {"pom.xml": "", "m/pom.xml": "", "m/src/test/java/a/BTest.java": ""},
        ("a.BTest::adds", "a.BTest::adds(int)[2]", "m/src/test/java/a/BTest.java"),
        f"{MAVEN} -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false '-Dtest=a.BTest#adds,a.BTest'",
    ),
]


@pytest.mark.parametrize(("files", "only", "command"), NARROWED)
def test_a_suite_is_narrowed_to_tests(files: dict[str, str], only: tuple[str, ...], command: str) -> None:
    suite = found(files)
    assert suite is not None
    assert narrow(suite, only) == command


@pytest.mark.parametrize(
    ("files", "only"),
    [
        ({"package.json": "{}", "a.test.js": ""}, ("S > one",)),
        ({"Cargo.toml": "", "tests/it.rs": ""}, ("doc cr::src/lib.rs - f",)),
        ({"Makefile": "test:\n"}, ("anything",)),
        ({"tests/test_a.py": PLAIN}, ()),
    ],
)
def test_a_command_that_cannot_be_narrowed_says_so(files: dict[str, str], only: tuple[str, ...]) -> None:
    suite = found(files)
    assert suite is not None
    with pytest.raises(ValueError, match="narrowed"):
        narrow(suite, only)


def test_reports_are_asked_for_by_the_environment_where_that_is_possible() -> None:
    suite = found({"tests/test_a.py": PLAIN})
    assert suite is not None
    assert report_command(suite, "/tmp/r").endswith("AGENT_FIX_REPORT=/tmp/r AGENT_FIX_PARALLEL=''; python3 -m pytest")
    own = replace(suite, command="PYTHONPATH=src pytest", narrowed="PYTHONPATH=src pytest")
    assert report_command(own, "/tmp/r") == "PYTHONPATH=src pytest"
    assert "--junitxml=/tmp/r" in report_environment(suite, "/tmp/r")["PYTEST_ADDOPTS"]
    node = found({"package.json": '{"scripts": {"test": "node --test"}}'})
    assert node is not None
    assert report_command(node, "/tmp/r").endswith("> /tmp/r.node.mjs; npm test")
    assert "--test-reporter=/tmp/r.node.mjs" in report_environment(node, "/tmp/r")["NODE_OPTIONS"]


def test_reports_are_asked_for_by_arguments_elsewhere() -> None:
    jest = found({"package.json": '{"scripts": {"test": "jest"}}'})
    assert jest is not None
    command = "npm test -- --reporters=default --reporters=/tmp/r.jest.cjs a.test.js"
    assert report_command(jest, "/tmp/r", ("a.test.js",)).endswith(f"> /tmp/r.jest.cjs; {command}")
    mocha = SuiteCommand(command="npx mocha", framework="mocha", narrowed="npx mocha")
    assert report_command(mocha, "/tmp/r").endswith("; npx mocha --reporter /tmp/r.mocha.cjs")
    go = found({"go.mod": "", "a_test.go": ""})
    assert go is not None
    assert report_command(go, "/tmp/r").endswith("; go test -json ./... > /tmp/r")
    piped = found({"package.json": '{"scripts": {"test": "jest && tsc"}}'})
    assert piped is not None
    assert report_command(piped, "/tmp/r").endswith("> /tmp/r.cjs; npm test")
    assert "> /tmp/r.vitest.mjs; " in report_command(piped, "/tmp/r")
    assert report_environment(piped, "/tmp/r")["NODE_OPTIONS"] == "--require /tmp/r.cjs"
