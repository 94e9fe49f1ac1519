"""The verdict: a pure function of the executed runs, by named rules; and how the suite compares on base and head.

- proved: an independent test author's frozen tests are red on the base for the right reason and green on the head, the
  suite was run on both and has no new failures, and no control of these runs failed
- tested: the fixer's own tests went from red to green under the same controls; or the task expects no red, and a suite
  that can be compared is clean
- unproved: less than that, and nothing contradicts the patch
- broken: a check failed: a gate, the reproduction on the head, the suite, the runner, a frozen test

The tests of a second author, who saw the change, can only make a verdict worse.

Each rule that objects names the best verdict that it still allows; the lowest of these is the verdict. So one more
failure never makes a verdict better. No model is asked, and no sentence of a model is an argument.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.core.text import count, listed
from app.core.verification import (
    Control,
    ControlName,
    Facts,
    Reproduction,
    SpecificationResult,
    SpecifiedTest,
    SuiteComparison,
    SuiteResult,
    Verdict,
    Verification,
)

MAX_NAMED = 5


def compare(command: str, base: SuiteResult, head: SuiteResult) -> SuiteComparison:
    """Compares tests by name; `verdict` looks at the exit codes as well."""
    failed_before, failed_now = set(base.failing or ()), set(head.failing or ())
    passed_before, passed_now = set(base.passing or ()), set(head.passing or ())
    newly = failed_now - failed_before
    if base.failing is None or base.execution.timed_out:
        newly &= passed_before  # a test without a result on the base may have failed there as well
    if base.shared_cause and base.shared_cause == head.shared_cause:
        # A new test that fails as all others do says nothing of the change: nothing can pass in this set-up.
        newly -= failed_now - passed_before - set(head.other_failures)
    # A head whose results are unknown, or were cut short, says nothing of the tests it does not name.
    complete = head.passing is not None and not head.execution.timed_out
    gone = passed_before - passed_now - failed_now if complete else set[str]()
    return SuiteComparison(
        command=command,
        base=base,
        head=head,
        newly_failing=tuple(sorted(newly)),
        fixed=tuple(sorted(failed_before & passed_now)),
        # A failing case stands for one that is gone only if its failure counts itself.
        missing=tuple(sorted(_missing(gone, passed_before, passed_now | newly))),
        by_exit_code=base.count is None or head.count is None,
    )


def suite_regression(suite: SuiteComparison) -> str:
    """How the suite as a whole became worse if no single test is named."""
    base, head = suite.base, suite.head
    if base is None or head is None:
        return ""
    before, now = base.execution, head.execution
    if base.count is None and not before.ok:
        return ""  # without a result on the base, the head cannot be worse
    if now.timed_out and not before.timed_out:
        return "The suite finishes on the base but not on the head."
    if base.count is not None and head.count is None:
        why = f"The suite reports test results on the base but not on the head (exit code {now.exit_code})."
        return f"The suite's results on the head are not trusted: {head.untrusted}" if head.untrusted else why
    if before.exit_code == 0 and now.exit_code != 0 and (base.count is None or not head.failing):
        return f"The suite's exit code is 0 on the base and {now.exit_code} on the head."
    return ""


def without_outdated(suite: SuiteComparison, outdated: Collection[str]) -> SuiteComparison:
    """The comparison without tests that the issue contradicts, by their author, and that the patch removes or renames.

    They are still in the base's version of their files, and fail there.
    """
    removed = [(one.path, test) for one in suite.changed_tests for test in one.removed]
    gone = {name for name in outdated if any(_is_id_of(name, path, test) for path, test in removed)}
    left = tuple(name for name in suite.newly_failing if not _is_among(name, gone))
    return suite.model_copy(update={"newly_failing": left})


def changes_beyond(suite: SuiteComparison, outdated: Collection[str]) -> tuple[str, ...]:
    """Changes and removals of existing tests that the patch needed without being asked for.

    `outdated` are the ids of tests that an independent test author says the issue contradicts.
    """
    found = []
    for one in suite.changed_tests:
        failing = [name for name in one.failing if not _is_among(name, outdated)]
        removed = [test for test in one.removed if not any(_is_id_of(each, one.path, test) for each in outdated)]
        if failing:
            what = "new file" if one.added else "change"
            found.append(f"{one.path}: without this {what} {listed(failing, MAX_NAMED)} would fail")
        if removed:
            found.append(f"{one.path}: {listed(removed, MAX_NAMED)} removed or renamed")
        if not one.failing and not one.removed:
            found.append(f"{one.path}: without this change the suite would fail")
    return tuple(found)


def _is_among(name: str, outdated: Collection[str]) -> bool:
    """True if these have the test itself, or the function of which it is a case."""
    start, _, test = name.partition("::")
    return not {name, _function(name), f"{start}::{test.partition('/')[0]}"}.isdisjoint(outdated)  # the last for Go


def _is_id_of(name: str, path: str, test: str) -> bool:
    """True if an id is that of a file's test, by its name in the source.

    Titles of JavaScript follow those of the suites around them; ids of Go have the package, not the file.
    """
    place = PurePosixPath(path)
    if not name.endswith((f"::{test}", f" {test}") if "::" in name else f".{test}"):
        return False
    if place.suffix == ".go":
        return f"/{name.partition('::')[0]}".endswith(f"/{place.parent.name}" if place.parent.name else "")
    return place.stem in name


def _missing(gone: set[str], before: set[str], now: set[str]) -> set[str]:
    """Tests that vanished. A parameterised test with changed values has other ids and still exists."""
    if not gone:
        return gone
    cases_before, cases_now = Counter(map(_function, before)), Counter(map(_function, now))
    return {name for name in gone if "[" not in name or cases_now[_function(name)] < cases_before[_function(name)]}


def _function(name: str) -> str:
    return name.split("[", maxsplit=1)[0]


MAX_SLOWER = 10
_RANK: dict[Verdict, int] = {"broken": 0, "unproved": 1, "tested": 2, "proved": 3}
_TRUSTED: tuple[ControlName, ...] = ("failing_copies_fail",)
"""Controls that must be run: without them the results cannot be trusted."""
_PROVING: tuple[ControlName, ...] = ("same_conditions", *_TRUSTED)
"""The controls that `proved` requires in addition: without a sandbox nothing is proved."""

CAPS_AT_TESTED: frozenset[ControlName] = frozenset(
    {
        "conditions_agree",
        "children_end",
        "results_are_plain",
        "arguments_stay",
        "other_calls_agree",
        "altered_conditions_fail",
    }
)
"""Controls whose failure does not invalidate the test results; they cap the verdict at `tested`."""

_CAPS_AT_UNPROVED: frozenset[ControlName] = frozenset({"replay_agrees", "conditions_agree"})
"""If one of these fails for the independent tests, the change works only under test; other tests cannot compensate."""

BEYOND_THE_FIXER = frozenset(
    {"no_specification", "suite_not_compared", "suite_by_exit_code", "no_red_expected", "same_conditions"}
)
"""Rules whose objection no other change could have avoided."""


class Refusal(NamedTuple):
    """A rule's objection: the best verdict that it allows, and why."""

    rule: str
    at_most: Verdict
    reason: str


