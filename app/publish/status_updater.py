"""Shows every job's state on GitHub; works from rows alone, so that any process writes the same.

job, log, ledger ─► status comment, labels, reactions, check run ─► effects, of which only the newest counts
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta

from app.core.clock import in_utc
from app.core.failpoints import failpoint
from app.core.job import FINAL, PUBLISHED, WAITING, JobResult, ProgressKind
from app.core.model_usage import dollars
from app.core.state_words import WORDS, Condition
from app.core.text import one_line, plain
from app.core.verification import Verdict, Verification
from app.github.base import CHECK, CHECK_OF_CHANGE, Conclusion
from app.jobs.estimate import MAX_JOBS, estimate
from app.jobs.store import AFTER_REST, JobBlobs, JobQueries, JobStore, JobWithContext
from app.llm.ledger import NEAR_CAP, Ledger
from app.publish.effects import (
    MAX_BODY,
    MAX_TITLE,
    AddReaction,
    ChangeLabels,
    Channel,
    Effect,
    SendNotification,
    UpdateStatusComment,
    WriteCheckRun,
)
from app.publish.markdown import inline
from app.publish.outbox import Outbox, StaleEpoch, TooManyEffects
from app.publish.publisher import IsolatedLoop
from app.publish.result_view import meaning
from app.publish.status_text import (
    ATTEMPT_SHOWN,
    KEPT_ON_SERVER,
    StatusView,
    early_draft_effects,
    early_key,
    error_id,
    render_status,
    status_key,
)
from app.publish.verification_text import Caps, verification_section

EVERY = timedelta(seconds=10)
_SLOWER: tuple[tuple[timedelta, timedelta], ...] = (
    (timedelta(minutes=30), timedelta(minutes=2)),
    (timedelta(minutes=5), timedelta(minutes=1)),
    (timedelta(minutes=1), timedelta(seconds=30)),
)
"""The longer a job runs, the less often its comment is updated without a change of state."""
_RECENT_KINDS: tuple[ProgressKind, ...] = ("command", "verification", "note")
_CONCLUSIONS: dict[Verdict, Conclusion] = {
    "proved": "success",
    "tested": "success",
    "unproved": "neutral",
    "broken": "failure",
}
_LEVELS = (Caps(4_000, 50, 2_000), Caps(1_000, 20, 500), Caps(100, 3, 120))
_TURN = re.compile(r"turn (\d+)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusUpdater:
    """Requests the effects that people see."""

    store: JobStore
    job_queries: JobQueries
    outbox: Outbox
    account: Callable[[str], Ledger]
    now: Callable[[], datetime]
    _: KW_ONLY
    public_url: str = ""
    """The dashboard's address, if there is one."""
    page: str = ""
    """Replaces a job's page there by that of the workflow run `run`."""
    run: int = 0
    early: bool = True
    """True if drafts may be opened early."""
    kept: str = KEPT_ON_SERVER
    """Where an unpublished change is (`app.publish.status_text`)."""
    channels: Collection[Channel] = ()
    """Where else a job's end or wait is announced."""
    isolated: IsolatedLoop = field(default_factory=lambda: IsolatedLoop("updating the status"))

    async def post_due(self) -> int:
        """Update every job that has news; returns how many."""
        unposted = await asyncio.to_thread(self.job_queries.not_posted, EVERY)
        return await self.isolated.run_each(filter(self._is_due, unposted), self._post)

    def _is_due(self, each: JobWithContext) -> bool:
        """True for a change of state; otherwise true ever more rarely, so that a long job causes few edits."""
        now = self.now()
        if each.posted_state != each.row.state:
            return True
        age, since = now - each.job.created_at, now.timestamp() - each.posted_at
        pause = next((pause for longer, pause in _SLOWER if age >= longer), EVERY)
        return since >= pause.total_seconds()

    def _post(self, each: JobWithContext) -> bool:
        view = self.view(each)
        try:
            self.outbox.adopt(each.job.id, each.row.epoch, branches=False)
            shown = status_effects(view, each.posted_state, newest=self._is_newest(each))
            for effect in (*shown, *self._of_its_draft(view)):
                self.outbox.add(each.job.id, each.row.epoch, each.job_context.issue_ref, effect)
            if view.state != each.posted_state and view.state in FINAL | WAITING:
                # Under no installation, so that GitHub and other receivers do not wait for each other.
                elsewhere = each.job_context.issue_ref.model_copy(update={"installation": 0})
                for channel in self.channels:
                    self.outbox.add(each.job.id, each.row.epoch, elsewhere, notification(view, channel))
        except StaleEpoch:  # it changed owners just now; the next round updates it
            return False
        except TooManyEffects as error:
            logger.warning("%s", error.message, extra={"job": each.job.id})
        if view.state == "error" and each.posted_state != "error":
            fields = {"job": each.job.id, "error": error_id(view), "reason": view.reason}
            logger.warning("a job ended in an error", extra=fields)
        failpoint("status.queued")
        self.job_queries.mark_posted(each)
        return True

    def _is_newest(self, each: JobWithContext) -> bool:
        """False if another job of the issue began while the remaining tests ran: the labels are that one's."""
        place = each.job_context.issue_ref
        newest = self.job_queries.newest(place.repository, place.number) if each.posted_state == AFTER_REST else None
        return newest is None or newest.job.id == each.job.id

    def _of_its_draft(self, view: StatusView) -> Iterator[Effect]:
        """Effects for the early draft. In a workflow nobody would see them before the end."""
        if self.early and view.job_context.opens_early:
            posted = self.outbox.status(status_key(view.job.id)) is not None
            yield from early_draft_effects(view, self.outbox.status(early_key(view.job.id)), posted=posted)

    def _in_queue(self, each: JobWithContext) -> tuple[int, int] | None:
        if each.waiting_for != "pull_requests" or each.row.state != "queued":
            return None
        waiting = self.job_queries.waiting_for_pull_requests(each.job_context.issue_ref.repository)
        order = [job for job, _ in waiting]
        return (order.index(each.job.id) + 1, len(order)) if each.job.id in order else None

    def _estimate(self, each: JobWithContext) -> str:
        """What the job will probably cost, as long as little was spent."""
        if each.row.state not in {"queued", "planning", "awaiting_approval"} or each.job_context.aim == "ask":
            return ""
        found = self.job_queries.newest_results(each.job_context.issue_ref.repository, MAX_JOBS)
        return estimate(found, each.job.budget.usd)

    def view(self, each: JobWithContext) -> StatusView:
        """Everything that is known about a job now."""
        job, row = each.job, each.row
        steps = self.store.recent_progress(job.id, 1, "step")
        plans = self.store.recent_progress(job.id, 1, "plan")
        turn = _TURN.search(steps[-1].text) if steps else None
        result = JobResult.model_validate(row.result) if row.result else None
        diff = b""
        if result and result.diff and row.state in ATTEMPT_SHOWN:
            diff = JobBlobs(self.store.engine, job.id).get(result.diff)
        draft = self.outbox.status(early_key(job.id)) if each.job_context.opens_early else None
        return StatusView(
            job=job,
            job_context=each.job_context,
            state=row.state,
            at=in_utc(row.updated_at) if row.state in FINAL | WAITING else self.now(),
            reason=row.reason,
            result=result,
            diff=diff.decode(errors="replace"),
            totals=self.account(job.id).totals(),
            turn=int(turn[1]) if turn else 0,
            planned=plans[-1].text if plans else "",
            recent_actions=self.store.recent_progress(job.id, 3, *_RECENT_KINDS),
            run=self.run,
            kept=self.kept,
            waiting_for=each.waiting_for,
            in_queue=self._in_queue(each),
            limit_warnings=tuple(
                row.text for row in self.store.recent_progress(job.id, 50, "warning") if row.text.startswith(NEAR_CAP)
            ),
            estimate=self._estimate(each),
            draft=draft.receipt.url if draft and draft.receipt else "",
            job_page=self.page or (f"{self.public_url.rstrip('/')}/jobs/{job.id}" if self.public_url else ""),
        )


