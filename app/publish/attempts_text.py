"""Text about a job's attempts: each one's verdict, and why one of them was chosen."""

from collections.abc import Sequence

from app.core.result import AttemptSummary
from app.llm.ledger import usd
from app.publish.markdown import cell, table
from app.publish.plaintext import count

_ENDINGS = {"no_change": "no change", "limit_reached": "ended at a limit", "error": "gave up"}


def attempts_section(tried: Sequence[AttemptSummary], asked: int) -> str:
    """Empty if only one attempt was requested."""
    if asked < 2 or not tried:
        return ""
    rows = [
        [
            f"{each.number}{' (taken)' if each.taken else ''}",
            each.verdict or _ENDINGS.get(each.exit_status, each.exit_status),
            f"{each.changed_lines:,}" if each.verdict else "",
            f"{count(each.turns, 'turn')}, {usd(each.cost)}" if each.turns else "",
            cell(each.reason[:300]),
        ]
        for each in tried
    ]
    return f"{_opening(tried, asked)}\n\n{table(['Attempt', 'Verdict', 'Changed lines', 'Used', 'Because'], rows)}"


def describe_attempts(tried: AttemptSummary) -> str:
    """One attempt in one line."""
    ending = tried.verdict or _ENDINGS.get(tried.exit_status, tried.exit_status)
    lines = f", {count(tried.changed_lines, 'changed line')}" if tried.verdict else ""
    return f"{ending}{lines}{', taken' if tried.taken else ''}: {tried.reason}"


def _opening(tried: Sequence[AttemptSummary], asked: int) -> str:
    made = count(len(tried), "attempt")
    taken = next((each for each in tried if each.taken), tried[-1])
    if len(tried) < asked and taken.verdict == "proved":
        return f"{made} of {asked} requested: attempt {taken.number} is proved, so no more were made."
    how = "each in its own tree, independent of the others"
    rule = "by its verification: the verdict first, then the smaller change"
    return f"{made} of {asked} requested, {how}. Attempt {taken.number} was chosen {rule}."
