"""Formats values for pages: ages, money, states, and other people's text without hidden characters."""

from datetime import UTC, datetime
from typing import Final, cast
from urllib.parse import quote

from app.core.job import FINAL, WAITING, JobState
from app.core.text import one_line, plain
from app.jobs.queries import JobSummary

ACTIVE: Final[frozenset[JobState]] = frozenset({"planning", "working", "verifying", "publishing"})
WAITS: Final[frozenset[JobState]] = WAITING | {"queued"}
"""For people, for its turn, for money or for another pull request."""
DONE: Final[frozenset[JobState]] = frozenset({"pr_opened", "pr_updated", "answered", "no_change"})
ENDED: Final[frozenset[JobState]] = FINAL - DONE - WAITS
"""Without what was asked for: stopped, failed, out of money."""
GROUPS: Final = {"active": ACTIVE, "waiting": WAITS, "done": DONE, "ended": ENDED}

MAX_CHARACTERS = 20_000
"""Of one text on a page; a longer one is cut and says so."""


def group_of(state: str) -> str:
    return next((name for name, states in GROUPS.items() if state in states), "ended")


def states_of(name: str) -> tuple[JobState, ...]:
    """The states of a group, or the one state of this name; none for an empty name."""
    return tuple(GROUPS.get(name, ())) or ((cast("JobState", name),) if name else ())


def state_name(state: str) -> str:
    return {"pr_opened": "pull request opened", "pr_updated": "pull request updated"}.get(
        state, state.replace("_", " ")
    )


def job_state(job: JobSummary) -> str:
    """The name of a job's state; a job from the command line makes a branch, not a pull request."""
    return "branch made" if job.state == "pr_opened" and not job.url else state_name(job.state)


EFFECT_NAMES: Final = {
    "open_draft_pr": "draft pull request",
    "draft_status": "state in the early draft",
    "labels_and_review": "labels and reviewers of the pull request",
    "follow_up": "section about the follow-up",
    "verdict": "verdict in the pull request",
    "label": "labels of the issue",
    "thread_reply": "answer to a review comment",
}
EFFECT_STATES: Final = {"wanted": "to be sent", "claimed": "being sent"}


def effect_name(kind: str) -> str:
    return EFFECT_NAMES.get(kind, kind.replace("_", " "))


def effect_state(state: str) -> str:
    return EFFECT_STATES.get(state, state)


NEXT_STEP: Final = {
    "awaiting_approval": "Someone with write access can edit and approve it here, or comment `/agent approve` on "
    "GitHub.",
    "needs_input": "Someone with write access can answer here, or comment `/agent` and the answer on GitHub.",
    "paused": "Someone with write access can continue it here, or comment `/agent continue --budget +3` on GitHub.",
}
"""What people can do about a job that waits for them."""


def next_step(state: str) -> str:
    return NEXT_STEP.get(state, "")


def line(text: str) -> str:
    """A title or a name on one line, without control or hidden characters."""
    shown = one_line(plain(text))
    return shown if len(shown) <= 300 else f"{shown[:300]}…"


def block(text: str) -> str:
    """A text of several lines as a terminal would show it."""
    shown = plain(text)
    if len(shown) <= MAX_CHARACTERS:
        return shown
    return f"{shown[:MAX_CHARACTERS]}\n… ({len(shown):,} characters, cut here)"


def diff_lines(text: str) -> list[tuple[str, str]]:
    """The lines of a diff as a terminal would show them, each with its kind: `add`, `del`, `at`, `file` or empty."""
    return [(_diff_kind(each), each) for each in block(text).split("\n")]


def _diff_kind(text: str) -> str:
    if text.startswith(("diff --git ", "--- ", "+++ ", "index ")):
        return "file"
    return {"+": "add", "-": "del", "@": "at"}.get(text[:1], "")


def ago(moment: datetime, now: datetime) -> str:
    return f"{span((now - moment).total_seconds())} ago"


def span(seconds: float) -> str:
    """A duration in one or two units: `42 s`, `3 min`, `2 h 5 min`, `4 d`."""
    total = max(int(seconds), 0)
    if total < 60:
        return f"{total} s"
    if total < 3_600:
        return f"{total // 60} min"
    if total < 86_400:
        hours, minutes = total // 3_600, total % 3_600 // 60
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{total // 86_400} d"


def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S}"


def tokens(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1_000:,.0f} k" if count < 10_000_000 else f"{count / 1_000_000:,.1f} M"


def share(part: float, whole: float) -> int:
    """A percentage between 0 and 100."""
    return round(100 * min(part / whole, 1.0)) if whole > 0 else 0


def path_of(name: str) -> str:
    """A name escaped as part of one of our URLs."""
    return quote(name, safe="/")
