"""The publisher's loop, which claims, checks and carries out effects, and the isolation of each job's work in loops."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from app.core.errors import AgentFixError, UnforeseenError
from app.core.failpoints import failpoint
from app.core.job import PUBLISHED, JobResult, JobState
from app.core.task import IssueRef
from app.core.text import clip
from app.github.base import (
    BranchMoved,
    ForgeEffects,
    ForgeError,
    NeedsHumanAction,
    NewCheckRun,
    NoAccess,
    WorkflowsMoved,
)
from app.jobs import queue
from app.jobs.context import ThreadRef
from app.jobs.store import JobQueries, JobStore, JobWithContext
from app.jobs.tables import may_pass
from app.publish.body_edits import with_follow_up, with_note, with_parts, with_state
from app.publish.effects import (
    AddFollowUpSection,
    AddReaction,
    AnswerReviewThread,
    ChangeLabels,
    Effect,
    LabelAndRequestReview,
    OpenDraftPullRequest,
    PushCommits,
    Receipt,
    SendNotification,
    UpdateDraftStatus,
    UpdateStatusComment,
    UpdateVerdict,
    WriteCheckRun,
)
from app.publish.markdown import alert, code_span, inline, quoted
from app.publish.notifications import Notifier
from app.publish.outbox import EffectClaim, EffectStatus, Outbox, StaleEpoch
from app.publish.policy import PublishRefused, merge_note, signed_note
from app.publish.pull_request_text import PullRequestContent, follow_up_section, update_verdict
from app.repo.git_store import GitStore

logger = logging.getLogger(__name__)


async def carry_out(forge: ForgeEffects, job: str, effect: Effect) -> Receipt:  # noqa: C901, PLR0911  # one case a kind
    """Carry out an effect, whatever exists already; returns its receipt."""
    match effect:
        case OpenDraftPullRequest():
            return await _open_pull_request(forge, effect)
        case UpdateDraftStatus():
            edit = partial(with_state, section=effect.section)
            return Receipt(url=await forge.update_draft_status(effect.branch, effect.commit, edit, close=effect.close))
        case PushCommits():
            branch = await forge.advance_branch(effect.branch, effect.commit, effect.expected)
            return Receipt(url=forge.page, branch=branch, onto=effect.onto, signed=effect.signed)
        case LabelAndRequestReview():
            return await _label_and_request(forge, effect)
        case AddFollowUpSection():
            return Receipt(url=await forge.amend_pull_request(partial(with_follow_up, key=job, effect=effect)))
        case UpdateVerdict():
            texts = (effect.verification, *effect.shorter)
            edit = partial(with_parts, verdict=effect.banner, verification=texts)
            return Receipt(url=await forge.update_draft_status(effect.branch, "", edit, close=False))
        case UpdateStatusComment():
            return Receipt(url=await forge.ensure_comment(job, effect.body, effect.state))
        case ChangeLabels():
            await forge.ensure_labels(effect.add, effect.remove)
        case AddReaction():
            await forge.ensure_reaction(effect.target, effect.content)
        case WriteCheckRun():
            wanted = NewCheckRun(key=job, **effect.model_dump(exclude={"kind"}))
            return Receipt(url=await forge.ensure_check_run(wanted))
        case AnswerReviewThread():
            url = await forge.ensure_reply(effect.comment, f"{job}/{effect.comment}", effect.body)
            if effect.thread:
                await _resolve(forge, effect.thread)
            return Receipt(url=url)
    return Receipt()


async def _label_and_request(forge: ForgeEffects, effect: LabelAndRequestReview) -> Receipt:
    """Add labels and request reviews. If that is refused for good, the pull request itself says so."""
    try:
        return Receipt(url=await forge.ensure_labels_and_reviewers(effect.branch, effect.labels, effect.reviewers))
    except NeedsHumanAction as refusal:
        note = alert("WARNING", inline(f"{refusal.message} {refusal.hint}".strip()))
        await forge.update_draft_status(effect.branch, "", partial(with_note, note=note), close=False)
        raise


async def _resolve(forge: ForgeEffects, thread: str) -> None:
    """Resolve a thread; if that is refused, only log it, because the reply is there."""
    try:
        await forge.ensure_resolved(thread)
    except (NoAccess, NeedsHumanAction) as refusal:
        logger.warning("A review thread was answered but could not be resolved: %s", refusal.message)


async def _open_pull_request(forge: ForgeEffects, effect: OpenDraftPullRequest) -> Receipt:
    """Push the commit and open the draft for it. If that is refused after the push, the error has the link for it."""
    if effect.draft:  # the branch of the draft that was opened early
        branch = await forge.advance_branch(effect.draft, effect.commit, effect.replaces[0])
    elif effect.replaces:
        branch = await forge.replace_branch(effect.branch, effect.commit, effect.replaces)
    else:
        branch = await forge.ensure_branch(effect.branch, effect.commit)
    failpoint("branch.made")
    try:
        url = await forge.ensure_pull_request(effect.pull_request(branch))
    except ForgeError as error:
        error.branch, error.compare = branch, forge.comparison(effect.base, branch)
        raise
    return Receipt(url=url, branch=branch, onto=effect.onto, signed=effect.signed)


F = TypeVar("F", bound=ForgeEffects)
OpenForge = Callable[[IssueRef], Awaitable[F]]
Grant = Callable[[EffectClaim, F], Awaitable[Effect]]
"""The effect as it may be carried out. Raises if it may not (`app.publish.policy`)."""


class Publisher(Generic[F]):
    """Carries out effects, in parallel for several installations, one at a time for each.

    `owner` is unique to the process.
    """

    def __init__(
        self, outbox: Outbox, open_forge: OpenForge[F], grant: Grant[F], owner: str, notifier: Notifier | None = None
    ) -> None:
        self._outbox = outbox
        self._open_forge = open_forge
        self._grant = grant
        self._owner = owner
        self._notifier = notifier
        self._busy: set[int] = set()
        self._claiming = asyncio.Lock()
        self._unstored: list[Callable[[], object]] = []

    async def publish_next(self, kinds: Collection[str] = ()) -> EffectClaim | None:
        """Carry out the next due effect, of these kinds if any are given; None if there is none.

        Failures are recorded, not raised. Concurrent calls take effects of different installations.
        Raises SQLAlchemyError; if it was an outcome that could not be stored for now, the next call stores it first.
        """
        async with self._claiming:
            while self._unstored:
                await self._store(self._unstored.pop(0))
            claim = await asyncio.to_thread(self._outbox.claim, self._owner, frozenset(self._busy), kinds)
            if claim is None:
                return None
            self._busy.add(claim.issue_ref.installation)
        try:
            await self._carry_out(claim)
        finally:
            self._busy.discard(claim.issue_ref.installation)
        return claim

    async def _carry_out(self, claim: EffectClaim) -> None:
        (receipt,) = await asyncio.gather(self._receipt(claim), return_exceptions=True)
        if receipt is None:
            return
        if isinstance(receipt, BaseException):
            await self._store(partial(self._outbox.failed, claim, _effect_error(claim, receipt)))
            return
        failpoint("effect.made")
        await self._store(partial(self._outbox.done, claim, receipt))
        failpoint("receipt.written")

    async def _receipt(self, claim: EffectClaim) -> Receipt | None:
        """None if the effect was changed instead, and is due again."""
        if isinstance(claim.effect, SendNotification):
            return await self._notify(claim, claim.effect)
        forge = await self._open_forge(claim.issue_ref)
        granted = await self._grant(claim, forge)
        try:
            return await carry_out(forge, claim.job, granted)
        except WorkflowsMoved:
            if not await self._amend_with_newest_base(claim, forge, granted):
                raise
            return None

    async def _store(self, outcome: Callable[[], object]) -> None:
        """Store an outcome. One that the database does not take for now is kept: its lease is long."""
        try:
            await asyncio.to_thread(outcome)
        except SQLAlchemyError as error:
            if may_pass(error):
                self._unstored.append(outcome)
            raise

    async def _notify(self, claim: EffectClaim, effect: SendNotification) -> Receipt:
        if self._notifier is None:
            raise AgentFixError("Notifications have been turned off.")
        return await self._notifier.deliver(claim.job, claim.key, effect)

    async def _amend_with_newest_base(self, claim: EffectClaim, forge: F, granted: Effect) -> bool:
        """Change the effect in the outbox, so that the newest commit of its base branch is merged first.

        False if it has one already, or the branch has none.
        """
        requested, kinds = claim.effect, OpenDraftPullRequest | PushCommits
        if not isinstance(requested, kinds) or not isinstance(granted, kinds) or requested.onto:
            return False
        tip = await forge.tip(granted.base)
        if not tip:
            return False
        await self._store(partial(self._outbox.amend, claim, requested.model_copy(update={"onto": tip})))
        failpoint("effect.amended")
        return True


def _effect_error(claim: EffectClaim, error: BaseException) -> AgentFixError:
    """The error as it is stored. Raises it if it says nothing about the effect: the database is away, or a stop."""
    if isinstance(error, AgentFixError):
        return error
    if isinstance(error, SQLAlchemyError) or not isinstance(error, Exception):
        raise error
    logger.error("%s failed", claim.key, exc_info=error)
    return UnforeseenError.of(error)


PAUSE = 60.0
"""Seconds to skip a job after it failed."""


class IsolatedLoop:
    """Does one kind of work for many jobs. `activity` is its name in the log."""

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._left_alone: dict[str, float] = {}

    async def run_each(self, jobs: Iterable[JobWithContext], work: Callable[[JobWithContext], bool]) -> int:
        """Run the work of each job in a thread, one after the other; returns how many jobs had something to do."""
        done = 0
        for job in jobs:
            if self._left_alone.get(job.job.id, 0.0) > monotonic():
                continue
            (outcome,) = await asyncio.gather(asyncio.to_thread(work, job), return_exceptions=True)
            if isinstance(outcome, Exception):
                self._left_alone[job.job.id] = monotonic() + PAUSE
                logger.error("%s failed for job %s", self._activity, job.job.id, exc_info=outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._left_alone.pop(job.job.id, None)
                done += outcome
        return done


MAX_THREADS = 30
STOPPED = "It was stopped before anything was published."
STOPPED_AFTER_PUSH = "It was stopped after its branch was pushed, before its pull request was opened."
GIVEN_UP_REST = "Their process ended too often, or their sandbox was lost."


@dataclass(frozen=True, slots=True)
class JobFinalizer:
    """Finalizes jobs that were handed over, from rows alone, so that it can be repeated after any crash."""

    store: JobStore
    job_queries: JobQueries
    outbox: Outbox
    mirror: Callable[[int], GitStore]
    _: KW_ONLY
    forget_lessons: Callable[[int, str], int] = lambda _repository, _job: 0
    """Deletes the lessons of a job."""
    stop_reason: Callable[[str], str] = lambda _job: queue.STOPPED
    """Says who stopped a job."""
    isolated: IsolatedLoop = field(default_factory=lambda: IsolatedLoop("finishing it"))

    async def finalize(self) -> int:
        """Give every job that can have one its final state, and publish ended rests of suites; returns how many."""
        waiting = await asyncio.to_thread(self.job_queries.handed_over_jobs)
        ended = await asyncio.to_thread(self.job_queries.ended_rests)
        done = await self.isolated.run_each(waiting, self._finalize)
        return done + await self.isolated.run_each(ended, self._publish_rest)

    def _publish_rest(self, each: JobWithContext) -> bool:
        """Request the effects that show the result of the remaining tests, or why they were not finished."""
        result = JobResult.model_validate(each.row.result)
        if each.row.stop_requested:
            result = result.with_rest_state("stopped", self.stop_reason(each.job.id))
        else:
            failed = result.rest.reason if result.rest else ""
            result = result.with_rest_state("given_up", failed or GIVEN_UP_REST)
        effects: tuple[Effect, ...] = ()  # the same texts again, with the rest of the suite and the verdict
        broken = result.verification is not None and result.verification.verdict == "broken"
        number = int(result.url.rpartition("/")[2])
        newest = self.job_queries.opened(each.job_context.issue_ref.repository, number)
        if newest is not None and newest.job.id != each.job.id and not broken:
            pass  # the verdict of a newer commit stands there
        elif result.verification is not None and each.job_context.publish_target != "same_branch":
            effects = (update_verdict(PullRequestContent(each.job, result, result.verification)),)
        elif section := _follow_up_section(each, result):
            effects = (section,)
        if not self._add(each, effects):
            return False
        failpoint("rest.publishing")
        if broken:
            self.forget_lessons(each.job_context.issue_ref.repository, each.job.id)
        self.job_queries.published_rest(each.job.id, result.model_dump(mode="json"))
        return True

    def _add(self, each: JobWithContext, effects: Iterable[Effect]) -> bool:
        """Add the effects; False if another process owns the job again."""
        try:
            for effect in effects:
                self.outbox.add(each.job.id, each.row.epoch, each.job_context.issue_ref, effect)
        except StaleEpoch:
            return False
        return True

    def _finalize(self, each: JobWithContext) -> bool:
        result = self._final_result(each)
        if result is None:
            return False
        published = result.exit_status in PUBLISHED
        if published and not self._add(each, tuple(self._effects(each, result))):
            return False
        failpoint("job.finishing")
        if not published:
            self.forget_lessons(each.job_context.issue_ref.repository, each.job.id)
        self.store.finish(
            each.job.id,
            result.exit_status,
            result.reason,
            result.model_dump(mode="json"),
            waiting_for="rest" if published and result.rest_pending else "",
        )
        failpoint("job.finished")
        return True

    def _final_result(self, each: JobWithContext) -> JobResult | None:
        """None while the branch is still being published."""
        branch = self._branch(each.job.id)
        if branch is None:
            return _unpublished(each, PublishRefused("The job was handed over without a branch."))
        if each.row.stop_requested and branch.state == "wanted":
            self.outbox.withdraw(each.job.id)
            branch = self._branch(each.job.id) or branch
        match branch.state:
            case "done":
                result, receipt = JobResult.model_validate(each.row.result), branch.receipt or Receipt()
                base_ref = each.job_context.base_ref
                commit = receipt.signed or result.commit
                notes = [merge_note(base_ref, receipt.onto, commit)] if receipt.onto else []
                notes += [signed_note(commit, result.commit)] if receipt.signed else []
                pushed = receipt.branch or result.branch or each.job.branch
                update = {"url": receipt.url, "branch": pushed, "commit": commit, "compare": "", "unpublished": False}
                update["exit_status"] = "pr_updated" if isinstance(branch.effect, PushCommits) else "pr_opened"
                return result.model_copy(update={**update, "notes": (*result.notes, *notes)})
            case "failed":
                return _unpublished(each, branch.error or PublishRefused(branch.reason), branch.pushed)
            case "withdrawn":
                reason = STOPPED_AFTER_PUSH if branch.pushed else STOPPED
                return _unpublished(each, PublishRefused(reason, state="stopped"), branch.pushed)
        return None

    def _branch(self, job: str) -> EffectStatus | None:
        found = [each for each in self.outbox.of(job) if isinstance(each.effect, OpenDraftPullRequest | PushCommits)]
        return found[-1] if found else None

    def _effects(self, each: JobWithContext, result: JobResult) -> Iterator[Effect]:
        """What follows once the change is published."""
        job_context, config = each.job_context, each.job_context.config
        if job_context.publish_target != "same_branch" and (config.labels or config.reviewers):
            yield LabelAndRequestReview(branch=result.branch, labels=config.labels, reviewers=config.reviewers)
        for thread in job_context.threads[:MAX_THREADS]:
            yield self._answer(each, result, thread)
        if section := _follow_up_section(each, result):
            yield section

    def _answer(self, each: JobWithContext, result: JobResult, thread: ThreadRef) -> AnswerReviewThread:
        if each.job_context.publish_target != "same_branch":
            return AnswerReviewThread(comment=thread.comment, body=sibling_answer(result.url))
        mirror = self.mirror(each.job_context.issue_ref.repository)
        diff = mirror.diff(each.job.task.base, result.commit, paths=[thread.path], context=0) if thread.path else ""
        touched = touches(diff, thread)
        body = thread_answer(thread, commit=result.commit, touched=touched, changed=bool(diff), summary=result.summary)
        return AnswerReviewThread(comment=thread.comment, body=body, thread=thread.thread if touched else "")


def _unpublished(each: JobWithContext, error: AgentFixError, pushed: Mapping[str, str] | None = None) -> JobResult:
    """The result of a job that has no pull request, with the reason; its bytes stay among the job's blobs.

    `pushed`: the `branch` that was pushed before, and the address to `compare` it at.
    """
    state: JobState = "error"
    if isinstance(error, PublishRefused):
        state = error.state
    elif isinstance(error, NoAccess):
        state = "no_access"
    result = JobResult.model_validate(each.row.result) if each.row.result else JobResult(exit_status=state)
    update = {"exit_status": state, "reason": error.message, "hint": error.hint, "error_code": error.code}
    update |= {"branch": "", "compare": "", "unpublished": not isinstance(error, PublishRefused | BranchMoved)}
    return result.model_copy(update={**update, **(pushed or {})})


def _follow_up_section(each: JobWithContext, result: JobResult) -> AddFollowUpSection | None:
    """The section about this change in our own pull request; other people's pull requests are not edited."""
    job_context = each.job_context
    if not job_context.continues_ours(each.job.branch) or result.verification is None:
        return None
    facts = PullRequestContent(each.job, result, result.verification)
    return follow_up_section(facts, job_context.login)


