"""Renders the status comment and the Action's summary, and reads the comment back, with the plan that people edited.

The headline comes first, then the stages and the commands. All text of a model or a command is escaped; links and
commands come from here only.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from app.core.job import FINAL, JOB_ID, PUBLISHED, WAITING, Job, JobResult, JobState
from app.core.model_usage import Totals, usd
from app.core.patch import Patch
from app.core.plan import Plan, render_plan_file
from app.core.redaction import find_secrets
from app.core.state_words import WORDS, Condition, condition_of
from app.core.text import clip, count
from app.core.verification import Verification
from app.github.base import CommentState, read_marker, up_to_marker
from app.jobs.context import JobContext
from app.jobs.status import WaitingFor
from app.jobs.store import JobQueries, JobWithContext, ProgressRow
from app.llm.ledger import price
from app.publish.body_edits import marked_part
from app.publish.change_verdict_text import change_verdict
from app.publish.effects import (
    MAX_BODY,
    MAX_COMMENT,
    CommitRecipe,
    Effect,
    OpenEarlyDraft,
    UpdateDraftStatus,
    key_of,
)
from app.publish.markdown import (
    alert,
    as_shown,
    code_span,
    details,
    fenced,
    harmless_line,
    inline,
    paragraphs,
    prose,
    quoted,
)
from app.publish.outbox import EffectStatus
from app.publish.pull_request_text import (
    SKIP_CI,
    PullRequestContent,
    banner,
    opening_line,
    pull_request_title,
    shown_model,
)
from app.publish.result_view import meaning, red_to_green
from app.publish.verification_text import Caps, bullets, reproduction, verification_section
from app.repo.git_store import GitStore
from app.verify.ending import failed_run

_MARKS = ("<!-- agent-fix:plan -->", "<!-- /agent-fix:plan -->")
_EMPTY_FIELD = re.compile(r"(?m)^(?:#.*|\w+: (?:\[\]|''))\n")
MAX_PLAN: Final = 5_500
"""Characters of an editable plan; a longer one can only be approved as it is."""


def plan_summary(plan: Plan | None, logged: str) -> str:
    """`logged` is the plan from the job's log (`app.core.plan.render_plan`), for jobs without a result."""
    return plan.summary if plan else logged.partition("\n\n")[0]


def plan_steps(plan: Plan | None, logged: str) -> tuple[str, ...]:
    if plan is not None:
        return plan.steps
    block = next((part for part in logged.split("\n\n") if part.startswith("Steps:\n")), "")
    return tuple(line.removeprefix("- ") for line in block.split("\n")[1:])


def can_be_edited(plan: Plan | None) -> bool:
    return 0 < len(_text(plan)) <= MAX_PLAN


def editable(plan: Plan | None, logged: str, caps: Caps) -> str:
    """The plan for `/agent approve` to read back; a plan that is too long is only shown."""
    if not can_be_edited(plan):
        steps = bullets(plan_steps(plan, logged), caps, numbered=True)
        return paragraphs(inline(clip(plan_summary(plan, logged), caps.text)), steps)
    begin, end = _MARKS
    return f"{begin}\n{fenced(_text(plan), 'yaml')}\n{end}"


def read_plan(comment: str) -> str | None:
    """The plan in a status comment, as people edited it; None if there is none."""
    text = comment.replace("\r\n", "\n")
    begin, end = _MARKS
    _, mark, below = text.partition(begin)
    if not mark:
        return None
    block = re.match(r"\s*(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<plan>.*?)\n(?P=fence)[ \t]*(?:\n|$)", below, re.DOTALL)
    plan = block["plan"] if block else below.partition(end)[0]
    return plan.strip("\n") or None


def _text(plan: Plan | None) -> str:
    return _EMPTY_FIELD.sub("", render_plan_file(plan)) if plan else ""


