"""The ways to set a project up and to run its tests, the most likely first, each with its reason; and their trials.

They are tried one after the other and judged by what ran; the best is kept.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from operator import eq, ge, gt, le, lt, ne
from pathlib import PurePosixPath
from time import monotonic

from app.core.errors import SetupError
from app.core.job import BASE_SUITE, Budget, Progress, waiting_for
from app.core.patch import Tree
from app.core.text import listed, one_line
from app.core.verification import SuiteResult, TestCount
from app.sandbox.base import Sandbox
from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.declared.commands import simple_commands, without_assignments
from app.sandbox.setup.declared.node import NodeScripts, choose_node, node_jobs, node_scripts
from app.sandbox.setup.declared.python import DeclaredSetup, declared_pythons, declared_setups
from app.sandbox.setup.declared.python_metadata import LOCKS, workspace_roots
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.manifests import ManifestFiles, table
from app.sandbox.setup.package_tools import NODE_TOOLS
from app.verify.ci_steps import ci_tests
from app.verify.detect import count_tests, find_suite, find_suites
from app.verify.frameworks import WORKSPACES, SuiteCommand
from app.verify.paths_of_tests import is_test_file
from app.verify.project_directories import prefix
from app.verify.recognise import recognise
from app.verify.reports import cause_of
from app.verify.suite import could_not_start, measure
from app.verify.verdict import NO_REPORT

MAX_DECLARED = 3
_NO_TESTS = re.compile(r"(?:.+/)?(?:benchmarks|docs|examples)(?=/)")
"""Directories with files that are named as tests, and need packages of their own."""
PART_PENALTY = 30
"""What a command for a part of the tests scores less, so that a whole suite of a worse description comes first."""
AGED = timedelta(days=240)
"""Packages of a commit older than this may have changed so much that a project of that time does not work with them."""
RECENT = timedelta(days=60)
"""A commit older than this may be broken by what was released since: the best of its set-ups is tried as of its date,
after all others."""
WHEELS_AFTER = timedelta(days=120)
"""By then the usual packages have wheels for a new version of Python."""
_RELEASED = {
    "3.6": date(2016, 12, 23),
    "3.7": date(2018, 6, 27),
    "3.8": date(2019, 10, 14),
    "3.9": date(2020, 10, 5),
    "3.10": date(2021, 10, 4),
    "3.11": date(2022, 10, 24),
    "3.12": date(2023, 10, 2),
    "3.13": date(2024, 10, 7),
    "3.14": date(2025, 10, 7),
    "3.15": date(2026, 10, 1),
}
_PROGRAMS = 'PATH="$PWD/node_modules/.bin:$PATH" '
"""As npm has it for scripts: what they start may start a dependency's program."""
MAX_NODE_TESTS = 200
_FEATURES = re.compile(r"--all-features|--no-default-features|--features[ =][\w,/-]+")
_NODE_TEST = re.compile(r"[.-]test\.[cm]?js$")
_USES_NODE_TEST = re.compile(r"""from\s+['"]node:test['"]|require\(['"]node:test['"]\)""")
_COMPARED = {">=": ge, "^": ge, "~=": ge, ">": gt, "<": lt, "<=": le, "!=": ne, "==": eq}
_BOUND = re.compile(r"(>=|>|<=|<|!=|==|~=|\^)\s*3\.(\d+)")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to set up and to test. `suite` is None if no test command is known; `part` means that it names less
    than half of the files with tests, of which there are `files` as far as is known."""

    name: str
    reason: str
    score: int
    choice: SetupChoice
    suite: SuiteCommand | None
    part: bool = False
    files: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What candidates are made with: interpreters by version, our own version, the base commit's date, and the
    version of the sandbox's Node with other ones of the machine by major version."""

    pythons: Mapping[str, str]
    own: str
    committed: date
    today: date
    node: str = ""
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> timedelta:
        return self.today - self.committed

    @property
    def dated(self) -> str:
        """The day as of which packages are tried as well; empty if the commit is recent."""
        return (self.committed + timedelta(days=1)).isoformat() if self.age > RECENT else ""


