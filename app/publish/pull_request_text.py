"""Renders a pull request's title, body and commit message from the facts of a job, as pure functions.

The verdict comes first, for a reviewer with twenty seconds; then plan, change, proof and outputs, the long parts
folded. Links, mentions and closing keywords come from these templates only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from app.config.repository import RepoConfig
from app.core.job import AttemptSummary, Job, JobResult
from app.core.model_usage import usd
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.state_words import WORDS
from app.core.task import Task, TaskKind
from app.core.text import clip, count
from app.core.verification import GateResult, Verdict, Verification
from app.llm.ledger import fallback_notes, price
from app.publish.body_edits import marked_part
from app.publish.effects import MAX_BODY, MAX_TITLE, AddFollowUpSection, UpdateVerdict
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
    paragraphs,
    quoted,
    table,
)
from app.publish.verification_text import (
    Caps,
    bullets,
    known_failures,
    list_of_tests,
    meaning,
    red_to_green,
    verification_section,
)
from app.verify.verdict import examples_of


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
            f"{count(each.turns, 'turn')}, {usd(each.cost)}" if each.turns else "",
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


def describe_attempts(attempt: AttemptSummary) -> str:
    """One attempt in one line."""
    ending = attempt.verdict or WORDS[attempt.exit_status].name
    lines = f", {count(attempt.changed_lines, 'changed line')}" if attempt.verdict else ""
    return f"{ending}{lines}{', taken' if attempt.taken else ''}: {attempt.reason}"


MAX_SUBJECT = 72
MAX_FOLLOW_UP = 15_000
_LEFT_OUT = "The rest is left out, because the description would be too long; see the commit and its check."
SKIP_CI = "[skip ci]"
"""Push and pull_request triggers respect it in the head commit; `pull_request_target` does not."""
_LEVELS = (Caps(4_000, 50, 2_000), Caps(1_500, 20, 1_000), Caps(500, 8, 400), Caps(100, 3, 120))
"""Detail levels, each shorter than the one before, for a body that would be too long."""
_LEAST = Caps(0, 1, 60)

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


def commit_message(task: Task, summary: str = "", *, skip_ci: bool = False) -> str:
    """Subject, the model's summary as plain text, the mark that stops CI, and a trailer for the requester."""
    paragraphs = [_subject(task, MAX_SUBJECT)]
    if body := harmless_text(summary, 2_000):
        paragraphs.append(body)
    if skip_ci:
        paragraphs.append(SKIP_CI)
    if person := task.requester:
        paragraphs.append(f"Co-authored-by: {_ident(person.name)} <{_ident(person.email)}>")
    return "\n\n".join(paragraphs) + "\n"


def pull_request_body(facts: PullRequestContent) -> str:
    """At most 60,000 characters; if something is cut, the text says so."""
    bodies = (_body(facts, caps) for caps in _LEVELS)
    return next((body for body in bodies if len(body) <= MAX_BODY), "") or _body(facts, _LEAST)


def update_verdict(facts: PullRequestContent) -> UpdateVerdict:
    """Banner and verification again, in several levels of detail: everything else of the body stays, however long."""
    at = (_verification(facts, caps) for caps in (*_LEVELS, _LEAST))
    first, *shorter = dict.fromkeys(text for text in at if len(text) <= MAX_BODY)
    return UpdateVerdict(branch=facts.result.branch, banner=banner(facts), verification=first, shorter=tuple(shorter))


def follow_up_section(facts: PullRequestContent, who: str) -> AddFollowUpSection:
    """The section about a follow-up in a pull request's body, in several levels of detail; at least its verdict.

    Each has at most 15,000 characters.
    """
    made = (_follow_up(facts, who, caps) for caps in (*_LEVELS, _LEAST))
    least = paragraphs(_follow_up_title(facts), banner(facts), _LEFT_OUT)
    first, *shorter = dict.fromkeys((*(text for text in made if len(text) <= MAX_FOLLOW_UP), least))
    return AddFollowUpSection(section=first, shorter=tuple(shorter))


def _follow_up_title(facts: PullRequestContent) -> str:
    return f"## Follow-up in {facts.result.commit}"