PLAN_SHOWN: Final[frozenset[Condition]] = frozenset({"awaiting_approval", "plan_waits", "reproduced"})
"""What people see if the comment shows a plan that they may edit."""
_PUBLISHED_OR_NOTHING: Final[frozenset[JobState]] = PUBLISHED | {
    "answered",
    "already_works",
    "reproduced",
    "not_reproduced",
    "verified",
    "no_change",
}
SHOWN_AS_PROGRAM: Final[frozenset[JobState]] = frozenset({"already_works", "reproduced", "not_reproduced"})
ATTEMPT_SHOWN: Final[frozenset[JobState]] = frozenset({"verification_failed", "limit_reached", "paused"})
"""States whose comment shows the change that was not published."""
_NO_CALLS: Final = Totals()


KEPT_ON_SERVER: Final = (
    "The change was saved. View it with `agent-fix jobs show {job} --patch` on the server, or on the dashboard."
)
KEPT_IN_RECORD: Final = "The change was saved as `change.patch` in the workflow run's artifact `agent-fix-{job}`."
PUBLISH_AGAIN: Final = "`/agent retry` publishes it, without a model call; with instructions it starts again."
NOT_KEPT: Final = "The change was not saved, because the Action's input `record` is `false`."
"""Where people find an unpublished change, depending on where the job ran."""


class DetailLevel(NamedTuple):
    """How much is shown; less if a comment would be too long."""

    caps: Caps
    recent_actions: int
    answer: int


_LEVELS = (
    DetailLevel(Caps(0, 12, 400), 3, 6_500),
    DetailLevel(Caps(0, 8, 200), 3, 4_500),
    DetailLevel(Caps(0, 4, 120), 1, 2_500),
    DetailLevel(Caps(0, 1, 60), 0, 500),
)


@dataclass(frozen=True, slots=True)
class StatusView:
    """Everything in a status comment. `at` is the time shown: now, or when the job started waiting or ended. It does
    not change while people may be editing the comment."""

    job: Job
    job_context: JobContext
    state: JobState
    at: datetime
    reason: str = ""
    result: JobResult | None = None
    totals: Totals = _NO_CALLS
    turn: int = 0
    planned: str = ""
    """The plan from the log, for jobs without a result."""
    recent_actions: tuple[ProgressRow, ...] = ()
    draft: str = ""
    """The address of the early draft."""
    job_page: str = ""
    run: int = 0
    """The number of the workflow run that does the work, if one does: it reads no messages, and keeps nothing for the
    next run."""
    waiting_for: WaitingFor = ""
    """What a paused job needs before it can continue."""
    in_queue: tuple[int, int] | None = None
    """Its place among the jobs that wait like it, and how many they are."""
    limit_warnings: tuple[str, ...] = ()
    """Limits that are nearly reached."""
    estimate: str = ""
    """What the job will probably cost."""
    kept: str = KEPT_ON_SERVER
    diff: str = ""
    """The change of an attempt that was not published."""

    @property
    def plan(self) -> Plan | None:
        return self.result.plan if self.result else None

    @property
    def condition(self) -> Condition:
        """What people see of its state."""
        return seen(self.job, self.state, self.result)

    @property
    def headline(self) -> str:
        return headline(self.job, self.state, self.result)

    @property
    def comment_state(self) -> CommentState:
        plan, aim = self.condition in PLAN_SHOWN and can_be_edited(self.plan), self.job_context.aim
        return CommentState(state=self.state, run=self.run, plan=plan, aim=aim)


def seen(job: Job, state: JobState, result: JobResult | None) -> Condition:
    """What people see of a job in this state. Its comment is written once, when a plan of its own is the newest."""
    verification = result.verification if result else None
    broken = verification is not None and verification.verdict == "broken"
    return condition_of(state, plan_waits=job.plan_mode == "only", broken=broken)


def headline(job: Job, state: JobState, result: JobResult | None) -> str:
    questions = result.plan.questions if result and result.plan else ()
    if state == "needs_input" and len(questions) > 1:
        return "❓ Questions before the work starts"
    return WORDS[seen(job, state, result)].headline


