"""Renders the Verification section of a pull request: what was run, on which commit, with which result, and who wrote
the tests."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.core.model_usage import usd
from app.core.text import clip, count
from app.core.verification import (
    Control,
    Execution,
    FailureReason,
    GateResult,
    Outcome,
    Reproduction,
    RestOfSuite,
    Specification,
    SpecificationResult,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
    Verification,
)
from app.publish.markdown import (
    cell,
    code_cell,
    code_span,
    details,
    duration,
    fenced,
    inline,
    paragraphs,
    quoted,
    table,
)
from app.verify.verdict import CONTROLS

LIMIT_OF_KNOWLEDGE = (
    "No verdict can tell whether these tests match what the issue's author meant. That is for a reviewer to decide."
)
_BASE = {"shows": "🔴 fails", "guards": "🟢 passes"}
_HEAD: dict[Outcome, str] = {
    "passed": "🟢 passes",
    "failed": "🔴 fails",
    "error": "🔴 fails",
    "skipped": "⚪ skipped",
    "not_run": "⚪ not run",
}
_OUTCOMES = {
    "held": "🟢 held",
    "failed": "🔴 did not hold",
    "not_applicable": "does not apply",
    "not_run": "⚪ not run",
}


class Caps(NamedTuple):
    """Limits of the long parts: characters of an output, items of a list, characters of a text."""

    output: int
    items: int
    text: int


def effort(found: Specification) -> str:
    """The author's number of calls, time and cost."""
    cost = f"{usd(found.cost)}, " if found.cost else ""
    return f"{count(found.turns, 'call')}, {found.tokens:,} tokens, {cost}{duration(found.seconds)}"


def _author(found: Specification) -> tuple[str, str]:
    """The author's model, and what it took, each as it continues a sentence; empty if there is none."""
    by = f"{code_span(clip(found.model, 100))}, " if found.model else ""
    return by, f" ({effort(found)})" if found.turns else ""


def independent_tests(facts: Verification, caps: Caps) -> str:
    """Who wrote the tests and when, their results on base and head, and any objection to them."""
    found = facts.specification
    if found is None:
        return ""
    by, spent = _author(found)
    if not found.tests:
        return f"**Independent tests:** {inline(found.absent)}{spent}"
    written = (
        f"**Independent tests:** a separate test author ({by}{effort(found)}) wrote them from the issue before the work"
        f" started. They were run on the base {count(found.runs, 'time')} and then frozen"
        f" ({code_span(found.digest[:12])})."
    )
    shown = f" The agent that made the change saw {'the first' if found.example else 'none'} of them."
    return paragraphs(written + shown, *_tests_of_author(found, caps, "independent tests"), LIMIT_OF_KNOWLEDGE)


def second_tests(facts: Verification, caps: Caps) -> str:
    """Who wrote tests against the submitted change, their results, and any objection to them."""
    found = facts.second_tests
    if found is None:
        return ""
    by, spent = _author(found)
    if not found.tests:
        return f"**Tests against the change:** none. {inline(found.absent[:1].upper() + found.absent[1:])}{spent}"
    written = (
        f"**Tests against the change:** a second author ({by}{effort(found)}) was shown a submitted change and wrote"
        " more tests that it might fail. They can only make the verdict worse."
    )
    rows, *more = _tests_of_author(found, caps, "additional tests")
    if not found.failing:
        passing = sum(test.head == "passed" for test in found.tests)
        rows = details(f"{passing} of {count(len(found.tests), 'test')} passed on the head", rows)
    return paragraphs(written, rows, *more)


def _tests_of_author(found: SpecificationResult, caps: Caps, name: str) -> Iterator[str]:
    """Each test's sentence with its results, what was argued, how tests failed, and their code."""
    rows = [
        [
            cell(clip(test.sentence, caps.text)),
            _BASE[test.role],
            _HEAD[test.head] + (", withdrawn" if test.withdrawn else ""),
            code_cell(clip(test.id, 200)),
        ]
        for test in found.tests[: caps.items]
    ]
    more = len(found.tests) - len(rows)
    failures = [
        f"{code_span(clip(test.id, 200))} on the {side}:\n\n{fenced(clip(text, caps.output))}"
        for test in found.tests[: caps.items]
        for side, text in (("base", test.base_text), ("head", test.head_text))
        if text and caps.output
    ]
    sources = [f"{code_span(clip(file.path, 200))}\n\n{fenced(clip(file.text, caps.output))}" for file in found.files]
    yield table(["Requirement", "Base", "Head", "Test"], rows)
    yield f"and {more:,} more." if more > 0 else ""
    yield from _objections(found, caps)
    yield details(f"How the {name} failed", "\n\n".join(failures)) if failures else ""
    yield details(f"The {name}' code", "\n\n".join(sources)) if caps.output else ""


