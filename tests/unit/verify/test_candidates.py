"""Which ways to set up and test a project are tried, in which order, and how the results are judged."""

import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from app.core.errors import SetupError
from app.core.verification import Execution, SuiteResult, TestCount
from app.sandbox.base import CompletedCommand, Sandbox, SandboxCommand
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.manifests import ManifestFiles
from app.sandbox.setup.plan import is_manifest
from app.verify.candidates import Candidate, Surroundings, Trial, TrialLimits, candidates, choose_python, try_candidates
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.report_text import report_in_output
from app.verify.reports import CaseResult, cause_of, shared_cause
from app.verify.suite import measure
from app.verify.verdict import compare
from tests.support.local_sandbox import LocalSandbox
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress

PROJECT = '[build-system]\nrequires = ["x"]\nbuild-backend = "x"\n[project]\nname = "a"\n'
PYTHONS = {version: f"/opt/python{version}" for version in ("3.6", "3.8", "3.9", "3.11", "3.13")}
OLD = Surroundings(PYTHONS, "3.11", date(2020, 6, 1), date(2026, 11, 1))
FRESH = Surroundings(PYTHONS, "3.11", date(2026, 10, 1), date(2026, 11, 1))
TOX = "[tox]\nenvlist = py38\n[testenv]\ndeps = pytest\ncommands = pytest tests\n"


def tree(**files: str) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in files.items()})


def of(surroundings: Surroundings, files: dict[str, str]) -> list[Candidate]:
    return candidates(tree(**files), surroundings)


PYTHON = {"pyproject.toml": PROJECT, "tox.ini": TOX, "tests/test_a.py": "def test_a(): pass\n"}


UNITTEST = "import unittest\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        pass\n"


def test_a_fresh_project_is_tried_as_it_describes_itself_and_then_by_its_manifests() -> None:
    first, second = of(FRESH, PYTHON)
    assert (first.name, second.name) == ("tox.ini", "manifests")
    assert first.choice.requirements == ("pytest", "-e .")
    assert first.suite is not None
    assert (first.suite.command, first.suite.narrowed) == ("python3 -m pytest tests", "python3 -m pytest")


def test_an_old_project_is_tried_with_the_packages_of_its_time_too() -> None:
    names = [(one.name, one.choice.before, one.choice.python) for one in of(OLD, PYTHON)]
    assert names == [
        ("tox.ini", "", "/opt/python3.8"),
        ("manifests", "", "/opt/python3.8"),
        ("tox.ini as of 2020-06-02", "2020-06-02", "/opt/python3.8"),
        ("manifests as of 2020-06-02", "2020-06-02", "/opt/python3.8"),
    ]


def test_a_recent_project_is_tried_with_the_packages_of_its_time_at_last() -> None:
    recent = replace(FRESH, committed=date(2026, 8, 21))
    names = [(one.name, one.choice.before) for one in of(recent, PYTHON | {"poetry.lock": ""})]
    assert names == [("tox.ini", ""), ("manifests", ""), ("tox.ini as of 2026-08-22", "2026-08-22")]
    found = of(recent, {"package.json": '{"scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^8"}}'})
    assert [one.choice.before for one in found] == ["", "2026-08-22"]


def test_a_lock_file_speaks_for_the_packages_of_its_time() -> None:
    first = of(OLD, PYTHON | {"poetry.lock": ""})[0]
    assert first.name == "tox.ini as of 2020-06-02"


def test_tests_of_a_workspace_with_one_name_at_several_places_are_imported_from_their_places() -> None:
    pyproject = '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/c"]\n[tool.pytest.ini_options]\n'
    paths = [f"packages/{name}/{file}" for name in "abc" for file in ("pyproject.toml", "tests/test_x.py")]
    files = {"pyproject.toml": pyproject, "docs/test_d.py": ""} | dict.fromkeys(paths, "")
    (only,) = of(FRESH, files)
    assert only.suite is not None
    assert only.suite.command == "python3 -m pytest --import-mode=importlib --ignore=docs --ignore=packages/c"
    assert only.suite.note == "Not run, as their packages may be missing: docs, packages/c."
    only_one = {path: "" for path in paths if "/a/" in path}
    (plain,) = of(FRESH, {"pyproject.toml": pyproject, **only_one})
    assert plain.suite is not None
    assert plain.suite.command == "python3 -m pytest"


