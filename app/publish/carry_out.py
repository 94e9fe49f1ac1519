"""Carries out an effect on a forge. Each looks first, so that an interrupted one can simply be repeated."""

import logging
from functools import partial

from app.core.failpoints import failpoint
from app.github.base import ForgeEffects, NewCheckRun
from app.github.errors import ForgeError, NeedsHumanAction, NoAccess
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
    UpdateDraftStatus,
    UpdateStatusComment,
    UpdateVerdict,
    WriteCheckRun,
)
from app.publish.follow_up import with_parts, with_section, with_state

logger = logging.getLogger(__name__)


async def carry_out(forge: ForgeEffects, job: str, effect: Effect) -> Receipt:  # noqa: C901, PLR0911  # one case a kind
    """Carry out an effect, whatever exists already; returns its receipt."""
    match effect:
        case OpenDraftPullRequest():
            return await _opened(forge, effect)
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
            edit = partial(with_parts, verdict=effect.banner, verification=effect.verification)
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
            await _resolve(forge, effect.thread)
            return Receipt(url=url)
    return Receipt()


async def _resolve(forge: ForgeEffects, thread: str) -> None:
    """Resolve a thread; if that is refused, only log it, because the reply is there."""
    try:
        if thread:
            await forge.ensure_resolved(thread)
    except (NoAccess, NeedsHumanAction) as refusal:
        logger.warning("A review thread was answered but could not be resolved: %s", refusal.message)


async def _opened(forge: ForgeEffects, effect: OpenDraftPullRequest) -> Receipt:
    """Open a pull request. If it is refused after the push, the error has the link that opens it."""
    branch = await _made(forge, effect)
    failpoint("branch.made")
    try:
        url = await forge.ensure_pull_request(effect.pull_request(branch))
        return Receipt(url=url, branch=branch, onto=effect.onto)
    except ForgeError as error:
        error.branch, error.compare = branch, forge.comparison(effect.base, branch)
        raise


async def from_newest_base(forge: ForgeEffects, requested: Effect, granted: Effect) -> Effect | None:
    """The requested effect with the newest commit of its base branch to merge first; None if it has one already."""
    kinds = OpenDraftPullRequest | PushCommits
    if not isinstance(requested, kinds) or not isinstance(granted, kinds) or requested.onto:
        return None
    tip = await forge.tip(granted.base)
    return requested.model_copy(update={"onto": tip}) if tip else None


async def _made(forge: ForgeEffects, effect: OpenDraftPullRequest) -> str:
    """Push the commit to a new branch, or to that of the draft that was opened early; returns the branch."""
    if effect.draft:
        return await forge.advance_branch(effect.draft, effect.commit, effect.replaces[0])
    if effect.replaces:
        return await forge.replace_branch(effect.branch, effect.commit, effect.replaces)
    return await forge.ensure_branch(effect.branch, effect.commit)
