"""What each test framework needs to report per-test results without changing what the project does."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from app.sandbox.setup.ecosystems.compiled import GO_CACHE, GO_ENVIRONMENT
from app.verify.paths_of_tests import is_test_file

FrameworkName = Literal[
    "pytest",
    "unittest",
    "node",
    "jest",
    "vitest",
    "mocha",
    "borp",
    "bun",
    "jest-workspace",
    "vitest-workspace",
    "mocha-workspace",
    "go",
    "cargo",
    "maven",
    "mix",
    "phpunit",
    "dotnet",
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
    parallel: str = ""
    """In how many processes CI runs pytest, and how it divides the tests: `auto`, `4 --dist=loadfile`."""
    proposed: bool = False
    """True if a model proposed the command."""
    unnarrowed: str = ""
    """The command, ready for options of the runner, if `narrowed` leaves out more than tests."""

    @property
    def start(self) -> str:
        """What paths in its directory begin with; empty at the top."""
        return f"{self.directory}/" if self.directory else ""


GO_COMPILED = f"[ -d {GO_CACHE} ] && export GOCACHE={GO_CACHE} GODEBUG=goindex=0"
"""Go uses what a set-up has compiled, which saves a fresh sandbox up to a minute. It must not write an index there."""


@dataclass(frozen=True, slots=True)
class Framework:
    """`arguments` and `environment` make a runner report at a path; `targets` turns ids and files into arguments.

    Nothing is said of how the report is read: its format decides. `reporter` is our own one that is requested; it
    reports while the tests run.
    """

    arguments: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    targets: Callable[[SuiteCommand, Iterable[str]], list[str]] | None = None
    reporter: str = ""


_ASSIGNMENTS = re.compile(r"(?:\w+=\S* )*")
PATH_VARIABLE = re.compile(r"\$(?:PWD|\{PWD\}|PYTHONPATH|\{PYTHONPATH\})(?!\w)")
"""What the launcher of Python tests itself replaces in `PYTHONPATH=…`."""


def needs_shell(command: str, *, patterns: bool = True) -> bool:
    """True if only a shell knows the words of this simple command: variables, `~`, and `patterns` of file names."""
    before = (_ASSIGNMENTS.match(command) or [""])[0]
    if "'" in before and "$" in before:
        return True
    paths = (PATH_VARIABLE.sub("", word) if word.startswith("PYTHONPATH=") else word for word in before.split())
    outside = re.sub(r"'[^']*'", "''", command[len(before) :])
    unquoted = re.sub(r'"[^"]*"', '""', outside)
    return (
        any("$" in text for text in (*paths, outside))
        or re.search(r"(?:^|[\s=:])~", before + unquoted) is not None
        or (patterns and re.search(r"[*?\[]", unquoted) is not None)
    )


def report_command(
    suite: SuiteCommand, report: str, only: tuple[str, ...] | None = None, *, parallel: bool = False
) -> str:
    """The shell command that runs the suite, or only the given tests, and writes a report if possible.

    `parallel`: in several processes if CI does so. Raises ValueError if the suite cannot be narrowed to these tests.
    """
    framework = FRAMEWORKS[suite.framework]
    command = suite.command if only is None else narrow(suite, only)
    if suite.framework == "go" and suite.narrowed:
        return f"{GO_COMPILED}; {command.replace('go test', 'go test -json', 1)} > {report}"
    if suite.framework == "unittest" and suite.narrowed and " -v" not in command:
        return f"{command} -v"
    if suite.framework == "pytest" and suite.narrowed and "PYTHONPATH=" not in command:
        return f"{_with_plugin(report, suite.parallel if parallel else '')}{command}"
    start = suite.narrowed if only is not None else suite.unnarrowed or suite.narrowed
    if suite.framework in WORKSPACES.values() or (suite.framework in _AT_THE_END and not start):
        start = suite.command
    if framework.arguments and start:
        command = f"{start} {framework.arguments.format(report=report)}{command.removeprefix(start) if only else ''}"
    started = starts_runner(suite)
    reporters = [name for name in _REPORTERS if started or name == framework.reporter]
    preload = f"printf %s {shlex.quote(_PRELOAD)} > {report}.cjs; " if started else ""
    place = f"mkdir -p {report}.found/begun; " if suite.framework in _IN_FILES else ""
    return f"{place}{''.join(_with_reporter(name, report) for name in reporters)}{preload}{command}"


def _with_reporter(name: str, report: str) -> str:
    """Writes our reporter of a runner of Node to its file beside the report, as shell commands."""
    old = name in ("jest", "mocha")
    needed = ["const fs = require('fs');"] if old else ["import fs from 'fs';", "import { inspect } from 'util';"]
    between = " " if name == "mocha" else " > "
    texts = [(_OURS / file).read_text("utf-8") for file in ("text.js", "lines.js", f"{name}.js")]
    known = f'const destination = {json.dumps(report)}, between = {json.dumps(between)}, root = "'
    text = "\n".join(['";', *texts])
    words = (shlex.quote("\n".join([*needed, known])), '"$PWD"', shlex.quote(text))
    return f"printf %s {' '.join(words)} > {report}.{name}.{'cjs' if old else 'mjs'}; "


def _with_plugin(report: str, parallel: str) -> str:
    """Writes our plugin of pytest beside the report, and asks for it, as shell commands."""
    text = (_OURS / "report_lines.py").read_text("utf-8")
    place = f"{report}.d"
    found = f'PYTHONPATH="{place}${{PYTHONPATH:+:$PYTHONPATH}}" PYTEST_ADDOPTS="$PYTEST_ADDOPTS -p agent_fix_report"'
    variables = f"AGENT_FIX_REPORT={report} AGENT_FIX_PARALLEL={shlex.quote(parallel)}"
    written = f"mkdir {place} && printf %s {shlex.quote(text)} > {place}/agent_fix_report.py"
    return f"{written}; export {found} {variables}; "


def report_environment(suite: SuiteCommand, report: str) -> dict[str, str]:
    framework = FRAMEWORKS[suite.framework]
    found = {name: value.format(report=report) for name, value in framework.environment.items()}
    if starts_runner(suite):
        found["NODE_OPTIONS"] = f"{found.get('NODE_OPTIONS', '')} --require {report}.cjs".strip()
    return found


def starts_runner(suite: SuiteCommand) -> bool:
    """Whether a program of Node starts the test runner, so that it is asked for its report as it starts."""
    return suite.framework in _STARTING and not suite.narrowed


def files_command(suite: SuiteCommand, report: str) -> str:
    """The shell command that adds to `report` what the suite wrote into files of its own; empty if it does not.

    Only files that are newer than the suite's beginning are its own.
    """
    return _COLLECT.format(report=report) if suite.framework in _IN_FILES else ""


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


_IN_FILES = frozenset({"maven", "dotnet", "other"})
_COLLECT = (
    "printf '\\f' >> {report}; find . {report}.found -type f -newer {report}.found/begun "
    "\\( -path '*/target/*-reports/TEST-*.xml' -o -path '*/test-results/*.xml' -o -path '*/report-*.found/*' \\) "
    '-exec sh -c \'for each; do cat "$each"; printf "\\f"; done\' sh {{}} + >> {report}'
)
"""Maven, Gradle and googletest leave a file for each class or program, .NET one for each project."""


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


_OURS = Path(__file__).with_name("reporters")
_REPORTERS = ("node", "jest", "vitest", "mocha")
_STARTING = frozenset({*_REPORTERS, "other"})
_PRELOAD = r"""
const fs = require('fs'), { argv, env } = process, report = __filename.slice(0, -4);
const asked = [
  [/\/mocha\/(bin\/_?mocha|lib\/cli\/cli)(\.c?js)?$/, '--reporter', report + '.mocha.cjs'],
  [/\/jest(-cli)?\/(bin\/jest|build\/cli\/index)(\.js)?$/,
    '--reporters=default', '--reporters=' + report + '.jest.cjs'],
  [/\/vitest\/(vitest|dist\/cli(-wrapper)?)\.m?js$/, '--reporter=default', '--reporter=' + report + '.vitest.mjs'],
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
WORKSPACES: Mapping[FrameworkName, FrameworkName] = {
    "jest": "jest-workspace",
    "vitest": "vitest-workspace",
    "mocha": "mocha-workspace",
}
"""Maps a runner to the framework of a command that starts it in every package."""
NPM_QUIET = {"CI": "true", "npm_config_update_notifier": "false"}
REPORTER_OPTIONS: Mapping[str, str] = {
    "node": "--test-reporter=spec --test-reporter-destination=stdout "
    "--test-reporter={reporter} --test-reporter-destination=stderr",
    "vitest": "--reporter=default --reporter={reporter}",
    "jest": "--reporters=default --reporters={reporter}",
    "mocha": "--reporter {reporter}",
}
"""What asks a runner for a reporter of ours."""
_NODE_REPORTERS = REPORTER_OPTIONS["node"].format(reporter="{report}.node.mjs")
_JEST = REPORTER_OPTIONS["jest"].format(reporter="{report}.jest.cjs")
_VITEST = REPORTER_OPTIONS["vitest"].format(reporter="{report}.vitest.mjs")
_MOCHA = REPORTER_OPTIONS["mocha"].format(reporter="{report}.mocha.cjs")


_PYTEST = {
    # One module that cannot be imported, or the first failure, must not hide all the other tests. The older family
    # names each test's file, so that a test can be run again by its id.
    "PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit1 --continue-on-collection-errors --maxfail=0",
    "TOX_OVERRIDE": "testenv.pass_env+=PYTEST_ADDOPTS",
}
ASKED_BY_VARIABLE: Mapping[str, str] = {
    **NPM_QUIET,
    **_PYTEST,
    "PYTEST_ADDOPTS": _PYTEST["PYTEST_ADDOPTS"].replace("{report}", "{report}.found/pytest.xml"),
    "SPEC_OPTS": "--format progress --format json --out {report}.found/rspec.json",
    "TESTOPTS": "-v",
    "GTEST_OUTPUT": "xml:{report}.found/",
    "CTEST_OUTPUT_ON_FAILURE": "1",
    "GOFLAGS": f"{dict(GO_ENVIRONMENT)['GOFLAGS']} -v",
    "CARGO_TERM_COLOR": "never",
}
"""What makes pytest, RSpec, Rake's tests, googletest, CTest, `go test` and cargo name their tests, whatever starts
them."""
_OF_NODE = partial(Framework, environment=NPM_QUIET)
FRAMEWORKS: Mapping[FrameworkName, Framework] = {
    "pytest": Framework(environment=_PYTEST, targets=_as_they_are),
    "unittest": Framework(targets=_modules),
    "node": _OF_NODE(environment={**NPM_QUIET, "NODE_OPTIONS": _NODE_REPORTERS}, targets=_files, reporter="node"),
    "jest": _OF_NODE(arguments=_JEST, targets=_files, reporter="jest"),
    "vitest": _OF_NODE(arguments=_VITEST, targets=_files, reporter="vitest"),
    "mocha": _OF_NODE(arguments=_MOCHA, targets=_files, reporter="mocha"),
    "jest-workspace": _OF_NODE(arguments=_JEST, reporter="jest"),
    "vitest-workspace": _OF_NODE(arguments=_VITEST, reporter="vitest"),
    "mocha-workspace": _OF_NODE(arguments=_MOCHA, reporter="mocha"),
    "borp": _OF_NODE(arguments="--reporter=spec --reporter={report}.node.mjs", targets=_files, reporter="node"),
    "bun": _OF_NODE(arguments="--reporter=junit --reporter-outfile={report}", targets=_files),
    "go": Framework(targets=_go_targets),
    "cargo": Framework(environment={"CARGO_TERM_COLOR": "never"}, targets=_cargo_targets),
    "maven": Framework(targets=_maven_targets),
    "mix": Framework(arguments="--trace"),
    "phpunit": Framework(arguments="--log-junit {report}"),
    "dotnet": Framework(arguments="--logger trx --results-directory {report}.found"),
    "other": Framework(environment=ASKED_BY_VARIABLE),
}
_AT_THE_END = frozenset({"mix", "phpunit", "dotnet"})