def test_an_old_node_project_is_tried_with_the_packages_of_its_time_too() -> None:
    found = of(OLD, {"package.json": '{"scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^8"}}'})
    assert [one.choice.before for one in found] == ["", "2020-06-02"]


def test_a_command_for_a_part_of_the_tests_comes_after_the_whole_suite_of_a_worse_description() -> None:
    more = {f"tests/db/test_{name}.py": "" for name in "bc"}
    first, second = of(FRESH, PYTHON | more | {"tox.ini": TOX.replace("pytest tests", "pytest ./tests/test_a.py")})
    assert [(one.name, one.part) for one in (first, second)] == [("manifests", False), ("tox.ini", True)]
    assert second.suite is not None
    assert second.suite.note == "It runs 1 of 3 files with tests."
    (whole, _) = of(FRESH, PYTHON | more)
    assert (whole.name, whole.part) == ("tox.ini", False)


@pytest.mark.parametrize(
    ("requires", "named", "at", "version"),
    [
        ("", (), None, "3.11"),
        (">=3.8", ("3.9", "3.11"), None, "3.11"),
        (">=3.8", ("3.8", "3.9"), None, "3.9"),
        (">=3.12", ("3.12", "3.13"), None, "3.13"),
        (">=3.6,<3.9", (), None, "3.8"),
        ("", (), date(2020, 6, 1), "3.8"),
        ("", ("3.6", "3.7"), date(2020, 6, 1), "3.6"),
        ("", (), date(2023, 6, 1), "3.11"),
        (">=4", (), None, "3.11"),
    ],
)
def test_the_version_of_python(requires: str, named: Sequence[str], at: date | None, version: str) -> None:
    files = ManifestFiles(tree(**{"pyproject.toml": PROJECT + f'requires-python = "{requires}"\n'}))
    assert choose_python(files, OLD, named, at) == version


def result(passed: int, failed: int, exit_code: int = 0, cause: str = "") -> SuiteResult:
    return SuiteResult(
        execution=Execution(command="t", exit_code=exit_code, seconds=1),
        count=TestCount(passed=passed, failed=failed),
        shared_cause=cause,
    )


def trial(passed: int, failed: int) -> Trial:
    return Trial(Candidate("c", "r", 1, SetupChoice(), None), 1.0, result(passed, failed))


def test_trials_are_ranked_by_what_passed() -> None:
    assert trial(400, 28).rank > trial(5, 0).rank
    assert trial(90, 10).comparable
    assert not trial(89, 11).comparable
    assert not trial(0, 0).comparable
    assert trial(0, 0).rank > Trial(Candidate("c", "r", 1, SetupChoice(), None), 1.0).rank
    part = Candidate("c", "r", 1, SetupChoice(), None, part=True)
    assert Trial(part, 1.0, result(5, 0)).rank < trial(80, 20).rank
    only_exit = SuiteResult(execution=Execution(command="t", exit_code=0, seconds=1))
    assert Trial(Candidate("c", "r", 1, SetupChoice(), None), 1.0, only_exit).comparable


def test_the_most_tests_that_passed_win_and_an_exit_code_is_none() -> None:
    only_exit = SuiteResult(execution=Execution(command="t", exit_code=0, seconds=1))
    by_exit_code = Trial(Candidate("c", "r", 1, SetupChoice(), None), 1.0, only_exit)
    part = Trial(Candidate("c", "r", 1, SetupChoice(), None, part=True), 1.0, result(500, 0))
    assert by_exit_code.rank < trial(1, 0).rank < trial(5, 0).rank < part.rank
    assert trial(500, 0).rank > part.rank
    assert trial(3, 0).rank < trial(80, 20).rank < trial(60, 0).rank


@pytest.mark.parametrize(
    ("first", "files", "tried"),
    [
        ("ok 1 - a\n1..1\n", 0, ["a"]),
        ("ok 1 - a\n1..1\n", 1, ["a"]),
        ("ok 1 - a\n1..1\n", 9, ["b", "a"]),
        ("done\n", 0, ["b", "a"]),
        ("not ok 1 - a\n1..1\n", 0, ["b", "a"]),
    ],
)
async def test_a_candidate_with_more_files_of_tests_than_passed_before_is_tried_too(
    tmp_path: Path, first: str, files: int, tried: Sequence[str]
) -> None:
    """And every other command if only an exit code is known; not the same command in another set-up."""
    commands = (first, "ok 1 - a\nok 2 - b\n1..2\n", first)
    found = [
        Candidate(name, name, 1, SetupChoice(), SuiteCommand(f"printf '%s' {shlex.quote(text)}"), files=files)
        for name, text in zip("abc", commands, strict=True)
    ]

    @asynccontextmanager
    async def local(candidate: Candidate) -> AsyncIterator[Sandbox]:
        yield ReportingSandbox(tmp_path / candidate.name)

    trials = await try_candidates(found, local, TrialLimits(), ListProgress(), lambda: None)
    assert [one.candidate.name for one in trials if one.candidate.name != "c"] == tried


