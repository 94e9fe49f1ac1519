"""Text about a job's attempts: each one's verdict, and why one of them was chosen."""

from collections.abc import Sequence

from app.core.result import AttemptSummary
from app.llm.ledger import usd
from app.publish.markdown import cell, table
from app.publish.plaintext import count

_ENDINGS = {"no_change": "no change", "limit_reached": "ended at a limit", "error": "gave up"}


def attempts_section(attempts: Sequence[AttemptSummary], requested: int) -> str:
    """Empty if only one attempt was requested."""
    if requested < 2 or not attempts:
        return ""
    rows = [
        [
            f"{each.number}{' (taken)' if each.taken else ''}",
            each.verdict or _ENDINGS.get(each.exit_status, each.exit_status),
            f"{each.changed_lines:,}" if each.verdict else "",
            f"{count(each.turns, 'turn')}, {usd(each.cost)}" if each.turns else "",
            cell(each.reason[:300]),
        ]
        for each in attempts
    ]
    header = ["Attempt", "Verdict", "Changed lines", "Used", "Because"]
    return f"{_opening(attempts, requested)}\n\n{table(header, rows)}"


def describe_attempts(attempt: AttemptSummary) -> str:
    """One attempt in one line."""
    ending = attempt.verdict or _ENDINGS.get(attempt.exit_status, attempt.exit_status)
    lines = f", {count(attempt.changed_lines, 'changed line')}" if attempt.verdict else ""
    return f"{ending}{lines}{', taken' if attempt.taken else ''}: {attempt.reason}"


def _opening(attempts: Sequence[AttemptSummary], requested: int) -> str:
    made = count(len(attempts), "attempt")
    chosen = next((each for each in attempts if each.taken), attempts[-1])
    if len(attempts) < requested and chosen.verdict == "proved":
        return f"{made} of {requested} requested: attempt {chosen.number} is proved, so no more were made."
    how = "each in its own tree, independent of the others"
    rule = "by its verification: the verdict first, then the smaller change"
    return f"{made} of {requested} requested, {how}. Attempt {chosen.number} was chosen {rule}."