def _objections(found: SpecificationResult, caps: Caps) -> Iterator[str]:
    if found.settlement is not None:
        decided = found.settlement
        objection, reason = (quoted(clip(text, caps.text)) for text in (decided.objection, decided.reason))
        yield f"The agent that made the change objected to failing tests:\n\n{objection}"
        withdrawn, kept = count(len(decided.withdrawn), "test"), len(decided.kept)
        yield (
            "A third model call reviewed the issue, the tests and their failures. It withdrew"
            f" {withdrawn} and upheld {kept}. Its reason:\n\n{reason}"
        )
    if found.dropped:
        listed = [f"- {inline(clip(reason, caps.text))}" for reason in found.dropped[: caps.items]]
        yield details(f"{count(len(found.dropped), 'test')} discarded", "\n".join(listed))


def control_table(controls: tuple[Control, ...]) -> str:
    """The checks that make red and green trustworthy."""
    if not controls:
        return ""
    rows = [
        [CONTROLS[each.name].strip("“”"), _OUTCOMES[each.outcome], cell(clip(each.detail, 300))] for each in controls
    ]
    failed = any(control.outcome == "failed" for control in controls)
    held = sum(control.outcome == "held" for control in controls)
    text = table(["Control", "Outcome", ""], rows)
    return text if failed else details(f"Controls of these runs: {held} of {len(controls)} held, none failed", text)


MEANING: dict[Verdict, str] = {
    "proved": "Tests that an independent test author wrote from the issue fail without this change and pass with it, "
    "and the test suite has no new failures.",
    "tested": "Tests fail without this change and pass with it, but something that “proved” requires is missing; "
    "see below.",
    "unproved": "Nothing that was run shows that this change works. Review it with care.",
    "broken": "At least one check failed. The change is shown as it is.",
}
LEGEND = details(
    "What the verdicts mean",
    "| Verdict | Meaning |\n| --- | --- |\n"
    "| Proved | Tests that an independent test author wrote from the issue fail on the base and pass with the change. "
    "The suite has no new failures, and no control failed. Base and head ran under the same conditions, and altered "
    "copies of the tests fail; other controls may not have been run, and are listed then. |\n"
    "| Tested | Independent tests or the agent's own fail on the base and pass with the change, under the same "
    "controls, but something that “proved” requires is missing; or, for tasks that should not change behaviour, the "
    "suite has no new failures. |\n"
    "| Unproved | Less evidence than that, and nothing contradicts the change. |\n"
    "| Broken | At least one check failed. |\n\n"
    "agent-fix computes the verdict from what it runs in its own sandbox. Nothing that a model says counts. The "
    "repository's CI is separate and reports under *Checks*; if it has not run, `/agent ci` starts it.",
)
_TESTED = {
    "own": "The tests that came with this change fail without it and pass with it; no independent test proves it.",
    "suite": "This task changes no behaviour, and the test suite has no new failures.",
    "guards": "The new tests fail without the fix and pass with it.",
}
_ORIGIN = {
    "agent": "written by the agent",
    "asked": "written by the agent on request",
    "changed tests": "the tests that this change adds or changes",
    "issue": "taken from the issue",
}
_REDNESS: dict[FailureReason, str] = {
    "green": "🟢 passes",
    "red": "🔴 fails",
    "was_not_there": "⚪ could not start",
    "not_run": "not run",
}
_GATES = {"passed": "🟢 passed", "blocked": "🔴 blocked", "warned": "🟡 review", "not_run": "⚪ not run"}


def meaning(facts: Verification) -> str:
    """The verdict in a sentence."""
    found = facts.reproduction
    if facts.verdict == "unproved" and red_to_green(found):
        return "The reproduction fails without this change and passes with it, but that is not enough; see why below."
    if facts.verdict == "tested" and not facts.expects_red:
        return _TESTED["suite"]
    if facts.verdict == "tested" and found is not None and found.ids and red_to_green(found):
        return _TESTED["guards" if found.without else "own"]
    return MEANING[facts.verdict]