def render_status(view: StatusView) -> str:
    """The comment's Markdown: at most 8,000 characters, and the attempt's diff in what GitHub allows beside them."""
    shown = attempt_diff(view.diff, MAX_BODY - MAX_COMMENT) if view.state in ATTEMPT_SHOWN else ""
    fitting = (level for level in _LEVELS if len(_render(view, level)) <= MAX_COMMENT)
    level = next(fitting, None)
    if level is None:
        return _render(view, _LEVELS[-1])[:MAX_COMMENT]
    whole = _render(view, level, shown)
    return whole if len(whole) <= MAX_BODY else _render(view, level)


def error_id(view: StatusView) -> str:
    """The id by which an operator finds the error in the log."""
    return hashlib.sha256(f"{view.job.id}\0{view.reason}".encode()).hexdigest()[:6]


def _render(view: StatusView, level: DetailLevel, attempt: str = "") -> str:
    commands = " · ".join(f"{code_span(command)} {effect}" for command, effect in _commands(view))
    notes = (view.estimate, *view.job_context.notes, *view.limit_warnings) if view.state not in FINAL else ()
    shown = [text for note in notes[: level.caps.items] if (text := inline(clip(note, level.caps.text)))]
    text = paragraphs(
        f"### {view.headline}",
        *_details_of_state(view, level),
        _failed_output(view, view.result.verification) if view.result else "",
        *(unpublished_work(view.job.id, view.state, view.result, view.kept) if view.result else ()),
        _plan_details(view, level.caps),
        _recent_actions(view, level),
        f"ℹ️ {' '.join(shown)}" if shown else "",  # noqa: RUF001  # an emoji; one paragraph, which joins no list
        attempt,
        f"> {commands}" if commands else "",
        _footer(view),
    )
    return text + "\n"


def _details_of_state(view: StatusView, level: DetailLevel) -> Iterator[str]:
    """The details of this state."""
    result, reason = view.result, clip(view.reason, min(level.caps.text * 2, 800))
    match view.condition:
        case "answered" | "already_works" | "reproduced" | "not_reproduced" if result:
            yield from _answer(view, result, level)
        case "awaiting_approval" | "plan_waits":
            yield editable(view.plan, view.planned, level.caps)
        case "needs_input":
            questions = view.plan.questions if view.plan else ()
            yield bullets(questions, level.caps, numbered=len(questions) > 1) or inline(reason)
        case "pr_opened" | "pr_updated" | "broken_draft" | "verified" if result:
            yield from _published(view, result, level)
        case "error":
            yield f"{inline(reason)} (error {code_span(error_id(view))})" if reason else ""
        case "verification_failed" if result and result.verification:
            yield banner(PullRequestContent(view.job, result, result.verification))
            yield inline(reason)
        case _ if view.state in FINAL or view.state in WAITING:
            yield inline(reason)
        case _:
            yield "\n".join(_stages(view))
            waits = "This job will start when an agent-fix pull request is merged or closed"
            queue = "{} (number {} of {} in the queue).".format(waits, *view.in_queue) if view.in_queue else ""
            yield inline(f"{reason} {queue}".strip())
    if result and result.hint and view.state in FINAL:
        yield inline(clip(result.hint, 400))
    if view.draft and view.state in (FINAL | WAITING) - _PUBLISHED_OR_NOTHING:
        yield f"Draft (not verified yet): {view.draft}"


def _answer(view: StatusView, result: JobResult, level: DetailLevel) -> Iterator[str]:
    """What was found, in the model's words; and the examples that show it, if they fit as a plan to edit."""
    yield prose(clip(result.summary, level.answer))
    if view.state in SHOWN_AS_PROGRAM:
        yield from reproduction(
            result, level.caps, editable(view.plan, "", level.caps) if can_be_edited(view.plan) else ""
        )


MAX_OUTPUT = 1_500


def _failed_output(view: StatusView, facts: Verification | None) -> str:
    """The end of the output of what failed, folded; empty if nothing that was run failed."""
    run = failed_run(facts) if facts and facts.verdict == "broken" and view.state in ATTEMPT_SHOWN else None
    if run is None:
        return ""
    return details(f"Output of {code_span(clip(run.command, 120))}", fenced(run.excerpt[-MAX_OUTPUT:]))


