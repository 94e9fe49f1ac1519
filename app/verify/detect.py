"""Finds the command that runs a repository's tests: the configured one, or one that its files suggest.

A configured command, or a Node project's script, is parsed far enough to get per-test results from it.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.core.patch import LINK, Tree
from app.core.text import listed, words
from app.core.yaml_and_toml import toml_table
from app.sandbox.setup.declared.node import EVERY, OF_EACH, node_scripts, uses_node_test
from app.sandbox.setup.declared.python_metadata import PYTEST_SETTINGS, inner_root
from app.sandbox.setup.ecosystems.node import BUN_FILES, workspace_members
from app.sandbox.setup.manifests import ManifestFiles, table, texts
from app.sandbox.setup.package_tools import RUN_COMMANDS_RE, TEST_SCRIPT_RE
from app.verify.frameworks import WORKSPACES, FrameworkName, SuiteCommand, needs_shell
from app.verify.paths_of_tests import is_test_file, is_test_path

MAX_DEPTH = 2
MAX_READ = 512 * 1024
_MARKERS = frozenset(
    {"pyproject.toml", "setup.py", "setup.cfg", "package.json", "go.mod", "Cargo.toml", "pom.xml", "build.gradle"}
    | {"build.gradle.kts", "mix.exs", "composer.json", "Gemfile", "go.work"}
)
_NOT_OURS = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_?party|3rdparty|extern(?:al)?|deps|submodules|\.?venv|site-packages|examples"
    r"|(?:googletest|gtest|googlemock|catch2?|doctest)(?:-[\w.]+)?)/",
    re.IGNORECASE,
)
"""Directories with other projects' files, and samples."""


@dataclass(frozen=True)
class ProjectDirectory:
    """A directory (empty for the top) and the files below it, by their path from there."""

    tree: Tree
    directory: str
    files: Mapping[str, int] = field(repr=False)
    """Size in bytes by path."""

    @property
    def depth(self) -> int:
        return self.directory.count("/") + 1 if self.directory else 0

    def read(self, path: str) -> bytes:
        """A file's bytes; empty if it is missing or far too long."""
        if self.files.get(path, MAX_READ + 1) > MAX_READ:
            return b""
        return self.tree.read(f"{self.directory}/{path}" if self.directory else path)

    def text(self, path: str) -> str:
        return self.read(path).decode(errors="replace")

    @cached_property
    def names(self) -> frozenset[str]:
        """The files directly in this directory."""
        return frozenset(path for path in self.files if "/" not in path)


def project_directories(tree: Tree) -> list[ProjectDirectory]:
    """The top of the tree, and the directories near it with a manifest of their own."""
    sizes = {
        path: entry.size for path, entry in tree.entries().items() if entry.mode != LINK and not _NOT_OURS.search(path)
    }
    directories = {""}
    for path in sizes:
        directory, _, name = path.rpartition("/")
        if name in _MARKERS and directory.count("/") < MAX_DEPTH:
            directories.add(directory)
    top = sizes
    if _MARKERS.isdisjoint(sizes):  # nothing starts at the top, so each directory below is a project of its own
        inner = tuple(f"{directory}/" for directory in directories if directory)
        top = {path: size for path, size in sizes.items() if not path.startswith(inner)}
    below = (
        ProjectDirectory(tree, directory, _below(sizes, directory)) for directory in sorted(directories) if directory
    )
    return [ProjectDirectory(tree, "", top), *below]


def _below(sizes: Mapping[str, int], directory: str) -> dict[str, int]:
    start = f"{directory}/"
    return {path.removeprefix(start): size for path, size in sizes.items() if path.startswith(start)}


def prefix(directory: str) -> str:
    """The prefix that runs a command in a directory."""
    return f"cd {shlex.quote(directory)} && " if directory else ""


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
    package = _package(place)
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and script.strip() and not _PLACEHOLDER.search(script):
        return _from_script(place, script.strip())
    if not BUN_FILES.isdisjoint(place.files) and any(_BUN_TEST.search(path) for path in place.files):
        return _within(place, "bun", "bun test")
    if not any(_NODE_TEST.search(path) for path in place.files):
        return None
    if "package.json" not in place.files and not any(
        b"node:test" in place.read(path) for path in place.files if _NODE_TEST.search(path)
    ):
        return None  # test files that are not known to be for Node
    return _within(place, "node", "node --test")


