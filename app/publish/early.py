"""A draft that is opened before there is a change: its empty commit, its description, and how it tells of its job."""

import re
from collections.abc import Iterator
from typing import Final

from app.commission import Commission
from app.gitstore import GitStore
from app.job import FINAL, Job, JobState
from app.patch import Patch
from app.publish.comments import SKIP_CI, opening, pull_request_title
from app.publish.intent import Intent, OpenEarlyDraft, Recipe, TellDraft, key_of
from app.publish.intents import Standing
from app.publish.markdown import inline
from app.publish.plaintext import harmless_line
from app.publish.planned import plan_steps, plan_summary
from app.publish.proof import Caps, bullets, clip
from app.publish.status import HEADLINES, View

AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""The plan stands, and people have agreed to it where they are asked."""
_UNTOLD: Final[frozenset[JobState]] = frozenset({"publishing", "pr_opened", "no_access"})
"""The verified text is on its way or there; or nothing can be said any more."""
_CAPS = Caps(4_000, 50, 2_000)
_MARKS = ("<!-- agent-fix:state -->", "<!-- /agent-fix:state -->")
_STATE = re.compile(f"{re.escape(_MARKS[0])}.*?{re.escape(_MARKS[1])}", re.DOTALL)
_AT_WORK_TEXT = (
    "**Not verified yet.** The agent is at work, and the branch holds an empty commit. "
    "A change that has passed verification takes that commit's place, and this text is written anew with the proof."
)


def early_recipe(job: Job, commission: Commission) -> Recipe:
    """Of the empty commit. CI has nothing to see in it, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"Nothing is here yet: the draft was opened early for job {job.id}, and its change takes this commit's place."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return Recipe(patch="", message=message, author=commission.author, date=job.created_at)


def early_commit(store: GitStore, job: Job, commission: Commission) -> str:
    """The empty commit's id, made again if need be; the same on any machine, and no other job's. Blocking."""
    recipe, nothing = early_recipe(job, commission), Patch(base=job.task.base)
    return store.commit(nothing, message=recipe.message, author=recipe.author, date=recipe.date)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def telling_key(job: str) -> str:
    return key_of(job, TellDraft(section=""))


def early_wishes(view: View, draft: Standing | None, *, told: bool) -> Iterator[Intent]:
    """The draft, once; later how the job stands, where that is something else. `told`: it was something else before."""
    if draft is None:
        if view.state in AT_WORK:
            yield _draft(view)
    elif view.state not in _UNTOLD and (told or view.state in FINAL or view.state == "paused"):
        yield TellDraft(section=_section(view), close=view.state == "no_change")


def with_state(body: str, section: str) -> str:
    """The body with the job's state in the place of the one that it shows; one that shows none stays as it is."""
    return _STATE.sub(lambda _: _marked(section), body, count=1)


def _draft(view: View) -> OpenEarlyDraft:
    job, commission = view.job, view.commission
    return OpenEarlyDraft(
        branch=job.branch,
        base=commission.base_ref,
        title=pull_request_title(job.task, commission.config),
        body="\n\n".join(part for part in _body(view) if part) + "\n",
    )


def _body(view: View) -> Iterator[str]:
    yield opening(view.job.task)
    yield _marked(_alert("IMPORTANT", _AT_WORK_TEXT))
    if summary := plan_summary(view.plan, view.planned):
        yield f"## Plan\n\n{inline(clip(summary, _CAPS.text))}"
        yield bullets(plan_steps(view.plan, view.planned), _CAPS, numbered=True)
    number = view.job.task.issue.number
    where = f" · how it goes is told in #{number}" if number is not None else ""
    yield f"---\n\n<sub>agent-fix · job `{view.job.id}`{where}</sub>"


def _section(view: View) -> str:
    if view.state not in FINAL and view.state != "paused":
        return _alert("IMPORTANT", _AT_WORK_TEXT)
    reason = inline(clip(view.reason, 400))
    what_now = _WHAT_NOW.get(view.state, "`/agent retry` on the issue begins again, in this draft.")
    lines = (f"**{HEADLINES[view.state]}.** Nothing here was verified.", reason, what_now)
    return _alert("WARNING", *(line for line in lines if line))


_WHAT_NOW: Final[dict[JobState, str]] = {
    "paused": "`/agent continue` goes on where it stood, `/agent stop` ends it.",
    "no_change": "The draft is closed.",
}


def _alert(kind: str, *lines: str) -> str:
    return "\n>\n".join([f"> [!{kind}]\n> {lines[0]}", *(f"> {line}" for line in lines[1:])])


def _marked(section: str) -> str:
    return f"{_MARKS[0]}\n{section}\n{_MARKS[1]}"
