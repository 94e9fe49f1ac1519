"""The last screen of `fix`: verdict, red and green, changed files, branch, and the commands for what comes next."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from app.cli.local_context import LocalJob
from app.cli.verification_lines import finding_lines, green_line, red_line
from app.core.job import PUBLISHED, JobState
from app.core.patch import FileStat
from app.core.result import JobResult
from app.core.text import one_line
from app.llm.ledger import price, usd
from app.publish.attempts_text import describe_attempts
from app.publish.plaintext import count, duration

CHANGE = "change.patch"
MAX_FILES = 15
GOOD, WARN, BAD, FAINT, BOLD = "1;32", "1;33", "1;31", "2", "1"
_STYLES = {"proved": GOOD, "tested": GOOD, "unproved": WARN, "broken": BAD}
_STATES: dict[JobState, str] = {
    "answered": "planned",
    "no_change": "no change",
    "verification_failed": "broken",
    "limit_reached": "limit reached",
    "awaiting_approval": "waiting for approval",
    "needs_input": "a question first",
}


class Line(NamedTuple):
    """A line, and the SGR code of its style."""

    text: str
    style: str = ""


OUTPUT_LINES = 12
"""Lines of a failed command's output that are shown, from its end."""


def local_state(state: str) -> str:
    """A state as the command line names it: it makes branches, not pull requests."""
    return "branch_made" if state in PUBLISHED else state


def result_screen(order: LocalJob, result: JobResult, width: int = 0) -> Iterator[Line]:
    """The lines, wrapped to `width` (default: the terminal's)."""
    width = min(width or shutil.get_terminal_size((100, 24)).columns, 120)
    verdict = result.verification.verdict if result.verification else ""
    headline = verdict or _STATES.get(result.exit_status, result.exit_status)
    yield Line("")
    reason, *output = result.reason.splitlines() or [""]
    yield from _wrapped(headline, reason, width, _STYLES.get(verdict, BAD if not verdict else ""))
    yield from (Line(_cut(f"  | {text}", width)) for text in output[-OUTPUT_LINES:])
    if result.verification is not None:
        yield Line(_cut(f"  red    {red_line(result.verification)}", width), "31")
        yield Line(_cut(f"  green  {green_line(result.verification)}", width), "32")
        yield from (Line(_cut(f"         {text}", width), "33") for text in finding_lines(result.verification))
    for attempt in result.attempts:
        yield Line(_cut(f"  attempt {attempt.number}  {one_line(describe_attempts(attempt))}", width))
    if result.exit_status == "no_change" and result.summary:
        yield from _wrapped("  the agent says (unchecked)", one_line(result.summary)[:600], width)
    yield from _changes(result.changes)
    yield from _where(order, result, width)
    yield from _commands(order, result)
    if result.hint:
        yield Line("")
        yield from (Line(text) for text in wrap(result.hint, width, break_long_words=False, break_on_hyphens=False))


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
        yield Line(f"change   no branch was made; {order.out / CHANGE} is for `git apply`")
    if usage.calls:
        money = f"{price(usage)} of {usd(order.job.budget.usd)}" if usage.cost else price(usage)
        cached = f" ({usage.cached_share:.0%} cached)" if usage.cached_tokens else ""
        tokens = f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out"
        took = f" · {duration(result.seconds)}" if result.seconds else ""
        yield Line(_cut(f"cost     {money} · {count(usage.calls, 'model call')} · {tokens}{took}", width))
    yield Line(f"results  {order.out}/")


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
        yield Line(f"  see    agent-fix jobs show {order.job.id} --patch")
        yield Line(f"  try    {git} apply {shlex.quote(str(order.out / CHANGE))}")
    if result.exit_status == "answered" and result.plan is not None:
        yield Line(f"  edit   {order.out / 'plan.md'}, and pass it with --plan")
    if result.trajectory:
        yield Line(f"  steps  agent-fix view {order.out / 'job.json'}")


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


def _wrapped(head: str, text: str, width: int, style: str = BOLD) -> Iterator[Line]:
    text = f"{head}: {one_line(text)}" if text else head
    for line in wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
        yield Line(line, style)
        style = ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