def _within(
    place: ProjectDirectory, framework: FrameworkName, command: str, narrowed: str | None = None, modules: str = ""
) -> SuiteCommand:
    """A suite of the directory. Chosen tests are appended to `narrowed`, or else to the command itself."""
    start, chosen = prefix(place.directory), command if narrowed is None else narrowed
    return SuiteCommand(
        command=f"{start}{command}",
        framework=framework,
        narrowed=f"{start}{chosen}" if chosen else "",
        directory=place.directory,
        modules=modules,
    )


def _package(place: ProjectDirectory) -> dict[str, Any]:
    try:
        document = json.loads(place.read("package.json") or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


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
    scripts = table(_package(place), "scripts")
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
_WITHOUT_CHOSEN_TESTS = "-DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
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
    return replace(command.suite, framework="maven", narrowed=f"{command.suite.command} {_WITHOUT_CHOSEN_TESTS}")


def _recognise_cargo(command: _ConfiguredCommand) -> SuiteCommand:
    narrowed = command.suite.command if " -- " not in command.rest else ""
    return replace(command.suite, framework="cargo", narrowed=narrowed)


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
    (re.compile(r"go test\b"), _recognise_go),
    (re.compile(r"cargo test\b"), _recognise_cargo),
    (re.compile(r"mvn .*\b(?:test|verify)\b"), _recognise_maven),
)


def _node_script(tree: Tree, suite: SuiteCommand) -> SuiteCommand:
    top = project_directories(tree)[0]
    found = node_suite(top)
    return replace(found, command=suite.command) if found else suite


MAX_LOOKED_INTO = 200
SHOWN = 3
_PATTERN = re.compile(r"[\s\"'](?:\./)?([\w.-]+/\*)/[\w.*{[-]")
"""`packages/*/test` and the like."""
_PYTEST_FILES = frozenset({*PYTEST_SETTINGS, "conftest.py"})
_MANIFESTS = ("setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile")
_NAMES_PYTEST = re.compile(r"\bpytest\b")
_USES_PYTEST = re.compile(rb"^\s*(?:import|from) pytest\b", re.MULTILINE)
_PLAIN_TEST = re.compile(rb"^(?:async )?def test_", re.MULTILINE)
_PLAIN_CLASS = re.compile(rb"^class Test\w*(?:\(\s*\))?:", re.MULTILINE)
_USES_UNITTEST = re.compile(rb"^\s*(?:import unittest|from unittest\b|from django\.test\b)|TestCase\)", re.MULTILINE)


def _python(place: ProjectDirectory) -> SuiteCommand | None:
    tests = [path for path in place.files if path.endswith(".py") and is_test_file(path)]
    contents = [place.read(path) for path in tests[:MAX_LOOKED_INTO]]
    if _speaks_for_pytest(place, contents) and tests:
        return _within(place, "pytest", "python3 -m pytest")
    if not any(_USES_UNITTEST.search(content) for content in contents):
        return None
    if "manage.py" in place.files and any(b"django" in content for content in contents):
        return _within(place, "unittest", "python3 manage.py test -v 2", modules=place.directory)
    return _unittest(place, tests)


def _speaks_for_pytest(place: ProjectDirectory, contents: list[bytes]) -> bool:
    if any(PurePosixPath(path).name in _PYTEST_FILES for path in place.files):
        return True
    if _NAMES_PYTEST.search(repr(_toml(place, "pyproject.toml"))):
        return True
    requirements = [name for name in place.names if re.fullmatch(r".*requirements.*\.(?:txt|in)", name)]
    if any(_NAMES_PYTEST.search(place.text(name)) for name in (*_MANIFESTS, *requirements)):
        return True
    return any(
        _USES_PYTEST.search(content) or _PLAIN_TEST.search(content) or _PLAIN_CLASS.search(content)
        for content in contents
    )


def _toml(place: ProjectDirectory, name: str) -> dict[str, Any]:
    try:
        return toml_table(place.text(name))
    except ValueError:
        return {}


def _unittest(place: ProjectDirectory, tests: list[str]) -> SuiteCommand:
    """`discover` enters packages only, so a `tests` directory that is not one must be its start."""
    start = _start(place, tests)
    pattern = "" if any(PurePosixPath(path).name.startswith("test") for path in tests) else ' -p "*_test.py"'
    where = f" -s {shlex.quote(start)}" if start else ""
    modules = "/".join(part for part in (place.directory, start) if part)
    path = f"PYTHONPATH={shlex.quote(start)} " if start else ""
    command = f"python3 -m unittest discover -v{where}{pattern}"
    return _within(place, "unittest", command, f"{path}python3 -m unittest -v", modules)


