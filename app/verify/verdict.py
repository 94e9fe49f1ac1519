"""The verdict: a pure function of what the harness executed, by named rules; and how the suite compares.

- proved: a hidden example whose words were found in the issue turns, all examples print what was expected, a reviewer's
  included, and the suite was run on base and change and has no new failures
- tested: an example or the fixer's own test turns, and any of these is missing; or the task changes no behaviour, and a
  suite that can be compared is clean
- unproved: less than that, and nothing speaks against the change
- broken: an undisputed example prints something else, a test newly fails, or a gate blocks

Each rule that objects names the best verdict that it still allows; the lowest of these is the verdict. So one more
failure never makes a verdict better. No model is asked, and no sentence of a model is an argument.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.core.examples import JudgedExample
from app.core.text import count, listed
from app.core.verification import (
    EarlierProof,
    Facts,
    Reproduction,
    RestOfSuite,
    SuiteComparison,
    SuiteResult,
    Verdict,
    Verification,
)

MAX_NAMED = 5
MIN_TITLE = 3
"""Words of a test's title that tell it from others."""


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
        return "The suite finishes on the base but not on the change."
    if base.count is not None and head.count is None:
        return f"The suite reports test results on the base but not on the change (exit code {now.exit_code})."
    if before.exit_code == 0 and now.exit_code != 0 and (base.count is None or not head.failing):
        return f"The suite's exit code is 0 on the base and {now.exit_code} on the change."
    return ""


def without_outdated(suite: SuiteComparison, outdated: Collection[str]) -> SuiteComparison:
    """The comparison without tests that the issue contradicts, by the plan, and that the patch removes or renames.

    They are still in the base's version of their files, and fail there.
    """
    removed = [(one.path, test) for one in suite.changed_tests for test in one.removed]
    gone = [(name, path) for path, test in removed for name in outdated if is_name_of(name, test, path)]
    left = [test for test in suite.newly_failing if not any(is_name_of(name, test, path) for name, path in gone)]
    return suite.model_copy(update={"newly_failing": tuple(left)})


def changes_beyond(suite: SuiteComparison, outdated: Collection[str]) -> tuple[str, ...]:
    """Changes and removals of existing tests that the patch needed without being asked for.

    `outdated` are the names, as the plan wrote them, of tests that the issue contradicts.
    """
    found = []
    for one in suite.changed_tests:
        failing, removed = (
            [test for test in tests if not any(is_name_of(name, test, one.path) for name in outdated)]
            for tests in (one.failing, one.removed)
        )
        if failing:
            what = "new file" if one.added else "change"
            found.append(f"{one.path}: without this {what} {listed(failing, MAX_NAMED)} would fail")
        if removed:
            found.append(f"{one.path}: {listed(removed, MAX_NAMED)} removed or renamed")
        if not one.failing and not one.removed:
            found.append(f"{one.path}: without this change the suite would fail")
    return tuple(found)


def is_name_of(name: str, test: str, path: str) -> bool:
    """True if somebody's name for a test means the test of a file with this id, or the function of which it is a case.

    Each runner has ids of its own (`pkg.ClassTest::method`, `package::TestName/case`, a title after those of its
    suites), so only the words count: the last ones must be the test's, the others those of its id or of its path.
    """
    start, _, rest = test.partition("::")
    known, file = {*_words(test), *_words(path)}, set(_words(PurePosixPath(path).stem))
    written = _words(name)
    for one in (test, _function(test), f"{start}::{rest.partition('/')[0]}"):  # the last for cases in Go
        words, own = _words(one), one.rpartition("::")[2].strip()
        same = len(
            list(takewhile(lambda pair: pair[0] == pair[1], zip(reversed(words), reversed(written), strict=False)))
        )
        needed = min(len(_words(own)), MIN_TITLE) if " " in own else 1
        rest_of_name = set(written[: len(written) - same])
        if same >= needed and (rest_of_name <= known or ("::" not in test and file <= rest_of_name)):
            return True  # of a test that was removed, only its own name is known, not its class
    return False


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _missing(gone: set[str], before: set[str], now: set[str]) -> set[str]:
    """Tests that vanished. A parameterised test with changed values has other ids and still exists."""
    if not gone:
        return gone
    cases_before, cases_now = Counter(map(_function, before)), Counter(map(_function, now))
    return {name for name in gone if "[" not in name or cases_now[_function(name)] < cases_before[_function(name)]}