def red_to_green(found: Reproduction | None) -> bool:
    return found is not None and (found.on_base, found.on_head) == ("red", "green")


def verification_section(facts: Verification, base: str, head: str, caps: Caps) -> str:
    """What was run and found. The verdict itself is above it, once (`app.publish.pull_request_text.banner`)."""
    submissions = f"This is submission {facts.submission} of the job; all {facts.submission} were verified."
    return paragraphs(
        bullets(facts.reasons, caps),
        about_rest(facts.rest),
        _table(facts, base, head, caps),
        independent_tests(facts, caps),
        second_tests(facts, caps),
        _origin(facts.reproduction, caps),
        control_table(facts.controls),
        submissions if facts.submission > 1 else "",
        *_tests(facts.suite, caps),
        *_tests_of_rest(facts.rest, caps),
        _not_run(facts, caps),
        _gates(facts.gates, caps),
        *_outputs(facts, caps),
        LEGEND,
    )


def bullets(items: Sequence[str], caps: Caps, *, numbered: bool = False) -> str:
    """A list of sentences, with a note if it was shortened."""
    shown = [text for item in items[: caps.items] if (text := inline(clip(item, caps.text)))]
    marked = [f"{number}. {text}" if numbered else f"- {text}" for number, text in enumerate(shown, 1)]
    return "\n".join([*marked, *_more(len(items), caps)])


def known_failures(suite: SuiteComparison | None) -> tuple[str, ...]:
    """Tests that fail on the base and the head, so not because of this change."""
    if suite is None or suite.base is None or suite.head is None:
        return ()
    still = set(suite.head.failing or ())
    return tuple(test for test in suite.base.failing or () if test in still)


def list_of_tests(tests: Sequence[str], caps: Caps) -> str:
    return "\n".join([*(f"- {code_span(clip(test, 200))}" for test in tests[: caps.items]), *_more(len(tests), caps)])


def _more(total: int, caps: Caps) -> list[str]:
    return [f"- and {total - caps.items:,} more"] if total > caps.items else []


def _table(facts: Verification, base: str, head: str, caps: Caps) -> str:
    rows = []
    for name, found in (("Independent tests", facts.specification), ("Tests against the change", facts.second_tests)):
        if found is not None and found.tests and found.base is not None:
            sides = [_specified(found.base, 0), _specified(found.head_run, len(found.failing))]
            rows.append([name, *sides, code_cell(clip(found.base.command, min(caps.text, 200)))])
    if (shown := facts.reproduction) is not None:
        without = f"<br>base without {code_span(shown.without[:10])}" if shown.without else ""
        sides = [_reproduced(shown.base, shown.on_base) + without, _reproduced(shown.head, shown.on_head)]
        rows.append(["Reproduction", *sides, code_cell(clip(shown.command, caps.text))])
    if (suite := facts.suite) is not None and suite.command:
        known = known_failures(suite)
        sides = [_ran(suite.base, known), _ran(suite.head, known)]
        rows.append(["Test suite", *sides, code_cell(clip(suite.command, caps.text))])
        if suite.own_tests is not None:
            own, before = suite.own_tests, (suite.base.failing if suite.base else None) or ()
            rows.append(
                ["The change's own tests", "", _ran(own, before), code_cell(clip(own.execution.command, caps.text))]
            )
    if (rest := facts.rest) is not None and rest.parts:
        sides = [_counted(rest.base), _counted(rest.head, is_worse=any(_worse_in_rest(rest)))]
        what = f"{code_cell(clip(rest.command, caps.text))}<br>{count(rest.parts, 'part')}, {duration(rest.seconds)}"
        rows.append(["Remaining tests", *sides, what])
    if not rows:
        return ""
    # The command comes last, so that a narrow page cuts off a long command and not its result.
    return table(["", f"Base {code_span(base[:10])}", f"Head {code_span(head[:10])}", "Command"], rows)


def _counted(counted: TestCount, *, is_worse: bool = False) -> str:
    """One side of the remaining tests, which ran in parts and so have no exit code of their own."""
    icon = "🔴" if is_worse else "🟡" if counted.failed else "🟢"
    return f"{icon} {_numbers(counted)}"