def no_sandbox(candidate: Candidate) -> Sandbox:
    raise SetupError(f"{candidate.name} cannot be had.")


async def test_a_set_up_that_fails_is_followed_by_the_next_and_its_reason_is_kept() -> None:
    found = [Candidate(name, name, 1, SetupChoice(), None) for name in ("a", "b", "c")]

    @asynccontextmanager
    async def refuse(candidate: Candidate) -> AsyncIterator[Sandbox]:
        yield no_sandbox(candidate)

    progress = ListProgress()
    with pytest.raises(SetupError, match=r"a cannot be had\."):
        await try_candidates(found, refuse, TrialLimits(), progress, lambda: None)


async def test_the_reason_of_a_failed_set_up_is_its_command_and_its_error(tmp_path: Path) -> None:
    passing = SuiteCommand("printf 'test_a (t.C.test_a) ... ok\\n-----\\nRan 1 test\\n'", "unittest")
    found = [Candidate(name, name, 1, SetupChoice(), passing) for name in ("absent", "b")]

    @asynccontextmanager
    async def second(candidate: Candidate) -> AsyncIterator[Sandbox]:
        if candidate.name == "absent":
            raise SetupError("The command `x` failed.\ndownloading\nError: no package y\n    at z\n")
        yield LocalSandbox(tmp_path)

    trials = await try_candidates(found, second, TrialLimits(), ListProgress(), lambda: None)
    assert [trial.reason for trial in trials] == ["", "The command `x` failed. Error: no package y"]


@pytest.mark.parametrize(
    ("outputs", "tried", "best"),
    [
        (["ok"], 1, "a"),
        (["skipped 'x'", "ok"], 2, "b"),
        (["skipped 'x'", "skipped 'x'", "ok"], 2, "a"),
        (["skipped 'x'", "FAIL", "skipped 'x'", "ok"], 3, "a"),
        (["part: ok", "ok"], 2, "b"),
        (["part: ok", "FAIL"], 2, "a"),
    ],
)
async def test_a_set_up_that_skips_many_tests_or_runs_a_part_is_followed_by_one_more_that_works(
    tmp_path: Path, outputs: Sequence[str], tried: int, best: str
) -> None:
    """Each suite has a test that passes, and one that ends as it is told."""
    shown = {
        name: f"test_a (t.C.test_a) ... ok\ntest_b (t.C.test_b) ... {output}\n-----\nRan 2 tests\n"
        for name, output in zip("abcd", outputs, strict=False)
    }
    suites = {name: SuiteCommand(f"printf '%s' {shlex.quote(text)}", "unittest") for name, text in shown.items()}
    found = [
        Candidate(name, name, 1, SetupChoice(), suite, part="part:" in suite.command) for name, suite in suites.items()
    ]

    @asynccontextmanager
    async def local(candidate: Candidate) -> AsyncIterator[Sandbox]:
        yield LocalSandbox(tmp_path / candidate.name)

    trials = await try_candidates(found, local, TrialLimits(), ListProgress(), lambda: None)
    assert (len(trials), trials[0].candidate.name) == (tried, best)


class ReportingSandbox(LocalSandbox):
    """Reports are below its directory in scripts and variables, too."""

    def _placed(self, text: str) -> str:
        return text.replace("/tmp/report-", f"{self.tmp}/report-")

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        env = {name: self._placed(value) for name, value in command.env.items()}
        return await super().execute(replace(command, argv=[*map(self._placed, command.argv)], env=env))


class StoppedSandbox(ReportingSandbox):
    """The suite's command is stopped when it ends by itself."""

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        done = await super().execute(command)
        return replace(done, exit_code=137, timed_out=True) if command.argv[0] == "bash" else done


TESTS_UNTIL_A_STOP = """
import os, unittest

class A(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.assertEqual(1, 2)
    @unittest.skip("later")
    def test_c(self): pass
    def test_d(self): os._exit(0)
"""