def status_effects(view: StatusView, posted_state: str, *, newest: bool = True) -> Iterator[Effect]:
    """The effects to show, given the state that was posted last; the final emoji comes last.

    Labels are of the issue's `newest` job only.
    """
    target = view.job_context.target
    if target is not None and not posted_state:
        yield AddReaction(target=target, content="eyes")
    if view.job.frozen is None:  # a comment for every commit would be too many: the check has the verdict
        yield UpdateStatusComment(body=render_status(view), state=view.comment_state)
    if posted_state == view.state:
        return
    if view.job.aim == "verify":
        yield _check_of_change(view)
        yield ChangeLabels(remove=("agent-verify",))
    elif view.state in PUBLISHED and view.result and view.result.verification:
        yield _check(view, view.result, view.result.verification)
    if view.job.aim not in {"ask", "verify"} and newest:
        request = "agent-reproduce" if view.job.aim == "reproduce" else "agent-fix"
        yield labels(view.condition, view.job.task.prompt, request=request, again=posted_state == AFTER_REST)
    if target is not None and (reaction := WORDS[view.condition].reaction):
        yield AddReaction(target=target, content=reaction)


def notification(view: StatusView, channel: Channel) -> SendNotification:
    """The notification that a job ended or is waiting, as plain text."""
    place, result = view.job_context.issue_ref, view.result
    title = f"{view.headline}: {place.owner}/{place.name}#{place.number}"
    lines = (one_line(view.job.task.issue.title), one_line(view.reason))
    return SendNotification(
        channel=channel,
        state=view.state,
        title=title[:MAX_TITLE],
        body="\n".join(plain(line)[:1_000] for line in lines if line),
        repository=f"{place.owner}/{place.name}",
        issue=place.number,
        page=view.job_page,
        pull_request=result.url if result else "",
        verdict=result.verification.verdict if result and result.verification else "",
        cost=dollars(view.totals.cost) if view.totals.cost else "",
    )