def candidates(tree: Tree, surroundings: Surroundings, test: str | None = None) -> list[Candidate]:
    """Never empty; with a configured `test` they differ in their set-up only."""
    suites = find_suites(tree)
    suite = find_suite(tree, test) if test else next(iter(suites), None)
    files = ManifestFiles(tree)
    if suite is None and "package.json" in files and not _has_python(files):
        suite = SuiteCommand(command="")
    if (
        suite is None
        or suite.framework in {"pytest", "unittest"}
        or (suite.framework == "other" and _has_python(files) and not suite.command.startswith("cmake"))
    ):
        found = _python(tree, suite, surroundings, test)
    else:
        found = _not_python(tree, suite, surroundings, test)
    if not test:
        found += _others(files, suites)
    return [replace(one, files=count_tests(tree, one.suite)) for one in sorted(found, key=lambda one: -one.score)]


MAX_OTHERS = 3


def _others(files: ManifestFiles, suites: Sequence[SuiteCommand]) -> Iterator[Candidate]:
    """The suites of other programs that the files suggest; each also without Node's packages if it is none of Node."""
    started = set[str]()
    for suite in suites:
        program = _starts(suite)
        if program in started or len(started) > MAX_OTHERS:
            continue
        if started:
            reason = f"the tests that `{suite.command}` runs"
            yield Candidate(f"manifests, {suite.command}", reason, 28 - len(started), SetupChoice(), suite)
        started.add(program)
        if "package.json" in files and program not in _NODE_OR_PYTHON:
            reason = f"the tests that `{suite.command}` runs, without the packages of Node"
            choice = SetupChoice(without=("npm",))
            yield Candidate(f"manifests, {suite.command}, without Node", reason, 28 - len(started), choice, suite)


def _starts(suite: SuiteCommand) -> str:
    """The program that a suite's command starts; one name for all of Node's and one for all of Python's."""
    words = without_assignments(suite.command.rpartition(f"cd {shlex.quote(suite.directory)} && ")[2].split())
    program = PurePosixPath(words[0]).name if words else ""
    return (
        "python"
        if program.startswith("py")
        else "node"
        if program in NODE_TOOLS or program in NODE_PROGRAMS
        else program
    )


NODE_PROGRAMS = frozenset({"node", "npx", "bun"})
_NODE_OR_PYTHON = frozenset({"node", "python"})


def _not_python(tree: Tree, suite: SuiteCommand, surroundings: Surroundings, test: str | None) -> list[Candidate]:
    files, dated = ManifestFiles(tree), surroundings.dated
    known = suite if suite.command else None
    directory = suite.start
    node = choose_node(files, directory, surroundings.node, surroundings.committed)
    found = [Candidate("manifests", "what its manifests and scripts say", 40, SetupChoice(), known)]
    runner = None if test else _runner(tree, files, suite)
    if runner is not None:
        reason = f"the runner behind `{suite.command}`"
        found.insert(0, Candidate("package.json, runner", reason, 45, SetupChoice(), runner))
    if not test and "bundle exec " in suite.command:
        alone = recognise(tree, suite.command.replace("bundle exec ", "", 1), None)
        reason = "the same tests with the gems of this machine"
        found.append(Candidate("manifests, without Bundler", reason, 22, SetupChoice(), alone))
    if not test:
        found += _jobs(tree, files, suite)
        found += _ci_steps(tree, files, suite)
        found += _crates(files, suite) if suite.framework == "cargo" else ()
    found = [_on_node(one, node.needed, surroundings) for one in found]
    first = found[0]
    if node.other:
        other = _on_node(first, node.other, surroundings)
        found.append(replace(other, name=f"{first.name} on Node {node.other}", score=32))
    if dated and suite.framework not in {"go", "cargo", "maven"}:
        then = _on_node(first, node.other, surroundings)
        reason = f"{then.reason}, with packages as of {dated}"
        choice = replace(then.choice, before=dated)
        found.append(replace(then, name=f"{first.name} as of {dated}", reason=reason, score=30, choice=choice))
    return found


def _on_node(one: Candidate, major: str, surroundings: Surroundings) -> Candidate:
    """The candidate with another version of Node: one of the machine's if there is one, else npm brings it."""
    if not major:
        return one
    choice = replace(one.choice, node=surroundings.nodes.get(major, major))
    return replace(one, reason=f"{one.reason}, on Node {major}", choice=choice)


def _runner(tree: Tree, files: ManifestFiles, suite: SuiteCommand) -> SuiteCommand | None:
    """The test runner itself, if `npm test` also does something else or ends with the first failure, else None."""
    top = suite.start
    scripts = node_scripts(files, top)
    if suite.narrowed and suite.framework != "other" and not scripts.stops_early:
        return None
    if not (scripts.runner or scripts.of_each):
        scripts = NodeScripts(runner=_node_tests(files, top))
    return _behind(tree, suite, scripts)