@pytest.mark.parametrize("command", ["pytest", "unittest -v"])
async def test_the_first_tests_of_a_suite_that_is_stopped_have_results(tmp_path: Path, command: str) -> None:
    """Also if it is killed before it can report."""
    sandbox = StoppedSandbox(tmp_path, {"test_x.py": TESTS_UNTIL_A_STOP.encode()})
    command = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m {command}"
    suite = SuiteCommand(command, "pytest" if "pytest" in command else "unittest", narrowed=command)
    found = (await measure(sandbox, suite, timeout=400.0)).result
    assert found.count == TestCount(passed=1, failed=1, skipped=1)
    assert "3 tests had finished by then" in found.partial
    assert (await measure(ReportingSandbox(tmp_path), suite, timeout=400.0)).result.count is None


@pytest.mark.parametrize(("passing", "failing", "tried"), [(50, 1, 1), (48, 1, 2), (50, 2, 2)])
async def test_enough_first_tests_of_a_suite_that_is_stopped_end_the_trials(
    tmp_path: Path, passing: int, failing: int, tried: int
) -> None:
    """Also of a part, or if many are skipped; but only if nearly all of them pass."""
    endings = ["ok"] * passing + ["skipped 'x'"] * 40 + ["FAIL"] * failing
    lines = "".join(f"test_{at} (t.C.test_{at}) ... {ending}\n" for at, ending in enumerate(endings))
    suite = SuiteCommand(f"printf '%s' {shlex.quote(lines)}", "unittest")
    found = [Candidate(name, name, 1, SetupChoice(), suite, part=True) for name in "ab"]

    @asynccontextmanager
    async def local(candidate: Candidate) -> AsyncIterator[Sandbox]:
        yield StoppedSandbox(tmp_path / candidate.name)

    assert len(await try_candidates(found, local, TrialLimits(), ListProgress(), lambda: None)) == tried


@pytest.mark.parametrize(("parallel", "processes"), [(True, 2), (False, 1)])
async def test_pytest_runs_in_as_many_processes_as_in_ci_during_a_trial(
    tmp_path: Path, parallel: bool, processes: int
) -> None:
    """At most one for each processor."""
    number = min(processes, len(os.sched_getaffinity(0)))
    text = f"import os\ndef test_a():\n    assert os.environ.get('PYTEST_XDIST_WORKER_COUNT', '1') == '{number}'\n"
    sandbox = ReportingSandbox(tmp_path, {"test_x.py": text.encode()})
    command = f"{sys.executable} -m pytest"
    suite = SuiteCommand(command, "pytest", narrowed=command, parallel="2 --dist=loadfile")
    found = (await measure(sandbox, suite, timeout=400.0, parallel=parallel)).result
    assert found.count == TestCount(passed=1), found.execution.excerpt


def cases(number: int, text: str, passed: int = 0) -> dict[str, CaseResult]:
    failing = {f"t{at}": CaseResult("error", text.replace("N", str(at))) for at in range(number)}
    return failing | {f"p{at}": CaseResult("passed") for at in range(passed)}


def test_the_shared_cause_of_a_suite_in_which_nearly_everything_fails() -> None:
    text = "tests/a.py:N: in f\n    x\nE   ImportError: cannot import name 'a' from 'b'\n"
    cause, others = shared_cause(cases(9, text) | {"own": CaseResult("failed", "E       assert 1 == 2")})
    assert cause == "ImportError: cannot import name 'a' from 'b'"
    assert others == ("own",)
    assert shared_cause(cases(9, text, passed=20)) == ("", ())
    assert shared_cause(cases(3, text)) == ("", ())
    assert shared_cause({name: CaseResult("failed", f"E  {name}Error: x") for name in "ABCDEFGHI"})[0] == ""


def test_the_cause_of_a_failure_is_its_error_and_not_what_make_says() -> None:
    assert cause_of("Error: no module 'a'\n    at b\nmake: *** [Makefile:4: test] Error 1\n") == "Error: no module 'a'"


def test_the_cause_of_a_failed_npm_is_not_where_its_log_is() -> None:
    assert (
        cause_of("npm error notarget\nnpm error A complete log of this run can be found in: x\n")
        == "npm error notarget"
    )


