"""The rest of a long suite: which files it is, in which parts it runs, what is run once only, and where it ends."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from app.core.errors import AgentFixError
from app.core.patch import FileChange, Patch
from app.core.verification import (
    Execution,
    RestOfSuite,
    RestOrder,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verification,
)
from app.verify.base_rules import JudgedPatch
from app.verify.frameworks import SuiteCommand
from app.verify.rest_of_suite import FIRST, MAX_NAMED, RestRunner, RestStep, left_out, rest_of
from app.verify.suite_runner import SuiteRunner
from app.verify.verifier import Verifier
from tests.support.memory_journal import Died, MemoryJournal
from tests.support.memory_tree import MemoryTree
from tests.support.no_sandboxes import unopened

PYTEST = SuiteCommand("pytest", framework="pytest", narrowed="pytest")
GO = SuiteCommand("go test ./...", framework="go", narrowed="go test")
BY_FILES_ONLY = [
    (SuiteCommand("mvn test", framework="maven", narrowed="mvn test"), "src/test/java/kit/{}Test.java"),
    (SuiteCommand("bun test", framework="bun", narrowed="bun test"), "tests/{}.test.ts"),
    (SuiteCommand("borp", framework="borp", narrowed="borp"), "test/{}.test.js"),
]
"""Commands that take test files although the harness cannot run single tests of theirs."""
PATHS = ("tests/test_a.py", "tests/test_b.py", "tests/test_c.py", "tests/test_near.py")
CHANGE = Patch(base="b", changes=(FileChange(path="src/money.py", mode="100644", content=b"1\n"),))
TREE = MemoryTree(dict.fromkeys((*PATHS, "src/money.py", "tests/conftest.py", "web/page.test.js"), b""))


def ran(passing: Sequence[str] = (), failing: Sequence[str] = (), *, cut: bool = False) -> SuiteResult:
    return SuiteResult(
        execution=Execution(command="pytest", exit_code=1 if failing else 0, seconds=1.0, timed_out=cut),
        count=TestCount(passed=len(passing), failed=len(failing)),
        passing=tuple(passing),
        failing=tuple(failing),
    )


def nearest(*files: str, base: SuiteResult | None = None, head: SuiteResult | None = None) -> SuiteComparison:
    return SuiteComparison(
        command="pytest", base=base or ran(["a::x"]), head=head or ran(["a::y"]), nearest=files, newly_failing=()
    )


@dataclass(frozen=True)
class ScriptedParts(SuiteRunner):
    """A runner whose parts are scripted: `failing` on the head, `silent` files without results where several run."""

    asked: list[tuple[tuple[str, ...], bool, float]] = field(default_factory=list)
    """For each part: its files, whether the base was known, and its limit."""
    failing: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    hanging: bool = False
    """Whether the head is stopped at its limit before it reports anything."""

    async def part(
        self, judged: JudgedPatch, files: tuple[str, ...], before: SuiteResult | None, limit: float
    ) -> SuiteComparison:
        self.asked.append((files, before is not None, limit))
        names = [f"{path}::test_x" for path in files]
        if self.silent.intersection(files):
            return SuiteComparison(command="pytest", base=SuiteResult(execution=ran().execution))
        if self.hanging:
            stopped = SuiteResult(execution=Execution(command="pytest", exit_code=-9, seconds=limit, timed_out=True))
            return SuiteComparison(command="pytest", base=before or ran(names), head=stopped)
        newly = tuple(name for name in names if name.partition("::")[0] in self.failing)
        head = ran([name for name in names if name not in newly], newly)
        return SuiteComparison(command="pytest", base=before or ran(names), head=head, newly_failing=newly)


@dataclass(frozen=True)
class ScriptedSides(SuiteRunner):
    """A runner whose base passes and whose head fails."""

    rechecked: list[tuple[str, float]] = field(default_factory=list)
    """Each run on the change, with its limit."""

    async def _on_base(self, only: tuple[str, ...] | None) -> SuiteResult:
        return ran(["tests/test_a.py::test_x"])

    async def execute(self, name: str, patch: Patch | None, only: tuple[str, ...] | None) -> SuiteResult:
        self.rechecked.append((name, self.limit))
        on_base = name.startswith("suite-base")
        return ran(["tests/test_a.py::test_x"]) if on_base else ran(failing=["tests/test_a.py::test_x"])


def scripted(failing: frozenset[str] = frozenset(), silent: frozenset[str] = frozenset()) -> ScriptedParts:
    return ScriptedParts(PYTEST, unopened(TREE), 60.0, failing=failing, silent=silent)


async def run(
    runner: ScriptedParts,
    files: Sequence[str],
    known: SuiteResult,
    *,
    minutes: float = 5.0,
    journal: MemoryJournal | None = None,
    begin: Callable[[RestOfSuite], None] = lambda _: None,
) -> RestOfSuite:
    judged = JudgedPatch.of(TREE, Patch(base="b"))
    rest = RestOfSuite(files=len(files), minutes=minutes, command="pytest")
    steps = journal or MemoryJournal()
    return await RestRunner(runner, judged, known, begin).run([(path,) for path in files], rest, steps)


def test_rest_is_what_the_nearest_tests_leave() -> None:
    assert left_out(PYTEST, TREE, nearest("tests/test_near.py")) == [(path,) for path in PATHS[:3]]


def test_nearest_tests_that_were_cut_short_are_done_where_they_have_results() -> None:
    cut = ran(["tests/test_near.py::test_x"], cut=True)
    found = nearest("tests/test_near.py", "tests/test_a.py", base=cut, head=cut)
    assert left_out(PYTEST, TREE, found) == [(path,) for path in PATHS[:3]]


def test_a_go_package_is_run_as_a_whole() -> None:
    tree = MemoryTree(dict.fromkeys(("a/one_test.go", "a/two_test.go", "b/one_test.go", "c/one_test.go"), b""))
    assert left_out(GO, tree, nearest("c/one_test.go")) == [("a/one_test.go", "a/two_test.go"), ("b/one_test.go",)]


@pytest.mark.parametrize(("command", "path"), BY_FILES_ONLY)
async def test_files_are_run_again_where_a_test_does_not_tell_its_file(command: SuiteCommand, path: str) -> None:
    files = [path.format(name) for name in ("A", "B")]
    cut = ran(["kit.ATest::test_x"], cut=True)
    left = left_out(command, MemoryTree(dict.fromkeys(files, b"")), nearest(*files, base=cut, head=cut))
    assert left == [(file,) for file in files]
    runner = replace(scripted(), command=command)
    rest = await run(runner, files, cut)
    assert (rest.state, rest.compared) == ("finished", 2)
    assert [before for _, before, _ in runner.asked] == [False]


@pytest.mark.parametrize(
    ("found", "minutes"),
    [
        (nearest(*PATHS), 30.0),
        (nearest(), 30.0),
        (nearest("tests/test_near.py"), 0.0),
    ],
    ids=["nothing is left", "the suite was not too long", "it is turned off"],
)
def test_suite_may_have_no_rest(found: SuiteComparison, minutes: float) -> None:
    assert rest_of(PYTEST, TREE, found, CHANGE, minutes) is None


def test_a_patch_of_tests_alone_leaves_nothing_to_compare() -> None:
    patch = Patch(base="b", changes=(FileChange(path="tests/test_near.py", mode="100644", content=b"# new\n"),))
    assert rest_of(PYTEST, TREE, nearest("tests/test_near.py"), patch, 30.0) is None


def test_a_head_that_took_as_long_as_the_base_has_a_rest() -> None:
    found = nearest("tests/test_near.py", base=ran(["x"]), head=ran(["x"]))
    assert rest_of(PYTEST, TREE, found, CHANGE, 30.0) is not None


def test_a_rest_says_how_many_files_it_has() -> None:
    rest = rest_of(PYTEST, TREE, nearest("tests/test_near.py"), CHANGE, 30.0)
    assert rest == RestOfSuite(files=3, minutes=30.0, command="pytest")


async def test_base_results_that_are_known_are_not_executed_again() -> None:
    known = ran(["tests/test_b.py::test_x"], cut=True)
    runner = scripted()
    rest = await run(runner, PATHS[:3], known)
    assert [(files, base) for files, base, _ in runner.asked] == [
        (("tests/test_b.py",), True),
        (("tests/test_a.py", "tests/test_c.py"), False),
    ]
    assert (rest.state, rest.compared, rest.parts) == ("finished", 3, 2)
    assert (rest.base.passed, rest.head.passed) == (3, 3)


async def test_newly_failing_tests_of_all_parts_are_kept() -> None:
    known = ran(["tests/test_b.py::test_x"], cut=True)
    rest = await run(scripted(failing=frozenset({"tests/test_b.py", "tests/test_c.py"})), PATHS[:3], known)
    assert rest.newly_failing == ("tests/test_b.py::test_x", "tests/test_c.py::test_x")
    assert (rest.state, rest.head.failed) == ("finished", 2)


async def test_more_newly_failing_tests_than_are_kept_are_not_left_out_silently() -> None:
    paths = [f"tests/test_{number:03}.py" for number in range(MAX_NAMED + 1)]
    rest = await run(scripted(failing=frozenset(paths[1:])), paths, ran())
    assert (len(rest.newly_failing), rest.notes) == (MAX_NAMED, ())
    rest = await run(scripted(failing=frozenset(paths)), paths, ran())
    assert (len(rest.newly_failing), rest.state) == (MAX_NAMED, "finished")
    assert rest.notes == (f"There are more such tests: only the first {MAX_NAMED} are named and counted.",)


async def test_files_that_give_nothing_together_are_tried_in_smaller_parts() -> None:
    runner = scripted(silent=frozenset({"tests/test_a.py"}))
    rest = await run(runner, PATHS[:3], ran())
    assert [files for files, _, _ in runner.asked] == [
        PATHS[:3],
        ("tests/test_a.py",),
        ("tests/test_b.py", "tests/test_c.py"),
    ]
    assert (rest.state, rest.files, rest.compared, rest.looked_at) == ("finished", 3, 2, 3)


async def test_rest_ends_where_its_time_ends() -> None:
    runner = scripted()
    rest = await run(runner, PATHS[:3], ran(), minutes=0.01)
    assert (rest.state, rest.compared, runner.asked) == ("out_of_time", 0, [])


async def test_a_part_has_half_of_what_is_left_and_no_more_than_a_whole_suite() -> None:
    runner = scripted()
    await run(runner, PATHS[:1], ran(), minutes=1.0)
    await run(runner, PATHS[:1], ran(), minutes=60.0)
    assert [limit for *_, limit in runner.asked] == [30.0, 60.0]


@pytest.mark.parametrize("known", [ran(), ran([f"{PATHS[0]}::test_x"], cut=True)], ids=["base ran", "base is known"])
async def test_a_head_that_had_less_than_the_suites_time_is_not_worse_but_out_of_time(known: SuiteResult) -> None:
    runner = replace(scripted(), hanging=True)
    rest = await run(runner, PATHS[:2], known, minutes=0.9)
    assert (rest.state, rest.worse, rest.compared, len(runner.asked)) == ("out_of_time", "", 0, 1)


async def test_a_head_that_hangs_for_the_suites_own_time_is_worse() -> None:
    rest = await run(replace(scripted(), hanging=True), PATHS[:1], ran(), minutes=60.0)
    assert (rest.state, rest.compared, rest.worse) == (
        "finished",
        0,
        "The suite finishes on the base but not on the change.",
    )


async def test_a_head_alone_may_use_all_that_is_left() -> None:
    runner = scripted()
    await run(runner, PATHS[:1], ran([f"{PATHS[0]}::test_x"], cut=True), minutes=0.5)
    assert [limit for *_, limit in runner.asked] == [30.0]


@pytest.mark.parametrize(("minutes", "state", "parts"), [(1.5, "out_of_time", 0), (2.0, "finished", 1)])
async def test_no_part_is_begun_in_less_time_than_any_took(minutes: float, state: str, parts: int) -> None:
    step = RestStep(seconds=50.0, compared=FIRST).model_dump(mode="json")
    runner = scripted()
    paths = [f"tests/test_{number}.py" for number in range(FIRST + 1)]
    journal = MemoryJournal(kept={"rest.0": json.dumps({"result": step})}).resumed()
    rest = await run(runner, paths, ran(), minutes=minutes, journal=journal)
    assert (rest.state, rest.compared, len(runner.asked)) == (state, FIRST + parts, parts)


async def test_failing_tests_run_again_for_the_suites_own_time_however_short_their_part_was() -> None:
    runner = ScriptedSides(PYTEST, unopened(TREE), 60.0)
    found = await runner.part(JudgedPatch.of(TREE, CHANGE), ("tests/test_a.py",), None, 5.0)
    assert found.newly_failing == ("tests/test_a.py::test_x",)
    assert [limit for name, limit in runner.rechecked if name.endswith("-alone")] == [60.0, 60.0]


async def test_the_first_part_is_small() -> None:
    paths = [f"tests/test_{number:03}.py" for number in range(FIRST + 5)]
    runner = scripted()
    await run(runner, paths, ran())
    assert [len(files) for files, *_ in runner.asked] == [FIRST, 5]


async def test_a_new_process_goes_on_where_the_last_one_died() -> None:
    paths = [f"tests/test_{number:03}.py" for number in range(FIRST + 5)]
    journal = MemoryJournal("rest.1", "before")
    first, second = scripted(failing=frozenset({paths[0]})), scripted()
    with pytest.raises(Died):
        await run(first, paths, ran(), journal=journal)
    rest = await run(second, paths, ran(), journal=journal.resumed())
    assert [len(files) for files, *_ in second.asked] == [5], "the first part is not run again"
    assert rest.newly_failing == (f"{paths[0]}::test_x",)
    assert (rest.compared, rest.parts, rest.head.passed) == (FIRST + 5, 2, FIRST + 4)


async def test_each_part_begins_with_the_result_so_far_and_may_be_ended() -> None:
    known = ran(["tests/test_b.py::test_x"], cut=True)
    told: list[tuple[int, str]] = []

    def begin(rest: RestOfSuite) -> None:
        told.append((rest.compared, rest.state))
        if len(told) == 2:
            raise Died("something else waits")

    runner = scripted()
    with pytest.raises(Died):
        await run(runner, PATHS[:3], known, begin=begin)
    assert told == [(0, "pending"), (1, "pending")]
    assert len(runner.asked) == 1


async def test_a_rest_is_not_compared_by_another_test_command_than_the_verified_one() -> None:
    facts = Verification(
        verdict="tested", suite=nearest("tests/test_near.py"), rest=RestOfSuite(files=3, minutes=30.0, command="pytest")
    )
    order = RestOrder(patch=CHANGE, known=ran(), nearest=("tests/test_near.py",))
    verifier = Verifier(unopened(TREE), test="make test")
    with pytest.raises(AgentFixError, match="rests on `pytest`, but the test command here is `make test`"):
        await verifier.rest(facts, order, MemoryJournal(), lambda _: None)
