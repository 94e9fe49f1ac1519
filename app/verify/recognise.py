"""Knows the framework behind a command: one of the configuration, of CI, or of a script of package.json."""

import fnmatch
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.patch import Tree
from app.core.text import words
from app.sandbox.setup.declared.node import EVERY, OF_EACH, node_scripts, uses_node_test
from app.sandbox.setup.ecosystems.node import BUN_FILES, workspace_members
from app.sandbox.setup.manifests import ManifestFiles, table
from app.sandbox.setup.package_tools import RUN_COMMANDS_RE, TEST_SCRIPT_RE
from app.verify.frameworks import WORKSPACES, FrameworkName, SuiteCommand, needs_shell
from app.verify.project_directories import ProjectDirectory, package_of, prefix, project_directories, within

_PLACEHOLDER = re.compile(r"no test specified")
_SCRIPT_OPERATORS = re.compile(r"&&|\|\||[;|<>`]|\$\(")
_NODE_VALUES = words("""
    --import --require -r --loader --experimental-loader --env-file --env-file-if-exists --conditions -C
    --test-name-pattern --test-skip-pattern
""")
"""Flags of Node whose value may look like a path of the project."""
_NODE_COVERAGE = re.compile(r"--(?:experimental-)?test-coverage")
_BUN_TEST = re.compile(r"[._](?:test|spec)\.[cm]?[jt]sx?$")
# The names that `node --test` itself looks for.
_NODE_TEST = re.compile(r"(?:^|/)(?:[^/]+[.\-_]test|test-[^/]+|test)\.[cm]?js$|(?:^|/)test/.+\.[cm]?js$")


def node_suite(place: ProjectDirectory) -> SuiteCommand | None:
    package = package_of(place)
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and script.strip() and not _PLACEHOLDER.search(script):
        return _from_script(place, script.strip())
    if not BUN_FILES.isdisjoint(place.files) and any(_BUN_TEST.search(path) for path in place.files):
        return within(place, "bun", "bun test")
    if not any(_NODE_TEST.search(path) for path in place.files):
        return None
    if "package.json" not in place.files and not any(
        b"node:test" in place.read(path) for path in place.files if _NODE_TEST.search(path)
    ):
        return None  # test files that are not known to be for Node
    return within(place, "node", "node --test")


def _from_script(place: ProjectDirectory, script: str) -> SuiteCommand:
    command = f"{prefix(place.directory)}{_client(place)} test"
    framework = framework_of(script)
    narrowed = unnarrowed = ""
    if framework == "node":
        flags = node_flags(script, place.files)
        narrowed = f"{prefix(place.directory)}{flags}" if flags else ""
        if "--test-reporter" in script:  # node would refuse a second reporter
            framework = "other"
    elif framework != "other" and not _SCRIPT_OPERATORS.search(script):
        unnarrowed = f"{command} --"
        narrowed = _only_runner(place, framework, script) or unnarrowed
    return SuiteCommand(command, framework, narrowed, place.directory, unnarrowed=unnarrowed)


_LIMITS = re.compile(r"[tT]hreshold|check-?[cC]overage|--100\b")
"""What makes a run fail that executes too few lines, as a few chosen tests do."""
_MAY_LIMIT = re.compile(r"package\.json|(?:jest|vitest|vite|nyc)\.config\.\w+|\.(?:nyc|c8)rc(?:\.\w+)?")


def _only_runner(place: ProjectDirectory, framework: FrameworkName, script: str) -> str:
    """The runner behind `npm test`, if that also fails for too little coverage or a script after the tests."""
    scripts = table(package_of(place), "scripts")
    off = _without_coverage(place, framework, script)
    if (off is None and "posttest" not in scripts) or _client(place) != "npm":
        return ""
    runner = node_scripts(ManifestFiles(place.tree), f"{place.directory}/" if place.directory else "").runner
    if framework_of(runner) != framework:
        return ""
    before = "npm run pretest && " if "pretest" in scripts else ""
    return f"{prefix(place.directory)}{before}{runner}{off or ''}"


def _without_coverage(place: ProjectDirectory, framework: FrameworkName, command: str) -> str | None:
    """The option that turns coverage off, if it has a limit; empty if the runner has none, None without a limit."""
    texts = (place.text(name) for name in place.names if _MAY_LIMIT.fullmatch(name))
    if not any(_LIMITS.search(text) for text in (command, *texts)):
        return None
    return " --no-coverage" if framework in ("jest", "vitest") else ""