def _function(name: str) -> str:
    return name.split("[", maxsplit=1)[0]


_RANK: dict[Verdict, int] = {"broken": 0, "unproved": 1, "tested": 2, "proved": 3}

BEYOND_THE_FIXER = frozenset(
    {"no_hidden_example", "no_reviewer", "suite_not_compared", "suite_by_exit_code", "no_red_expected", "isolation"}
)
"""Rules whose objection no other change could have avoided."""


class Refusal(NamedTuple):
    """A rule's objection: the best verdict that it allows, and why."""

    rule: str
    at_most: Verdict
    reason: str


def with_verdict(facts: Facts) -> Verification:
    """The facts with their verdict, its reasons, and the rules that kept it from being better."""
    return _judged(facts, [refusal for rule in _RULES for refusal in rule(facts)])


def with_rest(known: Verification, rest: RestOfSuite) -> Verification:
    """A verification with what the rest of a long suite showed; that can only make its verdict worse."""
    facts = Facts(**{**facts_of(known), "rest": rest})
    refusals = list(_rest_worse(facts))
    if known.verdict != "proved":
        refusals.append(Refusal("before_the_rest", known.verdict, ""))
    found = _judged(facts, refusals)
    rules = dict.fromkeys((*found.rules, *known.rules))
    reasons = found.reasons if found.verdict == "broken" != known.verdict else (*found.reasons, *known.reasons)
    left = tuple(rule for rule in rules if rule != "before_the_rest")
    return found.model_copy(update={"rules": left, "reasons": tuple(dict.fromkeys(reasons))})


def _judged(facts: Facts, refusals: list[Refusal]) -> Verification:
    found = sorted(refusals, key=lambda each: _RANK[each.at_most])
    outcome: Verdict = found[0].at_most if found else "proved"
    reasons = [refusal.reason for refusal in found if outcome != "broken" or refusal.at_most == "broken"]
    if outcome != "broken":
        reasons += _shown(facts)
    return Verification(
        **facts_of(facts),
        verdict=outcome,
        reasons=tuple(dict.fromkeys(map(_sentence, filter(None, reasons)))),
        rules=tuple(dict.fromkeys(refusal.rule for refusal in found)),
    )


def facts_of(facts: Facts) -> dict[str, Any]:
    """Only the facts, also of a verification with a verdict."""
    return {name: getattr(facts, name) for name in Facts.model_fields}


def _gates(facts: Facts) -> Iterator[Refusal]:
    for gate in facts.gates:
        if gate.outcome == "blocked":
            details = "; ".join(gate.details[:MAX_NAMED]) or "refused"
            yield Refusal(f"gate: {gate.name}", "broken", f"{gate.name}: {details}")


def _examples_fail(facts: Facts) -> Iterator[Refusal]:
    """What examples print that were not expected to, those of the plan, of people and of the reviewer."""
    examples = examples_of(facts)
    failing = [one for one in examples if one.fails and not one.is_question]
    if undisputed := [one for one in failing if not one.disputed]:
        yield Refusal("example_fails", "broken", f"{_examples(undisputed, 'prints', 'print')} something else")
    if disputed := [one for one in failing if one.disputed]:
        others = any(one.hidden and one.turns for one in examples)
        reason = f"{_examples(disputed, 'is', 'are')} disputed by the agent, and prints something else on the change"
        yield Refusal("example_disputed", "tested" if others else "unproved", reason)
    questions = [one for one in examples if one.is_question]
    if alike := [one for one in questions if not one.unconfirmed]:
        reason = f"{_examples(alike, 'prints', 'print')} something else on base and change alike; is it wanted?"
        yield Refusal("reviewer_asks", "tested", reason)
    if doubtful := [one for one in questions if one.unconfirmed]:
        reason = f"{_examples(doubtful, 'prints', 'print')} something else, but this is unconfirmed; is it wanted?"
        yield Refusal("example_unconfirmed", "unproved", reason)


