"""From an intent to its effect on a forge: each looks first, so that one that was interrupted is simply done again."""

import logging
from functools import partial

from app.failpoints import failpoint
from app.forge.base import CheckRun, Conversation
from app.forge.errors import ForgeError, NeedsHuman, NoAccess
from app.publish.follow_up import with_section, with_state
from app.publish.intent import (
    AnswerThread,
    DressPullRequest,
    Fail,
    Intent,
    Label,
    OpenDraftPullRequest,
    PushCommits,
    React,
    Receipt,
    StatusComment,
    TellDraft,
    TellFollowUp,
    WriteCheck,
)

logger = logging.getLogger(__name__)


async def carry_out(forge: Conversation, job: str, intent: Intent) -> Receipt:  # noqa: C901, PLR0911  # one case a kind
    """Make it so, whatever is there already; returns where it is to be seen."""
    match intent:
        case OpenDraftPullRequest():
            return await _opened(forge, intent)
        case TellDraft():
            told = partial(with_state, section=intent.section)
            return Receipt(url=await forge.tell_draft(intent.branch, intent.commit, told, close=intent.close))
        case PushCommits():
            branch = await forge.advance_branch(intent.branch, intent.commit, intent.expected)
            return Receipt(url=forge.page, branch=branch)
        case DressPullRequest():
            return Receipt(url=await forge.ensure_dress(intent.branch, intent.labels, intent.reviewers))
        case TellFollowUp():
            return Receipt(url=await forge.amend_pull_request(partial(with_section, key=job, section=intent.section)))
        case StatusComment():
            return Receipt(url=await forge.ensure_comment(job, intent.body))
        case Label():
            await forge.ensure_labels(intent.add, intent.remove)
        case React():
            await forge.ensure_reaction(intent.target, intent.content)
        case WriteCheck():
            wanted = CheckRun(key=job, **intent.model_dump(exclude={"kind"}))
            return Receipt(url=await forge.ensure_check_run(wanted))
        case AnswerThread():
            url = await forge.ensure_reply(intent.comment, f"{job}/{intent.comment}", intent.body)
            await _resolve(forge, intent.thread)
            return Receipt(url=url)
        case Fail():
            url = await forge.ensure_comment(f"{job}/end", intent.body)
            await forge.ensure_labels(intent.add, intent.remove)
            return Receipt(url=url)
    return Receipt()


async def _resolve(forge: Conversation, thread: str) -> None:
    """Where that is refused, the answer stands and the thread stays open for people."""
    try:
        if thread:
            await forge.ensure_resolved(thread)
    except (NoAccess, NeedsHuman) as refusal:
        logger.warning("A review thread was answered and stays open: %s", refusal.message)


async def _opened(forge: Conversation, intent: OpenDraftPullRequest) -> Receipt:
    """Where the branch was pushed and its pull request refused, the error says where people can open it."""
    branch = await _made(forge, intent)
    failpoint("branch.made")
    try:
        return Receipt(url=await forge.ensure_pull_request(intent.pull_request(branch)), branch=branch)
    except ForgeError as error:
        error.branch, error.compare = branch, forge.comparison(intent.base, branch)
        raise


async def _made(forge: Conversation, intent: OpenDraftPullRequest) -> str:
    """The branch at its commit: a new one, or the one of the draft that was opened early for it."""
    if intent.draft:
        return await forge.advance_branch(intent.draft, intent.commit, intent.replaces[0])
    if intent.replaces:
        return await forge.replace_branch(intent.branch, intent.commit, intent.replaces)
    return await forge.ensure_branch(intent.branch, intent.commit)