def _client(place: ProjectDirectory) -> str:
    """npm runs the script of any project, except if packages are not on disk at all (Yarn's Plug'n'Play)."""
    return "yarn" if ".pnp.cjs" in place.files else "npm"


def framework_of(script: str) -> FrameworkName:
    """The framework that a script's text names."""
    programs = {PurePosixPath(word).name for word in re.split(r"[\s;&|]+", script)}
    names: tuple[FrameworkName, ...] = ("vitest", "jest", "mocha", "borp")
    for name in names:
        if name in programs:
            return name
    return "node" if re.search(r"\bnode\b.*\s--test\b", script) or "node" in programs else "other"


def node_flags(script: str, files: Collection[str]) -> str:
    """`node --test` with the script's own flags, without its paths and coverage; empty if the script does more."""
    if _SCRIPT_OPERATORS.search(script):
        return ""
    try:
        first, *arguments = shlex.split(script)
    except ValueError:
        return ""
    if first != "node" or "--test" not in arguments:
        return ""
    flags, previous = [first], first
    for word in arguments:
        is_path = previous == "--test" or re.search(r"[/*?\[]", word) or _chooses(word, files)
        value = previous in _NODE_VALUES or (previous.startswith("-") and not is_path)
        limits = _NODE_COVERAGE.match(word if word.startswith("-") else previous)
        if (word.startswith("-") or value) and not limits:
            flags.append(word)
        previous = word
    return shlex.join(flags)


_OPERATORS = re.compile(r"&&|\|\||[;|<>`\n]|\$\(")
_LAUNCHER_RE = re.compile(
    r"^(?:\w+=\S* )*"
    rf"(?:(?:{RUN_COMMANDS_RE}) run (?:--\S+ )*|npx (?:--\S+ )*|coverage run (?:--?\S+ )*-m )?"
    r"(?:[\w./-]*python[\d.]*(?: -[IEsWX]\S*)* -m )?"
)
_NO_SHELL = re.compile(r"\b(?:py\.?test|unittest|manage\.py|node)\b")
"""Names of programs whose arguments are given to our launcher, or are quoted."""
_NODE_SCRIPT = re.compile(rf"^(?:{TEST_SCRIPT_RE})(?: run)? test$|^npm t$")
_FILE_RUNNER_VALUES = words("""
    --preload -r --timeout --concurrency --ignore --post-compile --tsconfig-override --jsx-import-source --conditions
""")
_PYTEST_VALUES = words("""
    -c -k -m -p -o -W -n -r --rootdir --ignore --ignore-glob --deselect --confcutdir --basetemp --cov --cov-report
    --cov-config --maxfail --durations --timeout --dist --tb --override-ini --import-mode --junitxml --color
""")


_VERBOSITY = re.compile(r"\s(?:-v|--verbosity)[ =]?\d(?=\s)")
_DJANGO_VALUES = words(
    "--settings --pythonpath --parallel --testrunner -k --tag --exclude-tag --shuffle -p --pattern -t"
)
WITHOUT_CHOSEN_TESTS = "-DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
"""For Maven: several modules may have none of the chosen tests."""


class _ConfiguredCommand(NamedTuple):
    """A simple command: the launcher (`uv run python -m `), and the framework with its arguments."""

    tree: Tree
    suite: SuiteCommand
    launcher: str
    rest: str
    detected: SuiteCommand | None


def recognise(tree: Tree, command: str, detected: SuiteCommand | None) -> SuiteCommand:
    """The framework behind a configured command; `detected` names it for `make test` and the like."""
    suite = SuiteCommand(command=command)
    if _OPERATORS.search(command) or (_NO_SHELL.search(command) and needs_shell(command, patterns=False)):
        return replace(suite, framework=_through(command, detected))
    if _NODE_SCRIPT.match(command):
        return _node_script(tree, suite)
    launched = _LAUNCHER_RE.match(command)
    end = launched.end() if launched else 0
    simple = _ConfiguredCommand(tree, suite, command[:end], command[end:], detected)
    for start, rule in _RULES:
        if start.match(simple.rest):
            return rule(simple)
    return replace(suite, framework=_through(command, detected))


def _through(command: str, detected: SuiteCommand | None) -> FrameworkName:
    """The framework behind a command that starts it indirectly, if it can be configured by the environment."""
    if re.search(r"\bpy\.?test\b", command):
        return "pytest"
    if detected is not None and detected.framework in ("pytest", "node"):
        return detected.framework
    return "other"