def _reproduction_fails(facts: Facts) -> Iterator[Refusal]:
    found = facts.reproduction
    if found is None or found.on_head in ("green", "not_run"):
        return
    if found.unanswered:
        yield Refusal("reproduction_unanswered", "unproved", found.unanswered)
    elif found.on_head == "was_not_there":
        yield Refusal("reproduction_fails", "broken", f"{_own_test(facts)} could not be run on the change.")
    else:
        yield Refusal("reproduction_fails", "broken", f"{_own_test(facts)} still fails on the change.")


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
        reason = f"{_named(suite.missing, 'test')} passed on the base and did not run on the change."
        yield Refusal("tests_vanished", "unproved", reason)
    if changed := changes_beyond(suite, outdated_tests(facts)):
        reason = f"{_CHANGED}{'; '.join(changed[:MAX_NAMED])}"
        yield Refusal("existing_tests_changed", "tested", reason)


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
        yield Refusal("existing_tests_changed", "tested", _CHANGED + reason)
    if rest.missing:
        reason = f"Among the remaining tests, {_named(rest.missing, 'test')} passed on the base and did not run on the"
        yield Refusal("tests_vanished", "unproved", f"{reason} change.")


_CHANGED = "The change also changes what existing tests check, and the plan did not call them outdated: "


def _not_proved(facts: Facts) -> Iterator[Refusal]:
    """What is missing for `proved`."""
    if not facts.expects_red and facts.earlier is None:
        reason = "This task must not change behaviour, so no example has to print something else afterwards."
        yield Refusal("no_red_expected", "tested", reason)
        return
    found, review = facts.examples, facts.review
    if not (known := _known_to_the_plan(facts)):
        why = found.absent if found is not None else "none were written."
        yield Refusal("no_hidden_example", "tested", f"There are no examples: {why}")
    elif not any(one.hidden and one.quoted and one.turns for one in known):
        yield Refusal("no_hidden_example", "tested", _about_hidden(known))
    if asks_for_behaviour(facts) and (review is None or not review.answered):
        why = review.absent if review is not None else "none was asked."
        yield Refusal("no_reviewer", "tested", f"No reviewer looked for counter-examples: {why}")
    if not _compared(facts.suite):
        yield Refusal("suite_not_compared", "tested", _about_suite(facts.suite))
    elif facts.suite is not None and facts.suite.by_exit_code:
        reason = "Only the suite's exit code is known, so a test that fails or is no longer run may go unnoticed."
        yield Refusal("suite_by_exit_code", "tested", reason)
    if not facts.isolated:
        yield Refusal("isolation", "tested", "The code ran without a sandbox, so its results could be anything's.")


def _unread(facts: Facts) -> Iterator[Refusal]:
    """Somebody's change may be of any size, but a new module among 4,000 files may replace the one that is judged."""
    if facts.frozen:
        reason = "These are the examples for an earlier commit; no reviewer has seen this one."
        yield Refusal("not_reviewed_again", "unproved", reason)
    reviewed = facts.review is not None and facts.review.answered
    if facts.of_others and not facts.expects_red and not reviewed:
        reason = "By its title it changes no behaviour, so there are no examples, and no reviewer has looked at it."
        yield Refusal("nobody_looked", "unproved", reason)
    for gate in facts.gates:
        if facts.of_others and (gate.name, gate.outcome) == ("size", "warned"):
            yield Refusal("too_large", "unproved", f"Its files were not looked through: {'; '.join(gate.details)}")