def labels(condition: Condition, prompt: str = "", *, request: str = "agent-fix", again: bool = False) -> ChangeLabels:
    """The labels for a job of which this is seen; all others stay. `request` is the label that
    requested it, and `prompt` its prompt, whose label is taken off too.

    With `again`, the label that requests a job stays: by now it may request the next one.
    """
    there = WORDS[condition].label
    ours = ("agent-in-progress", "agent-done", "agent-needs-human")
    requests = () if again else (request, *((f"agent-fix:{prompt}",) if prompt else ()))
    return ChangeLabels(add=(there,) if there else (), remove=(*requests, *(name for name in ours if name != there)))


def _check_of_change(view: StatusView) -> WriteCheckRun:
    """The check on somebody's commit: in progress until there is a verdict, and never green without one."""
    facts = view.result.verification if view.result else None
    if view.state != "verified" or view.result is None or facts is None:
        ended: dict[str, Conclusion] = {"stopped": "cancelled", "no_access": "cancelled"}
        conclusion = ended.get(view.state, "action_required") if view.state in FINAL else None
        text = f"{view.headline}. {one_line(view.reason)}"
        title, summary = text[:200], inline(text)
        return WriteCheckRun(
            name=CHECK_OF_CHANGE, commit=view.job.change, title=title, summary=summary, conclusion=conclusion
        )
    found = _check(view, view.result, facts)
    if view.job_context.required and found.conclusion == "neutral":
        found = found.model_copy(update={"conclusion": "action_required"})  # GitHub lets a neutral check pass
    return found.model_copy(update={"name": CHECK_OF_CHANGE})


def _check(view: StatusView, result: JobResult, facts: Verification) -> WriteCheckRun:
    """The verification as a check on its commit."""
    sections = (verification_section(facts, view.job.task.base, result.commit, caps) for caps in _LEVELS)
    running = "The remaining tests are still running. " if result.rest_pending else ""
    return WriteCheckRun(
        name=CHECK,
        commit=result.commit,
        title=f"{facts.verdict.capitalize()}. {running}{meaning(facts)}"[:200],
        summary=next((text for text in sections if len(text) <= MAX_BODY), meaning(facts)),
        conclusion=None if result.rest_pending else _CONCLUSIONS[facts.verdict],
    )
