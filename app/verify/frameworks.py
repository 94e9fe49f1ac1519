"""What each test framework needs to report per-test results without changing what the project does."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from app.sandbox.setup.ecosystems.compiled import GO_CACHE
from app.verify.reports import (
    Report,
    read_bun,
    read_cargo,
    read_go,
    read_jest,
    read_junit,
    read_mocha,
    read_script,
    read_tap,
    read_unittest,
    read_uvu,
)
from app.verify.test_paths import is_test_file

FrameworkName = Literal[
    "pytest",
    "unittest",
    "node",
    "jest",
    "vitest",
    "mocha",
    "borp",
    "bun",
    "tap",
    "uvu",
    "jest-workspace",
    "vitest-workspace",
    "mocha-workspace",
    "go",
    "cargo",
    "maven",
    "script",
    "other",
]


@dataclass(frozen=True, slots=True)
class SuiteCommand:
    """How a repository's tests are run, as typed at its top.

    `narrowed` is the same command, ready for chosen tests to be appended; empty if it cannot be narrowed. `directory`
    is the root of the tests' own paths, `modules` that of dotted module names.
    """

    command: str
    framework: FrameworkName = "other"
    narrowed: str = ""
    directory: str = ""
    modules: str = ""
    note: str = ""
    proposed: bool = False
    """True if a model proposed the command."""


GO_COMPILED = f"[ -d {GO_CACHE} ] && export GOCACHE={GO_CACHE} GODEBUG=goindex=0"
"""Go uses what a set-up has compiled, which saves a fresh sandbox up to a minute. It must not write an index there."""


@dataclass(frozen=True, slots=True)
class Framework:
    """`arguments` and `environment` request a report at a path; `targets` turns ids and files into arguments."""

    read: Callable[[bytes], Report | None] | None = None
    in_output: bool = False
    or_in_output: bool = False
    """True if old releases print the report that newer ones write."""
    arguments: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    targets: Callable[[SuiteCommand, Iterable[str]], list[str]] | None = None


def report_command(suite: SuiteCommand, report: str, only: tuple[str, ...] | None) -> str:
    """The shell command that runs the suite, or only the given tests, and writes a report if possible.

    Raises ValueError if the suite cannot be narrowed to these.
    """
    framework = FRAMEWORKS[suite.framework]
    command = suite.command if only is None else narrow(suite, only)
    if together := _together(suite, report):
        preparing = f"printf %s {shlex.quote(_PRELOAD)} > {report}.cjs; " if starts_runner(suite) else ""
        words = f" {framework.arguments}" if suite.framework in WORKSPACES.values() else ""
        return f"{preparing}{command}{words}; ended=$?; {together}; exit $ended"
    if suite.framework == "go" and suite.narrowed:
        return f"{GO_COMPILED}; {command.replace('go test', 'go test -json', 1)} > {report}"
    if suite.framework == "unittest" and suite.narrowed and " -v" not in command:
        return f"{command} -v"
    if framework.arguments and suite.narrowed:
        chosen = command.removeprefix(suite.narrowed) if only is not None else ""
        return f"{suite.narrowed} {framework.arguments.format(report=report)}{chosen}"
    return command


def _together(suite: SuiteCommand, report: str) -> str:
    """What makes one report of several, as shell commands; empty if the suite writes one."""
    if suite.framework == "maven":
        return _SUREFIRE.format(report=report)
    if suite.framework in WORKSPACES.values():
        return f"{_EACH_REPORT} > {report}"
    if not starts_runner(suite):
        return ""
    every = f"ls {report}.of-* 2> /dev/null | node -e {shlex.quote(_TOGETHER)} > {report}.all"
    return f"{every}; [ ! -s {report}.all ] || mv {report}.all {report}"


def report_environment(suite: SuiteCommand, report: str) -> dict[str, str]:
    framework = FRAMEWORKS[suite.framework]
    found = {name: value.format(report=report) for name, value in framework.environment.items()}
    if starts_runner(suite):
        found["NODE_OPTIONS"] = f"{found.get('NODE_OPTIONS', '')} --require {report}.cjs".strip()
    return found


def starts_runner(suite: SuiteCommand) -> bool:
    """Whether a program of Node starts the test runner, so that it is asked for its report as it starts."""
    return suite.framework in _STARTING and not suite.narrowed


def reader_of(suite: SuiteCommand) -> Callable[[bytes], Report | None] | None:
    """What reads the report that `report_command` has written."""
    return read_script if starts_runner(suite) else FRAMEWORKS[suite.framework].read


def narrow(suite: SuiteCommand, only: Iterable[str]) -> str:
    """The command for chosen tests only: ids from reports, or paths of test files."""
    targets = FRAMEWORKS[suite.framework].targets
    chosen = list(dict.fromkeys(targets(suite, list(only)))) if targets and suite.narrowed else []
    if not chosen:
        raise ValueError("the suite's command cannot be narrowed to these tests")
    return f"{suite.narrowed} {shlex.join(chosen)}"


def _as_they_are(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    return [_inside(suite.directory, name) for name in only]


def _files(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    files = [_inside(suite.directory, name.split("::")[0]) for name in only]
    return files if all(is_test_file(file) for file in files) else []


def _inside(directory: str, path: str) -> str:
    return path.removeprefix(f"{directory}/") if directory else path


def _modules(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    def module(name: str) -> str:
        if name.endswith(".py"):
            return _inside(suite.modules or suite.directory, name).removesuffix(".py").replace("/", ".")
        return name.removeprefix("unittest.loader._FailedTest.").removesuffix(".setUpClass")

    return [module(name) for name in only]


def _go_targets(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    packages, tests = [], []
    for name in only:
        if name.endswith(".go"):
            parent = str(PurePosixPath(_inside(suite.directory, name)).parent)
            packages.append("." if parent == "." else f"./{parent}")
            continue
        package, _, test = name.partition("::")
        packages.append(package)
        tests.append(re.escape(test.split("/")[0]))
    filters = ["-run", f"^({'|'.join(dict.fromkeys(tests))})$"] if tests and all(tests) else []
    return [*filters, *packages]


def _cargo_targets(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    binaries, tests = list[str](), list[str]()
    for name in only:
        if name.endswith(".rs"):
            file = PurePosixPath(_inside(suite.directory, name))
            if file.parent.name != "tests":
                return []
            binaries += ["--test", file.stem]
        elif " - " in name:  # a documentation test has no name that selects it exactly
            return []
        else:
            tests.append(name.partition("::")[2])
    return [*binaries, *(["--", "--exact", *tests] if tests else [])]


# Maven leaves a file for each test class; together they are one report.
_SUREFIRE = (
    "{{ echo '<testsuites>'; find . -path '*/target/surefire-reports/TEST-*.xml' "
    "-exec sed -e 's/^<?xml[^>]*?>//' {{}} +; echo '</testsuites>'; }} > {report}"
)


def _maven_targets(suite: SuiteCommand, only: Iterable[str]) -> list[str]:
    chosen = []
    for name in only:
        if name.endswith(".java"):
            chosen.append(name.partition("src/test/java/")[2].removesuffix(".java").replace("/", "."))
        else:
            owner, _, test = name.partition("::")
            method = re.split(r"[(\[{ ]", test)[0]
            chosen.append(f"{owner}#{method}" if method else owner)
    return [f"-Dtest={','.join(dict.fromkeys(chosen))}"] if chosen and all(chosen) else []


_STARTING = frozenset({"node", "jest", "vitest", "mocha", "script"})
_PRELOAD = r"""
const fs = require('fs'), { argv, env } = process, report = __filename.slice(0, -4) + '.of-' + process.pid;
const asked = [
  [/\/mocha\/(bin\/_?mocha(\.c?js)?)$/, '--reporter', 'json', '-O', 'output=' + report],
  [/\/jest(-cli)?\/bin\/jest(\.js)?$/, '--json', '--outputFile=' + report],
  [/\/vitest\/vitest\.mjs$/, '--reporter=default', '--reporter=json', '--outputFile.json=' + report],
];
let main = '';
try { main = fs.realpathSync(argv[1]).replace(/\\/g, '/'); } catch {}
const [, ...words] = asked.find(([program]) => program.test(main)) || [];
if (words.length) {
  // What the tests start themselves is none of ours.
  env.NODE_OPTIONS = (env.NODE_OPTIONS || '').replace('--require ' + __filename, '');
  const kept = argv.filter((word) => !/^(-b|--bail(=.*)?)$/.test(word)), end = kept.indexOf('--');
  kept.splice(end < 0 ? kept.length : end, 0, ...words);
  argv.splice(0, argv.length, ...kept);
}
"""
"""Loaded by every Node below the command: if that is a test runner, it gets the words that ask for a report, and goes
on after a failure."""
# Each package of a workspace leaves a file in its directory; together they are one report.
_OF_PACKAGE = ".agent-fix-report.json"
_TOGETHER = """
const fs = require('fs'), names = fs.readFileSync(0, 'utf8').split('\\n').filter(Boolean);
const lists = names.flatMap((name) => Object.entries(JSON.parse(fs.readFileSync(name, 'utf8')))), all = {};
for (const [key, list] of lists) if (Array.isArray(list)) all[key] = [...(all[key] ?? []), ...list];
names.forEach((name) => fs.unlinkSync(name));
if (names.length) console.log(JSON.stringify(all));
"""
_EACH_REPORT = f"find . -name node_modules -prune -o -name {_OF_PACKAGE} -print | node -e {shlex.quote(_TOGETHER)}"
WORKSPACES: Mapping[FrameworkName, FrameworkName] = {
    "jest": "jest-workspace",
    "vitest": "vitest-workspace",
    "mocha": "mocha-workspace",
}
"""Of a runner the framework of a command that starts it in every package."""
_NPM_QUIET = {"CI": "true", "npm_config_update_notifier": "false"}
_NODE_REPORTERS = (
    "--test-reporter=spec --test-reporter-destination=stdout --test-reporter=junit --test-reporter-destination={report}"
)
_JEST = "--json --outputFile={report}"
_VITEST = "--reporter=default --reporter=json --outputFile.json={report}"
# Mocha's option has its short name here, which every version knows.
_MOCHA = "--reporter json -O output={report}"
_OF_WORKSPACE = partial(Framework, environment=_NPM_QUIET)
_OF_FILES = partial(Framework, environment=_NPM_QUIET, targets=_files)
FRAMEWORKS: Mapping[FrameworkName, Framework] = {
    # The older family names each test's file, so that a test can be run again by its id.
    "pytest": Framework(
        read=read_junit,
        environment={
            # One module that cannot be imported, or the first failure, must not hide all the other tests.
            "PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit1 --continue-on-collection-errors --maxfail=0",
            "TOX_OVERRIDE": "testenv.pass_env+=PYTEST_ADDOPTS",
        },
        targets=_as_they_are,
    ),
    "unittest": Framework(read=read_unittest, in_output=True, targets=_modules),
    "node": Framework(read=read_junit, environment={**_NPM_QUIET, "NODE_OPTIONS": _NODE_REPORTERS}, targets=_files),
    "jest": _OF_FILES(read=read_jest, arguments=_JEST),
    "vitest": _OF_FILES(read=read_jest, arguments=_VITEST),
    "jest-workspace": _OF_WORKSPACE(read=read_jest, arguments=_JEST.format(report=_OF_PACKAGE)),
    "vitest-workspace": _OF_WORKSPACE(read=read_jest, arguments=_VITEST.format(report=_OF_PACKAGE)),
    "mocha-workspace": _OF_WORKSPACE(read=read_mocha, arguments=_MOCHA.format(report=_OF_PACKAGE)),
    "mocha": _OF_FILES(read=read_mocha, or_in_output=True, arguments=_MOCHA),
    "borp": _OF_FILES(read=read_junit, arguments="--reporter=spec --reporter=junit:{report}"),
    "bun": _OF_FILES(read=read_bun, arguments="--reporter=junit --reporter-outfile={report}"),
    "tap": Framework(read=read_tap, in_output=True, environment=_NPM_QUIET),
    "uvu": Framework(read=read_uvu, in_output=True, environment=_NPM_QUIET),
    "go": Framework(read=read_go, targets=_go_targets),
    "cargo": Framework(
        read=read_cargo, in_output=True, environment={"CARGO_TERM_COLOR": "never"}, targets=_cargo_targets
    ),
    "maven": Framework(read=read_junit, targets=_maven_targets),
    "script": Framework(read=read_script, environment=_NPM_QUIET),
    "other": Framework(environment=_NPM_QUIET),
}