def _jobs(tree: Tree, files: ManifestFiles, suite: SuiteCommand) -> Iterator[Candidate]:
    """What jobs of CI run other than `npm test` does; before it if that does not say how each test ended."""
    known = [node_scripts(files)]
    for source, scripts in node_jobs(files) if not suite.directory else ():
        found = _behind(tree, suite, scripts) if scripts not in known and len(known) <= MAX_DECLARED else None
        known.append(scripts)
        if found is not None:
            yield Candidate(source, f"what {source} runs", 36 if suite.narrowed else 42, SetupChoice(), found)


def _ci_steps(tree: Tree, files: ManifestFiles, suite: SuiteCommand) -> Iterator[Candidate]:
    """What jobs of CI build and test with other programs than those of Python and Node."""
    seen = {suite.command}
    for source, command in ci_tests(files) if not suite.directory else ():
        if command not in seen and len(seen) <= MAX_DECLARED:
            seen.add(command)
            by_name = suite.framework == "other" and not suite.command.startswith("cmake")
            score = 42 if by_name else 36  # before what only a file's name suggests
            yield Candidate(source, f"what {source} runs", score, SetupChoice(), recognise(tree, command, None))


def _behind(tree: Tree, suite: SuiteCommand, scripts: NodeScripts) -> SuiteCommand | None:
    """The command of a runner after what has to be built before it, in the directory of `suite`."""
    runner = scripts.runner or scripts.of_each
    if not runner:
        return None
    found = recognise(tree, runner, suite)
    if found.framework in WORKSPACES.values():
        suite = replace(suite, note="")
    elif not scripts.runner:
        return None
    start = prefix(suite.directory) + "".join(
        f"{'' if command.startswith('npx ') else _PROGRAMS}{command} && " for command in scripts.before
    )
    return replace(
        found,
        command=f"{start}{found.command}",
        narrowed=f"{start}{found.narrowed}" if found.narrowed else "",
        unnarrowed=f"{start}{found.unnarrowed}" if found.unnarrowed else "",
        directory=suite.directory,
        note=suite.note,
    )


def _crates(files: ManifestFiles, suite: SuiteCommand) -> Iterator[Candidate]:
    """The tests with the features that CI has them compiled with, as many are left out without; and each test target of
    a crate by itself, as one that cannot be compiled here ends them all."""
    root = suite.start
    source, features = _features_of_ci(files)
    if features and not root:
        options = suite.command.partition("cargo test")[2]
        whole = f"cargo test{options}{features}"
        found = replace(suite, command=whole, narrowed=whole)
        yield Candidate(source, f"the tests with the features of {source}", 42, SetupChoice(), found)
    targets = [path for path in files if path.endswith(".rs") and path.rpartition("/")[0] == f"{root}tests"]
    if len(targets) < 2 or not table(files.toml(f"{root}Cargo.toml"), "package"):
        return
    start = f"{prefix(suite.directory)}cargo test --no-fail-fast{features}"
    own = "--lib" if f"{root}src/lib.rs" in files else "--bins"
    test = f'cargo test --no-fail-fast{features} --test "$(basename "$each" .rs)"'
    each = f"for each in tests/*.rs; do {test} || failed=1; done"
    command = f'failed=; {start} {own} || failed=1; {each}; [ -z "$failed" ]'
    note = "Each test target is compiled by itself: those that cannot be compiled are not run."
    found = replace(suite, command=command, narrowed=start, note=note)
    yield Candidate("manifests, each target", "each test target by itself", 34, SetupChoice(), found, part=True)


def _features_of_ci(files: ManifestFiles) -> tuple[str, str]:
    """The job of CI that tests the crate at the top with most features, and these as options; empty without one."""
    found = [("", "")]
    for job in ci_jobs(files):
        commands = simple_commands(job.script, job.values)
        if not any(words[0] == "cd" or "--target" in words for words in commands):
            options = (_FEATURES.findall(" ".join(words)) for words in commands if words[:2] == ["cargo", "test"])
            found += [(job.source, "".join(f" {option}" for option in each)) for each in options]
    return max(found, key=lambda one: ("--no-default" not in one[1], "--all-features" in one[1], len(one[1])))


def _node_tests(files: ManifestFiles, top: str) -> str:
    """`node --test` over the files that are written for it, whatever a project starts them with."""
    named = [path for path in files if path.startswith(top) and _NODE_TEST.search(path)][:MAX_NODE_TESTS]
    written = [path for path in named if _USES_NODE_TEST.search(files.text(path))]
    return shlex.join(["node", "--test", *(path.removeprefix(top) for path in written)]) if written else ""