MAX_DISTANCE = 5
"""Lines around a thread within which a change addresses it."""
_HUNK = re.compile(r"(?m)^@@ -(?P<start>\d+)(?:,(?P<count>\d+))? \+")


def touches(diff: str, thread: ThreadRef) -> bool:
    """True if a file's diff (without context) changes the thread's lines; False for a thread without lines."""
    if thread.end is None:
        return False
    first, last = (thread.start or thread.end) - MAX_DISTANCE, thread.end + MAX_DISTANCE
    for hunk in _HUNK.finditer(diff):
        start, count = int(hunk["start"]), int(hunk["count"] or 1)
        if start <= last and start + max(count, 1) - 1 >= first:
            return True
    return False


def thread_answer(thread: ThreadRef, *, commit: str, touched: bool, changed: bool, summary: str) -> str:
    """The reply in a thread. The full commit id becomes a link on GitHub."""
    where = code_span(thread.path) or "this file"
    if touched:
        head = f"Changed in {commit}."
    elif changed:
        head = (
            f"{commit} changes {where}, but nothing near these lines; please decide whether that resolves the thread."
        )
    else:
        head = f"{commit} does not change {where}; please decide whether that resolves the thread."
    summary_text = quoted(clip(summary, 1_500)) if summary.strip() else ""
    return f"{head}\n\n{summary_text}" if summary_text else head


def sibling_answer(url: str) -> str:
    """The reply in a thread of a pull request that we cannot push to."""
    return f"agent-fix cannot push to this branch. The change is in a separate pull request: {url}"