def with_verdict(facts: Facts) -> Verification:
    """The facts with their verdict, its reasons, and the rules that kept it from being better."""
    found = sorted((refusal for rule in _RULES for refusal in rule(facts)), key=lambda each: _RANK[each.at_most])
    outcome: Verdict = found[0].at_most if found else "proved"
    reasons = [refusal.reason for refusal in found if outcome != "broken" or refusal.at_most == "broken"]
    if outcome in ("proved", "tested"):
        reasons = [*_shown(facts), *reasons]
    elif outcome == "unproved":
        reasons += _shown(facts)
    specified = facts.specification is not None and bool(facts.specification.tests)
    shown = facts.specification if specified else facts.reproduction
    return Verification(
        **facts_of(facts),
        verdict=outcome,
        reasons=tuple(dict.fromkeys(map(_sentence, filter(None, reasons)))),
        rules=tuple(dict.fromkeys(refusal.rule for refusal in found)),
        controls=shown.controls if shown else (),
    )


def facts_of(facts: Facts) -> dict[str, Any]:
    """Only the facts, also of a verification with a verdict."""
    return {name: getattr(facts, name) for name in Facts.model_fields}


def _gates(facts: Facts) -> Iterator[Refusal]:
    for gate in facts.gates:
        if gate.outcome == "blocked":
            details = "; ".join(gate.details[:MAX_NAMED]) or "refused"
            yield Refusal(f"gate: {gate.name}", "broken", f"{gate.name}: {details}")


