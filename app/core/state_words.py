"""What a job's state is called, and in which group, colour and label it is shown: one table for all views.

`condition_of` makes the row's name of a job's state and of what else decides how people see it.
"""

from typing import Final, Literal, NamedTuple

from app.core.job import JobState

Condition = JobState | Literal["plan_waits", "plan_made", "branch_made", "broken_draft"]
"""A state, or what people see instead of it.

`plan_waits`: a job that only made a plan, which can still be approved; `plan_made`: nobody can approve it any more, or
it is a file. `branch_made`: published by the command line, which opens no pull request. `broken_draft`: the remaining
tests showed that a published change is broken.
"""
Kind = Literal["queued", "active", "needs_you", "done", "nothing", "stopped", "failed"]
"""What people have to know first: everything but the words follows from it."""
Group = Literal["waiting", "active", "done", "ended"]
Label = Literal["", "agent-in-progress", "agent-done", "agent-needs-human"]

GROUP_NAMES: Final[dict[Group, str]] = {
    "waiting": "Waiting",
    "active": "In progress",
    "done": "Done",
    "ended": "Failed or stopped",
}
_GROUPS: Final[dict[Kind, Group]] = {
    "queued": "waiting",
    "active": "active",
    "needs_you": "waiting",
    "done": "done",
    "nothing": "done",
    "stopped": "ended",
    "failed": "ended",
}
_LABELS: Final[dict[Kind, Label]] = {
    "queued": "agent-in-progress",
    "active": "agent-in-progress",
    "needs_you": "agent-needs-human",
    "done": "agent-done",
    "failed": "agent-needs-human",
}


class StateWords(NamedTuple):
    """One condition of a job in words."""

    kind: Kind
    name: str
    """In lists, on pages and in the terminal."""
    headline: str
    """In status comments, notifications and the Action's summary."""
    sentence: str
    """What follows “Job X” in a reply."""

    @property
    def group(self) -> Group:
        return _GROUPS[self.kind]

    @property
    def needs_you(self) -> bool:
        """True if the job goes on only if a person decides something."""
        return self.kind == "needs_you"

    @property
    def label(self) -> Label:
        """The label of the issue; empty if it has none of ours."""
        return _LABELS.get(self.kind, "")

    @property
    def reaction(self) -> Literal["", "rocket", "confused"]:
        """The reaction to the request once the job has ended so. Who stopped it knows."""
        return "rocket" if self.kind == "done" else "confused" if self.kind in {"nothing", "failed"} else ""


_ROWS: Final[tuple[tuple[Condition, Kind, str, str, str], ...]] = (
    ("queued", "queued", "queued", "⏳ Queued", "is queued"),
    ("planning", "active", "planning", "🧭 Making a plan", "is planning"),
    (
        "awaiting_approval",
        "needs_you",
        "waiting for approval",
        "✋ The plan is waiting for your approval",
        "is waiting for approval of its plan",
    ),
    ("plan_waits", "needs_you", "waiting for approval", "🧭 A plan for your approval", "has a plan for your approval"),
    ("plan_made", "done", "planned", "🧭 A plan", "made a plan"),
    ("working", "active", "working", "🔧 Working on it", "is working"),
    ("verifying", "active", "verifying", "🔬 Verifying the change", "is verifying its change"),
    ("publishing", "active", "publishing", "📤 Publishing", "is publishing its change"),
    ("paused", "needs_you", "paused", "⏸️ Paused", "is paused"),
    ("needs_input", "needs_you", "has a question", "❓ A question before the work starts", "has a question"),
    ("pr_opened", "done", "pull request opened", "🚀 A draft pull request is open", "opened a draft pull request"),
    ("pr_updated", "done", "pull request updated", "🚀 The pull request is up to date", "updated the pull request"),
    ("branch_made", "done", "branch made", "🚀 A branch was made", "made a branch"),
    (
        "broken_draft",
        "failed",
        "draft is broken",
        "🔴 The draft did not pass the remaining tests",
        "opened a draft that did not pass the remaining tests",
    ),
    ("answered", "done", "answered", "💬 Answer", "answered"),
    ("already_works", "done", "already works", "✅ It works already", "found that it works already"),
    ("reproduced", "done", "reproduced", "🔎 Reproduced", "reproduced the issue"),
    (
        "not_reproduced",
        "nothing",
        "not reproduced",
        "🔎 It could not be reproduced",
        "could not reproduce the issue",
    ),
    ("verified", "done", "verified", "🔬 Verified", "has verified the change"),
    ("no_change", "nothing", "no change", "🤷 Nothing was changed", "found nothing to change"),
    (
        "verification_failed",
        "failed",
        "verification failed",
        "🔴 The change did not pass verification",
        "made a change that did not pass verification",
    ),
    ("limit_reached", "failed", "limit reached", "🛑 A limit was reached", "reached a limit"),
    ("stopped", "stopped", "stopped", "⏹️ Stopped", "was stopped"),
    ("no_access", "failed", "no access", "🔒 No access", "has lost access"),
    ("error", "failed", "failed", "💥 The job failed", "failed"),
)
WORDS: Final[dict[Condition, StateWords]] = {condition: StateWords(*words) for condition, *words in _ROWS}  # type: ignore[arg-type]  # mypy forgets the types of the rest
_APPROVE = "Someone with write access can edit and approve it here, or comment `/agent approve` on GitHub."
NEXT_STEP: Final[dict[Condition, str]] = {
    "awaiting_approval": _APPROVE,
    "plan_waits": _APPROVE,
    "needs_input": "Someone with write access can answer here, or comment `/agent` and the answer on GitHub.",
    "paused": "Someone with write access can continue it here, or comment `/agent continue` on GitHub.",
}
"""What people can do about a job that waits for them."""


def condition_of(
    state: JobState, *, plan_only: bool = False, plan_waits: bool = False, local: bool = False, broken: bool = False
) -> Condition:
    """What people see of a job in this state.

    `plan_only`: it only had to make a plan; `plan_waits`: that can still be approved. `local`: it opens no pull
    request. `broken`: its verdict is that its change is broken.
    """
    if state == "answered" and (plan_only or plan_waits):
        return "plan_waits" if plan_waits else "plan_made"
    if state in {"pr_opened", "pr_updated"}:
        return "broken_draft" if broken else "branch_made" if local else state
    return state


def in_group(name: str) -> tuple[Condition, ...]:
    """The conditions of a group, or of a condition and all that have its name; none for an unknown name."""
    same = next((words.name for condition, words in WORDS.items() if condition == name), "")
    return tuple(condition for condition, words in WORDS.items() if words.group == name or words.name == same)