def _recognise_pytest(command: _ConfiguredCommand) -> SuiteCommand:
    """pytest adds up the paths it is given, so the configured ones must be replaced by the chosen tests."""
    try:
        first, *arguments = shlex.split(command.rest)
    except ValueError:
        return replace(command.suite, framework="pytest")
    entries = command.tree.entries()
    kept, previous = [first], first
    for word in arguments:
        if previous in _PYTEST_VALUES or not _chooses(word, entries):
            kept.append(word)
        previous = word
    return replace(command.suite, framework="pytest", narrowed=command.launcher + shlex.join(kept))


def _chooses(word: str, files: Collection[str]) -> bool:
    """True if a word of a command names some of these files: a path, a directory, or a pattern."""
    path = word.split("::", maxsplit=1)[0].rstrip("/").removeprefix("./")
    below = any(file.startswith(f"{path}/") for file in files)
    return path == "." or path in files or below or _matches(path, files)


def _matches(pattern: str, paths: Iterable[str]) -> bool:
    """True if a shell would replace the word by some of these paths, if it is not quoted."""
    depth = pattern.count("/")
    found = re.compile(fnmatch.translate(pattern)) if re.search(r"[*?\[]", pattern) else None
    return found is not None and any(found.match("/".join(path.split("/")[: depth + 1])) for path in paths)


def _recognise_unittest(command: _ConfiguredCommand) -> SuiteCommand:
    detected = command.detected
    modules = detected.modules if detected and detected.framework == "unittest" else ""
    path = f"PYTHONPATH={shlex.quote(modules)} " if modules else ""
    narrowed = f"{path}{command.launcher}unittest -v"
    return replace(command.suite, framework="unittest", narrowed=narrowed, modules=modules)


def _recognise_django(command: _ConfiguredCommand) -> SuiteCommand:
    """With the verbosity at which each test is printed; labels choose, so the chosen tests replace them."""
    start, test, rest = _VERBOSITY.sub("", f"{command.rest} ").partition(" test ")
    arguments = rest.split()
    options = [word for at, word in enumerate(arguments) if word[0] == "-" or arguments[at - 1] in _DJANGO_VALUES]
    narrowed = " ".join([f"{command.launcher}{start}{test}".rstrip(), "-v 2", *options])
    labels = [word for word in arguments if word not in options]
    return replace(command.suite, command=" ".join([narrowed, *labels]), framework="unittest", narrowed=narrowed)


def _program(command: _ConfiguredCommand) -> str:
    """The program's name without a version, as in `npx jest@29`."""
    return command.rest.split()[0].partition("@")[0]


def _recognise_javascript(command: _ConfiguredCommand) -> SuiteCommand:
    names: dict[str, FrameworkName] = {"jest": "jest", "vitest": "vitest", "mocha": "mocha"}
    framework, unnarrowed = names[_program(command)], command.suite.command
    off = _without_coverage(project_directories(command.tree)[0], framework, unnarrowed) or ""
    return replace(command.suite, framework=framework, narrowed=unnarrowed + off, unnarrowed=unnarrowed)


def _recognise_tap(command: _ConfiguredCommand) -> SuiteCommand:
    """tape and QUnit print TAP by themselves, the others if they are asked to."""
    program = _program(command)
    option = {"ava": "--tap", "tap": "--reporter=tap", "lab": "--reporter=tap"}.get(program, "")
    command_line = command.suite.command
    if option and option not in command.rest:
        command_line = f"{command_line} {option}"
    return replace(command.suite, command=command_line)


def _recognise_node(command: _ConfiguredCommand) -> SuiteCommand:
    if "--test-reporter" in command.rest:  # node would refuse a second reporter
        return command.suite
    flags = node_flags(command.rest, command.tree.entries())
    return replace(command.suite, framework="node", narrowed=command.launcher + flags if flags else "")


def _recognise_node_program(command: _ConfiguredCommand) -> SuiteCommand:
    """A program of the tests themselves: written for Node's own runner, or it prints TAP."""
    if uses_node_test(ManifestFiles(command.tree), command.rest.split()):
        return replace(command.suite, framework="node")
    return command.suite


def _recognise_by_files(command: _ConfiguredCommand) -> SuiteCommand:
    """`bun test` and borp: arguments that choose among test files are replaced by the chosen files."""
    arguments = command.rest.split()
    name: FrameworkName = "bun" if arguments[0] == "bun" else "borp"
    first = 2 if name == "bun" else 1
    kept = [
        word for at, word in enumerate(arguments) if word.startswith("-") or arguments[at - 1] in _FILE_RUNNER_VALUES
    ]
    narrowed = " ".join([*arguments[:first], *(word for word in kept if word not in arguments[:first])])
    return replace(command.suite, framework=name, narrowed=command.launcher + narrowed)


