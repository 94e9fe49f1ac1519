"""Runs what a long suite's verdict left out, part by part, each part a step of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import PurePosixPath
from time import monotonic

from app.core.job import Journal
from app.core.patch import Patch, Tree
from app.core.verification import RestOfSuite, RestPart, SuiteComparison, SuiteResult, TestCount
from app.verify.base_rules import JudgedPatch
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.paths_of_tests import is_test_file
from app.verify.suite_runner import SuiteRunner, can_run
from app.verify.verdict import changes_beyond, suite_regression, without_outdated

FIRST = 20
MOST = 200
"""Test files in the first part, and in any."""
PART_SECONDS = 60.0
"""About as long as a part takes on both sides: that much is lost with a process, and that long another job waits."""
MIN_SECONDS = 1.0
"""With less time left, or less than any part took so far, no further part is begun."""
MAX_NAMED = 200
_SCRIPTS = (".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts")
_SUFFIXES: Mapping[FrameworkName, tuple[str, ...]] = {
    "pytest": (".py",),
    "unittest": (".py",),
    **dict.fromkeys(("node", "jest", "vitest", "mocha", "borp", "bun"), _SCRIPTS),
    "go": (".go",),
    "cargo": (".rs",),
    "maven": (".java",),
}

Unit = tuple[str, ...]
"""Test files that are executed together or not at all: one, or those of a Go package."""


class RestStep(RestPart):
    """What one step of the job's journal keeps: a part, or that it has to be divided."""

    divide: bool = False
    """Whether these files gave no results together and have to be tried in smaller parts."""
    cut_off: bool = False
    """Whether the head was stopped because the time for the remaining tests was over: that says nothing of it."""


def rest_of(
    suite: SuiteCommand, tree: Tree, found: SuiteComparison, patch: Patch, minutes: float
) -> RestOfSuite | None:
    """What the comparison left out; None if that is nothing, or cannot be run by its files. Blocking.

    A patch that changes only tests leaves the base as it is, so there is nothing to compare.
    """
    if not found.nearest or found.not_run or not minutes or found.base is None:
        return None
    if JudgedPatch.of(tree, patch).changes_only_tests:
        return None
    left = left_out(suite, tree, found)
    files = sum(map(len, left))
    return RestOfSuite(files=files, minutes=minutes, command=suite.command) if left else None


def left_out(suite: SuiteCommand, tree: Tree, found: SuiteComparison) -> list[Unit]:
    """The test files that were not executed on both sides, in order. Blocking."""
    done = set(found.nearest)
    if any(side is not None and side.execution.timed_out for side in (found.base, found.head)):
        reported = _by_file({*_names(found.base)} & {*_names(found.head)}, done)
        done = set(reported)
    start = suite.start
    units: dict[str, list[str]] = {}
    for path in sorted(tree.entries()):
        if path.startswith(start) and path.endswith(_SUFFIXES.get(suite.framework, ())) and is_test_file(path):
            key = str(PurePosixPath(path).parent) if suite.framework == "go" else path
            units.setdefault(key, []).append(path)
    return [tuple(unit) for unit in units.values() if not done.intersection(unit) and can_run(suite, unit)]