def _reproduction_fails(facts: Facts) -> Iterator[Refusal]:
    found = facts.reproduction
    if found is None or found.on_head in ("green", "not_run"):
        return
    if found.unanswered:
        yield Refusal("reproduction_unanswered", "unproved", found.unanswered)
    elif found.on_head == "was_not_there":
        yield Refusal("reproduction_fails", "broken", "The reproduction could not be run on the head.")
    else:
        yield Refusal("reproduction_fails", "broken", "The reproduction still fails on the head.")


def _suite_worse(facts: Facts) -> Iterator[Refusal]:
    suite = facts.suite
    if suite is None:
        return
    if suite.newly_failing:
        reason = f"Newly failing: {_named(suite.newly_failing, 'test')}."
        yield Refusal("suite_newly_failing", "broken", reason)
    elif worse := suite_regression(suite):
        yield Refusal("suite_worse", "broken", worse)
    if suite.missing:
        reason = f"{_named(suite.missing, 'test')} passed on the base and did not run on the head."
        yield Refusal("tests_vanished", "unproved", reason)


def _rest_worse(facts: Facts) -> Iterator[Refusal]:
    """What the rest of a long suite showed, once it was run; it can only make a verdict worse."""
    rest = facts.rest
    if rest is None:
        return
    if rest.newly_failing:
        reason = f"Newly failing among the remaining tests: {_named(rest.newly_failing, 'test')}."
        yield Refusal("suite_newly_failing", "broken", reason)
    elif rest.worse:
        yield Refusal("suite_worse", "broken", f"In the remaining tests: {rest.worse}")
    if rest.changed:
        reason = f"Among the remaining tests: {'; '.join(rest.changed[:MAX_NAMED])}"
        yield Refusal("existing_tests_changed", "tested", _CAPS["existing_tests_changed"] + reason)
    if rest.missing:
        reason = f"Among the remaining tests, {_named(rest.missing, 'test')} passed on the base and did not run on the"
        yield Refusal("tests_vanished", "unproved", f"{reason} head.")


def _untrusted(facts: Facts) -> Iterator[Refusal]:
    found = (facts.specification, facts.second_tests, facts.reproduction)
    for control in (control for each in found for control in _controls(each)):
        if control.name == "failing_copies_fail" and control.outcome == "failed":
            reason = f"The results of these tests cannot be trusted{_colon(control.detail)}"
            causes = [each for cap in facts.caps if cap.rule in _CAUSES for each in cap.findings]
            also = f" The patch may be the cause: {'; '.join(causes[:MAX_NAMED])}." if causes else ""
            yield Refusal(control.name, "broken", reason + also)


def _tests_of_authors(facts: Facts) -> Iterator[Refusal]:
    """What fails on the head, and what was withdrawn, of the tests that were written independently of the change."""
    for found, name, noun in (
        (facts.specification, "specification", "independent test"),
        (facts.second_tests, "second_tests", "test of the second author"),
    ):
        if found is None:
            continue
        yield from _fails_on_head(found, name, noun)
        if withdrawn := tuple(test for test in found.tests if test.withdrawn):
            nothing_left = name == "specification" and not found.held_back
            at_most: Verdict = "unproved" if nothing_left else "tested"
            yield Refusal(f"{name}_disputed", at_most, _withdrawn(withdrawn, noun))


def _fails_on_head(found: SpecificationResult, name: str, noun: str) -> Iterator[Refusal]:
    if failing := found.failing:
        reason = f"{_tests(failing, noun)} {_verb(failing, 'fails', 'fail')} on the head"
        if found.settlement is None:
            yield Refusal(f"{name}_fails", "broken", f"{reason}: {_sentences(failing)}")
        else:
            upheld = f"The agent objected, and a third model call upheld {_verb(failing, 'it', 'them')}"
            yield Refusal(f"{name}_disputed", "unproved", f"{reason}. {upheld}: {_sentences(failing)}")