def _has_python(files: ManifestFiles) -> bool:
    return any(name in files for name in ("setup.py", "pyproject.toml", "setup.cfg", "tox.ini"))


def _python(tree: Tree, suite: SuiteCommand | None, surroundings: Surroundings, test: str | None) -> list[Candidate]:
    files = ManifestFiles(tree)
    dated, aged = surroundings.dated, surroundings.age > AGED
    named = declared_pythons(files)
    now = choose_python(files, surroundings, named)
    then = choose_python(files, surroundings, named, surroundings.committed)
    found = []
    tests = [path for path in files if path.endswith(".py") and is_test_file(path)]
    for declared in declared_setups(files):
        own = _suite(tree, declared, suite, test)
        choice = SetupChoice(declared.requirements, surroundings.pythons.get(now, ""), pytest=_by_pytest(own))
        reason = f"what {declared.source} installs and runs, on Python {now}"
        run = sum(map(_chosen(own), tests))
        part = not test and 2 * run < len(tests)
        if part and own is not None:
            own = replace(own, note=f"It runs {run} of {len(tests)} files with tests. {own.note}".strip())
        score = declared.score - PART_PENALTY if part else declared.score
        found.append(Candidate(declared.source, reason, score, choice, own, part))
    found = sorted(found, key=lambda one: -one.score)[:MAX_DECLARED]
    choice = SetupChoice(python=surroundings.pythons.get(now, ""), pytest=_by_pytest(suite))
    reason = f"extras, groups and requirement files by their usual names, on Python {now}"
    if suite is not None and suite.framework == "pytest" and not test and _same_names(files, tests):
        suite = _by_path(suite, files, tests)
    found.append(Candidate("manifests", reason, 40, choice, suite))
    # Packages as they were come after the same packages of today, but before a worse description.
    if dated:
        locked = any(lock in files for lock in LOCKS)
        for one in [*found[:2], *found[2:][-1:]] if aged else found[:1]:
            choice = replace(one.choice, before=dated, python=surroundings.pythons.get(then, one.choice.python))
            reason = f"{one.reason.rpartition(', on Python')[0]}, on Python {then}, with packages as of {dated}"
            score = one.score - (-1 if locked else 12) if aged else 0
            found.append(replace(one, name=f"{one.name} as of {dated}", reason=reason, score=score, choice=choice))
    return found


def _same_names(files: ManifestFiles, tests: Collection[str]) -> bool:
    """Whether test modules, or the packages that they are in, have one name at several places."""
    places: dict[str, set[PurePosixPath]] = {}
    for path in map(PurePosixPath, tests):
        top = path.with_suffix("")
        while f"{top.parent}/__init__.py" in files:
            top = top.parent
        places.setdefault(top.name, set()).add(top.parent)
    return any(len(found) > 1 for found in places.values())


def _by_path(suite: SuiteCommand, files: ManifestFiles, tests: Collection[str]) -> SuiteCommand:
    """pytest with each module imported from its own place, without what is not a workspace member or not a test."""
    members = workspace_roots(files)
    projects = {path.rpartition("/")[0] for path in files if path.endswith(("/pyproject.toml", "/setup.py"))}
    others = {place for place in projects if members and not f"{place}/".startswith(members)}
    found = others | {directory[0] for path in tests if (directory := _NO_TESTS.match(path))}
    ignored = sorted(place for place in found if not any(place.startswith(f"{above}/") for above in found))
    words = shlex.join(["--import-mode=importlib", *(f"--ignore={place}" for place in ignored)])
    note = f"Not run, as their packages may be missing: {', '.join(ignored)}." if ignored else ""
    return replace(suite, command=f"{suite.command} {words}", narrowed=f"{suite.narrowed} {words}", note=note)


def _by_pytest(suite: SuiteCommand | None) -> bool:
    return suite is not None and suite.framework == "pytest"


def _chosen(suite: SuiteCommand | None) -> Callable[[str], bool]:
    """Whether a test file is among those that a command of pytest names; all are if it names none."""
    if suite is None or suite.framework != "pytest" or not suite.narrowed:
        return lambda _: True
    words = set(shlex.split(suite.command)) - set(shlex.split(suite.narrowed))
    named = [word.partition("::")[0].removeprefix("./").rstrip("/") for word in words]
    if not named or "." in named:
        return lambda _: True
    return lambda path: any(path == name or path.startswith(f"{name}/") for name in named)