def _not_tested(facts: Facts) -> Iterator[Refusal]:
    """What is missing for `tested`."""
    if not asks_for_behaviour(facts):
        if not _compared(facts.suite):
            yield Refusal("suite_not_compared", "unproved", _about_suite(facts.suite))
        return
    if not (any(one.turns for one in examples_of(facts)) or _reproduction_turns(facts.reproduction)):
        yield Refusal("nothing_shown", "unproved", _about_reproduction(facts))


def _earlier(facts: Facts) -> Iterator[Refusal]:
    """A follow-up makes a pull request no better than it was, and what it adds needs an example of its own."""
    earlier = facts.earlier
    if earlier is None:
        return
    if earlier.verdict != "proved":
        at_most: Verdict = "tested" if earlier.verdict == "tested" else "unproved"
        reason = f"Commit {earlier.commit[:10]} of this pull request, on which this builds, is {earlier.verdict}."
        if not earlier.commit:
            reason = "What proved the earlier commits of this pull request is not stored here."
        yield Refusal("earlier_verdict", at_most, reason)
    new = (*(facts.examples.examples if facts.examples else ()), *(facts.review.examples if facts.review else ()))
    if asks_for_behaviour(facts) and not any(one.turns for one in new):
        yield Refusal("request_not_shown", "tested", "No example shows what was asked for on this pull request.")


_RULES: tuple[Callable[[Facts], Iterator[Refusal]], ...] = (
    _gates,
    _examples_fail,
    _reproduction_fails,
    _suite_worse,
    _rest_worse,
    _unread,
    _not_tested,
    _not_proved,
    _earlier,
)


def asks_for_behaviour(facts: Facts) -> bool:
    """False if nothing has to turn: for tasks that change no behaviour, and for follow-ups in tests and text only."""
    if facts.earlier is None or not facts.tests_or_text_only:
        return facts.expects_red
    return facts.examples is not None and any(one.kind == "shows" for one in facts.examples.examples)


def examples_of(facts: Facts) -> tuple[JudgedExample, ...]:
    """The plan's examples, those of the pull request's earlier commits, then the reviewer's."""
    return (*_known_to_the_plan(facts), *(facts.review.examples if facts.review is not None else ()))


def _known_to_the_plan(facts: Facts) -> tuple[JudgedExample, ...]:
    plan = facts.examples.examples if facts.examples is not None else ()
    return (*plan, *(facts.earlier.examples if facts.earlier is not None else ()))


def earlier_proof(commit: str, known: Verification) -> EarlierProof:
    """What a follow-up is run on again: the examples that nothing is said against, under names of their own."""
    held = [one for one in examples_of(known) if one.holds]
    again = [one.model_copy(update={"name": f"e{n}", "change": (), "disputed": ""}) for n, one in enumerate(held, 1)]
    return EarlierProof(commit=commit, verdict=known.verdict, examples=tuple(again))


def outdated_tests(facts: Facts) -> tuple[str, ...]:
    """The ids of existing tests that contradict the issue, by the plan."""
    return tuple(one.test for one in facts.examples.outdated) if facts.examples is not None else ()


def _about_hidden(examples: Sequence[JudgedExample]) -> str:
    hidden = [one for one in examples if one.hidden and one.kind == "shows"]
    if not hidden:
        return "No example that prints something else today was hidden from the agent."
    if not any(one.quoted for one in hidden):
        return "The words from which the hidden examples follow were not found in the issue."
    return "No hidden example turned."


def _reproduction_turns(found: Reproduction | None) -> bool:
    """True if the fixer's own test fails on the base and passes on the change."""
    if found is None or found.unanswered or not found.ids:
        return False
    return (found.on_base, found.on_head) == ("red", "green")


def _compared(suite: SuiteComparison | None) -> bool:
    """True if the suite ran on both and would have shown a newly failing test."""
    if suite is None or suite.not_run or suite.base is None or suite.head is None:
        return False
    base, head = suite.base, suite.head
    if base.count is None or head.count is None:
        return all(side.execution.ok for side in (base, head))  # exit codes alone only count if they are both 0
    return base.count.passed > 0 and head.count.passed > 0