def _withdrawn(tests: Sequence[SpecifiedTest], noun: str) -> str:
    was = _verb(tests, "was", "were")
    return f"{_tests(tests, noun)} {was} withdrawn after the agent objected: {_sentences(tests)}"


def _caps(facts: Facts) -> Iterator[Refusal]:
    for cap in facts.caps:
        findings = "; ".join(cap.findings[:MAX_NAMED])
        yield Refusal(cap.rule, "unproved" if cap.rule == "sources_changed" else "tested", _CAPS[cap.rule] + findings)


_CAUSES = frozenset({"own_equality", "watches_tests"})
"""Caps that can explain why a test passes that has to fail."""
_CAPS = {
    "sources_changed": "The patch changes no code that runs: ",
    "watches_tests": "The patch adds code that can behave differently under test: ",
    "own_equality": "The patch defines its own equality, so a result may compare equal to a different value: ",
    "literal_branches": "The patch adds a special case for values of the issue or of a test: ",
    "keeps_state": "The patch keeps state between calls, and the tests make only a few calls: ",
    "shared_names": "The independent tests use names that only the patch defines, so they may not be independent: ",
    "existing_tests_changed": "The patch changes what existing tests check, and no test author called them wrong: ",
    "left_to_framework": "The independent tests rely on fixtures or marks in their own files, so they cannot be run "
    "outside their framework: ",
    "proposed_suite": "A model proposed the command that runs the suite, and it may leave out tests: ",
}


def _not_proved(facts: Facts) -> Iterator[Refusal]:
    """What is missing for `proved`."""
    if not facts.expects_red:
        reason = "This task must not change behaviour, so no test is expected to fail on the base."
        yield Refusal("no_red_expected", "tested", reason)
        return
    for control in _controls(facts.reproduction):
        if control.name in CAPS_AT_TESTED:
            yield from _unless_held(control, "tested")
    found = facts.specification
    if found is None or not found.tests:
        why = found.absent if found is not None else "none were asked for."
        yield Refusal("no_specification", "tested", f"There are no independent tests: {why}")
    else:
        for control in found.controls:
            yield from _unless_held(control, "unproved" if control.name in _CAPS_AT_UNPROVED else "tested")
        yield from _unless_run(_PROVING, found.controls, "tested")
        yield from _unless_slow(found)
        if not found.held_back:
            reason = "None of the hidden independent tests fails on the base."
            yield Refusal("nothing_held_back", "tested", reason)
        elif not any(test.varies for test in found.held_back):
            reason = "The hidden tests use only values of the issue and the example, so a special case could pass them."
            yield Refusal("nothing_held_back", "tested", reason)
    if not _compared(facts.suite):
        yield Refusal("suite_not_compared", "tested", _about_suite(facts.suite))
    elif facts.suite is not None and facts.suite.by_exit_code:
        reason = "Only the suite's exit code is known, so a test that fails or is no longer run may go unnoticed."
        yield Refusal("suite_by_exit_code", "tested", reason)


def _not_tested(facts: Facts) -> Iterator[Refusal]:
    """What is missing for `tested`."""
    if not facts.expects_red:
        if not _compared(facts.suite):
            yield Refusal("suite_not_compared", "unproved", _about_suite(facts.suite))
        return
    if specification_supports_change(facts.specification) or _reproduction_turns_green(facts.reproduction):
        return
    found = facts.reproduction
    if found is not None and found.ids:
        yield from (refusal for control in found.controls for refusal in _unless_held(control, "unproved"))
        yield from _unless_run(_TRUSTED, found.controls, "unproved")
    yield Refusal("nothing_shown", "unproved", _about_reproduction(found))


_RULES: tuple[Callable[[Facts], Iterator[Refusal]], ...] = (
    _gates,
    _untrusted,
    _reproduction_fails,
    _suite_worse,
    _rest_worse,
    _tests_of_authors,
    _caps,
    _not_tested,
    _not_proved,
)


def _unless_held(control: Control, at_most: Verdict) -> Iterator[Refusal]:
    if control.outcome == "failed" and control.name != "failing_copies_fail":
        yield Refusal(control.name, at_most, f"A control failed, {CONTROLS[control.name]}{_colon(control.detail)}")


