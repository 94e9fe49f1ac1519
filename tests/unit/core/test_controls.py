"""The controls around red and green: each holds for honest tests, and fails for the lie that it is there for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

import pytest

from app.core.patch import FileChange, Patch, Tree
from app.core.verification import Control, ControlName, Outcome, TestSelection
from app.verify.controls import ComparisonTrees, ControlResults, ControlRunner
from app.verify.launcher.base import OddResult
from app.verify.selected_tests import Repeats, repetition_count
from app.verify.sources.analysis import AnalysisError, SourceAnalysis
from app.verify.sources.new_conditions import Kind, NewCondition
from tests.support.memory_tree import MemoryTree
from tests.support.no_sandboxes import unopened
from tests.support.selected import Ended, Results, ScriptedReplays, ScriptedRuns

TREE = MemoryTree({"a.py": b"x = 1\n"})
IDS = ("t.py::shows", "t.py::new", "t.py::guards")
RED = frozenset(IDS[:2])
TEXTS = dict.fromkeys(RED, "AssertionError: 1 != 2")
WRONG = ("AssertionError", "1 is not 2")


def patch_of(content: bytes, path: str = "a.py") -> Patch:
    return Patch(base=TREE.commit, changes=(FileChange(path=path, mode="100644", content=content),))


PATCH = patch_of(b"x = 2\n")


def condition(kind: Kind, line: int = 1, altered: str = "3") -> NewCondition:
    return NewCondition(kind, line, line, f"`{altered}`", 4, 5, altered)


@dataclass(frozen=True)
class FixedVariants(SourceAnalysis):
    """Variants that are what a test says."""

    base: Tree = field(default_factory=lambda: TREE)
    patch: Patch = PATCH
    no_change: str = ""
    noise: Patch | None = field(default_factory=lambda: patch_of(b"# noise\nx = 1\n"))
    reprint: Patch | None = field(default_factory=lambda: patch_of(b"x=2"))
    added: Patch | None = field(default_factory=lambda: patch_of(b"x = 1\ny = 1\n"))
    hollow: Patch | None = field(default_factory=lambda: patch_of(b"x = 1\ny = None\n"))
    lines: dict[str, set[int]] | None = field(default_factory=lambda: {"a.py": {1}})
    conditions: dict[str, list[NewCondition]] | None = field(default_factory=lambda: {"a.py": [condition("outcome")]})

    def base_with_comments(self, seed: int) -> Patch | None:
        return self.noise

    def reprint_head(self, seed: int) -> Patch | None:
        return self.reprint

    @cached_property
    def unchanged(self) -> str:
        return self.no_change

    @cached_property
    def additions(self) -> Patch | None:
        return self.added

    @cached_property
    def stubbed_additions(self) -> Patch | None:
        return self.hollow

    @cached_property
    def executable_lines(self) -> dict[str, set[int]] | None:
        return self.lines

    @cached_property
    def new_conditions(self) -> dict[str, list[NewCondition]] | None:
        return self.conditions


def honest(name: str, before: int) -> Results:
    """Red ones fail on what has the base's behaviour, all pass on what has the head's."""
    if any(part in name for part in ("noise", "base", "additions", "hollow", "altered")):
        return {one: "failed" if one in RED else "passed" for one in IDS}
    return dict.fromkeys(IDS, "passed")


async def examine(
    run: ScriptedRuns,
    variants: FixedVariants | None = None,
    *,
    new: frozenset[str] = frozenset(),
    isolated: bool = True,
    base: Repeats | None = None,
    patch: Patch = PATCH,
    replay: ScriptedReplays | None = None,
    tree: MemoryTree = TREE,
    existing: tuple[str, ...] = (),
) -> ControlResults:
    project = unopened(tree)
    project.isolated = isolated
    runs = replace(run, project=project, replays=replay or ScriptedReplays())
    trees = ComparisonTrees(replace(variants or FixedVariants(), base=tree, patch=patch), patch)
    selection = TestSelection(ids=IDS)
    return await ControlRunner(
        runs,
        trees,
        selection,
        red=RED,
        new=new,
        texts=TEXTS,
        name="s",
        base=base,
        existing=lambda: TestSelection(ids=existing),
    ).run()


def runs(**options: object) -> ScriptedRuns:
    settings: dict[str, object] = {"ends": honest, "executed": (("a.py", (1,)),), **options}
    return ScriptedRuns(**settings)  # type: ignore[arg-type]


def control(found: ControlResults, name: ControlName) -> Control:
    return next(each for each in found.controls if each.name == name)


async def test_every_control_holds_for_honest_tests() -> None:
    run = runs()
    found = await examine(run)
    assert {each.outcome for each in found.controls} == {"held"}
    assert found.results == dict.fromkeys(IDS, "passed")
    assert run.names.count("s-head") + run.names.count("s-reprint") == 5, "what takes under a second runs five times"
    assert len(set(run.seeds)) == len(run.seeds)
    assert sorted(run.without_copies) == ["s-altered", *["s-head"] * 3, "s-reprint"], (
        "the first execution, and each variant of the base, has copies that must fail"
    )


@pytest.mark.parametrize(("unchecked", "outcome"), [(IDS[:1], "held"), (IDS[:2], "not_run"), (IDS[2:], "held")])
async def test_some_red_test_needs_a_copy_that_fails(unchecked: tuple[str, ...], outcome: str) -> None:
    found = control(await examine(runs(unchecked=unchecked)), "failing_copies_fail")
    assert found.outcome == outcome
    assert all((one in found.detail) == (one in unchecked and one in RED) for one in IDS)


@pytest.mark.parametrize(("seconds", "often"), [(0.2, 5), (2, 3), (20, 2), (40, 1)])
async def test_long_executions_are_repeated_less_often(seconds: float, often: int) -> None:
    assert repetition_count(seconds) == often
    found = await examine(runs(seconds=seconds))
    repeats = control(found, "repeats_agree")
    assert (repeats.outcome, repeats.detail) == ("held", f"{max(often, 2)} runs on the head.")


def otherwise(part: str, **ends: Outcome) -> object:
    def end(name: str, before: int) -> Results:
        changed = {one: ends[one.split("::")[1]] for one in IDS if one.split("::")[1] in ends}
        return {**honest(name, before), **(changed if part in name else {})}

    return end


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("noise_stays_red", otherwise("noise", shows="passed")),
        ("reprint_stays_green", otherwise("reprint", shows="failed")),
        ("reprint_stays_green", otherwise("reprint", guards="not_run")),
        ("additions_stay_red", otherwise("additions", new="passed")),
    ],
)
async def test_deviating_twin_fails_only_its_own_control(name: ControlName, ends: object) -> None:
    found = await examine(runs(ends=ends))
    assert {each.name for each in found.controls if each.outcome == "failed"} == {name}
    assert "t.py::" in control(found, name).detail


async def test_the_patch_s_own_fixtures_must_not_be_needed() -> None:
    def changed(*paths: str) -> Patch:
        return PATCH.model_copy(
            update={"changes": (*PATCH.changes, *(patch_of(b"", path).changes[0] for path in paths))}
        )

    run = runs()
    found = await examine(run, patch=changed("tests/conftest.py", "pytest.ini", "tests/test_b.py"))
    assert control(found, "base_rules_suffice").outcome == "held"
    assert [patch for name, patch in run.patches if name == "s-rules"] == [PATCH]
    assert run.names.count("s-head") == 3, "it is one of the five runs"
    found = await examine(runs(ends=otherwise("rules", shows="failed")), patch=changed("tests/conftest.py"))
    assert {each.name for each in found.controls if each.outcome == "failed"} == {"base_rules_suffice"}
    for patch in (PATCH, patch_of(b"", "tests/helpers.py")):  # what looks like a test may be all that is changed
        found = await examine(runs(), patch=patch)
        assert "base_rules_suffice" not in {each.name for each in found.controls}


async def test_untrusted_twin_fails_its_control() -> None:
    found = await examine(runs(untrusted={"s-noise": "A copy that must fail passed."}))
    assert control(found, "noise_stays_red").detail == "A copy that must fail passed."


async def test_tests_of_new_behaviour_may_pass_once_the_interface_exists() -> None:
    """What asks for an interface that the issue names may pass as soon as that is there; the others may not."""
    ends = otherwise("additions", new="passed")
    found = await examine(runs(ends=ends), new=frozenset({"t.py::new"}))
    assert control(found, "additions_stay_red").outcome == "held"
    all_new = await examine(runs(ends=ends), FixedVariants(hollow=None), new=RED)
    assert control(all_new, "additions_stay_red").outcome == "not_applicable"
    assert "new behaviour" in control(all_new, "additions_stay_red").detail


async def test_tests_of_new_behaviour_may_not_all_pass_with_an_empty_interface() -> None:
    """Where all tests of it pass as soon as an empty one is there, nothing was shown."""
    one = await examine(runs(ends=otherwise("hollow", new="passed")), new=RED)
    assert control(one, "additions_stay_red").outcome == "held", "one that asks for more is enough"
    every = await examine(runs(ends=otherwise("hollow", new="passed", shows="passed")), new=RED)
    assert control(every, "additions_stay_red").outcome == "failed"
    mixed = await examine(runs(ends=otherwise("hollow", new="passed")), new=frozenset({"t.py::new"}))
    assert control(mixed, "additions_stay_red").detail == "t.py::new passed there."


async def test_missing_twins_are_reported_as_not_applicable() -> None:
    found = await examine(runs(), FixedVariants(noise=None, reprint=None, added=None))
    variants: tuple[ControlName, ...] = ("noise_stays_red", "reprint_stays_green", "additions_stay_red")
    assert {control(found, name).outcome for name in variants} == {"not_applicable"}


@dataclass(frozen=True)
class FailedAnalysis(FixedVariants):
    """No source could be analysed."""

    lines: dict[str, set[int]] | None = None
    conditions: dict[str, list[NewCondition]] | None = None

    def base_with_comments(self, seed: int) -> Patch | None:
        raise AnalysisError

    def reprint_head(self, seed: int) -> Patch | None:
        raise AnalysisError

    @cached_property
    def additions(self) -> Patch | None:
        raise AnalysisError

    @cached_property
    def stubbed_additions(self) -> Patch | None:
        raise AnalysisError


@pytest.mark.parametrize("new", [frozenset[str](), RED])
async def test_sources_that_cannot_be_analysed_fail_each_control_that_needs_them(new: frozenset[str]) -> None:
    found = await examine(runs(), FailedAnalysis(), new=new)
    failed = {each.name: each.detail for each in found.controls if each.outcome == "failed"}
    assert failed == dict.fromkeys(
        (
            *("noise_stays_red", "reprint_stays_green", "additions_stay_red"),
            *("changed_line_executed", "altered_conditions_fail"),
        ),
        "the changed sources could not be analysed: parsing failed or took too long.",
    )
    assert control(found, "repeats_agree").detail == "5 runs on the head.", "none is a reprinted one"


async def test_a_run_that_did_not_end_has_no_copies() -> None:
    found = control(await examine(runs(timed_out=True)), "failing_copies_fail")
    assert (found.outcome, found.detail) == ("not_run", "the run did not end within its time limit.")


async def test_a_patch_of_comments_changes_no_sources() -> None:
    found = await examine(runs(), FixedVariants(no_change="only comments."))
    assert control(found, "sources_changed") == Control(
        name="sources_changed", outcome="failed", detail="only comments."
    )
    data = await examine(runs(), FixedVariants(no_change="only data."), patch=patch_of(b"{}", "rates.json"))
    assert control(data, "sources_changed").outcome == "held", "data may decide what a program does"


@pytest.mark.parametrize(
    ("executed", "measured", "lines", "outcome"),
    [
        ((("a.py", (1, 7)),), True, {"a.py": {1}}, "held"),
        ((("a.py", (7,)),), True, {"a.py": {1}}, "failed"),
        ((), True, {"a.py": {1}}, "failed"),
        ((), False, {"a.py": {1}}, "not_run"),
        ((), True, {}, "not_applicable"),
    ],
)
async def test_passing_tests_that_execute_no_patched_line_fail_the_control(
    executed: tuple[tuple[str, tuple[int, ...]], ...],
    measured: bool,
    lines: Mapping[str, set[int]],
    outcome: str,
) -> None:
    found = await examine(runs(executed=executed, measured=measured), FixedVariants(lines=dict(lines)))
    assert control(found, "changed_line_executed").outcome == outcome


async def test_untrusted_runner_is_reported() -> None:
    found = await examine(runs(untrusted={"s-head": "An altered copy passed."}))
    assert control(found, "failing_copies_fail") == Control(
        name="failing_copies_fail", outcome="failed", detail="An altered copy passed."
    )
    assert "noise_stays_red" not in {each.name for each in found.controls}, "nothing more is executed"


async def test_exit_code_and_results_must_agree() -> None:
    found = await examine(runs(exit_code=3))
    assert "the exit code was 3, but 0 of 3 tests failed" in control(found, "exit_code_agrees").detail


async def test_one_deviating_repetition_fails_the_control() -> None:
    def flaky(name: str, before: int) -> Results:
        return {**honest(name, before), **({"t.py::shows": "failed"} if (name, before) == ("s-head", 3) else {})}

    found = await examine(runs(ends=flaky))
    assert control(found, "repeats_agree").outcome == "failed"
    assert found.results["t.py::shows"] == "failed", "what failed once has not passed"


async def test_flaky_base_fails_the_control() -> None:
    run = runs(ends=otherwise("base", shows="passed"))
    selection = TestSelection(ids=IDS)
    first = await run.once("s-base", selection, None)
    second = await runs().once("s-base", selection, None)
    found = await examine(runs(), base=Repeats((first, second)))
    assert control(found, "repeats_agree").outcome == "failed"


async def test_same_conditions_control_needs_a_sandbox() -> None:
    assert control(await examine(runs(), isolated=False), "same_conditions").outcome == "not_run"


def replays(
    head: Mapping[str, Ended], base: Mapping[str, Ended], test: str = IDS[0], **more: object
) -> ScriptedReplays:
    """One test that ends so in these phases, on head and base."""
    ends = {"s-replay": head, "s-replay-base": base}
    by_id = {name: {phase: {test: ended} for phase, ended in phases.items()} for name, phases in ends.items()}
    return ScriptedReplays(by_id, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["loaded", "first", "plain", "deep", "many", "kept"])
async def test_replay_failure_equal_to_the_base_fails_the_control(phase: str) -> None:
    found = control(
        await examine(runs(), replay=replays({phase: WRONG}, {"plain": WRONG, phase: WRONG})), "replay_agrees"
    )
    assert (found.outcome, IDS[0] in found.detail) == ("failed", True)
    assert "1 is not 2" not in found.detail, "the agent reads this, and the test is hidden from it"


@pytest.mark.parametrize("phase", ["thread", "collected", "shifted", "loop", "pause"])
async def test_failure_under_other_conditions_fails_conditions_agree_only(phase: str) -> None:
    found = await examine(runs(), replay=replays({phase: WRONG}, {"plain": WRONG, phase: WRONG}))
    assert control(found, "conditions_agree").outcome == "failed"
    assert control(found, "replay_agrees").outcome == "held"


@pytest.mark.parametrize(
    ("test", "head", "base"),
    [
        pytest.param(IDS[0], {"plain": ("Unset", "")}, {"plain": ("Unset", "")}, id="needs its framework on both"),
        pytest.param(IDS[0], {"plain": WRONG}, {}, id="only the framework makes it red"),
        pytest.param(IDS[0], {"many": WRONG}, {"plain": WRONG, "many": ("Twice", "")}, id="cannot be repeated"),
        pytest.param(IDS[0], {"loop": WRONG}, {"plain": WRONG, "loop": ("Busy", "")}, id="has a loop of its own"),
        pytest.param(IDS[2], {"shifted": WRONG}, {"shifted": WRONG}, id="is green on the base, but not so"),
    ],
)
async def test_replay_failure_also_on_the_base_for_another_reason_is_accepted(
    test: str, head: Mapping[str, Ended], base: Mapping[str, Ended]
) -> None:
    found = await examine(runs(), replay=replays(head, base, test))
    assert {each.outcome for each in found.controls} == {"held"}


@pytest.mark.parametrize("phase", ["forked_end", "worker_end"])
@pytest.mark.parametrize("test", [IDS[0], IDS[2]], ids=["red on the base", "green on the base"])
async def test_a_child_without_a_result_fails_only_a_control_of_its_own(phase: str, test: str) -> None:
    plain: dict[str, Ended] = {"plain": WRONG} if test == IDS[0] else {}
    found = await examine(runs(), replay=replays({phase: ("fork", "")}, plain, test))
    assert control(found, "children_end").outcome == "failed"
    assert "its result there is not known" in control(found, "children_end").detail
    assert control(found, "conditions_agree").outcome == "held"
    excused = await examine(runs(), replay=replays({phase: ("fork", "")}, plain | {phase: ("fork", "")}, test))
    assert {each.outcome for each in excused.controls} == {"held"}


CHANGED = ("changed", "an argument became []")


@pytest.mark.parametrize(
    ("base", "outcome"),
    [
        pytest.param({"arguments": ("", ""), "plain": WRONG}, "failed", id="the base leaves it as it is"),
        pytest.param({"arguments": CHANGED, "plain": WRONG}, "held", id="the base changes it as well"),
        pytest.param({"plain": ("NameError", "")}, "held", id="the base does not come to a call"),
    ],
)
async def test_arguments_have_to_stay_where_they_do_on_the_base(base: Mapping[str, Ended], outcome: str) -> None:
    found = await examine(runs(), replay=replays({"arguments": CHANGED}, base))
    assert control(found, "arguments_stay").outcome == outcome


@pytest.mark.parametrize(
    ("phase", "head", "base", "name"),
    [
        pytest.param("process", "['the output']", "['open files']", "arguments_stay", id="prints, unlike the base"),
        pytest.param("process", "['the output']", "['the output']", "", id="prints like the base"),
        pytest.param("varied", "{'large': 'raises'}", "{'large': ''}", "other_calls_agree", id="not as on the base"),
        pytest.param("varied", '{"large": "raises"}', '{"large": ""}', "other_calls_agree", id="so in JSON"),
        pytest.param("varied", "{'large': 'raises'}", "{'large': 'is wrong'}", "", id="the base does not work, either"),
        pytest.param("varied", "{'large': 'raises'}", "{}", "", id="the base does not come to that call"),
    ],
)
async def test_calls_in_other_forms_and_their_process_are_compared_with_the_base(
    phase: str, head: str, base: str, name: str
) -> None:
    found = await examine(runs(), replay=replays({phase: ("changed", head)}, {phase: ("", base), "plain": WRONG}))
    assert [one.name for one in found.controls if one.outcome == "failed"] == [name] * bool(name)


async def test_base_is_replayed_only_after_a_failure() -> None:
    replay = ScriptedReplays()
    await examine(runs(), replay=replay)
    assert replay.names == ["s-replay"]


@pytest.mark.parametrize(("both", "outcome"), [(False, "failed"), (True, "not_run")])
async def test_unfinished_replay_is_not_counted_as_agreement(both: bool, outcome: str) -> None:
    ended = frozenset({"s-replay", "s-replay-base"} if both else {"s-replay"})
    found = await examine(runs(), replay=replays({}, {}, unfinished=ended))
    assert control(found, "replay_agrees").outcome == outcome


@pytest.mark.parametrize(
    ("old", "outcome"), [("x = 1\n", "failed"), ("class A(int):\n    def __eq__(self, o): ...\n", "held")]
)
async def test_built_in_type_altered_on_the_base_too_is_accepted(old: str, outcome: str) -> None:
    tree = MemoryTree({"a.py": old.encode()})
    odd = OddResult(IDS[0], "A", (("__eq__", "/workspace/a.py", 2),))
    patch = patch_of(b"class A(int):\n    def __eq__(self, o): ...\n\n\nx = 2\n")
    found = await examine(runs(), tree=tree, patch=patch, replay=ScriptedReplays(odd=(odd,)))
    assert control(found, "results_are_plain").outcome == outcome


@pytest.mark.parametrize(("both", "outcome"), [(False, "failed"), (True, "held")])
async def test_result_of_another_type_is_accepted_where_the_base_has_it(both: bool, outcome: str) -> None:
    replay = ScriptedReplays(odd=(OddResult(IDS[0], "float for int", ()),), odd_on_base=both)
    found = control(await examine(runs(), replay=replay), "results_are_plain")
    assert found.outcome == outcome
    assert both or "gets a float for int" in found.detail


async def test_slow_tests_are_not_replayed() -> None:
    replay = ScriptedReplays()
    found = await examine(runs(seconds=90), replay=replay)
    assert (control(found, "replay_agrees").outcome, replay.names) == ("not_run", [])


def of_conditions(*conditions: NewCondition) -> FixedVariants:
    return FixedVariants(conditions={"a.py": list(conditions)})


async def test_each_new_condition_is_altered_in_a_run_of_its_own() -> None:
    run = runs()
    await examine(run, of_conditions(condition("outcome"), condition("outcome", altered="4")))
    contents = [patch.changes[0].content for name, patch in run.patches if name == "s-altered" and patch]
    assert sorted(filter(None, contents)) == [b"x = 3\n", b"x = 4\n"]


async def test_a_condition_that_no_test_needs_is_named() -> None:
    passing = otherwise("altered", shows="passed", new="passed")
    found = control(await examine(runs(ends=passing)), "altered_conditions_fail")
    assert (found.outcome, found.detail) == ("failed", "no independent or existing test fails when `3` (a.py:1).")
    one_fails = control(await examine(runs(ends=otherwise("altered", shows="passed"))), "altered_conditions_fail")
    assert one_fails.outcome == "held"


@pytest.mark.parametrize(("occurs", "outcome"), [(True, "held"), (False, "failed")])
async def test_branches_that_make_no_difference_need_both_outcomes(occurs: bool, outcome: str) -> None:
    branch = condition("outcome")._replace(raising="1 / 0")
    number = count()

    def end(name: str, before: int) -> Results:
        fails = name == "s-altered" and next(number) == 1 and occurs
        return dict.fromkeys(IDS, "failed" if fails else "passed") if name == "s-altered" else honest(name, before)

    run = runs(ends=end)
    found = await examine(run, of_conditions(branch))
    contents = [patch.changes[0].content for name, patch in run.patches if name == "s-altered" and patch]
    assert contents == [b"x = 3\n", b"x = 1 / 0\n"]
    assert control(found, "altered_conditions_fail").outcome == outcome


async def test_a_new_statement_has_to_be_executed() -> None:
    variants = of_conditions(condition("statement"), condition("statement", 2, "return 4"), condition("outcome", 2))
    run = runs()
    found = control(await examine(run, variants), "altered_conditions_fail")
    assert (found.outcome, found.detail) == ("failed", "no independent or existing test executes `return 4` (a.py:2).")
    assert "s-altered" not in run.names, "what is not executed needs no run"


async def test_removed_lines_are_put_back_even_if_none_is_executed() -> None:
    run = runs(ends=otherwise("altered", shows="passed", new="passed"))
    found = control(await examine(run, of_conditions(condition("removed", 9))), "altered_conditions_fail")
    assert (found.outcome, found.detail) == ("failed", "no independent or existing test fails when `3` (a.py:9).")


EXISTING = "t.py::existing"


@pytest.mark.parametrize(("result", "outcome"), [("failed", "held"), ("passed", "failed")])
async def test_tests_of_the_suite_may_decide_what_independent_tests_leave_open(result: Outcome, outcome: str) -> None:
    def end(name: str, before: int) -> Results:
        if name.startswith("s-existing"):
            return {EXISTING: result if name.endswith("altered") else "passed"}
        return dict.fromkeys(IDS, "passed") if name == "s-altered" else honest(name, before)

    run = runs(ends=end)
    found = await examine(run, of_conditions(condition("outcome")), existing=(EXISTING,))
    assert control(found, "altered_conditions_fail").outcome == outcome
    assert run.names.count("s-existing") == run.names.count("s-existing-altered") == 1


async def test_a_statement_may_be_executed_by_the_suite_alone() -> None:
    def executed(name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return (("a.py", (2,) if name == "s-existing" else (1,)),)

    run = runs(ends=lambda name, before: {EXISTING: "passed", **honest(name, before)}, executed_in=executed)
    found = await examine(run, of_conditions(condition("statement", 2)), existing=(EXISTING,))
    assert control(found, "altered_conditions_fail").outcome == "held"


async def test_a_boundary_that_no_test_needs_is_only_named() -> None:
    variants = of_conditions(condition("boundary"))
    found = control(
        await examine(runs(ends=otherwise("altered", shows="passed", new="passed")), variants),
        "altered_conditions_fail",
    )
    assert (found.outcome, found.detail) == ("held", "no independent test notices `3` (a.py:1).")


@pytest.mark.parametrize(("seconds", "tried"), [(2, 10), (6, 5), (20, 2), (40, 0)])
async def test_slow_tests_try_fewer_alterations(seconds: float, tried: int) -> None:
    run = runs(seconds=seconds)
    found = control(
        await examine(run, of_conditions(*(condition("outcome", altered=str(number)) for number in range(12)))),
        "altered_conditions_fail",
    )
    assert run.names.count("s-altered") == tried
    said = f"{12 - tried} more alterations were skipped for time." if tried else "one run takes 40 s."
    assert (found.outcome, found.detail) == ("held" if tried else "not_run", said)
