"""Formats values for pages: ages, money, states, and other people's text without hidden characters."""

from datetime import UTC, datetime
from typing import Final, cast
from urllib.parse import quote

from app.core.state_words import NEXT_STEP, WORDS, Condition, StateWords
from app.core.text import one_line, plain
from app.jobs.queries import JobSummary

MAX_CHARACTERS = 20_000
"""Of one text on a page; a longer one is cut and says so."""


def words(state: str) -> StateWords:
    """A state in words, for what is shown without its job."""
    return WORDS[cast("Condition", state)]


def next_step(condition: Condition) -> str:
    """What people can do about a job that waits for them."""
    return NEXT_STEP.get(condition, "")


def tone(job: JobSummary) -> str:
    """The colour of what is said about a job: by its outcome, if it has one."""
    kind = job.words.kind
    if kind == "done":
        return {"proved": "done", "tested": "done", "unproved": "needs_you"}.get(job.verdict, "")
    return kind if kind in {"failed", "needs_you"} else ""


def aim_name(aim: str) -> str:
    return aim.replace("_", " ")


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