def _unless_run(names: Sequence[ControlName], controls: Sequence[Control], at_most: Verdict) -> Iterator[Refusal]:
    ran = {control.name: control for control in controls if control.outcome != "not_run"}
    for name in names:
        if name not in ran:
            why = next((control.detail for control in controls if control.name == name), "")
            yield Refusal(name, at_most, f"A control could not be checked, {CONTROLS[name]}{_colon(why)}")


def _unless_slow(found: SpecificationResult) -> Iterator[Refusal]:
    """If the patch makes the tests so slow that controls are left out."""
    base, head = found.base, found.head_run
    if base is None or head is None or head.seconds < MAX_SLOWER * max(base.seconds, 1):
        return
    if left := [control for control in found.controls if control.too_slow]:
        reason = f"The independent tests take {base.seconds:.0f} s on the base and {head.seconds:.0f} s on the head, so"
        yield Refusal("head_slower", "tested", f"{reason} {len(left)} controls were not run.")


def _colon(detail: str) -> str:
    return f": {detail}" if detail else "."


CONTROLS = {
    "same_conditions": "“base and head run under the same conditions”",
    "sources_changed": "“the patch changes code that runs”",
    "noise_stays_red": "“comments and shifted lines do not fix the base”",
    "reprint_stays_green": "“the head passes without its comments”",
    "additions_stay_red": "“the patch's additions alone do not fix the base”",
    "changed_line_executed": "“the tests execute a changed line”",
    "failing_copies_fail": "“altered copies of the tests fail”",
    "exit_code_agrees": "“the exit code matches the results”",
    "repeats_agree": "“repeated runs end the same way”",
    "replay_agrees": "“what the tests call gives the same results without the test framework”",
    "conditions_agree": "“what the tests call gives the same results under other conditions”",
    "children_end": "“what the tests call also finishes in a forked process or a worker”",
    "results_are_plain": "“results that are compared with plain values have plain types”",
    "arguments_stay": "“calls do not modify arguments or settings that they left alone on the base”",
    "other_calls_agree": "“calls that work in another form on the base still do”",
    "base_rules_suffice": "“the tests pass without the patch's own fixtures and test settings”",
    "altered_conditions_fail": "“the tests execute all added statements and depend on each new condition”",
}
"""What each control asserts, in words."""


def _controls(found: SpecificationResult | Reproduction | None) -> tuple[Control, ...]:
    return found.controls if found is not None else ()


def _sound(controls: Sequence[Control]) -> bool:
    """True if no control failed, and all required ones were run."""
    failed = any(control.outcome == "failed" and control.name not in CAPS_AT_TESTED for control in controls)
    return not failed and not any(_unless_run(_TRUSTED, controls, "tested"))


def specification_supports_change(found: SpecificationResult | None) -> bool:
    """True if frozen tests show the change, and nothing contradicts how that was established."""
    if found is None or found.failing or not _sound(found.controls):
        return False
    return any(test.role == "shows" and not test.withdrawn for test in found.tests)


def _reproduction_turns_green(found: Reproduction | None) -> bool:
    """True if the fixer's own tests go from red to green in the harness's runner."""
    if found is None or found.unanswered or not found.ids:
        return False
    return (found.on_base, found.on_head) == ("red", "green") and _sound(found.controls)


def _compared(suite: SuiteComparison | None) -> bool:
    """True if the suite ran on both and would have shown a newly failing test."""
    if suite is None or suite.not_run or suite.base is None or suite.head is None:
        return False
    base, head = suite.base, suite.head
    if base.count is None or head.count is None:  # exit codes alone only count if they are both 0
        return all(side.execution.ok for side in (base, head))
    return base.count.passed > 0 and head.count.passed > 0