def _shown(facts: Facts) -> Iterator[str]:
    """Evidence for the change: what was run, and what it printed."""
    turning = [one for one in examples_of(facts) if one.turns]
    if turning:
        hidden = sum(one.hidden for one in turning)
        yield (
            f"{count(len(turning), 'example')} from the issue {_verb(turning, 'prints', 'print')} something else on the"
            f" base and what was expected on the change"
            f"{f'; {hidden} of them hidden from the agent' if hidden and not facts.of_others else ''}."
        )
    if keeping := [one for one in examples_of(facts) if one.holds and not one.turns]:
        yield f"{count(len(keeping), 'more example')} {_verb(keeping, 'prints', 'print')} what was expected."
    review = facts.review
    if review is not None and review.answered and not review.examples:
        yield "A reviewer found no counter-example."
    own = facts.reproduction
    if own is not None and _reproduction_turns(own):
        yield f"{_own_test(facts)} fails on {own.reference} and passes on the change."
    if _compared(facts.suite):
        yield _about_suite(facts.suite)


def _own_test(facts: Facts) -> str:
    return "The change's own test" if facts.of_others else "The agent's own test"


def _about_reproduction(facts: Facts) -> str:
    """Why the fixer's own test is not evidence."""
    found, own = facts.reproduction, _own_test(facts)
    if found is None or found.unanswered:
        return "" if found else "Nothing that was run fails on the base and passes on the change."
    if found.on_head == "not_run":
        return f"{own} was not run."
    where = found.reference
    on_base = {
        "red": f"The agent's command fails on {where} and passes on the change, but it names no test.",
        "green": f"{own} already passes on {where}, so it shows nothing.",
        "was_not_there": f"What {own[:1].lower()}{own[1:]} runs does not exist on {where}, so its failure there shows"
        " nothing.",
        "not_run": f"{own} was run on the change only.",
    }
    return on_base[found.on_base]


def _about_suite(suite: SuiteComparison | None) -> str:
    if suite is None or suite.not_run:
        return (suite.not_run if suite else "") or "The repository has no test suite."
    if suite.base is None or suite.head is None:
        return "The suite did not run on both base and change."
    if not _compared(suite):
        return _why_not_compared(suite.base, suite.head)
    counted = suite.head.count
    passed = f" ({counted.passed} passed)" if counted is not None else ""
    text = f"The suite ran on base and change and has no new failures{passed}."
    if suite.by_exit_code:
        text = f"The suite's exit code is 0 on base and change. {NO_REPORT}"
    if changed := sum(len(one.failing) for one in suite.changed_tests):
        text += f" {count(changed, 'existing test')} {'passes' if changed == 1 else 'pass'} only as the change has it."
    return " ".join(filter(None, (text, suite.head.partial or suite.base.partial)))


NO_REPORT = "No report of single tests could be read from what it wrote and printed."


def _why_not_compared(base: SuiteResult, head: SuiteResult) -> str:
    if base.count is not None and head.count is not None:
        return "No test passed on both base and head, so the suite says nothing of the change."
    codes = f"its exit code is {base.execution.exit_code} on the base and {head.execution.exit_code} on the head"
    return f"The suite cannot be compared: {codes}. {NO_REPORT}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _examples(examples: Sequence[JudgedExample], one: str, several: str) -> str:
    """`2 of the reviewer's examples (…) print`, with their sentences."""
    whose = {"reviewer": "the reviewer's examples", "person": "people's examples", "plan": "the examples"}
    origins = [whose[origin] for origin in dict.fromkeys(each.origin for each in examples)]
    named = " ".join(each.behaviour for each in examples[:MAX_NAMED])
    number = "One" if len(examples) == 1 else str(len(examples))
    return f"{number} of {' and '.join(origins)} ({named}) {_verb(examples, one, several)}"


def _verb(things: Sequence[object], one: str, several: str) -> str:
    return one if len(things) == 1 else several


def _named(names: tuple[str, ...], noun: str) -> str:
    return f"{len(names)} {noun}{'s' if len(names) != 1 else ''} ({listed(names, MAX_NAMED)})"