def _numbers(counted: TestCount) -> str:
    numbers = [(counted.failed, "failed"), (counted.passed, "passed"), (counted.skipped, "skipped")]
    return ", ".join(f"{number:,} {name}" for number, name in numbers if number) or "no tests"


def _specified(execution: Execution | None, failing: int) -> str:
    """The frozen tests on the base, where they must fail, or on the head."""
    if execution is None:
        return _REDNESS["not_run"]
    return f"{'🔴 fails' if execution.exit_code or failing else '🟢 passes'}<br>{_ending(execution)}"


def _reproduced(execution: Execution | None, outcome: FailureReason) -> str:
    return _REDNESS["not_run"] if execution is None else f"{_REDNESS[outcome]}<br>{_ending(execution)}"


def _ran(result: SuiteResult | None, known: Sequence[str]) -> str:
    """Green, red, or yellow if all failures are known from the base."""
    if result is None:
        return _REDNESS["not_run"]
    execution, counted = result.execution, result.count
    tolerable = not execution.timed_out and bool(result.failing) and set(result.failing or ()) <= set(known)
    icon = "🟢" if execution.ok else "🟡" if tolerable else "🔴"
    ending = _numbers(counted) if counted is not None else "passes" if execution.ok else "fails"
    return f"{icon} {ending}<br>{_ending(execution)}"


def _ending(execution: Execution) -> str:
    if execution.timed_out:
        return f"stopped after {duration(execution.seconds)}"
    return f"exit code {execution.exit_code}, {duration(execution.seconds)}"


def _origin(found: Reproduction | None, caps: Caps) -> str:
    if found is None:
        return ""
    tests = f" Its tests were then run by their ids: {count(len(found.ids), 'test')}." if found.ids else ""
    sentences = [f"The reproduction is {_ORIGIN[found.origin]}.{tests}"]
    if found.without:
        sentences.append(
            f"The fix {code_span(found.without[:10])} is already in the base: this was run on the base with that fix "
            "reverted and its tests kept."
        )
    if found.on_base == "was_not_there":
        sentences.append(
            f"On {found.reference} it ends in an import, collection or syntax error, which does not prove the bug."
        )
    if found.note:
        sentences.append(inline(clip(found.note, caps.text)))
    return " ".join(sentences)


def _tests(suite: SuiteComparison | None, caps: Caps) -> Iterator[str]:
    if suite is None:
        return
    yield _titled_tests(suite.newly_failing, "newly failing", "🔴", caps)
    yield _titled_tests(suite.missing, "passed on the base and did not run on the head", "🔴", caps)
    yield _titled_tests(suite.fixed, "fixed", "🟢", caps)
    if suite.head is not None and suite.head.untrusted:
        why = inline(clip(suite.head.untrusted, caps.text))
        yield f"🔴 The suite's results on the head are not trusted: {why}"
    for one in suite.changed_tests[: caps.items]:
        why_changed = [f"{count(len(one.failing), 'test')} would fail without its change"] if one.failing else []
        why_changed += [f"{count(len(one.removed), 'test')} removed or renamed"] if one.removed else []
        reasons = ", ".join(why_changed) or "the suite would fail"
        what = "New tests that existing ones need" if one.added else "Existing tests changed"
        yield f"{what}: {code_span(clip(one.path, caps.text))} ({reasons})"
        yield details("The change to these tests", fenced(clip(one.diff, caps.output), "diff"))


def _titled_tests(tests: Sequence[str], what: str, icon: str, caps: Caps) -> str:
    return f"{icon} **{count(len(tests), 'test')} {what}:**\n\n{list_of_tests(tests, caps)}" if tests else ""


def about_rest(rest: RestOfSuite | None) -> str:
    """How far the remaining tests of a long suite are, in plain words; empty if there are none."""
    if rest is None:
        return ""
    files = f"{count(rest.files, 'test file')} further from the change"
    limit = f"{rest.minutes:g} min"
    if rest.state == "pending":
        return (
            f"⏳ **The remaining tests are still running:** {files}, on base and head, for at most {limit}. Until then"
            " the verdict rests on the tests nearest to the change; this text is written again when they have ended."
        )
    compared = f"{rest.compared:,} of {files} ran on the base and on the head"
    found = "; ".join(_worse_in_rest(rest)) or "nothing newly fails"
    ended = {
        "finished": f"{compared}, and {found}.",
        "out_of_time": f"They did not finish within their limit of {limit}: {compared}, and {found} in these.",
        "stopped": f"They did not finish. {inline(rest.reason)} Until then {compared}, and {found} in these.",
        "given_up": f"They did not finish. {inline(rest.reason)} Until then {compared}, and {found} in these.",
    }
    return f"**The remaining tests:** {ended[rest.state]} {inline(rest.worse)}".rstrip()