@dataclass(frozen=True, slots=True)
class RestRunner:
    """Compares what the nearest tests left out. `begin` is told what is known before each part, and may raise."""

    runner: SuiteRunner
    judged: JudgedPatch
    known: SuiteResult
    """The whole suite on the base, as far as it got: what was executed there is not executed again."""
    begin: Callable[[RestOfSuite], None]
    outdated: tuple[str, ...] = ()
    """Existing tests that the issue contradicts, by the test author."""

    async def run(self, left: Sequence[Unit], rest: RestOfSuite, journal: Journal) -> RestOfSuite:
        """Until all is compared or the time is over."""
        known = _by_file(_names(self.known), {path for unit in left for path in unit})
        pending = sorted(left, key=lambda unit: not _all_known(unit, known))
        number, size = 0, FIRST
        took: list[float] = []
        rest = RestOfSuite(files=rest.files, minutes=rest.minutes, command=rest.command)  # steps repeat what is known
        while pending:
            remaining = rest.minutes * 60 - rest.seconds
            if remaining < max(MIN_SECONDS, min(took, default=0.0)):
                return rest.model_copy(update={"state": "out_of_time"})
            units = _next(pending, size, known)
            files = tuple(path for unit in units for path in unit)
            before = _of_files(self.known, files, known) if _all_known(files, known) else None
            self.begin(rest)
            range_text = f"test files {rest.looked_at + 1} to {rest.looked_at + len(files)} of {rest.files}"
            self.runner.project.progress.report("verification", f"remaining tests: {range_text}")
            limit = min(self.runner.limit, remaining if before else remaining / 2)
            work = partial(self._part, files, before, limit, alone=len(units) == 1)
            part = await journal.step(f"rest.{number}", RestStep, work)
            number += 1
            if part.divide:
                size = max(1, len(units) // 2)
                rest = rest.model_copy(update={"seconds": rest.seconds + part.seconds})
                continue
            del pending[: len(units)]
            took.append(part.seconds)
            size = max(1, min(MOST, 4 * size, int(len(units) * PART_SECONDS / max(part.seconds, 0.1))))
            rest = _with_part(rest, part, len(files))
            if part.cut_off:
                return rest.model_copy(update={"state": "out_of_time"})
        return rest.model_copy(update={"state": "finished"})

    async def _part(self, files: tuple[str, ...], before: SuiteResult | None, limit: float, *, alone: bool) -> RestStep:
        """`before` is what the base is known to give for these files."""
        started = monotonic()
        found = await self.runner.part(self.judged, files, before, limit)
        seconds = round(monotonic() - started, 3)
        base, head = found.base, found.head
        if base is None or head is None or base.count is None:
            return RestStep(seconds=seconds, divide=not alone)
        found = without_outdated(found, self.outdated)
        cut_short = head.execution.timed_out or (before is None and base.execution.timed_out)
        cut_off = head.execution.timed_out and limit < self.runner.limit
        return RestStep(
            compared=0 if cut_short else len(files),
            base=base.count,
            head=head.count or TestCount(),
            newly_failing=found.newly_failing,
            missing=found.missing,
            worse="" if found.newly_failing or cut_off else suite_regression(found),
            recheck=found.recheck if found.newly_failing else None,
            changed=changes_beyond(_needed(found), self.outdated),
            notes=found.notes,
            seconds=seconds,
            cut_off=cut_off,
        )


def _needed(found: SuiteComparison) -> SuiteComparison:
    """Without tests that the patch removes or renames: these were counted when it was verified."""
    kept = (one.model_copy(update={"removed": ()}) for one in found.changed_tests if one.failing or not one.removed)
    return found.model_copy(update={"changed_tests": tuple(kept)})


def _with_part(rest: RestOfSuite, part: RestPart, files: int) -> RestOfSuite:
    newly, missing = (*rest.newly_failing, *part.newly_failing), (*rest.missing, *part.missing)
    more = (f"There are more such tests: only the first {MAX_NAMED} are named and counted.",)
    cut = more if max(len(newly), len(missing)) > MAX_NAMED else ()
    update = {
        "parts": rest.parts + 1,
        "compared": rest.compared + part.compared,
        "looked_at": rest.looked_at + files,
        "base": _sum(rest.base, part.base),
        "head": _sum(rest.head, part.head),
        "newly_failing": newly[:MAX_NAMED],
        "missing": missing[:MAX_NAMED],
        "worse": rest.worse or part.worse,
        "changed": (*rest.changed, *part.changed)[:MAX_NAMED],
        "recheck": rest.recheck or part.recheck,
        "notes": tuple(dict.fromkeys((*cut, *rest.notes, *part.notes)))[:MAX_NAMED],
        "seconds": round(rest.seconds + part.seconds, 3),
    }
    return rest.model_copy(update=update)


def _sum(one: TestCount, other: TestCount) -> TestCount:
    return TestCount(
        passed=one.passed + other.passed, failed=one.failed + other.failed, skipped=one.skipped + other.skipped
    )


def _next(pending: Sequence[Unit], size: int, known: Mapping[str, object]) -> list[Unit]:
    """The next units, of which the base has results of all or of none."""
    is_known = _all_known(pending[0], known)
    return list(takewhile(lambda unit: _all_known(unit, known) == is_known, pending[:size]))


def _all_known(files: Iterable[str], known: Mapping[str, object]) -> bool:
    return all(path in known for path in files)


def _names(result: SuiteResult | None) -> tuple[str, ...]:
    return () if result is None else (*(result.passing or ()), *(result.failing or ()))


def _by_file(names: Iterable[str], files: set[str]) -> dict[str, set[str]]:
    """The tests of each of these files that has any. A test whose id does not tell its file belongs to none."""
    found: dict[str, set[str]] = {}
    modules: dict[str, list[str]] = {}
    for path in files:
        place = PurePosixPath(path).with_suffix("")
        for start in range(len(place.parts)):
            modules.setdefault(".".join(place.parts[start:]), []).append(path)
    for name in names:
        path = name.partition("::")[0]
        if path not in files:
            parts = path.split(".")
            prefixes = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
            path = next((modules[prefix][0] for prefix in prefixes if len(modules.get(prefix, ())) == 1), "")
        if path:
            found.setdefault(path, set()).add(name)
    return found


def _of_files(result: SuiteResult, files: Sequence[str], known: Mapping[str, set[str]]) -> SuiteResult:
    """The part of a result that is about these files; cut short as the whole was."""
    names = set().union(*(known[path] for path in files))
    passing = tuple(name for name in result.passing or () if name in names)
    failing = tuple(name for name in result.failing or () if name in names)
    count = TestCount(passed=len(passing), failed=len(failing))
    return result.model_copy(update={"passing": passing, "failing": failing, "count": count})
