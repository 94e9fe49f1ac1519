"""What a verification says to people, as plain values made once: comment, pull request, page and terminal render it."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from app.core.examples import JudgedExample, ProgramRun
from app.core.text import clip, count, one_line
from app.core.verification import (
    Execution,
    FailureReason,
    Reproduction,
    RestOfSuite,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
    Verification,
)
from app.publish.markdown import duration
from app.verify.verdict import asks_for_behaviour, examples_of

Mark = Literal["good", "known", "bad", "none"]
"""`known`: it failed, or needs a look, and speaks against nothing."""


class RunSide(NamedTuple):
    """What a command did on the base or with the change; `execution` is None if it was not run."""

    mark: Mark
    text: str
    execution: Execution | None = None

    @property
    def ending(self) -> str:
        """How it ended, and after how long."""
        if self.execution is None:
            return ""
        took = duration(self.execution.seconds)
        return f"stopped after {took}" if self.execution.timed_out else f"exit code {self.execution.exit_code}, {took}"


NOT_RUN: Final = RunSide("none", "not run")


class Ran(NamedTuple):
    """One command, on the base and with the change."""

    name: str
    command: str
    base: RunSide = NOT_RUN
    change: RunSide = NOT_RUN


class Shown(NamedTuple):
    """A program, and what it printed before and after the change."""

    program: str
    before: str
    after: str
    behaviour: str = ""


class Finding(NamedTuple):
    """Something that a reviewer has to know: a sentence, the tests it is about, and the change to them."""

    mark: Mark
    text: str
    tests: tuple[str, ...] = ()
    diff: str = ""


class ResultView(NamedTuple):
    """All that a verification says."""

    verdict: Verdict
    sentence: str
    """What the verdict means."""
    reasons: tuple[str, ...]
    numbers: tuple[str, ...]
    shown: tuple[Shown, ...]
    ran: tuple[Ran, ...]
    examples: tuple[JudgedExample, ...]
    """The most telling first: those that fail, then those that turn, the hidden ones before others."""
    findings: tuple[Finding, ...]
    not_run: tuple[str, ...]
    passed: tuple[str, ...]
    """The checks of the patch that passed."""


MEANING: Final[dict[Verdict, str]] = {
    "proved": "Examples from the issue that the agent had not seen print what they should, a reviewer found nothing "
    "against it, and the suite has no new failures.",
    "tested": "Examples or tests fail without this change and pass with it, but something that “proved” requires is "
    "missing.",
    "unproved": "Nothing that was run shows that this change works. Review it with care.",
    "broken": "At least one check failed.",
}
_OF_OTHERS: Final[dict[Verdict, str]] = {
    "proved": "Examples written from the issue, without seeing this change, print what they should; a reviewer found "
    "nothing against it; the suite has no new failures.",
}
_STILL: Final = (
    "Still proved: the examples that proved earlier commits hold on the newest one, and the suite has no new failures."
)
_AGAIN: Final = (
    "Examples of what was asked for turn, those that proved earlier commits still hold, a reviewer found nothing "
    "against the change, and the suite has no new failures."
)
_TESTED: Final = {
    "still": "The examples of earlier commits still hold, and the test suite has no new failures.",
    "own": "The tests that came with this change fail without it and pass with it; no hidden example proves it.",
    "suite": "This task changes no behaviour, and the test suite has no new failures.",
    "guards": "The new tests fail without the fix and pass with it.",
}
_ENDED: Final[dict[FailureReason, RunSide]] = {
    "green": RunSide("good", "passes"),
    "red": RunSide("bad", "fails"),
    "was_not_there": RunSide("none", "could not start"),
    "not_run": NOT_RUN,
}
_ORIGIN: Final = {
    "agent": "written by the agent",
    "asked": "written by the agent on request",
    "changed tests": "the tests that this change adds or changes",
    "issue": "taken from the issue",
}
_MAX_SHOWN: Final = 3


def view_of(facts: Verification) -> ResultView:
    """Everything that people are told of a verification."""
    return ResultView(
        verdict=facts.verdict,
        sentence=meaning(facts),
        reasons=facts.reasons,
        numbers=tuple(_numbers(facts)),
        shown=tuple(_shown(facts))[:_MAX_SHOWN],
        ran=tuple(_ran(facts)),
        examples=tuple(_telling(facts)),
        findings=tuple(_findings(facts)),
        not_run=tuple(_not_run(facts)),
        passed=tuple(
            clip(": ".join((gate.name, *gate.details[:1])), 120) for gate in facts.gates if gate.outcome == "passed"
        ),
    )


def meaning(facts: Verification) -> str:
    """The verdict in a sentence."""
    found, still = facts.reproduction, facts.earlier is not None and not asks_for_behaviour(facts)
    if facts.verdict == "proved" and facts.earlier is not None:
        return _STILL if still else _AGAIN
    if facts.verdict == "tested" and still:
        return _TESTED["suite"] if not examples_of(facts) else _TESTED["still"]
    if facts.verdict == "unproved" and red_to_green(found):
        return "The reproduction fails without this change and passes with it, but that is not enough."
    if facts.verdict == "tested" and not facts.expects_red:
        return _TESTED["suite"]
    hidden = any(one.hidden and one.turns for one in examples_of(facts))
    if facts.verdict == "tested" and found is not None and found.ids and red_to_green(found) and not hidden:
        return _TESTED["guards" if found.without else "own"]
    return (_OF_OTHERS if facts.of_others else MEANING).get(facts.verdict, MEANING[facts.verdict])


def red_to_green(found: Reproduction | None) -> bool:
    return found is not None and (found.on_base, found.on_head) == ("red", "green")


def known_failures(suite: SuiteComparison | None) -> tuple[str, ...]:
    """Tests that fail on the base and with the change, so not because of it."""
    if suite is None or suite.base is None or suite.head is None:
        return ()
    still = set(suite.head.failing or ())
    return tuple(test for test in suite.base.failing or () if test in still)


def _numbers(facts: Verification) -> Iterator[str]:
    suite, rest = facts.suite, facts.rest
    if examples := examples_of(facts):
        holding = sum(one.holds for one in examples)
        yield f"{holding:,} of {count(len(examples), 'example')} {'holds' if holding == 1 else 'hold'}"
    if suite and suite.base and suite.head and suite.base.count and suite.head.count:
        changed = sum(len(one.failing) for one in suite.changed_tests)
        of_them = f", {changed:,} of them changed" if changed else ""
        yield f"passing tests {suite.base.count.passed:,} → {suite.head.count.passed + changed:,}{of_them}"
        if suite.newly_failing:
            yield f"newly failing {len(suite.newly_failing):,}"
    if rest is not None and rest.state == "pending":
        yield "remaining tests still running"
    elif rest is not None:
        yield f"remaining tests: {rest.compared:,} of {rest.files:,} test files"
        yield f"newly failing {len(rest.newly_failing):,}"
        if rest.missing:
            yield f"{len(rest.missing):,} did not run with the change"
        if rest.worse:
            yield "worse with the change"


def _telling(facts: Verification) -> list[JudgedExample]:
    return sorted(examples_of(facts), key=lambda one: (not one.fails, not one.turns, not one.hidden))


def _shown(facts: Verification) -> Iterator[Shown]:
    """The most telling examples; without any, the reproduction with the last line of what it printed."""
    for one in _telling(facts):
        yield Shown(one.program.strip(), printed_text(one.base), printed_text(one.change), one.behaviour)
    found = facts.reproduction
    if found is not None and found.base is not None and found.head is not None and not examples_of(facts):
        yield Shown(found.command, _last_line(found.base, found.on_base), _last_line(found.head, found.on_head))


def printed_text(runs: Sequence[ProgramRun]) -> str:
    """What a program printed, in a few words if it printed nothing."""
    if not runs:
        return "not run"
    run = runs[0]
    if run.problem:
        return run.problem
    if run.timed_out:
        return f"did not end within {run.seconds:.0f} s"
    text = run.stdout.rstrip()
    return text if text or not run.exit_code else f"{run.error or 'nothing'} (exit code {run.exit_code})"


def _last_line(execution: Execution, ended: FailureReason) -> str:
    last = next((line.strip() for line in reversed(execution.excerpt.splitlines()) if line.strip()), "")
    how = "timed out" if execution.timed_out else f"exit code {execution.exit_code}"
    return f"{_ENDED[ended].text}: {clip(last, 160)}" if last else f"{_ENDED[ended].text}, {how}"


def _ran(facts: Verification) -> Iterator[Ran]:
    if (shown := facts.reproduction) is not None:
        base = _ENDED[shown.on_base]._replace(execution=shown.base)
        name = f"Reproduction (base without {shown.without[:10]})" if shown.without else "Reproduction"
        yield Ran(name, shown.command, base, _ENDED[shown.on_head]._replace(execution=shown.head))
    if (suite := facts.suite) is not None and suite.command:
        known = known_failures(suite)
        yield Ran("Test suite", suite.command, _suite(suite.base, known), _suite(suite.head, known))
        if (own := suite.own_tests) is not None:
            before = (suite.base.failing if suite.base else None) or ()
            yield Ran("The change's own tests", own.execution.command, RunSide("none", ""), _suite(own, before))
    if (rest := facts.rest) is not None and rest.parts:
        name = f"Remaining tests ({count(rest.parts, 'part')}, {duration(rest.seconds)})"
        yield Ran(name, rest.command, _counted(rest.base), _counted(rest.head, is_worse=any(worse_in_rest(rest))))


def _suite(result: SuiteResult | None, known: Sequence[str]) -> RunSide:
    """Good, bad, or known if all its failures are known from the base."""
    if result is None:
        return NOT_RUN
    execution, counted = result.execution, result.count
    tolerable = not execution.timed_out and bool(result.failing) and set(result.failing or ()) <= set(known)
    ending = _count(counted) if counted is not None else "passes" if execution.ok else "fails"
    return RunSide("good" if execution.ok else "known" if tolerable else "bad", ending, execution)


def _counted(counted: TestCount, *, is_worse: bool = False) -> RunSide:
    """One side of the remaining tests, which ran in parts and so have no exit code of their own."""
    return RunSide("bad" if is_worse else "known" if counted.failed else "good", _count(counted))


def _count(counted: TestCount) -> str:
    numbers = [(counted.failed, "failed"), (counted.passed, "passed"), (counted.skipped, "skipped")]
    return ", ".join(f"{number:,} {name}" for number, name in numbers if number) or "no tests"


def _findings(facts: Verification) -> Iterator[Finding]:
    yield from _of_suite(facts.suite)
    yield from _of_rest(facts.rest)
    yield from _of_examples(facts)
    yield from _of_reproduction(facts.reproduction)
    for gate in facts.gates:
        if gate.outcome in {"blocked", "warned"}:
            name = f"{gate.name} ({'blocked' if gate.outcome == 'blocked' else 'review'})"
            yield Finding("bad" if gate.outcome == "blocked" else "known", f"{name}: {'; '.join(gate.details)}")


def _of_suite(suite: SuiteComparison | None) -> Iterator[Finding]:
    if suite is None:
        return
    if suite.newly_failing:
        yield Finding("bad", f"{count(len(suite.newly_failing), 'test')} newly failing", suite.newly_failing)
    if suite.missing:
        text = f"{count(len(suite.missing), 'test')} passed on the base and did not run with the change"
        yield Finding("bad", text, suite.missing)
    for name, result in (("on the base", suite.base), ("with the change", suite.head)):
        yield from _of_results(result, name) if result is not None else ()
    for one in suite.changed_tests:
        why = [f"{count(len(one.failing), 'test')} would fail without its change"] if one.failing else []
        why += [f"{count(len(one.removed), 'test')} removed or renamed"] if one.removed else []
        what = "New tests that existing ones need" if one.added else "Existing tests changed"
        yield Finding("known", f"{what}: {one.path} ({', '.join(why) or 'the suite would fail'})", (), one.diff)
    if suite.fixed:
        yield Finding("good", f"{count(len(suite.fixed), 'test')} fixed", suite.fixed)
    if known := known_failures(suite):
        text = f"{count(len(known), 'test')} already failing on the base, not because of this change"
        yield Finding("known", text, known)
    if suite.nearest:
        text = f"Only the {count(len(suite.nearest), 'test file')} nearest to the change were compared"
        yield Finding("known", text, suite.nearest)
    if suite.by_exit_code:
        yield Finding("known", "The suite was compared by its exit code only: no single test is known")
    yield from (Finding("known", note) for note in suite.notes)


def _of_results(result: SuiteResult, name: str) -> Iterator[Finding]:
    if result.shared_cause:
        others = f", except {count(len(result.other_failures), 'test')}" if result.other_failures else ""
        text = f"The failing tests {name} have one cause{others}: {result.shared_cause}"
        yield Finding("known", text, result.other_failures)


def _of_rest(rest: RestOfSuite | None) -> Iterator[Finding]:
    if rest is None:
        return
    if rest.newly_failing:
        text = f"{count(len(rest.newly_failing), 'test')} newly failing among the remaining tests"
        yield Finding("bad", text, rest.newly_failing)
    if rest.missing:
        text = f"{count(len(rest.missing), 'test')} of the remaining tests passed on the base and did not run with the"
        yield Finding("bad", f"{text} change", rest.missing)
    yield from (Finding("known", note) for note in (*rest.changed, *rest.notes))


def _of_examples(facts: Verification) -> Iterator[Finding]:
    """What the examples and the reviewer leave to say."""
    for one in _telling(facts):
        if one.fails:
            kind = "A reviewer's question" if one.is_question else "Disputed by the agent" if one.disputed else ""
            kind = "A question" if one.unconfirmed else kind
            what = f"{kind or 'It prints something else'}: {one.behaviour}"
            text = f"{what} ({why})" if (why := one.disputed or one.unconfirmed) else what
            yield Finding("known" if one.is_question or one.disputed else "bad", text)
    if (found := facts.examples) is not None:
        if not found.examples:
            yield Finding("known", f"No examples: {found.absent}")
        yield from (Finding("known", f"Not used: {reason}") for reason in found.refused)
        yield from (Finding("known", f"Outdated test {one.test}: {one.because}") for one in found.outdated)
    if (review := facts.review) is not None and not review.answered:
        yield Finding("known", f"No reviewer: {review.absent}")
    elif review is not None and not review.examples:
        yield Finding("good", f"A reviewer looked for counter-examples and wrote none: {review.nothing}")


def _of_reproduction(found: Reproduction | None) -> Iterator[Finding]:
    if found is None:
        return
    tests = f" Its tests were then run by their ids: {count(len(found.ids), 'test')}." if found.ids else ""
    yield Finding("none", f"The reproduction is {_ORIGIN[found.origin]}.{tests}")
    if found.without:
        text = f"The fix {found.without[:10]} is in the base already: this ran on the base with that fix reverted and"
        yield Finding("none", f"{text} its tests kept.")
    if found.on_base == "was_not_there":
        text = f"On {found.reference} none of its tests ran, which does not prove the bug."
        yield Finding("known", text)
    yield from (Finding("known", text) for text in (found.note, found.unanswered) if text)


def _not_run(facts: Verification) -> Iterator[str]:
    """What a reader might expect to have been run, but was not."""
    if facts.reproduction is None and not facts.of_others:
        yield "Reproduction: none was submitted."
    if facts.suite is None:
        yield "The test suite: no result."
    elif facts.suite.not_run:
        yield f"The test suite: {facts.suite.not_run}"
    for side, result in (
        ("on the base", facts.suite and facts.suite.base),
        ("with the change", facts.suite and facts.suite.head),
    ):
        if result and result.partial:
            yield f"Part of the suite {side}: {result.partial}"
    for gate in facts.gates:
        if gate.outcome == "not_run":
            yield f"The check “{gate.name}”: {'; '.join(gate.details) or 'no reason given'}"


def worse_in_rest(rest: RestOfSuite) -> Iterator[str]:
    if rest.newly_failing:
        yield "a test newly fails" if len(rest.newly_failing) == 1 else f"{len(rest.newly_failing):,} tests newly fail"
    if rest.worse:
        yield "the results are worse with the change"
    if rest.missing:
        yield f"{count(len(rest.missing), 'test')} that passed on the base did not run with the change"


def about_rest(rest: RestOfSuite | None) -> str:
    """How far the remaining tests of a long suite are, as plain text; empty if there are none."""
    if rest is None:
        return ""
    files, limit = f"{count(rest.files, 'test file')} further from the change", f"{rest.minutes:g} min"
    if rest.state == "pending":
        return (
            f"The remaining tests are still running: {files}, on the base and with the change, for at most {limit}."
            " Until then the verdict rests on the tests nearest to the change."
        )
    compared = f"{rest.compared:,} of {files} ran on the base and with the change"
    found = "; ".join(worse_in_rest(rest)) or "nothing newly fails"
    reason = one_line(rest.reason)
    ended = {
        "finished": f"{compared}, and {found}.",
        "out_of_time": f"They did not finish within their limit of {limit}: {compared}, and {found} in these.",
    }
    ending = ended.get(rest.state, f"They did not finish. {reason} Until then {compared}, and {found} in these.")
    return f"The remaining tests: {ending} {one_line(rest.worse)}".rstrip()
