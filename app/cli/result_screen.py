"""The last screen of `fix`: verdict, red and green, changed files, branch, and the commands for what comes next."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from app.cli.local_context import LocalJob
from app.core.job import PUBLISHED, Job, JobResult, JobState
from app.core.model_usage import usd
from app.core.patch import FileStat
from app.core.state_words import WORDS, Condition, condition_of
from app.core.text import count, one_line
from app.llm.ledger import price
from app.publish.markdown import duration
from app.publish.pull_request_text import describe_attempts
from app.publish.result_view import ResultView, about_rest, printed_text, view_of
from app.verify.ending import failed_run

COMMAND = "agent-fix"


def side_lines(view: ResultView) -> Iterator[str]:
    """What was run without the change, and with it."""
    for name, place in (("base  ", "base"), ("change", "change")):
        sides = [(ran.name, side) for ran in view.ran if (side := getattr(ran, place)).text]
        lines = [
            f"{one_line(what).lower()}: {side.text}{f' ({side.ending})' * bool(side.ending)}" for what, side in sides
        ]
        yield f"{name} {' · '.join(lines) or 'nothing was run'}"


def example_lines(view: ResultView) -> Iterator[tuple[str, str]]:
    """Program, before and after of the most telling examples, each line with its style."""
    for one in view.examples[:MAX_EXAMPLES]:
        program = one.program.strip().splitlines()
        yield "", ""
        yield one_line(one.behaviour), BOLD
        yield from ((f"  {line}", FAINT) for line in program[:PROGRAM_LINES])
        if len(program) > PROGRAM_LINES:
            yield f"  … {count(len(program) - PROGRAM_LINES, 'more line')} in job.json", FAINT
        yield f"before    {one_line(printed_text(one.base))}", ""
        wrong = next((run for run in one.change if not run.printed(one)), None)
        yield f"after     {one_line(printed_text((wrong,) if wrong else one.change))}", "31" if wrong else "32"
        if wrong:
            question = " (a question for you: is this wanted?)" if one.is_question else ""
            yield f"expected  {one_line(one.stdout.rstrip())}{question}", ""
    if more := len(view.examples) - MAX_EXAMPLES:
        yield from (("", ""), (f"and {count(more, 'more example')} in job.json", FAINT)) if more > 0 else ()


def finding_lines(view: ResultView) -> Iterator[str]:
    """Everything that failed or needs a look; nothing if all is well."""
    for found in view.findings:
        if found.mark in {"bad", "known"}:
            named = f": {', '.join(map(one_line, found.tests[:10]))}" if found.tests else ""
            more = f" and {len(found.tests) - 10} more" if len(found.tests) > 10 else ""
            yield one_line(found.text) + named + more
    yield from (f"not run: {one_line(text)}" for text in view.not_run)


def rest_lines(result: JobResult) -> Iterator["Line"]:
    """What is known before the remaining tests of a long suite have ended, and how to skip them."""
    facts = result.verification
    if facts is None or facts.rest is None:
        return
    files, limit = count(facts.rest.files, "test file"), f"{facts.rest.minutes:g} min"
    yield Line(f"{facts.verdict}: branch {result.branch} created.", BOLD)
    yield Line(f"The remaining tests are running: {files} on base and head, for at most {limit}.")
    yield Line("Press Ctrl-C to skip them; branch and verdict are kept.", FAINT)


MAX_EXAMPLES = 3
PROGRAM_LINES = 8
CHANGE = "change.patch"
MAX_FILES = 15
GOOD, WARN, BAD, FAINT, BOLD = "1;32", "1;33", "1;31", "2", "1"


class Line(NamedTuple):
    """A line, and the SGR code of its style."""

    text: str
    style: str = ""


PLAN_FILE = "plan.md"
MAX_SHOWN = 40
"""Lines of a program, and of what it prints."""
OUTPUT_LINES = 12
"""Lines of a failed command's output that are shown, from its end."""


_VERDICT_STYLE = {"proved": GOOD, "tested": GOOD, "unproved": WARN, "broken": BAD}