def _suite(tree: Tree, declared: DeclaredSetup, suite: SuiteCommand | None, test: str | None) -> SuiteCommand | None:
    if test or not declared.test:
        return suite
    return replace(recognise(tree, declared.test, suite), note=suite.note if suite else "", parallel=declared.parallel)


def choose_python(
    files: ManifestFiles, surroundings: Surroundings, named: Collection[str], at: date | None = None
) -> str:
    """The version of Python to use, of those on this machine: our own where it is admitted, else the newest admitted.

    With `at`, the newest that had been out for a while at that time.
    """
    possible = [version for version in surroundings.pythons if _admitted(files, version)] or [surroundings.own]
    listed = [version for version in possible if version in named]
    if at is not None:
        supported = [
            version for version in listed or possible if _RELEASED.get(version, date.max) + WHEELS_AFTER <= at
        ] or (listed or possible)[:1]
        return surroundings.own if surroundings.own in supported else supported[-1]
    if surroundings.own in possible and (surroundings.own in named or not listed):
        return surroundings.own
    return (listed or possible)[-1]


def _admitted(files: ManifestFiles, version: str) -> bool:
    """Whether `requires-python`, however it is written, allows a version."""
    pyproject = files.toml("pyproject.toml")
    wanted = table(pyproject, "project").get("requires-python")
    wanted = wanted or table(pyproject, "tool", "poetry", "dependencies").get("python")
    if not isinstance(wanted, str):
        written = re.search(
            r"python_requires\s*=\s*['\"]?([^'\"\n]+)", files.text("setup.cfg") + "\n" + files.text("setup.py")
        )
        wanted = written[1] if written else ""
    minor = int(version.partition(".")[2])
    return all(_COMPARED[sign](minor, int(bound)) for sign, bound in _BOUND.findall(wanted))


COMPARABLE = 0.9
"""The passing share from which a suite says something about a change."""
CLEAR = 0.97
"""With this share no further candidate is tried."""
SKIPPED = 0.2
"""With a larger share of skipped tests one more candidate is tried: what an extra brings may be missing."""
ENOUGH = 50
"""Tests of a stopped suite that say enough: no further candidate is tried for one that skips many or is a part."""
MAX_TRIALS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was tried. `result` is None if its set-up failed; `reason` says what speaks against it."""

    candidate: Candidate
    seconds: float
    result: SuiteResult | None = None
    reason: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def count(self) -> TestCount:
        return (self.result.count if self.result else None) or TestCount()

    @property
    def share(self) -> float:
        """The passing share of what ran; 1 if only the exit code is known, and it is 0."""
        if self.result is None:
            return 0.0
        if self.result.count is None:
            return 1.0 if self.result.execution.exit_code == 0 else 0.0
        ran = self.count.passed + self.count.failed
        return self.count.passed / ran if ran else 0.0

    @property
    def comparable(self) -> bool:
        return self.share >= COMPARABLE

    @property
    def skips_many(self) -> bool:
        return self.count.skipped > SKIPPED * (self.count.passed + self.count.failed + self.count.skipped)

    @property
    def stopped(self) -> bool:
        """Whether only the tests until the suite's limit are known."""
        return self.result is not None and self.result.execution.timed_out

    @property
    def stopped_while_passing(self) -> bool:
        return self.stopped and self.share >= CLEAR and self.count.passed + self.count.failed >= ENOUGH

    @property
    def too_long(self) -> bool:
        """Whether it could be set up, and the suite was stopped before it said anything."""
        return self.stopped and not self.count.passed + self.count.failed

    @property
    def rank(self) -> tuple[bool, float, bool, bool, float]:
        """The most tests that ran and passed; half of them if too many others fail. A whole suite before a part."""
        passed = self.count.passed if self.comparable else self.count.passed / 2
        return (self.result is not None, passed * self.share, not self.candidate.part, self.too_long, self.share)

    @property
    def ran(self) -> str:
        """What it ran, for people."""
        count = self.count
        if self.result is None:
            return "not set up" if self.reason and self.candidate.suite else "no tests"
        if self.result.count is None:
            return "exit code 0" if self.by_exit_code else "no results"
        return f"{count.passed} passed, {count.failed} failed, {count.skipped} not run"

    def as_json(self) -> dict[str, str]:
        suite = self.candidate.suite
        test = suite.command if suite else ""
        return {
            "name": self.candidate.name,
            "test": test,
            "ran": self.ran,
            "reason": self.reason or self.candidate.reason,
        }

    def may_be_beaten_by(self, other: Candidate) -> bool:
        """Whether another candidate has more files with tests than tests passed here."""
        mine, its = (one.suite.command if one.suite else "" for one in (self.candidate, other))
        return mine != its and (self.count.passed < other.files or self.by_exit_code)

    @property
    def by_exit_code(self) -> bool:
        return self.result is not None and self.result.count is None and self.result.execution.exit_code == 0