def _recognise_go(command: _ConfiguredCommand) -> SuiteCommand:
    arguments = [word for word in command.rest.split() if word != "." and not word.startswith(("./", "..."))]
    return replace(command.suite, framework="go", narrowed=command.launcher + " ".join(arguments))


def _recognise_maven(command: _ConfiguredCommand) -> SuiteCommand:
    return replace(command.suite, framework="maven", narrowed=f"{command.suite.command} {WITHOUT_CHOSEN_TESTS}")


def _recognise_cargo(command: _ConfiguredCommand) -> SuiteCommand:
    narrowed = command.suite.command if " -- " not in command.rest else ""
    return replace(command.suite, framework="cargo", narrowed=narrowed)


def _recognise_asked(command: _ConfiguredCommand) -> SuiteCommand:
    """PHPUnit, Mix and .NET take what asks them for a report behind their own arguments, Composer hands it on."""
    frameworks: dict[str, FrameworkName] = {"mix": "mix", "dotnet": "dotnet"}
    program = PurePosixPath(command.rest.removeprefix("php ").split()[0]).name
    if program != "composer":
        return replace(command.suite, framework=frameworks.get(program, "phpunit"))
    scripts = table(ManifestFiles(command.tree).json("composer.json"), "scripts")
    name = command.rest.split()[-1]
    known = re.search(r"phpunit|\bpest\b", str(scripts.get(name))) is not None
    if not known or " -- " in command.rest:
        return command.suite
    return replace(command.suite, framework="phpunit", unnarrowed=f"{command.suite.command} --")


def _recognise_each_package(command: _ConfiguredCommand) -> SuiteCommand:
    """A command that runs the tests of every package of a workspace, which all have the same runner."""
    files = ManifestFiles(command.tree)
    top = command.detected.start if command.detected else ""
    members = [member for member in workspace_members(files, top) if _has_tests(files, member)]
    runners = {node_scripts(files, member).runner for member in members}
    names = {recognise(command.tree, runner, None).framework for runner in runners}
    name = WORKSPACES.get(names.pop()) if len(names) == 1 else None
    return replace(command.suite, framework=name or _through(command.rest, command.detected))


def _has_tests(files: ManifestFiles, directory: str) -> bool:
    return bool(table(files.json(f"{directory}package.json"), "scripts").get("test"))


_RULES: tuple[tuple[re.Pattern[str], Callable[[_ConfiguredCommand], SuiteCommand]], ...] = (
    (re.compile(r"(?:pytest|py\.test)\b"), _recognise_pytest),
    (re.compile(r"unittest\b"), _recognise_unittest),
    (re.compile(r"(?:(?:\S*python\S* )?\S*manage\.py|django(?:-admin)?) test(?!\S)"), _recognise_django),
    (re.compile(r"(?:jest|vitest|mocha)(?:@\S*)?(?!\S)"), _recognise_javascript),
    (re.compile(r"(?:ava|tape|tap|qunit|lab)(?:@\S*)?(?!\S)"), _recognise_tap),
    (re.compile(r"node .*--test\b"), _recognise_node),
    (re.compile(r"node \S"), _recognise_node_program),
    (re.compile(r"(?:bun test|borp)\b(?![:-])"), _recognise_by_files),
    (re.compile(rf"(?:{'|'.join(OF_EACH)}) .*\btest\b.* --$"), _recognise_each_package),
    (re.compile(rf"(?:npm|pnpm|yarn) .*(?:{'|'.join(EVERY)})\b"), _recognise_each_package),
    (re.compile(r"(?:php )?(?:\S*/)?(?:phpunit|pest)(?!\S)"), _recognise_asked),
    (re.compile(r"(?:mix test|dotnet test|composer (?:run(?:-script)? )?[\w:-]+$)(?!\S)"), _recognise_asked),
    (re.compile(r"go test\b"), _recognise_go),
    (re.compile(r"cargo test\b"), _recognise_cargo),
    (re.compile(r"mvn .*\b(?:test|verify)\b"), _recognise_maven),
)


def _node_script(tree: Tree, suite: SuiteCommand) -> SuiteCommand:
    top = project_directories(tree)[0]
    found = node_suite(top)
    return replace(found, command=suite.command) if found else suite