def unpublished_work(job: str, state: JobState, result: JobResult, kept: str) -> Iterator[str]:
    """For a job that published nothing: the agent's statement, the branch, the change."""
    if state == "no_change" and result.summary.strip():
        yield f"The agent says (unchecked):\n\n{quoted(clip(result.summary, 600))}"
    if result.compare:
        yield f"The change is on the branch {code_span(result.branch)}. [Open a pull request for it]({result.compare})."
    if result.diff and state in (FINAL | {"paused"}) - _PUBLISHED_OR_NOTHING - {"stopped"}:
        yield kept.format(job=job)
        if result.unpublished and kept == KEPT_ON_SERVER:
            yield PUBLISH_AGAIN


def _published(view: StatusView, result: JobResult, level: DetailLevel) -> Iterator[str]:
    """The pull request's address, and its proof or what was done instead; or the verdict on somebody's change."""
    if view.state == "verified" and result.verification:
        caps = level.caps if level.caps.items > 1 else None
        yield change_verdict(PullRequestContent(view.job, result, result.verification), caps)
        return
    here = view.job_context.publish_target == "same_branch" and result.commit
    yield f"Pushed: {result.commit}" if here else result.url
    if result.verification:
        yield banner(PullRequestContent(view.job, result, result.verification))
    else:
        yield prose(clip(result.summary, level.caps.text * 2))


def _stages(view: StatusView) -> Iterator[str]:
    """Finished stages are ticked and the current one is bold; unknown ones are not ticked."""
    order: tuple[JobState, ...] = ("queued", "planning", "working", "verifying", "publishing")
    at = order.index(view.state) if view.state in order else 0
    plan = inline(clip(plan_summary(view.plan, view.planned), 200))
    verification = view.result.verification if view.result else None
    for name, begins in _stage_names(view):
        done, detail = at > begins, ""
        if name == "Plan":
            done, detail = bool(plan) and at != begins, f": {plan}" if plan else ""
        elif name == "Reproduction":
            done = verification is not None and red_to_green(verification.reproduction)
        elif view.draft and begins == len(order) - 1:
            detail = f": {view.draft} (not verified yet)"
        text = f"**{name}**" if at == begins and not done else name
        yield f"- [{'x' if done else ' '}] {text}{detail}"


def _stage_names(view: StatusView) -> Iterator[tuple[str, int]]:
    """The stages of this job, each with its state's position in the order."""
    if view.job.aim == "ask":
        yield "Answer", 2
        return
    if view.job_context.aim == "ci":
        yield "Pull request updated", 4
        return
    if view.job.aim in {"reproduce", "verify"}:
        yield "Examples", 1
        if view.job.aim == "verify":
            yield "Verification", 3
        return
    if view.job.plan_mode != "none":
        yield "Plan", 1
    if view.job.plan_mode == "only":
        return
    yield "Reproduction", len(WORDS)
    yield ("Conflicts resolved" if view.job.conflicts else "Change"), 2
    yield "Verification", 3
    yield ("Pull request updated" if view.job_context.publish_target == "same_branch" else "Draft pull request"), 4


def _plan_details(view: StatusView, caps: Caps) -> str:
    """The steps, folded; empty if they are shown for editing."""
    steps = plan_steps(view.plan, view.planned)
    if not steps or view.condition in PLAN_SHOWN or view.state == "needs_input":
        return ""
    listed = bullets(steps, caps, numbered=True)
    if view.state in FINAL or view.state in WAITING:  # otherwise its summary is shown next to its stage
        listed = f"{inline(clip(plan_summary(view.plan, view.planned), caps.text))}\n\n{listed}"
    return details(f"The plan in {count(len(steps), 'step')}", listed)


