"""Renders a pull request's title, body and commit message from the facts of a job, as pure functions.

A reviewer sees one screen: the verdict, what changed, what is printed before and after, and what was not run. All else
is folded, and the check run has the whole of it. Links, mentions and closing keywords come from these templates only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from app.config.repository import RepoConfig
from app.core.job import AttemptSummary, Job, JobResult
from app.core.model_usage import usd
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.state_words import WORDS
from app.core.task import OWN_REQUESTS, Person, Task, TaskKind
from app.core.text import clip, count
from app.core.verification import GateResult, Verdict, Verification
from app.github.base import CHECK
from app.llm.ledger import fallback_notes, price
from app.publish.body_edits import marked_part
from app.publish.effects import MAX_TITLE, AddFollowUpSection, UpdateVerdict
from app.publish.markdown import (
    alert,
    cell,
    code_cell,
    code_span,
    details,
    duration,
    harmless_line,
    harmless_text,
    inline,
    lines_cell,
    paragraphs,
    quoted,
    table,
)
from app.publish.result_view import ResultView, Shown, view_of
from app.publish.verification_text import Caps, bullets, verification_section


@dataclass(frozen=True, slots=True)
class PullRequestContent:
    """What was requested, done, run and spent: `verification` is the result's, which a pull request always has."""

    job: Job
    result: JobResult
    verification: Verification

    @property
    def task(self) -> Task:
        return self.job.task

    @property
    def recorded(self) -> bool:
        """True if the model's answers came from a recording: tokens and cost are then those of the recording."""
        return self.job.model.startswith("recorded/")

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.result.notes, *fallback_notes(self.result.usage))


def shown_model(model: str) -> str:
    """The model's name; for a recording without the path of its file."""
    return f"recorded/{PurePath(model).name}" if model.startswith("recorded/") else model


def attempts_section(attempts: Sequence[AttemptSummary], requested: int) -> str:
    """Empty if only one attempt was requested."""
    if requested < 2 or not attempts:
        return ""
    rows = [
        [
            f"{each.number}{' (taken)' if each.taken else ''}",
            each.verdict or WORDS[each.exit_status].name,
            f"{each.changed_lines:,}" if each.verdict else "",
            _used(each),
            cell(each.reason[:300]),
        ]
        for each in attempts
    ]
    header = ["Attempt", "Verdict", "Changed lines", "Used", "Because"]
    made = count(len(attempts), "attempt")
    chosen = next((each for each in attempts if each.taken), attempts[-1])
    if len(attempts) < requested and chosen.verdict == "proved":
        opening = f"{made} of {requested} requested: attempt {chosen.number} is proved, so no more were made."
    else:
        how = "each in its own tree, independent of the others"
        rule = "by its verification: the verdict first, then the smaller change"
        opening = f"{made} of {requested} requested, {how}. Attempt {chosen.number} was chosen {rule}."
    return f"{opening}\n\n{table(header, rows)}"


def _used(attempt: AttemptSummary) -> str:
    parts = (count(attempt.turns, "turn") if attempt.turns else "", usd(attempt.cost) if attempt.cost else "")
    return ", ".join(filter(None, parts))


def describe_attempts(attempt: AttemptSummary) -> str:
    """One attempt in one line."""
    ending = attempt.verdict or WORDS[attempt.exit_status].name
    lines = f", {count(attempt.changed_lines, 'changed line')}" if attempt.verdict else ""
    return f"{ending}{lines}{', taken' if attempt.taken else ''}: {attempt.reason}"