def _start(place: ProjectDirectory, tests: list[str]) -> str:
    """The directory from which most tests can be discovered: the top, unless a parent of them is not a package."""
    votes: dict[str, int] = {}
    for path in tests:
        start = ""
        parents = [str(parent) for parent in PurePosixPath(path).parents][:-1]
        for parent in parents:  # from the test upwards, discovery starts at the first one that is not a package
            if f"{parent}/__init__.py" not in place.files:
                start = parent
                break
        votes[start] = votes.get(start, 0) + 1
    return max(sorted(votes), key=lambda start: votes[start]) if votes else ""


# Ecosystems whose tests are nobody's to choose among: a file that identifies them, and their test command.
_BY_MARKER = (
    ("gradlew", "./gradlew test"),
    ("build.gradle", "gradle test"),
    ("build.gradle.kts", "gradle test"),
    (".rspec", "bundle exec rspec"),
    ("Rakefile", "bundle exec rake test"),
    ("mix.exs", "mix test"),
    ("phpunit.xml", "vendor/bin/phpunit"),
    ("phpunit.xml.dist", "vendor/bin/phpunit"),
    ("pubspec.yaml", "dart test"),
    ("Package.swift", "swift test"),
)
_MAKE_TEST = re.compile(r"test[ \t]*::?(?![:=])")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def find_suite(tree: Tree, configured: str | None = None) -> SuiteCommand | None:
    """The configured `test:` command wins. Otherwise the first of `find_suites`; its `note` names others that it does
    not include. None if there is none."""
    detected = next(iter(find_suites(tree)), None)
    if configured and configured.strip():
        return recognise(tree, configured.strip(), detected)
    return detected


def find_suites(tree: Tree) -> list[SuiteCommand]:
    """What the files suggest: the ecosystem with most tests, nearest to the top, comes first."""
    inner = inner_root(ManifestFiles(tree))
    places = [place for place in project_directories(tree) if place.directory or not inner]
    found = [(place, suite) for place in places for suite in _suites(place)]
    if not found:
        return []
    found.sort(key=lambda item: (item[0].depth, -_tests(item[0], item[1])))
    (place, main), *others = found
    left_out = [suite for _, suite in others if not _covered(place, main, suite)]
    more = [suite for suite in (_by_marker(place), _make(place)) if suite is not None and suite.command != main.command]
    if not left_out:
        return [main, *more]
    names = listed([f"`{suite.command}`" for suite in left_out], SHOWN)
    note = f"Also found, but not run: {names}. Set `test:` in the configuration to choose."
    return [replace(main, note=note), *left_out, *more]


def count_tests(tree: Tree, suite: SuiteCommand | None) -> int:
    """The number of files with tests that belong to a suite, by their names; 0 if nobody knows."""
    place = next((each for each in project_directories(tree) if suite and each.directory == suite.directory), None)
    return _tests(place, suite) if place and suite else 0


def _covered(place: ProjectDirectory, main: SuiteCommand, other: SuiteCommand) -> bool:
    """pytest, Maven, jest and vitest at the top include the projects below it, a workspace of cargo what it does not
    exclude, and any script of a package the files that it names by a pattern."""
    if main.framework != other.framework or main.directory:
        return False
    if any(PurePosixPath(other.directory).match(pattern) for pattern in _PATTERN.findall(place.text("package.json"))):
        return True
    if main.framework == "cargo":
        excluded = texts(table(_toml(place, "Cargo.toml"), "workspace").get("exclude"))
        return "--workspace" in main.command and other.directory not in excluded
    return main.framework in {"pytest", "maven", "jest", "vitest"}


def _suites(place: ProjectDirectory) -> list[SuiteCommand]:
    found = [_python(place), node_suite(place), _go(place), _cargo(place), _maven(place), _cmake(place)]
    suites = [suite for suite in found if suite is not None]
    if not suites and (other := _by_marker(place) or _make(place)):
        suites.append(other)
    return suites


_SUFFIXES = {"cmake": {".c", ".cc", ".cpp", ".cxx", ".cu", ".m", ".mm"}}


