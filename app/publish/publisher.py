"""The publisher's loop, which claims, checks and carries out effects, and the isolation of each job's work in loops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from app.core.errors import AgentFixError
from app.core.failpoints import failpoint
from app.core.task import IssueRef
from app.github.base import ForgeEffects, NewCheckRun
from app.github.errors import ForgeError, NeedsHumanAction, NoAccess, WorkflowsMoved
from app.jobs.job_queries import JobWithContext
from app.publish.body_edits import with_parts, with_section, with_state
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
from app.publish.notifications import Notifier
from app.publish.outbox import EffectClaim, Outbox

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
            return Receipt(url=forge.page, branch=branch, onto=effect.onto)
        case LabelAndRequestReview():
            return Receipt(url=await forge.ensure_labels_and_reviewers(effect.branch, effect.labels, effect.reviewers))
        case AddFollowUpSection():
            return Receipt(url=await forge.amend_pull_request(partial(with_section, key=job, section=effect.section)))
        case UpdateVerdict():
            texts = (effect.verification, *effect.shorter)
            edit = partial(with_parts, verdict=effect.banner, verification=texts)
            return Receipt(url=await forge.update_draft_status(effect.branch, "", edit, close=False))
        case UpdateStatusComment():
            return Receipt(url=await forge.ensure_comment(job, effect.body))
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
    return Receipt(url=url, branch=branch, onto=effect.onto)


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

    async def publish_next(self, kinds: Collection[str] = ()) -> EffectClaim | None:
        """Carry out the next due effect, of these kinds if any are given; None if there is none.

        Failures are recorded, not raised. Concurrent calls take effects of different installations.
        """
        async with self._claiming:
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
        try:
            if isinstance(claim.effect, SendNotification):
                receipt = await self._notify(claim, claim.effect)
            else:
                forge = await self._open_forge(claim.issue_ref)
                granted = await self._grant(claim, forge)
                try:
                    receipt = await carry_out(forge, claim.job, granted)
                except WorkflowsMoved:
                    if not await self._amend_with_newest_base(claim, forge, granted):
                        raise
                    return
        except AgentFixError as error:
            await asyncio.to_thread(self._outbox.failed, claim, error)
            return
        failpoint("effect.made")
        await asyncio.to_thread(self._outbox.done, claim, receipt)
        failpoint("receipt.written")

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
        await asyncio.to_thread(self._outbox.amend, claim, requested.model_copy(update={"onto": tip}))
        failpoint("effect.amended")
        return True


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