def _recent_actions(view: StatusView, level: DetailLevel) -> str:
    """The most recent actions, in one line."""
    if view.state in FINAL or view.state in WAITING or not view.recent_actions or not level.recent_actions:
        return ""
    shown = []
    for row in view.recent_actions[-level.recent_actions :]:
        first = row.text.strip().partition("\n")[0]
        shown.append(code_span(clip(first, 80)) if row.kind == "command" else inline(clip(first, 120)))
    return f"Recent actions: {' · '.join(shown)}"


_ONE_COMMAND: Final[dict[Condition, tuple[str, str]]] = {
    "needs_input": ("/agent …", "to answer, in a new comment"),
    "reproduced": ("/agent fix", "to fix it, from these examples"),
    "not_reproduced": ("/agent reproduce", "to try again, once the answers are here"),
}


def _commands(view: StatusView) -> Iterator[tuple[str, str]]:
    """The commands that make sense now, each with what it is for."""
    match view.condition:
        case "awaiting_approval" | "plan_waits":
            edited = " with the plan above, including your edits" if can_be_edited(view.plan) else ""
            yield "/agent approve", f"to start{edited}"
            if view.state == "awaiting_approval":
                yield "/agent stop", "to discard the plan"
        case "needs_input" | "reproduced" | "not_reproduced":
            yield _ONE_COMMAND[view.condition]
        case "paused":
            budget = " --budget +3" if view.waiting_for == "money" else ""
            yield f"/agent continue{budget}", "to start again" if view.run else "to resume the job"
            yield "/agent stop", "to stop the job"
        case "pr_opened" | "pr_updated" | "broken_draft":
            there = "" if view.job_context.publish_target == "same_branch" else "on the pull request "
            yield "/agent …", f"{there}to request changes"
            if _ci_waits(view):
                yield "/agent ci", f"{there}to start CI (it does not start on its own)"
        case (
            "verified" | "already_works" | "stopped" | "error" | "verification_failed" | "limit_reached" | "no_change"
        ) if view.job.aim != "ask":
            yield ("/agent verify" if view.job.aim == "verify" else "/agent retry"), "to start again from scratch"
        case _ if view.state not in FINAL and view.state != "publishing":
            if view.job.aim == "fix" and not view.run:
                yield "/agent …", "to guide the agent"
            yield "/agent stop", "to stop the job"


def _ci_waits(view: StatusView) -> bool:
    """True if people may start CI: on a branch with our prefix, if nothing else starts it."""
    config = view.job_context.config
    ours = view.job.branch.partition("/")[0] == config.branch_prefix
    return ours and config.ci == "manual" and view.job_context.aim != "ci" and not view.job_context.fork


def _footer(view: StatusView) -> str:
    """Time (in minutes, so that a comment is not edited for seconds), turns and cost, and where to find more."""
    minutes = max(0, int((view.at - view.job.created_at).total_seconds())) // 60
    elapsed = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    spent = price(view.totals) if view.totals.calls else ""
    if view.totals.calls and view.totals.cost:  # without a known price, the budget cannot be enforced
        spent += f" of {usd(view.job.budget.usd)}"
    turns = view.result.turns if view.result and view.result.turns else view.turn
    items = [
        elapsed if minutes else "under a minute",
        f"turn {turns} of {view.job.budget.steps}" if turns and view.state not in FINAL else "",
        count(turns, "turn") if turns and view.state in FINAL else "",
        spent,
        code_span(clip(shown_model(view.job.model_text), 160)),
        f"runner {code_span(view.job.runner)}" if view.job.runner != "native" else "",
        f"[job {view.job.id}]({view.job_page})" if view.job_page else f"job {code_span(view.job.id)}",
    ]
    return f"<sub>{' · '.join(item for item in items if item)}</sub>"


MAX_LINE = 1_000
TITLE = "Unpublished change from this attempt"
LEFT_OUT = "The diff is left out, because it contains what looks like a secret."
_OVERHEAD = 500
"""Characters for the text around the lines, without a long fence."""