def _shown(facts: Facts) -> Iterator[str]:
    """Evidence for the patch: who wrote which test, and what was run."""
    found, own = facts.specification, facts.reproduction
    if found is not None and specification_supports_change(found):
        prompts = tuple(test for test in found.tests if test.role == "shows" and not test.withdrawn)
        guarding = tuple(test for test in found.tests if test.role == "guards" and not test.withdrawn)
        yield (
            f"{_tests(prompts)} that an independent test author wrote from the issue before the work began"
            f" {_verb(prompts, 'fails', 'fail')} on the base and {_verb(prompts, 'passes', 'pass')} on the head."
        )
        if found.reported_passes:
            yield "The reporter's own example already passes on the base; other tests reproduce the issue."
        if missing := tuple(dict.fromkeys(test.missing for test in prompts if test.missing)):
            yield f"This is new behaviour: the base does not have {', '.join(missing[:MAX_NAMED])}."
        if guarding:
            yield f"{_tests(guarding, 'more independent test')} {_verb(guarding, 'passes', 'pass')} on both."
        for control in found.controls:
            if control.name == "altered_conditions_fail" and control.outcome == "held" and control.detail:
                yield f"Not covered by these tests: {control.detail}"
    second = facts.second_tests
    kept = tuple(test for test in second.tests if not test.withdrawn) if second is not None else ()
    if second is not None and kept and not second.failing:
        passes = _verb(kept, "passes", "pass")
        yield f"{_tests(kept, 'more test')} that a second author wrote against this change {passes} on the head."
    if own is not None and _reproduction_turns_green(own):
        count = len(own.ids)
        fails, passes = ("fails", "passes") if count == 1 else ("fail", "pass")
        number = "One" if count == 1 else str(count)
        yield f"{number} of the agent's own tests {fails} on {own.reference} and {passes} on the head."
    if _compared(facts.suite):
        yield _about_suite(facts.suite)


def _about_reproduction(found: Reproduction | None) -> str:
    """Why the fixer's reproduction is not evidence."""
    if found is None:
        return "None of the agent's own tests fails on the base."
    if found.unanswered:
        return ""
    if found.on_head == "not_run":
        return "The reproduction was not run."
    where = found.reference
    if found.on_base == "red" and found.ids:
        return "The agent's own tests do not count, because not all controls held when they ran."
    on_base = {
        "red": f"The reproduction fails on {where} and passes on the head, but it names no test that the harness can"
        " run by its id.",
        "green": f"The reproduction already passes on {where}, so it shows nothing.",
        "was_not_there": f"What the reproduction runs does not exist on {where}, so its failure there shows nothing.",
        "not_run": "The reproduction was run on the head only.",
    }
    return on_base[found.on_base]


def _about_suite(suite: SuiteComparison | None) -> str:
    if suite is None or suite.not_run:
        return (suite.not_run if suite else "") or "The repository has no test suite."
    if suite.base is None or suite.head is None:
        return "The suite did not run on both base and head."
    if not _compared(suite):
        return _why_not_compared(suite.base, suite.head)
    counted = suite.head.count
    passed = f" ({counted.passed} passed)" if counted is not None else ""
    text = f"The suite ran on base and head and has no new failures{passed}."
    if suite.by_exit_code:
        text = f"The suite's exit code is 0 on base and head. {NO_REPORT}"
    if changed := sum(len(one.failing) for one in suite.changed_tests):
        text += (
            f" {count(changed, 'existing test')} {'passes' if changed == 1 else 'pass'} only with the patch's tests."
        )
    return " ".join(filter(None, (text, suite.head.partial or suite.base.partial)))


NO_REPORT = "No report of single tests could be read from what it wrote and printed."


def _why_not_compared(base: SuiteResult, head: SuiteResult) -> str:
    if base.count is not None and head.count is not None:
        return "No test passed on both base and head, so the suite says nothing of the change."
    codes = f"its exit code is {base.execution.exit_code} on the base and {head.execution.exit_code} on the head"
    return f"The suite cannot be compared: {codes}. {NO_REPORT}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _sentences(tests: Sequence[SpecifiedTest]) -> str:
    sentences = " ".join(test.sentence for test in tests[:MAX_NAMED])
    return f"{sentences} (and {len(tests) - MAX_NAMED} more)" if len(tests) > MAX_NAMED else sentences


def _tests(tests: Sequence[SpecifiedTest], noun: str = "test") -> str:
    return f"One {noun}" if len(tests) == 1 else f"{len(tests)} {noun.replace('test', 'tests', 1)}"


def _verb(tests: Sequence[SpecifiedTest], one: str, several: str) -> str:
    return one if len(tests) == 1 else several


def _named(names: tuple[str, ...], noun: str) -> str:
    return f"{len(names)} {noun}{'s' if len(names) != 1 else ''} ({listed(names, MAX_NAMED)})"