Open = Callable[[Candidate], AbstractAsyncContextManager[Sandbox]]
"""A fresh tree of the base with the candidate's set-up; raises SetupError if that fails."""


JOB_SECONDS = 60.0
"""Of a candidate's suite in a job: the first turn waits for these, however long the suite is."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Seconds for all trials together, after which none is begun, and for one suite."""

    total: float = 900.0
    suite: float = 900.0

    @classmethod
    def of_job(cls, budget: Budget) -> "TrialLimits":
        """Of a job, in which a trial is not the suite's only run."""
        return cls(suite=min(JOB_SECONDS, budget.suite_seconds))


async def try_candidates(
    found: Sequence[Candidate], open_candidate: Open, limits: TrialLimits, progress: Progress, ready: Callable[[], None]
) -> list[Trial]:
    """Every trial, the best first. `ready` is called once a set-up is known to be possible.

    Raises SetupError, with why the most likely candidate failed, if none can be set up.
    """
    begun = monotonic()
    trials: list[Trial] = []
    failures: list[SetupError] = []
    for candidate in found[:MAX_TRIALS]:
        if trials and monotonic() - begun > limits.total:
            break
        clear = [one for one in trials if one.share >= CLEAR and not one.candidate.part]
        if (len(clear) > 1 or (clear and not clear[0].skips_many)) and not max(
            clear, key=lambda one: one.rank
        ).may_be_beaten_by(candidate):
            continue
        progress.report("note", f"set-up: {candidate.reason}")
        started = monotonic()
        try:
            trial = await _try(candidate, open_candidate, limits, progress, ready)
        except SetupError as error:
            failures.append(error)
            trial = Trial(candidate, monotonic() - started, reason=_failure(error))
        trials.append(trial)
        if trial.reason:
            progress.report("note", f"set-up: {candidate.name}: {trial.reason}")
        if trial.stopped_while_passing:
            break
        if trial.comparable and monotonic() - begun > limits.total / 2:
            break
    if failures and len(failures) == len(trials):
        raise failures[0]
    return sorted(trials, key=lambda trial: trial.rank, reverse=True)


async def _try(
    candidate: Candidate, open_candidate: Open, limits: TrialLimits, progress: Progress, ready: Callable[[], None]
) -> Trial:
    started = monotonic()
    async with open_candidate(candidate) as sandbox:
        ready()
        if candidate.suite is None:
            return Trial(candidate, monotonic() - started, reason="No test command was found in the repository.")
        progress.report("verification", f"suite on the base: `{candidate.suite.command}`")
        with waiting_for(progress, BASE_SUITE):
            result = (await measure(sandbox, candidate.suite, timeout=limits.suite, parallel=True)).result
        return Trial(candidate, monotonic() - started, result, _against(result), sandbox.left_out)


def _failure(error: SetupError) -> str:
    """What was executed, and the line of its output that names the error."""
    first, _, output = error.message.partition("\n")
    return one_line(f"{first} {cause_of(output)}")


def _against(result: SuiteResult) -> str:
    """Why a result is not comparable, or that it is one of a part, in a sentence; empty if nothing is against it."""
    count = result.count
    if count is None:
        cause = cause_of(result.execution.excerpt)
        ended = f"The tests end with exit code {result.execution.exit_code}: {cause.rstrip('.')}."
        if result.execution.exit_code == 0:
            return f"Only its exit code is known. {NO_REPORT}"
        return could_not_start(result.execution) or result.partial or f"{ended} {NO_REPORT}"
    if count.passed + count.failed == 0:
        cause = "" if result.execution.exit_code == 0 else f" {cause_of(result.execution.excerpt)}"
        return result.partial or f"No test was collected.{cause}"
    if count.passed / (count.passed + count.failed) >= COMPARABLE:
        return result.partial
    cause = result.shared_cause or cause_of(result.execution.excerpt)
    named = "" if result.shared_cause else f" ({listed(result.failing or (), NAMED)})"
    return f"{count.failed} of {count.passed + count.failed} tests fail{named}: {cause}"


NAMED = 3
"""Failing tests that a sentence names."""