def attempt_diff(diff: str, limit: int) -> str:
    """The change's diff in at most `limit` characters; empty if there is none, or it does not fit.

    It is left out if any line looks like a secret: a key has more lines than the one that is recognised. Lines that do
    not fit are counted.
    """
    text = as_shown(diff).strip("\n")
    if not text:
        return ""
    if find_secrets(text):
        return details(TITLE, LEFT_OUT)
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…" for line in text.split("\n")]
    shown, left = [], limit - _OVERHEAD - 2 * max(map(len, re.findall("`+", text)), default=0)
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    if not shown:
        return ""
    more = len(lines) - len(shown)
    note = f"\n\n{count(more, 'more line')} not shown." if more else ""
    return details(TITLE, fenced("\n".join(shown), "diff") + note)


@dataclass(frozen=True, slots=True)
class StatusCommentState:
    """`plan` is the editable plan it shows, `run` the number of the workflow run, `aim` what the job does."""

    job: str
    state: JobState
    plan: str = ""
    run: int = 0
    aim: str = "fix"


def read_status(comment: str) -> StatusCommentState | None:
    """None if the text is not a job's status comment, whoever wrote it."""
    marked = read_marker(comment)
    # A workflow that quotes somebody below its own words may do so from the same account as ours.
    if marked is None or not JOB_ID.fullmatch(marked[0]) or not comment.startswith("### "):
        return None
    job, found = marked
    plan = read_plan(comment) if found.plan else None
    return StatusCommentState(job, found.state, plan or "", found.run, found.aim)


def shows_status(comment: str) -> bool:
    """True for a job's status comment, also with words below it, whoever wrote them: enough to count jobs."""
    return read_status(up_to_marker(comment)) is not None


MAX_SUMMARY: Final = 500_000
"""Characters; GitHub allows a megabyte for each step."""
_SUMMARY_LEVELS: Final = (Caps(8_000, 100, 4_000), Caps(1_000, 20, 500), Caps(100, 3, 120))


def step_summary(
    job: Job,
    state: JobState,
    reason: str,
    result: JobResult | None,
    *,
    repository: str = "",
    kept: str = KEPT_IN_RECORD,
) -> str:
    """Markdown, with all text of people and models escaped. `repository` is the address for issue links, because a
    workflow's page does not link numbers. `kept`: where an unpublished change is."""
    head = f"## {headline(job, state, result)}"
    issue = linked(job.task.issue.number, repository) if job.task.issue.number else ""
    subject = f"{issue} {inline(clip(job.task.issue.title, 200))}".strip()
    left = "\n\n".join(unpublished_work(job.id, state, result, kept)) if result else ""
    for caps in _SUMMARY_LEVELS:
        text = "\n\n".join((head, subject, *_summary_parts(job, reason, result, caps, left))) + "\n"
        if len(text) <= MAX_SUMMARY:
            return text
    return f"{head}\n"


def linked(number: int, repository: str) -> str:
    """A link to an issue or pull request; either address redirects to the other."""
    return f"[#{number}]({repository}/issues/{number})" if repository else f"#{number}"


def _summary_parts(job: Job, reason: str, result: JobResult | None, caps: Caps, left: str) -> Iterator[str]:
    if reason:
        yield inline(clip(reason, caps.text))
    if result is None:
        return
    if result.hint:
        yield inline(clip(result.hint, caps.text))
    if left:
        yield left
    if result.exit_status in SHOWN_AS_PROGRAM:
        yield from reproduction(result, caps)
    if result.url:
        yield f"<{result.url}>"
    if result.plan is not None and result.plan.steps:
        yield f"### Plan\n\n{inline(clip(result.plan.summary, caps.text))}"
        yield bullets(result.plan.steps, caps, numbered=True)
    if result.verification is not None:
        verdict = result.verification.verdict
        yield f"### Verification\n\n**{verdict.capitalize()}.** {meaning(result.verification)}"
        yield verification_section(result.verification, job.task.base, result.commit, caps)
    elif result.summary and not left:
        yield inline(clip(result.summary, caps.text))
    model = code_span(clip(shown_model(job.main_model), 60))
    yield f"<sub>{model} · {count(result.turns, 'turn')} · {price(result.usage)}</sub>"


AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""There is a plan, and people have approved it if they had to."""
MAX_FORMER: Final = 5
"""Earlier jobs of the same issue whose drafts may still be open."""


def early_recipe(job: Job, job_context: JobContext) -> CommitRecipe:
    """The recipe of the empty commit. It never starts CI, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"There is no change yet: this draft was opened early for job {job.id}, and its change replaces this commit."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return CommitRecipe(patch="", message=message, author=job_context.author, date=job.created_at)


def early_commits(store: GitStore, job_queries: JobQueries, where: JobWithContext) -> tuple[str, ...]:
    """The ids of the empty commits of this job and of earlier ones for its issue, this job's first; made if missing.

    Computed instead of read, so that nobody can add one: the same on any machine, different for every job. Blocking.
    """
    if where.job_context.publish_target != "new_branch":
        return ()
    issue_ref = where.job_context.issue_ref
    former = job_queries.of_issue(issue_ref.repository, issue_ref.number, MAX_FORMER)
    commits = []
    for each in (where, *(each for each in former if each.job.id != where.job.id and each.row.final)):
        base = each.job.task.base
        if each.job_context.opens_early and store.keeps(base):
            commits.append(early_recipe(each.job, each.job_context).commit(store, Patch(base=base)))
    return tuple(commits)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def status_key(job: str) -> str:
    return key_of(job, UpdateDraftStatus(section=""))


_WITHOUT_DRAFT_STATUS: Final[frozenset[JobState]] = frozenset({"publishing", "pr_opened", "no_access"})
"""States in which the verified text is written or on its way, or nothing can be written."""
_DRAFT_LEVELS = (Caps(0, 30, 2_000), Caps(0, 12, 400), Caps(0, 3, 120))
"""Detail levels, each shorter than the one before, for a plan that would be too long."""
_WHAT_NOW: Final[dict[JobState, str]] = {
    "paused": "`/agent continue` resumes the job, `/agent stop` stops it.",
    "no_change": "The draft is closed.",
}
_AT_WORK_TEXT = (
    "**Not verified yet.** The agent is working, and the branch holds an empty commit. "
    "A verified change will replace that commit and this text."
)


def early_draft_effects(view: StatusView, draft: EffectStatus | None, *, posted: bool) -> Iterator[Effect]:
    """The draft, once; later its status, if the draft's job has `posted` one before or has ended."""
    job, over = view.job, view.state in FINAL or view.state == "paused"
    if draft is None and view.state in AT_WORK:
        bodies = (_draft_body(view, caps) for caps in _DRAFT_LEVELS)
        yield OpenEarlyDraft(
            branch=job.branch,
            base=view.job_context.base_ref,
            title=pull_request_title(job.task, view.job_context.config),
            body=next(body for body in bodies if len(body) <= MAX_BODY),
        )
    elif draft is not None and view.state not in _WITHOUT_DRAFT_STATUS and (posted or over):
        section = alert("IMPORTANT", _AT_WORK_TEXT)
        if over:
            what_now = _WHAT_NOW.get(view.state, "`/agent retry` on the issue starts again, in this draft.")
            headline = f"**{view.headline}.** This branch holds no change of the agent's."
            section = alert("WARNING", headline, inline(clip(view.reason, 800)), what_now)
        yield UpdateDraftStatus(section=section, close=view.state == "no_change")


def _draft_body(view: StatusView, caps: Caps) -> str:
    number, summary = view.job.task.issue.number, plan_summary(view.plan, view.planned)
    where = f" · progress in #{number}" if number is not None else ""
    text = paragraphs(
        opening_line(view.job.task),
        marked_part("state", alert("IMPORTANT", _AT_WORK_TEXT)),
        f"## Plan\n\n{inline(clip(summary, caps.text))}" if summary else "",
        bullets(plan_steps(view.plan, view.planned), caps, numbered=True) if summary else "",
        f"---\n\n<sub>agent-fix · job `{view.job.id}`{where}</sub>",
    )
    return text + "\n"