def _tests(place: ProjectDirectory, suite: SuiteCommand) -> int:
    """The number of test files that belong to a suite."""
    suffixes = {
        "pytest": {".py"},
        "unittest": {".py"},
        "go": {".go"},
        "cargo": {".rs"},
        "maven": {".java", ".kt"},
        "other": _SUFFIXES.get(suite.command.partition(" ")[0], {PurePosixPath(path).suffix for path in place.files}),
    }.get(suite.framework, {".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", ".mts", ".cts"})
    return sum(1 for path in place.files if PurePosixPath(path).suffix in suffixes and is_test_file(path))


def _go(place: ProjectDirectory) -> SuiteCommand | None:
    tests = [path for path in place.files if path.endswith("_test.go")]
    modules = [str(PurePosixPath(path).parent) for path in place.files if PurePosixPath(path).name == "go.mod"]
    if not tests or not (place.names & {"go.mod", "go.work"}):
        return None
    tested = sorted(
        {max((m for m in modules if _is_below(path, m)), key=len, default="") for path in tests} - {"", "."}
    )
    if "go.work" in place.names:
        used = re.findall(r"(?m)^\s*(?:use\s+)?(\./[\w./-]+|\.)\s*(?://.*)?$", place.text("go.work"))
        members = [module for module in tested if f"./{module}" in used]
        packages = " ".join(
            f"./{module}/..." if module else "./..." for module in [*([""] if "." in used else []), *members]
        )
        return _within(place, "go", f"go test {packages or './...'}", "go test")
    if all(any(_is_below(path, module) for module in tested) for path in tests):  # none in the module at the top
        return _within(place, "other", _GO_MODULES.format(places=shlex.join(tested)), narrowed="")
    return _within(place, "go", "go test ./...", "go test")


def _is_below(path: str, directory: str) -> bool:
    return directory == "." or path.startswith(f"{directory}/")


_GO_MODULES = 'failed=; for each in {places}; do (cd "$each" && go test ./...) || failed=1; done; [ -z "$failed" ]'


def _cargo(place: ProjectDirectory) -> SuiteCommand | None:
    if "Cargo.toml" not in place.files:
        return None
    sources = (path for path in place.files if path.endswith(".rs"))
    if not any(is_test_path(path) or b"#[test]" in place.read(path) for path in sources):
        return None
    workspace = " --workspace" if "workspace" in _toml(place, "Cargo.toml") else ""
    return _within(place, "cargo", f"cargo test --no-fail-fast{workspace}")


def _maven(place: ProjectDirectory) -> SuiteCommand | None:
    if "pom.xml" not in place.files or not any("src/test/" in path for path in place.files):
        return None
    command = "mvn --batch-mode --offline --fail-at-end test"
    return _within(place, "maven", command, f"{command} {_WITHOUT_CHOSEN_TESTS}")


def _cmake(place: ProjectDirectory) -> SuiteCommand | None:
    """Built and tested by CTest, with the options that switch tests on."""
    lists = [path for path in place.files if PurePosixPath(path).name == "CMakeLists.txt"]
    texts = [place.text(path) for path in lists[:MAX_LOOKED_INTO]] if "CMakeLists.txt" in place.names else []
    if not any(_CTEST.search(text) for text in texts):
        return None
    switched = dict.fromkeys(name for text in texts for name in _TEST_OPTION.findall(text))
    options = "".join(f" -D{name}=ON" for name in switched)
    build = "build" if not any(path.startswith("build/") for path in place.files) else "build-tests"
    made = f'cmake -S . -B {build}{options} && cmake --build {build} --parallel "$(nproc)"'
    return _within(place, "other", f"{made} && (cd {build} && ctest)", narrowed="")


_CTEST = re.compile(r"(?im)^\s*(?:enable_testing|add_test|include\s*\(\s*CTest|\w+_discover_tests)\b")
_TEST_OPTION = re.compile(
    r"(?im)^\s*(?:cmake_dependent_)?option\s*\(\s*(\w*(?:BUILD|ENABLE|WITH|MAKE)\w*_TESTS?(?:ING)?)\b"
)


def _by_marker(place: ProjectDirectory) -> SuiteCommand | None:
    tests = any(is_test_path(path) for path in place.files)
    for marker, command in _BY_MARKER:
        if marker in place.files and tests:
            return _within(place, "other", command, narrowed="")
    return None


def _make(place: ProjectDirectory) -> SuiteCommand | None:
    for name in _MAKEFILES:
        lines = place.text(name).splitlines()
        if any(_MAKE_TEST.match(line) for line in lines):
            return _within(place, "other", "make test", narrowed="")
    return None