def test_a_limit_of_the_sandbox_is_a_cause_before_any_error() -> None:
    limit = "[the command reached the sandbox's limit of 512 processes]"
    assert cause_of(f"Error: no module 'a'\n\n{limit}\n") == limit


def suite(failing: Sequence[str], others: Sequence[str] = (), cause: str = "ImportError: a") -> SuiteResult:
    return result(0, len(failing), 1, cause).model_copy(
        update={"failing": tuple(failing), "passing": (), "other_failures": tuple(others)}
    )


def test_a_new_test_that_fails_as_all_others_do_is_not_newly_failing() -> None:
    base, head = suite(["a", "b"]), suite(["a", "b", "new"])
    assert compare("t", base, head).newly_failing == ()
    assert compare("t", base, suite(["a", "b", "new"], ["new"])).newly_failing == ("new",)
    assert compare("t", base, suite(["a", "b", "new"], cause="")).newly_failing == ("new",)


def test_the_runner_behind_scripts_that_do_more_is_tried_first() -> None:
    scripts = {"test": "npm run lint && tsc -p . && nyc mocha --reporter dot 'test/**/*.js'", "lint": "eslint ."}
    first, second = of(FRESH, {"package.json": json.dumps({"scripts": scripts}), "test/a.js": ""})
    assert first.suite is not None
    assert first.suite.command == "npx --no-install tsc -p . && npx --no-install mocha 'test/**/*.js'"
    assert (first.suite.framework, first.suite.narrowed) == ("mocha", first.suite.command)
    assert second.suite is not None
    assert second.suite.command == "npm test"


@pytest.mark.parametrize(
    ("script", "command"),
    [("xo && ava", "npx --no-install ava --tap"), ("standard && tape test/*.js", "npx --no-install tape test/*.js")],
)
def test_runners_that_print_tap(script: str, command: str) -> None:
    first = of(FRESH, {"package.json": json.dumps({"scripts": {"test": script}})})[0]
    assert first.suite is not None
    assert first.suite.command == command


@pytest.mark.parametrize("library", ["tap", "tape"])
def test_a_program_of_node_prints_tap_where_the_project_has_a_library_for_it(library: str) -> None:
    scripts = {"test": "npm run lint && node prepare.js && nyc node test/all.js", "lint": "standard"}
    package = {"scripts": scripts, "devDependencies": {library: "1"}}
    first = of(FRESH, {"package.json": json.dumps(package), "test/all.js": ""})[0]
    assert first.suite is not None
    assert first.suite.command == 'PATH="$PWD/node_modules/.bin:$PATH" node prepare.js && node test/all.js'
    assert first.suite.framework == "other"
    both = {"scripts": {"test": "node test/prepare.js && borp"}, "devDependencies": {library: "1"}}
    other = of(FRESH, {"package.json": json.dumps(both)})[0]
    assert other.suite is not None
    assert (other.suite.framework, other.suite.command.rpartition(" ")[2]) == ("borp", "borp")
    plain = {"scripts": {"test": "node test.js"}}
    with_library = of(FRESH, {"package.json": json.dumps({**plain, "devDependencies": {library: "1"}})})[0]
    assert with_library.suite is not None
    assert with_library.suite.command == "node test.js"
    without = of(FRESH, {"package.json": json.dumps(plain)})[0]
    assert without.suite is not None
    assert (without.suite.command, without.suite.framework) == ("npm test", "node")


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("npm run build && turbo test", "npx --no-install tsc && npx --no-install turbo test --continue --"),
        ("eslint . && nx run-many --target=test", "npx --no-install nx run-many --target=test --"),
        ("lerna run test --stream", "npx --no-install lerna run test --stream --no-bail --"),
        ("pnpm -r run test", "pnpm --no-bail -r run test"),
        ("npm test --workspaces", "npm test --workspaces --"),
        ("CI=1 yarn workspaces foreach -A run test", "CI=1 yarn workspaces foreach -A run test"),
    ],
)
@pytest.mark.parametrize("runner", ["vitest", "mocha"])
def test_the_tests_of_each_package_of_a_workspace_are_known_one_by_one(script: str, command: str, runner: str) -> None:
    top = {"scripts": {"test": script, "build": "tsc"}, "workspaces": ["packages/*"]}
    package = {"scripts": {"test": f"tsc --noEmit && {runner} --globals"}}
    files = {
        "package.json": json.dumps(top),
        "packages/a/package.json": json.dumps(package),
        "packages/b/package.json": json.dumps(package),
        "packages/none/package.json": "{}",
    }
    first, second = of(FRESH, files)
    assert first.suite is not None
    assert (first.suite.command, first.suite.framework, first.suite.note) == (command, f"{runner}-workspace", "")
    assert second.suite is not None
    assert second.suite.command == "npm test"
    mixed = {**files, "packages/b/package.json": json.dumps({"scripts": {"test": "jest"}})}
    assert [one.name for one in of(FRESH, mixed)] == ["manifests"]