def _worse_in_rest(rest: RestOfSuite) -> Iterator[str]:
    if rest.newly_failing:
        yield "a test newly fails" if len(rest.newly_failing) == 1 else f"{len(rest.newly_failing):,} tests newly fail"
    if rest.worse:
        yield "the results are worse on the head"
    if rest.missing:
        yield f"{count(len(rest.missing), 'test')} that passed on the base did not run on the head"


def _tests_of_rest(rest: RestOfSuite | None, caps: Caps) -> Iterator[str]:
    if rest is not None:
        missing = "among the remaining tests passed on the base and did not run on the head"
        yield _titled_tests(rest.newly_failing, "newly failing among the remaining tests", "🔴", caps)
        yield _titled_tests(rest.missing, missing, "🔴", caps)
        yield bullets(rest.notes, caps)


def _not_run(facts: Verification, caps: Caps) -> str:
    """What a reader might expect to have been run, but was not."""
    sentences = []
    if facts.reproduction is None:
        sentences.append("Reproduction: none was submitted.")
    if facts.suite is None:
        sentences.append("The test suite: no result.")
    elif facts.suite.not_run:
        sentences.append(f"The test suite: {facts.suite.not_run}")
    for side, result in (("base", facts.suite and facts.suite.base), ("head", facts.suite and facts.suite.head)):
        if result and result.partial:
            sentences.append(f"Part of the suite on the {side}: {result.partial}")
    not_run = [gate for gate in facts.gates if gate.outcome == "not_run"]
    sentences += [f"The check “{gate.name}”: {'; '.join(gate.details) or 'no reason given'}" for gate in not_run]
    return f"**Not run:**\n\n{bullets(sentences, caps)}" if sentences else ""


def _gates(gates: Sequence[GateResult], caps: Caps) -> str:
    """Checks with findings in full, the others in one line."""
    rows = []
    for gate in gates:
        if gate.outcome in {"blocked", "warned"}:
            found = [cell(clip(detail, min(caps.text, 300))) for detail in gate.details[: caps.items]]
            if len(gate.details) > caps.items:
                found.append(f"and {len(gate.details) - caps.items:,} more")
            rows.append([cell(clip(gate.name, 60)), _GATES[gate.outcome], "<br>".join(found)])
    passed = [clip(": ".join((gate.name, *gate.details[:1])), 120) for gate in gates if gate.outcome == "passed"]
    return paragraphs(
        table(["Check", "Outcome", "Details"], rows) if rows else "",
        f"Checks passed: {inline(', '.join(passed))}." if passed else "",
    )


def _outputs(facts: Verification, caps: Caps) -> Iterator[str]:
    """Outputs of what failed; of what passed only if the verdict leaves it to the reader to judge them."""
    doubtful = facts.verdict in {"unproved", "broken"}
    found, suite, specified = facts.reproduction, facts.suite, facts.specification
    executions = (
        ("Output of the independent tests on the base", specified.base if specified else None),
        ("Output of the independent tests on the head", specified.head_run if specified else None),
        ("Output of the reproduction on the base", found.base if found else None),
        ("Output of the reproduction on the head", found.head if found else None),
        ("Output of the test suite on the base", suite.base.execution if suite and suite.base else None),
        ("Output of the test suite on the head", suite.head.execution if suite and suite.head else None),
        ("Output of the newly failing tests, alone on the head", facts.rest.recheck if facts.rest else None),
    )
    for title, execution in executions:
        if execution is not None and execution.excerpt.strip() and (execution.exit_code or doubtful):
            text = execution.excerpt
            left_out = max(0, len(text) - caps.output)  # the end of an output says most
            note = f"The first {left_out:,} characters are left out." if left_out else ""
            shown = paragraphs(code_span(clip(execution.command, caps.text)), note, fenced(text[left_out:]))
            yield details(f"{title} (exit code {execution.exit_code})", shown)