MAX_SUBJECT = 72
MAX_ALL: Final = 10_000
"""Characters of a body; the check run has what does not fit."""
MAX_FOLLOW_UP: Final = 4_000
MAX_WORDS: Final = 150
"""Words that a reviewer sees before anything is unfolded, beside the table."""
MAX_SAID: Final = 60
"""Of these at most, what the agent says."""
MAX_SAID_LINES: Final = 12
_SUMMARY_TITLE: Final = "What changed and why"
_WORDS_OF_HEADING: Final = 12
"""Of that section's heading, of whose words it quotes, and of what the rest is folded under."""
_WORDS_OF_REST: Final = 86
"""Of verdict and verification that are written again once the remaining tests have ended; the rest stays as it is."""
_LEFT_OUT = "The rest is left out, because the description would be too long; see the commit and its check."
SKIP_CI = "[skip ci]"
"""Push and pull_request triggers respect it in the head commit; `pull_request_target` does not."""
_LEVELS = (Caps(1_200, 20, 600), Caps(500, 8, 300), Caps(300, 5, 160), Caps(0, 5, 160), Caps(0, 2, 80))
"""Detail levels, each shorter than the one before, for a body that would be too long."""
_LEAST = Caps(0, 1, 40)
MAX_SUMMARY = 2_000
"""Characters of what the agent says, in all."""

NO_FIX: frozenset[TaskKind] = frozenset({"feature", "tests", "refactoring", "dependencies"})
"""Kinds of tasks whose titles already say what is done."""
_ALERT: dict[Verdict, str] = {"proved": "TIP", "tested": "NOTE", "unproved": "WARNING", "broken": "CAUTION"}
NEXT = "Want something changed? Comment `/agent <what to change>` here, or on a line of the diff."


def pull_request_title(task: Task, config: RepoConfig | None = None) -> str:
    """From the issue's title, or the repository's own pattern."""
    if config is None or config.title is None:
        return _subject(task, MAX_TITLE)
    title = config.title_for(harmless_line(task.issue.title, MAX_TITLE - 60), task.issue.number)
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


def merge_subject(base_ref: str, branch: str) -> str:
    """The first line of a merge commit, as git itself writes it."""
    return f"Merge branch '{base_ref}' into {branch}"


def commit_message(
    task: Task, summary: str = "", *, skip_ci: bool = False, signed_off_by: Person | None = None, merge: str = ""
) -> str:
    """Subject (of a `merge` its own), the model's summary as plain text, the mark that stops CI, and trailers for
    requester and author."""
    paragraphs = [merge or _subject(task, MAX_SUBJECT)]
    if body := harmless_text(summary, 2_000):
        paragraphs.append(body)
    if skip_ci:
        paragraphs.append(SKIP_CI)
    trailers = (("Co-authored-by", task.requester), ("Signed-off-by", signed_off_by))
    if lines := [f"{key}: {_ident(who.name)} <{_ident(who.email)}>" for key, who in trailers if who]:
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) + "\n"


def pull_request_body(facts: PullRequestContent) -> str:
    """At most 10,000 characters; if something is cut, the text says so."""
    bodies = (_body(facts, caps) for caps in _LEVELS)
    return next((body for body in bodies if len(body) <= MAX_ALL), "") or _body(facts, _LEAST)


def update_verdict(facts: PullRequestContent) -> UpdateVerdict:
    """Banner and verification again, in several levels of detail: everything else of the body stays, however long."""
    first, *shorter = _verifications(facts)
    return UpdateVerdict(branch=facts.result.branch, banner=banner(facts), verification=first, shorter=tuple(shorter))


def _verifications(facts: PullRequestContent) -> tuple[str, ...]:
    at = (_verification(facts, caps) for caps in (*_LEVELS, _LEAST))
    return tuple(dict.fromkeys(text for text in at if len(text) <= MAX_ALL))


def follow_up_section(facts: PullRequestContent, who: str) -> AddFollowUpSection:
    """What a follow-up was, in several levels of detail, and the verdict and the verification of the new head."""
    made = (_follow_up(facts, who, caps) for caps in (*_LEVELS, _LEAST))
    least = paragraphs(_follow_up_title(facts), _LEFT_OUT)
    first, *shorter = dict.fromkeys((*(text for text in made if len(text) <= MAX_FOLLOW_UP), least))
    effect = AddFollowUpSection(section=first, shorter=tuple(shorter))
    return effect.model_copy(update={"banner": banner(facts, newest=True), "verifications": _verifications(facts)})


def _follow_up_title(facts: PullRequestContent) -> str:
    return f"## Follow-up in {facts.result.commit}"