CI = """
jobs:
  lint:
    steps: [{run: npm run lint}]
  unit:
    strategy: {matrix: {kind: [unit]}}
    steps:
      - uses: ./.github/actions/prepare
      - run: npm run test:${{ matrix.kind }}
"""
PREPARE = """
runs:
  using: composite
  steps:
    - {run: npm ci && sudo apt-get install x, shell: sh}
    - {run: npm run build, shell: sh}
"""


@pytest.mark.parametrize(
    ("test", "names"),
    [
        ("node tests.js", (".github/workflows/ci.yml, job unit", "manifests")),
        (None, (".github/workflows/ci.yml, job unit", "manifests")),
        ("mocha", ("manifests", ".github/workflows/ci.yml, job unit")),
        ("rollup -c && npx jest", ("package.json, runner", "manifests")),
    ],
)
def test_a_job_of_ci_says_what_is_built_before_the_tests_and_which_runner_there_is(
    test: str | None, names: tuple[str, ...]
) -> None:
    scripts = {"lint": "eslint .", "build": "rollup -c", "test:unit": "jest --ci"}
    files = {
        ".github/workflows/ci.yml": CI,
        ".github/actions/prepare/action.yml": PREPARE,
        "package.json": json.dumps({"scripts": {**scripts, "test": test} if test else scripts}),
    }
    found = of(FRESH, files)
    assert tuple(one.name for one in found) == names
    command = "npx --no-install rollup -c && npx --no-install jest"
    assert command in [one.suite.command for one in found if one.suite is not None]
    assert all(is_manifest(path) for path in files)


RUNNING: Mapping[str, str] = {
    "jest": """
        const reporter = new (require(path))();
        const file = (name) => ({
          testFilePath: process.cwd() + '/' + name,
          testResults: [{ ancestorTitles: ['S'], title: 'adds', status: 'passed' }],
        });
        const first = file('x.js');
        reporter.onTestResult({}, first);
        if (!stops) reporter.onRunComplete({}, { testResults: [first, file('y.js')] });
        """,
    "mocha": """
        const runner = new (require('events'))();
        require(path)(runner);
        const parent = { title: 'S', parent: { title: '' } };
        const test = (name) => ({ file: process.cwd() + '/' + name, title: 'adds', parent });
        runner.emit('pass', test('x.js'));
        if (!stops) ['pass', 'end'].forEach((event) => runner.emit(event, test('y.js')));
        """,
    "vitest": """
        import(path).then(({ default: Reporter }) => {
          const reporter = new Reporter();
          const parent = { type: 'suite', name: 'S', parent: { type: 'module' } };
          const test = { name: 'adds', parent, result: () => ({ state: 'passed' }) };
          const module = (name) => ({
            id: name, moduleId: process.cwd() + '/' + name, errors: () => [], children: { allTests: () => [test] },
          });
          reporter.onTestModuleEnd(module('x.js'));
          if (!stops) reporter.onTestRunEnd([module('x.js'), module('y.js')], []);
        });
        """,
    "vitest, old": """
        import(path).then(({ default: Reporter }) => {
          const reporter = new Reporter();
          const tasks = [{ name: 'S', tasks: [{ name: 'adds', result: { state: 'pass' } }] }];
          const file = (name) => ({ id: name, filepath: process.cwd() + '/' + name, result: { state: 'pass' }, tasks });
          const files = [file('x.js'), file('y.js')];
          reporter.onInit({ state: { idMap: new Map(files.map((one) => [one.id, one])) } });
          reporter.onTaskUpdate([['x.js', {}], ['unknown', {}]]);
          if (!stops) reporter.onFinished(files, []);
        });
        """,
}
"""Runners that end with code 1: in a stopped one the first of two files has ended."""


