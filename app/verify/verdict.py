"""The verdict: a pure function of what was run and seen, by named rules in order.

    broken     something speaks against the patch: a gate, the reproduction on the head, the suite
    unproved   tests vanished, a failure that the agent itself showed was hidden, or too little was run
    proved     the reproduction was red for the right reason on base and is green on head, and the suite,
               run on both, shows nothing newly failing
    tested     one of the two only: red→green without a suite that could be compared, or a suite without red→green

No model is asked, and no sentence of a model is an argument. One more failure never makes a verdict better.
"""

from app.core.verification import GateResult, Reproduction, SuiteComparison, SuiteResult, Verdict

MAX_NAMED = 5


def verdict(
    reproduction: Reproduction | None, suite: SuiteComparison | None, gates: tuple[GateResult, ...]
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict and the sentences it follows from."""
    against = (*_blocked(gates), *_reproduction_against(reproduction), *_suite_against(suite))
    if against:
        return "broken", against
    if suite is not None and suite.missing:
        return "unproved", (f"{_named(suite.missing, 'test')} passed on the base and did not run on the head.",)
    if reproduction is not None and reproduction.unanswered:
        return "unproved", (reproduction.unanswered,)
    red_green, compared = _red_to_green(reproduction), _compared(suite)
    reasons = (_about_reproduction(reproduction), _about_suite(suite))
    if red_green and compared:
        return "proved", reasons
    if red_green or compared:
        return "tested", reasons
    return "unproved", reasons


def _blocked(gates: tuple[GateResult, ...]) -> tuple[str, ...]:
    return tuple(
        f"{gate.name}: {'; '.join(gate.details[:MAX_NAMED]) or 'refused'}"
        for gate in gates
        if gate.outcome == "blocked"
    )


def _reproduction_against(reproduction: Reproduction | None) -> tuple[str, ...]:
    if reproduction is None or reproduction.unanswered or reproduction.on_head in ("green", "not_run"):
        return ()
    if reproduction.on_head == "was_not_there":
        return ("The reproduction could not be run on the head.",)
    return ("The reproduction still fails on the head.",)


def _suite_against(suite: SuiteComparison | None) -> tuple[str, ...]:
    if suite is None:
        return ()
    if suite.newly_failing:
        return (f"Newly failing: {_named(suite.newly_failing, 'test')}.",)
    if suite.base is None or suite.head is None or not _told_something(suite.base):
        return ()
    turned = _turned(suite.base, suite.head)
    return (turned,) if turned else ()


def _turned(base: SuiteResult, head: SuiteResult) -> str:
    """How the suite as a whole became worse where no single test is named."""
    before, now = base.execution, head.execution
    if now.timed_out and not before.timed_out:
        return "The suite ends on the base and does not end on the head."
    if base.count is not None and head.count is None:
        return f"The suite told its tests' results on the base, and none on the head (exit code {now.exit_code})."
    if before.exit_code == 0 and now.exit_code != 0 and not head.failing:
        return f"The suite's exit code is 0 on the base and {now.exit_code} on the head."
    return ""


def _told_something(base: SuiteResult) -> bool:
    """False for a base that told nothing: then the head cannot be worse."""
    return base.count is not None or (base.execution.exit_code == 0 and not base.execution.timed_out)


def _red_to_green(reproduction: Reproduction | None) -> bool:
    return reproduction is not None and reproduction.on_base == "red" and reproduction.on_head == "green"


def _compared(suite: SuiteComparison | None) -> bool:
    """True where the suite ran on both and would have shown a test that newly fails."""
    if suite is None or suite.not_run or suite.base is None or suite.head is None:
        return False
    base, head = suite.base, suite.head
    if base.count is None or head.count is None:  # exit codes alone say something only when they are both 0
        return all(side.execution.exit_code == 0 and not side.execution.timed_out for side in (base, head))
    return base.count.passed > 0 and head.count.passed > 0


def _about_reproduction(reproduction: Reproduction | None) -> str:
    if reproduction is None:
        return "There is no reproduction."
    if reproduction.on_head == "not_run":
        return "The reproduction was not run."
    where = reproduction.reference
    on_base = {
        "red": f"The reproduction fails on {where} and passes on the head.",
        "green": f"The reproduction passes on {where} already, so it shows nothing.",
        "was_not_there": f"What the reproduction runs was not there on {where}: its failure there shows nothing.",
        "not_run": "The reproduction was run on the head only.",
    }
    return on_base[reproduction.on_base]


def _about_suite(suite: SuiteComparison | None) -> str:
    if suite is None or suite.not_run:
        return (suite.not_run if suite else "") or "The repository has no suite."
    if suite.base is None or suite.head is None:
        return "The suite was not run on both base and head."
    if not _compared(suite):
        return "The suite's results on base and head cannot be compared."
    count = suite.head.count
    told = f" ({count.passed} passed)" if count is not None else ""
    partial = suite.head.partial or suite.base.partial
    return f"The suite was run on both, with nothing newly failing{told}.{' ' + partial if partial else ''}"


def _named(names: tuple[str, ...], noun: str) -> str:
    listed = ", ".join(names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{len(names)} {noun}{'s' if len(names) != 1 else ''} ({listed}{more})"