def _follow_up(facts: PullRequestContent, who: str, caps: Caps) -> str:
    request_text = shortened(facts.task.request.strip(), MAX_SAID, MAX_SAID_LINES)
    by = f" by {code_span(who)}" if who else ""
    return paragraphs(
        _follow_up_title(facts),
        f"Requested{by}:\n\n{quoted(request_text)}" if request_text and request_text not in OWN_REQUESTS else "",
        *_alerts(facts),
        quoted(shortened(facts.result.summary, MAX_SAID, MAX_SAID_LINES)) if facts.result.summary.strip() else "",
        *_folded(facts, caps),
    )


def _subject(task: Task, limit: int) -> str:
    title = harmless_line(task.issue.title, limit)
    if task.kind in NO_FIX or title.casefold().startswith(("fix:", "fix ", "fixes ", "fixed ")):
        return title
    return f"Fix: {harmless_line(task.issue.title, limit - len('Fix: '))}"


def _ident(text: str) -> str:
    """A name or address that cannot break out of a trailer."""
    return "".join(char for char in text if char.isprintable() and char not in "<>").strip() or "unknown"


def _body(facts: PullRequestContent, caps: Caps) -> str:
    # These two are written again by a follow-up, and once the rest of a long suite has been run.
    verdict = marked_part("verdict", banner(facts))
    verification = marked_part("verification", _verification(facts, caps))
    alerts, next_step = (*_alerts(facts),), NEXT if facts.task.issue.number is not None else ""
    folded = paragraphs(*_folded(facts, caps))
    seen_words = words_seen(paragraphs(opening_line(facts.task), *alerts, folded, next_step, _footer(facts)))
    seen_words += words_seen(paragraphs(verdict, verification)) if facts.verification.rest is None else _WORDS_OF_REST
    words = min(MAX_SAID, MAX_WORDS - seen_words - _WORDS_OF_HEADING)
    summary = facts.result.summary.strip()
    seen = shortened(summary, words, MAX_SAID_LINES) if summary and words > 0 else ""
    whole = details("All that the agent says", quoted(clip(summary, MAX_SUMMARY))) if seen != summary else ""
    section = _section(_SUMMARY_TITLE, f"The agent says:\n\n{quoted(seen)}") if seen else ""
    parts = (opening_line(facts.task), verdict, *alerts, section, verification, whole, folded, next_step)
    return paragraphs(*parts, _footer(facts)) + "\n"


def _verification(facts: PullRequestContent, caps: Caps) -> str:
    """What is printed before and after, what was not run, and, folded, everything that was."""
    view = view_of(facts.verification)
    whole = verification_section(facts.verification, facts.task.base, facts.result.commit, caps)
    left_out = f"**Not run:** {inline(shortened(' '.join(view.not_run), 15, 1))}" if view.not_run else ""
    text = paragraphs(_before_and_after(view.shown), left_out, details(_summary_of_runs(view), whole))
    return _section("Verification", text)


def _summary_of_runs(view: ResultView) -> str:
    bad = sum(found.mark == "bad" for found in view.findings)
    return f"What was run: {count(bad, 'problem')}" if bad else "What was run"


def _before_and_after(shown: Sequence[Shown]) -> str:
    if not shown:
        return ""
    rows = [[_program(each), lines_cell(each.before, 120), lines_cell(each.after, 120)] for each in shown]
    return table(["Program", "Before", "After"], rows)


def _program(shown: Shown) -> str:
    """The behaviour in a sentence, and the program if it is short."""
    is_short = len(shown.program) <= 120 and shown.program.count("\n") < 4
    code = code_cell(clip(shown.program, 120)) if is_short or not shown.behaviour else ""
    return "<br>".join(filter(None, (cell(clip(shown.behaviour, 160)), code)))