@pytest.mark.parametrize("runner", sorted(RUNNING))
async def test_packages_and_a_stopped_suite_report_what_has_ended(tmp_path: Path, runner: str) -> None:
    framework = cast("FrameworkName", f"{runner.partition(',')[0]}-workspace")
    program = "const [path, stops] = [process.argv.pop().split('=').pop(), !!process.env.STOPS];"
    text = f"{program}\n{textwrap.dedent(RUNNING[runner])}\nprocess.exitCode = 1;\n"
    files = {"run.js": text.encode(), "a/package.json": b"{}", "b/package.json": b"{}"}
    run = 'f() { for each in a b; do (cd $each && node ../run.js "$@") || failed=1; done; [ -z "$failed" ]; }; f'
    title = "S adds" if framework.startswith("mocha") else "S > adds"
    whole = (await measure(ReportingSandbox(tmp_path, files), SuiteCommand(run, framework), timeout=60.0)).result
    assert whole.passing == tuple(f"{place}/{file}::{title}" for place in "ab" for file in ("x.js", "y.js"))
    assert (whole.failing, whole.execution.exit_code) == ((), 1)
    stopping = SuiteCommand(f"export STOPS=1; {run}", framework)
    assert (await measure(ReportingSandbox(tmp_path), stopping, timeout=60.0)).result.passing is None
    stopped = (await measure(StoppedSandbox(tmp_path), stopping, timeout=60.0)).result
    assert stopped.passing == (f"a/x.js::{title}", f"b/x.js::{title}")


NODE_TESTS = b"""
const { describe, test } = require('node:test');
describe('S', () => {
  test('one', () => {});
  test('two', () => { throw Error('2'); });
});
"""
BORP = b"""
import { run } from 'node:test';
const { default: reporter } = await import(process.argv.pop().split('=').pop());
run({ files: [process.cwd() + '/a.test.js'] }).compose(reporter).pipe(process.stdout);
"""


@pytest.mark.parametrize(("command", "framework"), [("node --test", "node"), ("node borp.mjs", "borp")])
async def test_tests_of_node_are_named_by_file_and_titles(
    tmp_path: Path, command: str, framework: FrameworkName
) -> None:
    sandbox = ReportingSandbox(tmp_path, {"a.test.js": NODE_TESTS, "borp.mjs": BORP})
    found = (await measure(sandbox, SuiteCommand(command, framework, narrowed=command), timeout=60.0)).result
    assert (found.passing, found.failing) == (("a.test.js::S > one",), ("a.test.js::S > two",))


def test_a_target_that_cannot_be_compiled_does_not_end_the_others(tmp_path: Path) -> None:
    """The command is executed with a `cargo` that knows one target only."""
    ci = "jobs: {test: {steps: [{run: cargo test}, {run: 'cargo test --features=a,b -q --release'}]}}"
    paths = ("src/lib.rs", "tests/a.rs", "tests/b.rs", "tests/common/mod.rs", "tests/data/a.rs")
    files = {"Cargo.toml": "[package]\nname = 'a'\n", ".github/workflows/ci.yml": ci, **dict.fromkeys(paths, "#[test]")}
    main, each = of(FRESH, files)[1:]
    assert main.suite is not None
    assert (main.suite.command, main.part) == ("cargo test --no-fail-fast", False)
    assert each.suite is not None
    assert (each.suite.narrowed, each.part) == ("cargo test --no-fail-fast --features=a,b", True)
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    cargo = tmp_path / "cargo"
    cargo.write_text('#!/bin/sh\necho "$@" >> "$0.log"; [ "$4" != --test ] || [ "$5" != a ]\n')
    cargo.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ended = subprocess.run(["sh", "-c", each.suite.command], cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == 1
    lines = (tmp_path / "cargo.log").read_text().splitlines()
    ran = [line.removeprefix("test --no-fail-fast --features=a,b ") for line in lines]
    assert ran == ["--lib", "--test a", "--test b"]


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        (
            "[{run: cargo test}, {run: cargo test --all-features --release}, {run: cargo test --features=abcdefghi}]",
            "--all-features",
        ),
        ("[{run: 'cargo test --features a,b -- --nocapture'}]", "--features a,b"),
        ("[{run: 'cargo test --no-default-features'}, {run: 'cargo +nightly test --features simd'}]", ""),
        ("[{run: 'cd fuzz && cargo test --all-features'}]", ""),
        ("[{run: 'cargo test --target wasm32 --all-features'}]", ""),
    ],
)
def test_a_crate_is_tested_with_the_features_of_ci(steps: str, options: str) -> None:
    files = {
        "Cargo.toml": "[workspace]\n",
        ".github/workflows/ci.yml": f"jobs: {{test: {{steps: {steps}}}}}",
        "tests/a.rs": "",
    }
    commands = [one.suite.command for one in of(FRESH, files) if one.suite]
    whole = "cargo test --no-fail-fast --workspace"
    assert commands == ([f"{whole} {options}", whole] if options else [whole])


