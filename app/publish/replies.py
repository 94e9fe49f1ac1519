"""The bot's replies outside of a job: a sentence and a command to try, only for people who may use commands."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.core.lessons import Lesson
from app.core.state_words import WORDS, Condition
from app.core.text import count, listed
from app.publish.markdown import code_span, fenced, inline, prose

# No Jinja templates: for these replies, 139 lines of template did not replace the typed functions (22 of them, in 87
# lines), and loading it took 60 ms of processor time in each process.

OPTIONS: Final = (
    "Options for all commands: `--model NAME`, `--runner NAME`, `--budget 5`, `--kind tests`, `--attempts 3`, "
    "`--base develop`, `--urgent`."
)
NO_LESSONS: Final = "Lessons are not available here. Put them in `AGENTS.md`, which every job reads."
MAX_PROMPTS: Final = 30
MAX_LISTED: Final = 6_000
"""Characters of a list of lessons."""


def reply(text: str, suggestion: str = "") -> str:
    """A sentence, which may quote someone's word in a code span, and a command."""
    parts = [text.strip(), f"Try {code_span(suggestion)}." if suggestion else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def unclear_command(
    problem: str, suggestion: str = "", *, commands: Mapping[str, str], prompts: Sequence[str] = ()
) -> str:
    """The problem with a command, what each command does, and the repository's prompts by name."""
    parts = [reply(problem, suggestion).strip() if problem or suggestion else "", help_text(commands)]
    if prompts:
        parts.append(f"Prompts of this repository: {listed([*map(code_span, prompts)], MAX_PROMPTS)}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def help_text(commands: Mapping[str, str]) -> str:
    lines = [f"- {code_span(command)}: {effect}" for command, effect in commands.items()]
    return "\n".join(["These are the commands:", "", *lines, "", OPTIONS])


def broken_config(message: str, source: str) -> str:
    """Each problem with its line and key."""
    what = f"{code_span(source)} on the default branch is invalid, so nothing was started."
    return f"{what}\n\n{fenced(message)}\n\nFix the file and try again.\n"


def refused(reason: str) -> str:
    """The reason why nothing was started."""
    return f"Nothing was started: {reason[:1].lower()}{reason[1:]}\n"


def status(job: str, condition: Condition, reason: str = "", url: str = "") -> str:
    """The newest job's state and its status comment. `reason` may contain other people's text."""
    words = WORDS[condition]
    over = words.group in {"done", "ended"}
    more = prose(reason[:500]) if over or condition in {"paused", "queued", "needs_input"} else ""
    parts = [f"Job {code_span(job)} {words.sentence}.", more, f"See [its status]({url})." if url and not over else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def no_job() -> str:
    return reply("No job has run here yet.", "/agent fix")


def message_noted() -> str:
    """The reply to a message for a job whose plan is waiting for approval."""
    return reply("Noted. The job reads it once the plan is approved.", "/agent approve")


def no_prompt(problem: str) -> str:
    """The reply to `/agent fix with WORD` if WORD names no prompt."""
    return refused(f"{problem} If those words are for the agent, put them on the line below the command.")


def unknown_runner(name: str, known: frozenset[str]) -> str:
    there = ", ".join(code_span(each) for each in sorted(known))
    return reply(f"There is no runner {code_span(name[:60])} on this server; available: {there}.")


def unreadable_plan(problem: str) -> str:
    text = f"The plan in the status comment is invalid: {inline(problem[:500])}"
    return f"{text}\n\nFix it there, then comment {code_span('/agent approve')} again.\n"


def plan_edited_since() -> str:
    return reply("The plan was edited after your approval; please review it again.", "/agent approve")


def plan_edited_by_stranger(login: str) -> str:
    return reply(
        f"The plan was last edited by {code_span(login)}, who has no write access here; please edit it yourself."
    )


def forge_refusal(message: str, hint: str = "") -> str:
    """Why nothing was started, in GitHub's words, escaped."""
    return f"Nothing was started: {inline(message[:500])}\n\n{inline(hint[:500])}".rstrip() + "\n"


def no_commits() -> str:
    return refused("The repository has no commit yet.")


def remembered(lesson: Lesson) -> str:
    days = (lesson.expires - lesson.created).days
    sentence = f"Added as lesson {lesson.number}, for {days} days. Later jobs in this repository see it."
    return f"{sentence}\n\n{code_span(f'/agent forget {lesson.number}')} deletes it.\n"


def not_remembered(reason: str) -> str:
    return reply(f"Not remembered: {reason[:1].lower()}{reason[1:]}")


def too_many_lessons(most: int) -> str:
    return reply(f"Not added: the limit of {most} lessons added by people has been reached.", "/agent forget N")


def forgotten(number: int) -> str:
    return reply(f"Lesson {number} was deleted.")


def unknown_lesson(number: int, lessons: Sequence[Lesson]) -> str:
    return f"Lesson {number} does not exist here.\n\n{lesson_list(lessons)}"


def lesson_list(lessons: Sequence[Lesson]) -> str:
    """Lessons from people first, newest first, then learned ones, as many as fit into one comment."""
    if not lessons:
        return reply("There are no lessons here yet.", "/agent remember …")
    ordered = sorted(lessons, key=lambda lesson: (lesson.kind != "remembered", -lesson.number))
    lines, space_left = [], MAX_LISTED
    for lesson in ordered:
        line = f"- {lesson.number}: {inline(lesson.text)} ({inline(_from(lesson))})"
        space_left -= len(line)
        if space_left < 0:
            break
        lines.append(line)
    more = f"\n- and {len(ordered) - len(lines)} more" if len(lines) < len(ordered) else ""
    list_of_lessons = "\n".join(lines)
    return f"Lessons for this repository:\n\n{list_of_lessons}{more}\n\n{code_span('/agent forget N')} deletes one.\n"


def _from(lesson: Lesson) -> str:
    used = f", shown to {count(lesson.uses, 'job')}" if lesson.uses else ""
    where = f", see {lesson.citation.path}" if lesson.citation else ""
    who = f"told by {lesson.author}" if lesson.kind == "remembered" else f"learned by job {lesson.job}"
    return f"{who}{where}{used}, until {lesson.expires:%Y-%m-%d}"