def _follow_up(facts: PullRequestContent, who: str, caps: Caps) -> str:
    request_text = clip(facts.task.request, min(caps.text, 600)).strip()
    by = f" by {code_span(who)}" if who else ""
    verified = verification_section(facts.verification, facts.task.base, facts.result.commit, caps)
    return paragraphs(
        _follow_up_title(facts),
        f"Requested{by}:\n\n{quoted(request_text)}" if request_text else "",
        banner(facts),
        *_alerts(facts, caps),
        _summary(facts, caps),
        _changes(facts, caps),
        details("Verification of this follow-up", verified),
        attempts_section(facts.result.attempts, facts.job.attempts),
        bullets(facts.notes, caps),
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
    plan, verdict, verification = facts.result.plan, banner(facts), _verification(facts, caps)
    if facts.verification.rest is not None:  # these two are written again once it has been run
        verdict, verification = marked_part("verdict", verdict), marked_part("verification", verification)
    text = paragraphs(
        opening_line(facts.task),
        verdict,
        *_alerts(facts, caps),
        _section("What changed and why", _summary(facts, caps)),
        _section("Plan", _plan(plan, caps) if plan != Plan(summary=facts.task.issue.title) else ""),
        _section("Changes", _changes(facts, caps)),
        verification,
        _section("Attempts", attempts_section(facts.result.attempts, facts.job.attempts)),
        _section("Notes", _notes(facts, caps)),
        NEXT if facts.task.issue.number is not None else "",
        _footer(facts),
    )
    return text + "\n"


def _verification(facts: PullRequestContent, caps: Caps) -> str:
    text = verification_section(facts.verification, facts.task.base, facts.result.commit, caps)
    return _section("Verification", text)


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content}" if content else ""


def opening_line(task: Task) -> str:
    """The line that names the issue; for a fix, GitHub closes the issue with it."""
    issue = task.issue
    title = inline(clip(issue.title, 300))
    if issue.number is None:
        return f"Issue: {title}"
    if task.follows_up:  # for a pull request that we cannot push to, and that must not be closed
        return f"Changes for #{issue.number}: {title}"
    return f"Fixes #{issue.number}: {title}"


def banner(facts: PullRequestContent) -> str:
    """The verdict and the most important numbers, in one box."""
    verification = facts.verification
    found, suite = verification.reproduction, verification.suite
    numbers = []
    if examples := examples_of(verification):
        holding = sum(one.holds for one in examples)
        numbers.append(f"{holding:,} of {count(len(examples), 'example')} {'holds' if holding == 1 else 'hold'}")
    if red_to_green(found):
        numbers.append("reproduction 🔴 → 🟢")
    if suite and suite.base and suite.head and suite.base.count and suite.head.count:
        numbers.append(f"passing tests {suite.base.count.passed:,} → {suite.head.count.passed:,}")
        numbers.append(f"newly failing {len(suite.newly_failing):,}")
    if (rest := verification.rest) is not None:
        ended = f"remaining tests: {rest.compared:,} of {rest.files:,} test files"
        ended += f", newly failing {len(rest.newly_failing):,}"
        ended += f", {len(rest.missing):,} did not run on the head" if rest.missing else ""
        ended += ", worse on the head" if rest.worse else ""
        numbers.append("remaining tests still running" if rest.state == "pending" else ended)
    added = sum(stat.added or 0 for stat in facts.result.changes)
    deleted = sum(stat.deleted or 0 for stat in facts.result.changes)
    numbers.append(f"{count(len(facts.result.changes), 'file')}, +{added:,} −{deleted:,} lines")  # noqa: RUF001
    first = f"**{verification.verdict.capitalize()}.** {meaning(verification)}"
    return alert(_ALERT[verification.verdict], first, " · ".join(numbers))


def _alerts(facts: PullRequestContent, caps: Caps) -> Iterator[str]:
    if not facts.verification.isolated:
        yield alert(
            "WARNING", "**No sandbox.** The agent's commands and the project's tests ran unprotected on the host."
        )
    if facts.recorded:
        yield alert(
            "NOTE", "**Recorded answers.** The model's answers are from a recording; everything else really ran."
        )
    if warnings := bullets(facts.result.warnings, caps):
        yield alert("WARNING", warnings)


def _summary(facts: PullRequestContent, caps: Caps) -> str:
    summary_text = quoted(clip(facts.result.summary, caps.text * 2))
    return f"In the agent's own words:\n\n{summary_text}" if facts.result.summary.strip() else ""


def _plan(plan: Plan | None, caps: Caps) -> str:
    if plan is None:
        return ""
    parts = [f"**Steps**\n\n{bullets(plan.steps, caps, numbered=True)}"] if plan.steps else []
    sections = (
        ("Files to look at", plan.candidate_files),
        ("Questions", plan.questions),
    )
    parts += [f"**{title}**\n\n{bullets(items, caps)}" for title, items in sections if items]
    folded = details(f"The plan in {count(len(plan.steps), 'step')}", "\n\n".join(parts)) if parts else ""
    return paragraphs(inline(clip(plan.summary, caps.text)), folded)


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


def _notes(facts: PullRequestContent, caps: Caps) -> str:
    known = known_failures(facts.verification.suite)
    title = f"{count(len(known), 'test')} already failing on the base, not caused by this change"
    return paragraphs(bullets(facts.notes, caps), details(title, list_of_tests(known, caps)) if known else "")


def _footer(facts: PullRequestContent) -> str:
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
        f"runner {_name(facts.job.runner)}",
        f"sandbox {_name(sandbox)}" if sandbox else "",
        f"base {_name(facts.task.base_ref)} at {code_span(facts.task.base[:10])}",
        f"job {_name(facts.job.id)}",
    ]
    return f"---\n\n<sub>agent-fix · {' · '.join(item for item in items if item)}</sub>"


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