def test_files_written_for_nodes_own_runner_are_run_by_it() -> None:
    """Where the script starts them with a program that is not known."""
    scripts = {"test": "pnpm run /^test:/", "test:all": "better-test --all", "test:size": "size-limit"}
    files = {
        "package.json": json.dumps({"scripts": scripts}),
        "test/a.test.js": "import { test } from 'node:test'\n",
        "test/benchmark.js": "import 'node:test'\n",
        "test/b.test.js": "import { test } from 'vitest'\n",
    }
    first, second = of(FRESH, files)
    assert first.suite is not None
    assert (first.suite.command, first.suite.framework) == ("node --test test/a.test.js", "node")
    assert second.suite is not None
    assert second.suite.command == "npm test"


@pytest.mark.parametrize("pattern", ["/^test:/", "'/^test:.*/'", "'/^test:.+$/'"])
def test_scripts_that_pnpm_runs_by_a_pattern_are_followed(pattern: str) -> None:
    scripts = {"test": f"pnpm run {pattern}", "test:lint": "eslint .", "test:unit": "mocha --reporter dot"}
    first = of(FRESH, {"package.json": json.dumps({"scripts": scripts})})[0]
    assert first.suite is not None
    assert first.suite.command == "npx --no-install mocha"


TAP = b"""TAP version 13
# adds
ok 1 should be equal
not ok 2 should be equal
  ---
    operator: equal
    expected: 3
  ...
# later
ok 3 nothing # SKIP
1..3
# tests 3
# pass  2
"""


def test_tap_is_read_test_by_test() -> None:
    assert report_in_output(b"no tap") is None
    report = report_in_output(TAP)
    assert report is not None
    assert {name: case.status for name, case in report.items()} == {
        "adds > should be equal": "passed",
        "adds > should be equal (2)": "failed",
        "later > nothing": "skipped",
    }
    assert "expected: 3" in report["adds > should be equal (2)"].text


def test_pytest_is_installed_where_it_is_what_runs_the_tests() -> None:
    """Their files are written for unittest; that pytest is used is said elsewhere, and who installs it is not."""
    files = {
        "pyproject.toml": PROJECT + "[tool.ruff.lint]\nselect = ['flake8-pytest-style']\n",
        "a/test_a.py": UNITTEST,
    }
    (found,) = of(FRESH, files)
    assert found.suite is not None
    assert (found.suite.command, found.choice.pytest) == ("python3 -m pytest", True)
    assert not of(FRESH, {"pyproject.toml": PROJECT, "a/test_a.py": UNITTEST})[0].choice.pytest


@pytest.mark.parametrize("option", ["--bail", "-b", "--bail=1", "--bail 1"])
def test_a_suite_that_ends_with_its_first_failure_is_run_to_its_end(option: str) -> None:
    package = {"scripts": {"test": f"mocha --require x {option} test/"}, "devDependencies": {"mocha": "^8"}}
    first, second = of(FRESH, {"package.json": json.dumps(package)})
    assert (first.name, second.name) == ("package.json, runner", "manifests")
    assert first.suite is not None
    assert first.suite.command == "npx --no-install mocha --require x test/"
    assert (first.suite.framework, first.suite.narrowed) == ("mocha", first.suite.command)


@pytest.mark.parametrize("file", ["vitest.mjs", "dist/cli.js", "dist/cli-wrapper.js"])
async def test_a_runner_that_is_started_by_any_of_its_files_reports_its_tests(tmp_path: Path, file: str) -> None:
    program = "const path = process.argv.find((word) => /report-/.test(word)).split('=').pop(), stops = false;"
    text = f"{program}\n{textwrap.dedent(RUNNING['vitest'])}"
    files = {f"node_modules/vitest/{file}": text.encode(), "node_modules/vitest/package.json": b"{}"}
    command = f"true && node node_modules/vitest/{file}"
    found = (await measure(ReportingSandbox(tmp_path, files), SuiteCommand(command), timeout=60.0)).result
    assert found.passing == ("x.js::S > adds", "y.js::S > adds")
