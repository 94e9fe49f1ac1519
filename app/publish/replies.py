"""What the bot answers where no job does: a sentence and the command to try, to people who may ask and only to them."""

from collections.abc import Sequence
from typing import Final

from app.core.job import FINAL, JobState
from app.core.lessons import Lesson
from app.publish.markdown import code_span, fenced, inline, prose
from app.publish.plaintext import count

COMMANDS: Final = (
    ("/agent fix [what]", "start, or on a pull request: change it"),
    ("/agent plan", "plan only, and wait"),
    ("/agent approve", "go on with the plan, as it stands in the status comment"),
    ("/agent ask …", "answer a question; nothing is changed"),
    ("/agent stop", "end the job"),
    ("/agent status", "tell how the job stands"),
    ("/agent retry", "begin again from scratch"),
    ("/agent continue --budget +3", "go on with a paused job"),
    ("/agent rebase", "bring our pull request's branch up to its base"),
    ("/agent ci", "let CI start on our pull request"),
    ("/agent remember TEXT", "tell it to later jobs of this repository; without a text: what is remembered"),
    ("/agent forget N", "take a lesson back"),
    ("/agent …", "anything else tells the job at work, or starts one"),
)
OPTIONS: Final = (
    "Options on any of them: `--model NAME`, `--runner NAME`, `--budget 5`, `--kind tests`, `--attempts 3`."
)
NO_LESSONS: Final = "No lessons are kept here. Write them into `AGENTS.md`, which every job reads."
MAX_LISTED: Final = 6_000
"""Characters of a list of lessons."""

_STATES: Final[dict[str, str]] = {
    "queued": "waits for its turn",
    "planning": "makes a plan",
    "awaiting_approval": "waits for its plan to be approved",
    "working": "is at work",
    "verifying": "verifies its change",
    "publishing": "publishes its change",
    "paused": "is paused",
    "needs_input": "has a question",
    "pr_opened": "opened a draft pull request",
    "pr_updated": "brought the pull request up to date",
    "answered": "answered",
    "no_change": "found nothing to change",
    "verification_failed": "made a change that did not pass verification",
    "limit_reached": "reached a limit",
    "stopped": "was stopped",
    "no_access": "lost its access",
    "error": "did not work out",
}


def reply(text: str, suggestion: str = "") -> str:
    """A sentence of ours, which may quote a word of somebody's in a code span, and a command."""
    parts = [text.strip(), f"Try {code_span(suggestion)}." if suggestion else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def misread(problem: str, suggestion: str = "") -> str:
    """What could not be understood, and all that can be said."""
    parts = [reply(problem, suggestion).strip() if problem or suggestion else "", help_text()]
    return "\n\n".join(part for part in parts if part) + "\n"


def help_text() -> str:
    lines = [f"- {code_span(command)}: {meaning}" for command, meaning in COMMANDS]
    return "\n".join(["This is what can be said to me:", "", *lines, "", OPTIONS])


def broken_config(message: str, source: str) -> str:
    """Each problem with its line and key, as the file's author needs them."""
    what = f"{code_span(source)} on the default branch cannot be read, so nothing was started."
    return f"{what}\n\n{fenced(message)}\n\nMend the file, then ask again.\n"


def refused(reason: str) -> str:
    """A visible reason why nothing is begun."""
    return f"Nothing was started: {reason[:1].lower()}{reason[1:]}\n"


def status(job: str, state: JobState, reason: str = "", url: str = "") -> str:
    """How the newest job stands, and where its status comment is. `reason` may hold words of others."""
    told = f"Job {code_span(job)} {_STATES.get(state, state)}."
    more = prose(reason[:500]) if reason and (state in FINAL or state == "paused") else ""
    parts = [told, more, f"[Its status]({url}) is kept up to date." if url and state not in FINAL else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def no_job() -> str:
    return reply("No job has worked here yet.", "/agent fix")


def message_noted(state: JobState) -> str:
    """Words to a job that does not read at this moment."""
    if state == "awaiting_approval":
        return reply("Noted. It is heeded once the plan is approved.", "/agent approve")
    return reply("Noted. It is heeded when the job goes on.")


def unknown_runner(name: str, known: frozenset[str]) -> str:
    there = ", ".join(code_span(each) for each in sorted(known))
    return reply(f"There is no runner {code_span(name[:60])} on this server; there is {there}.")


def unreadable_plan(problem: str) -> str:
    text = f"The plan in the status comment cannot be read: {inline(problem[:500])}"
    return f"{text}\n\nMend it there, then say {code_span('/agent approve')} again.\n"


def plan_edited_since() -> str:
    return reply("The plan was edited after you approved it; please look at it once more.", "/agent approve")


def plan_edited_by_stranger(login: str) -> str:
    who = code_span(login) if login else "somebody whose account is gone"
    return reply(f"The plan was last edited by {who}, who has no write access here; please edit it yourself.")


def in_the_way(message: str, hint: str = "") -> str:
    """The forge's own words, escaped."""
    return f"Nothing was started: {inline(message[:500])}\n\n{inline(hint[:500])}".rstrip() + "\n"


def no_commits() -> str:
    return refused("The repository has no commit yet.")


def remembered(lesson: Lesson) -> str:
    days = (lesson.expires - lesson.created).days
    told = f"Remembered as lesson {lesson.number}, for {days} days. Later jobs of this repository are shown it."
    return f"{told}\n\n{code_span(f'/agent forget {lesson.number}')} takes it back.\n"


def not_remembered(reason: str) -> str:
    return reply(f"Not remembered: {reason[:1].lower()}{reason[1:]}")


def no_room_for_lessons(most: int) -> str:
    return reply(
        f"Not remembered: {most} lessons that people told are kept already, the most there can be.", "/agent remember"
    )


def forgotten(number: int) -> str:
    return reply(f"Lesson {number} is forgotten.")


def unknown_lesson(number: int, lessons: Sequence[Lesson]) -> str:
    return f"There is no lesson {number} here.\n\n{lesson_list(lessons)}"


def lesson_list(lessons: Sequence[Lesson]) -> str:
    """What people told first, then what was learned last; as much as one comment takes."""
    if not lessons:
        return reply("Nothing is remembered here yet.", "/agent remember …")
    ordered = sorted(lessons, key=lambda lesson: (lesson.kind != "told", -lesson.number))
    lines, space = [], MAX_LISTED
    for lesson in ordered:
        line = f"- {lesson.number}: {inline(lesson.text)} ({inline(_from(lesson))})"
        space -= len(line)
        if space < 0:
            break
        lines.append(line)
    more = f"\n- and {len(ordered) - len(lines)} more" if len(lines) < len(ordered) else ""
    listed = "\n".join(lines)
    return f"Remembered of this repository:\n\n{listed}{more}\n\n{code_span('/agent forget N')} takes one back.\n"


def _from(lesson: Lesson) -> str:
    used = f", shown to {count(lesson.uses, 'job')}" if lesson.uses else ""
    where = f", see {lesson.citation.path}" if lesson.citation else ""
    who = f"told by {lesson.author}" if lesson.kind == "told" else f"learned by job {lesson.job}"
    return f"{who}{where}{used}, until {lesson.expires:%Y-%m-%d}"