def _folded(facts: PullRequestContent, caps: Caps) -> Iterator[str]:
    """What a reviewer may want to unfold."""
    result, plan = facts.result, facts.result.plan
    yield details(count(len(result.changes), "changed file"), _changes(facts, caps)) if result.changes else ""
    if plan is not None and plan != Plan(summary=facts.task.issue.title):
        yield details(f"The plan in {count(len(plan.steps), 'step')}", _plan(plan, caps))
    if len(result.attempts):
        attempts = attempts_section(result.attempts, facts.job.attempts)
        yield details(count(len(result.attempts), "attempt"), attempts) if attempts else ""
    notes = (*facts.notes, *result.warnings[1:])
    yield details(count(len(notes), "note"), bullets(notes, caps)) if notes else ""
    yield details("Cost and settings", _spent(facts))


def shortened(text: str, words: int, lines: int) -> str:
    """The first lines and words of a text, with an ellipsis if there are more."""
    kept: list[str] = []
    left, whole = words, text.strip()
    for line in whole.split("\n")[:lines]:
        these = line.split(" ")
        if left < min(4, len(these)):
            break
        kept.append(" ".join(these[:left]))
        left -= len(these)
    made = "\n".join(kept).rstrip()[: words * 12]
    return made if made == whole else f"{made} …"


_INNERMOST: Final = re.compile(r"(?sm)^<details>\n<summary>([^<]*)</summary>$(?:(?!^<details>$).)*?^</details>$\n?")
_TABLE_ROW: Final = re.compile(r"(?m)^\|.*\|$\n?")
_WORD: Final = re.compile(r"\S*\w\S*")


def seen_at_once(body: str) -> str:
    """What a reader sees before anything is unfolded, beside tables."""
    body, folded = re.sub(r"(?s)<!--.*?-->", "", body), 1
    while folded:
        body, folded = _INNERMOST.subn(r"\1\n", body)
    return _TABLE_ROW.sub("", re.sub(r"</?sub>|^> \[!\w+\]|^---$", "", body, flags=re.MULTILINE))


def words_seen(body: str) -> int:
    """How many words a reader sees before anything is unfolded, beside tables."""
    return len(_WORD.findall(seen_at_once(body)))


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content}" if content else ""


def opening_line(task: Task) -> str:
    """The line that names the issue; for a fix, GitHub closes the issue with it."""
    issue = task.issue
    title = inline(shortened(clip(issue.title, 150), 18, 1))
    if issue.number is None:
        return f"Issue: {title}"
    if task.follows_up:  # for a pull request that we cannot push to, and that must not be closed
        return f"Changes for #{issue.number}: {title}"
    return f"Fixes #{issue.number}: {title}"


def banner(facts: PullRequestContent, *, newest: bool = False) -> str:
    """The verdict in a sentence, why it is not better, and the most important numbers, in one box.

    `newest`: of the last of several commits, whose own lines are not all that the pull request changes.
    """
    view, numbers = view_of(facts.verification), []
    if newest:
        numbers.append(f"newest commit {code_span(facts.result.commit[:10])}")
    elif changes := facts.result.changes:
        added, deleted = (sum(getattr(stat, name) or 0 for stat in changes) for name in ("added", "deleted"))
        numbers.append(f"{count(len(changes), 'file')}, +{added:,} −{deleted:,} lines")  # noqa: RUF001
    limited = view.reasons and view.verdict != "proved" and facts.verification.expects_red
    why = inline(shortened(view.reasons[0], 18, 1)) if limited else ""
    first = f"**{view.verdict.capitalize()}.** {view.sentence} {why}".rstrip()
    return alert(_ALERT[view.verdict], first, " · ".join([*view.numbers, *numbers]))


def _alerts(facts: PullRequestContent) -> Iterator[str]:
    if not facts.verification.isolated:
        yield alert("WARNING", "**No sandbox.** Commands and tests ran unprotected on the host.")
    if facts.recorded:
        yield alert("NOTE", "**Recorded answers.** Only the model's answers are from a recording.")
    if warnings := facts.result.warnings:
        more = f" ({count(len(warnings) - 1, 'more note')} below)" if len(warnings) > 1 else ""
        yield alert("WARNING", f"{inline(shortened(warnings[0], 15, 1))}{more}")


