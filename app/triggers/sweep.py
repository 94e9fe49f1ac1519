"""Decides which issues a sweep takes and why others are skipped; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.github.models import GitHubIssue
from app.triggers.rules import LABEL

Ordering = Literal["oldest", "priority", "given"]
AT_WORK: Final = "agent-in-progress"
UNTOUCHED: Final = frozenset({AT_WORK, "agent-needs-human", "agent-done"})
_PRIORITY = re.compile(r"(?:p(?:riority)?|sev(?:erity)?)[\s:/_-]*([0-9]|critical|urgent|high|medium|normal|low)")
_RANKS: Final = {"critical": 0, "urgent": 0, "high": 1, "medium": 2, "normal": 2, "low": 3}
_NONE: Final = 2
"""The rank of an issue without a priority: as that of a medium one."""


@dataclass(frozen=True, slots=True)
class SweepCandidate:
    """An issue with its label's author. `asker_may` is None if nobody added our label."""

    issue: GitHubIssue
    asker_may: bool | None
    pull_request: int | None = None
    branch: str = ""
    taken: bool = False
    """It is assigned to somebody other than the person who added the label."""
    is_lost: bool = False
    """The workflow run that worked on it ended without reporting."""


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """How many issues may be taken; None for no cap.

    `pull_requests` more may be opened, `day` more can be paid for.
    """

    most: int
    pull_requests: int | None = None
    day: int | None = None


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """The decision about one issue; no reason if it is taken. `ends`: only its lost job is ended."""

    number: int
    title: str
    reason: str = ""
    ends: bool = False


def sweep(candidates: Iterable[SweepCandidate], caps: SweepLimits, ordering: Ordering) -> tuple[SweepDecision, ...]:
    """Decisions for all candidates, in the order in which they are taken."""
    accepted, rows = 0, []
    for each in order_candidates(candidates, ordering):
        if each.is_lost:  # costs nothing and opens nothing
            rows.append(SweepDecision(each.issue.number, each.issue.title, ends=True))
            continue
        reason = reason_against(each) or _cap(caps, accepted)
        accepted += not reason
        rows.append(SweepDecision(each.issue.number, each.issue.title, reason))
    return tuple(rows)


def order_candidates(candidates: Iterable[SweepCandidate], ordering: Ordering) -> Sequence[SweepCandidate]:
    match ordering:
        case "given":
            return list(candidates)
        case "oldest":
            return sorted(candidates, key=lambda each: each.issue.number)
        case "priority":
            return sorted(candidates, key=lambda each: (priority(each.issue.labels), each.issue.number))


def priority(labels: Iterable[str]) -> int:
    """The most urgent of the labels that name a priority, like `P1`, `priority: high` or `severity/2`; 0 is first."""
    named = (_PRIORITY.fullmatch(label.casefold().strip()) for label in labels)
    words = [found[1] for found in named if found]
    return min((_RANKS[word] if word in _RANKS else int(word) for word in words), default=_NONE)


def reason_against(each: SweepCandidate) -> str:
    """Why an issue is skipped regardless of the limits; empty if it is not."""
    issue, labels = each.issue, {label.casefold() for label in each.issue.labels}
    reasons = (
        (issue.pull_request, "it is a pull request"),
        (not issue.open, "it is closed"),
        (issue.locked, "its conversation is locked"),
        (each.pull_request is not None, f"pull request #{each.pull_request} is open for it"),
        (bool(each.branch), f"the branch {each.branch} already exists"),
        (bool(labels & UNTOUCHED), f"it is labelled {', '.join(sorted(labels & UNTOUCHED))}"),
        (LABEL not in labels or each.asker_may is None, f"it does not have the label {LABEL}"),
        (each.asker_may is False, "whoever added the label has no write access"),
        (each.taken, "it is assigned to someone else"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _cap(caps: SweepLimits, accepted: int) -> str:
    if accepted >= caps.most:
        return f"this sweep already starts {caps.most} jobs, its limit"
    if caps.pull_requests is not None and accepted >= caps.pull_requests:
        return "the limit `max_open_pull_requests` is reached"
    if caps.day is not None and accepted >= caps.day:
        return "the day's budget is spent or reserved for earlier issues"
    return ""