def local_condition(job: Job, state: JobState) -> Condition:
    """What people see of a job of the command line, which makes branches and whose plans are files."""
    return condition_of(state, plan_only=job.plan_mode == "only", local=True)


def local_state(state: str) -> str:
    """A state as the command line names it: it makes branches, not pull requests."""
    return "branch_made" if state in PUBLISHED else state


def result_screen(order: LocalJob, result: JobResult) -> Iterator[Line]:
    """The lines, wrapped to the terminal's width."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    verdict = result.verification.verdict if result.verification else ""
    words = WORDS[local_condition(order.job, result.exit_status)]
    headline, style = verdict or words.name, _VERDICT_STYLE.get(verdict, BAD if words.kind == "failed" else BOLD)
    if verdict and result.exit_status in {"paused", "error", "limit_reached"}:
        last = f"{words.name}; the last submission was {verdict}"
        headline, style = f"{verdict}, not published" if result.unpublished else last, BAD
    yield Line("")
    reason, *output = result.reason.splitlines() or [""]
    yield from _wrapped(headline, reason, width, style)
    yield from (Line(_cut(f"  | {text}", width)) for text in output[-OUTPUT_LINES:])
    if result.verification is not None:
        view, shown = view_of(result.verification), verdict in {"proved", "tested"}
        if order.job.change:
            yield from _meant(result, width)
            yield from (Line(_cut(f"  {text}", width), style) for text, style in example_lines(view))
        styles = ("31", "32") if shown else ("", "")
        yield from (Line(_cut(f"  {text}", width), style) for text, style in zip(side_lines(view), styles, strict=True))
        if rest := about_rest(result.rest):
            yield from _wrapped("         ", rest, width, "")
        yield from (Line(_cut(f"         {text}", width), "33") for text in finding_lines(view))
        run = failed_run(result.verification) if verdict == "broken" else None
        tail = run.excerpt.splitlines()[-OUTPUT_LINES:] if run is not None and not output else []
        yield from (Line(_cut(f"  | {text}", width)) for text in tail)
    for attempt in result.attempts:
        yield Line(_cut(f"  attempt {attempt.number}  {one_line(describe_attempts(attempt))}", width))
    if result.exit_status == "no_change" and result.summary:
        yield from _wrapped("  the agent says (unchecked)", one_line(result.summary)[:600], width, "")
    if result.exit_status == "already_works" and result.examples is not None:
        for one in result.examples.already[:1]:
            yield from (Line(f"  {line}") for line in one.program.rstrip().splitlines()[:20])
            yield Line("  prints today")
            yield from (Line(f"  {line}") for line in one.stdout.rstrip().splitlines()[:20])
    yield from _reproduction(result, width)
    yield from _changes(result.changes)
    yield from _where(order, result, width)
    yield from _commands(order, result)
    if result.hint:
        yield Line("")
        yield from (Line(text) for text in wrap(result.hint, width, break_long_words=False, break_on_hyphens=False))


def _reproduction(result: JobResult, width: int) -> Iterator[Line]:
    """The smallest program that shows the issue, or what was tried and what is missing."""
    found, questions = result.examples, result.plan.questions if result.plan else ()
    if result.exit_status not in {"reproduced", "not_reproduced"} or found is None:
        return
    yield from (Line(text) for text in wrap(result.summary, width, initial_indent="  ", subsequent_indent="  "))
    if (shown := found.best) is None:
        for title, texts in (("tried", found.why_not_shown), ("missing", questions)):
            for text in texts:
                yield from _wrapped(f"  {title}", text, width, "")
        return
    parts = (
        (shown.run, shown.whole_program),
        ("prints today", printed_text(shown.base)),
        ("should print", shown.stdout),
    )
    for title, text in parts:
        yield Line(f"  {title}", BOLD)
        lines = text.rstrip().splitlines()
        yield from (Line(f"    {line}") for line in lines[:MAX_SHOWN])
        if len(lines) > MAX_SHOWN:
            yield Line(f"    … {len(lines) - MAX_SHOWN} more lines", FAINT)
    because = f"{shown.because.source} says: {shown.because.quote}"
    yield from _wrapped("  because", because if shown.quoted else "no words that say so were found", width, "")
    if more := len(found.examples) - 1:
        yield Line(f"  {count(more, 'more example')} in {PLAN_FILE}")


def _meant(result: JobResult, width: int) -> Iterator[Line]:
    if result.summary:
        yield from _wrapped("  meant", f"{one_line(result.summary)[:600]} (is this what you meant?)", width, "")


def _changes(changes: tuple[FileStat, ...]) -> Iterator[Line]:
    if not changes:
        return
    yield Line("")
    longest = min(max(len(change.path) for change in changes[:MAX_FILES]), 70)
    for change in changes[:MAX_FILES]:
        lines = "binary" if change.added is None else f"+{change.added} -{change.deleted or 0}"
        yield Line(f"  {change.path:<{longest}}  {lines}{'' if change.status == 'modified' else f'  {change.status}'}")
    if len(changes) > MAX_FILES:
        yield Line(f"  and {count(len(changes) - MAX_FILES, 'more file')}")


def _where(order: LocalJob, result: JobResult, width: int) -> Iterator[Line]:
    usage = result.usage
    yield Line("")
    if result.branch:
        yield Line(f"branch   {result.branch} ({result.commit[:10]})", BOLD)
    elif result.diff:
        yield Line(f"change   no branch was made; {order.out / CHANGE} can be applied with `git apply`")
    if usage.calls:
        money = f"{price(usage)} of {usd(order.job.budget.usd)}" if usage.cost else price(usage)
        cached = f" ({usage.cached_share:.0%} cached)" if usage.cached_tokens else ""
        tokens = f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out"
        took = f" · {duration(result.seconds)}" if result.seconds else ""
        cost = f"cost     {money} · {count(usage.calls, 'model call')} · {tokens}{took}"
        yield from (Line(text) for text in wrap(cost, width, subsequent_indent=" " * 9, break_on_hyphens=False))
    yield Line(f"results  {order.out}/")


def own_command(called: str | None = None) -> str:
    """What to type to start this program again: `agent-fix` if the shell finds that, else the path it was called by."""
    program = called or sys.argv[0]
    if shutil.which(COMMAND) or Path(program).name != COMMAND:
        return COMMAND
    return shlex.quote(os.path.relpath(program))


def _commands(order: LocalJob, result: JobResult) -> Iterator[Line]:
    """What to type next, ready to be copied."""
    git = "git" if _is_here(order.job.task.repository) else f"git -C {shlex.quote(order.job.task.repository)}"
    yield Line("")
    if result.branch:
        branch, base = shlex.quote(result.branch), _base(order)
        yield Line(f"  see    {git} diff {base}...{branch}")
        yield Line(f"  try    {git} switch {branch}")
        yield Line(f"  merge  {git} merge {branch}")
        yield Line(f"  drop   {git} branch -D {branch}")
    elif result.diff:
        yield Line(f"  see    {own_command()} jobs show {order.job.id} --patch")
        yield Line(f"  try    {git} apply {shlex.quote(str(order.out / CHANGE))}")
    if result.exit_status == "answered" and result.plan is not None:
        yield Line(f"  edit   {shlex.quote(str(order.out / PLAN_FILE))}, and pass it with --plan")
    if result.exit_status == "reproduced":
        yield Line(f"  fix    {own_command()} fix ISSUE --plan {shlex.quote(str(order.out / PLAN_FILE))}")
    if result.trajectory:
        yield Line(f"  steps  {own_command()} view {shlex.quote(str(order.out / 'job.json'))}")


def _base(order: LocalJob) -> str:
    """A name for the base that git understands in the user's repository."""
    task = order.job.task
    return (
        shlex.quote(task.base_ref.removeprefix("refs/heads/"))
        if task.base_ref.startswith("refs/heads/")
        else task.base[:10]
    )


def _is_here(repository: str) -> bool:
    try:
        return Path.cwd() == Path(repository).resolve()
    except OSError:  # the directory was removed
        return False


def _wrapped(head: str, text: str, width: int, style: str) -> Iterator[Line]:
    text = f"{head}: {one_line(text)}" if text else head
    yield from (Line(each, style) for each in wrap(text, width, subsequent_indent="  ", break_on_hyphens=False))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