def _plan(plan: Plan, caps: Caps) -> str:
    parts = [inline(clip(plan.summary, caps.text)), bullets(plan.steps, caps, numbered=True)]
    sections = (
        ("Files to look at", plan.candidate_files),
        ("Questions", plan.questions),
    )
    parts += [f"**{title}**\n\n{bullets(items, caps)}" for title, items in sections if items]
    return paragraphs(*parts)


def _changes(facts: PullRequestContent, caps: Caps) -> str:
    if not facts.result.changes:
        return ""
    warned = [gate for gate in facts.verification.gates if gate.outcome == "warned"]
    rows = [
        [
            code_cell(clip(stat.path, 200)),
            "binary" if stat.added is None or stat.deleted is None else f"+{stat.added:,} −{stat.deleted:,}",  # noqa: RUF001  # a minus sign lines up with the plus
            cell("; ".join(_remarks(stat, warned))),
        ]
        for stat in facts.result.changes[: caps.items]
    ]
    more = len(facts.result.changes) - len(rows)
    more_note = f"\n\nand {count(more, 'more file')}." if more else ""
    headings = ["File", "Lines", ""]
    if not any(remarks for _, _, remarks in rows):
        headings, rows = headings[:2], [row[:2] for row in rows]
    return table(headings, rows) + more_note


def _remarks(stat: FileStat, warned: list[GateResult]) -> Iterator[str]:
    """Remarks on a file for the reviewer: its kind of change, and findings of checks."""
    if stat.status != "modified":
        yield "new" if stat.status == "added" else stat.status
    if stat.old_path:
        yield f"was {clip(stat.old_path, 200)}"
    if stat.mode == "120000":
        yield "a symlink"
    elif stat.mode == "100755" != stat.old_mode:
        yield "executable"
    for gate in warned:
        found = (
            detail.removeprefix(f"{stat.path}: ") for detail in gate.details if detail.startswith(f"{stat.path}: ")
        )
        yield from (f"{gate.name}: {clip(text, 200)}" for text in list(found)[:3])


def _footer(facts: PullRequestContent) -> str:
    """The last line, by which later sections find their place."""
    model = shown_model(facts.job.model)
    items = (
        f"model {_name(shortened(model, 3, 1))}" if model else "",
        price(facts.result.usage),
        f"job {_name(facts.job.id)}",
    )
    return f"---\n\n<sub>agent-fix · {' · '.join(filter(None, items))}</sub>"


def _spent(facts: PullRequestContent) -> str:
    usage, sandbox = facts.result.usage, facts.verification.sandbox
    items = [
        _models(facts),
        f"{count(usage.calls, 'call')}, {price(usage)}",
        f"{usage.prompt_tokens:,} prompt tokens"
        + (f" ({usage.cached_share:.0%} cached)" if usage.cached_tokens else ""),
        f"{usage.completion_tokens:,} completion tokens",
        f"usage of {count(usage.estimated, 'call')} estimated" if usage.estimated else "",
        count(facts.result.turns, "turn"),
        duration(facts.result.seconds),
        f"agent {_name(facts.job.runner)}",
        f"sandbox {_name(sandbox)}" if sandbox else "",
        f"base {_name(facts.task.base_ref)} at {code_span(facts.task.base[:10])}",
        f"all results in the check {code_span(CHECK)} of {code_span(facts.result.commit[:10])}",
    ]
    return " · ".join(item for item in items if item)


def _models(facts: PullRequestContent) -> str:
    """The models that really answered, and for what if there were several."""
    uses = facts.result.usage.models
    if facts.recorded or len({use.model for use in uses}) < 2:
        named = shown_model(facts.job.model) if facts.recorded or not uses else uses[0].model
        return f"model {_name(named)}{' (recorded)' if facts.recorded else ''}" if named else ""
    did: dict[str, list[str]] = {}
    for use in uses:
        what = "minor tasks" if use.kind == "cheap" else use.kind
        did.setdefault(use.model, []).append(f"{what} as a fallback" if use.instead_of else what)
    return "models " + ", ".join(f"{_name(model)} ({' and '.join(kinds)})" for model, kinds in did.items())


def _name(text: str) -> str:
    return code_span(clip(text, 100))
