"""A job whose work was handed over gets its final state: opened, brought up to date, or why not, with the work kept."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from app.commission import ThreadRef
from app.errors import AgentFixError
from app.failpoints import failpoint
from app.forge.errors import ForgeError, NoAccess
from app.job import JobState
from app.jobs.roster import Commissioned, Roster
from app.jobs.store import JobStore
from app.publish.apart import Apart
from app.publish.comments import follow_up_body
from app.publish.facts import facts_of
from app.publish.intent import (
    AnswerThread,
    DressPullRequest,
    Intent,
    OpenDraftPullRequest,
    PushCommits,
    Receipt,
    TellFollowUp,
)
from app.publish.intents import Intents, StaleEpoch, Standing
from app.publish.rules import Refused
from app.publish.threads import sibling_answer, thread_answer, touches
from app.result import Result

MOST_THREADS = 30
PUBLISHED: Final[frozenset[JobState]] = frozenset({"pr_opened", "pr_updated"})
STOPPED = "It was stopped before anything was published."


class Diffs(Protocol):
    """Of the trusted repository (`app.gitstore`)."""

    def diff(self, base: str, head: str, *, paths: list[str] | None = None, context: int = 3) -> str: ...


@dataclass(frozen=True, slots=True)
class Settled:
    """How a job ends, and what else is wished for because of it."""

    result: Result
    wishes: tuple[Intent, ...] = ()


class Settling:
    """Looks after jobs that were handed over; level-triggered, and the same after any crash."""

    def __init__(
        self,
        store: JobStore,
        roster: Roster,
        intents: Intents,
        mirror: Callable[[int], Diffs],
        *,
        unlearn: Callable[[int, str], int] = lambda _repository, _job: 0,
    ) -> None:
        """`unlearn` drops what a job taught other jobs of its repository."""
        self._store = store
        self._roster = roster
        self._intents = intents
        self._mirror = mirror
        self._unlearn = unlearn
        self._apart = Apart("settling it")

    async def settle(self) -> int:
        """Give every job that can have one its final state; returns how many."""
        waiting = await asyncio.to_thread(self._roster.publishing)
        return await self._apart.each(waiting, self._settle)

    def _settle(self, each: Commissioned) -> bool:
        settled = self._settled(each)
        if settled is None:
            return False
        try:
            for wish in settled.wishes:
                self._intents.want(each.job.id, each.row.epoch, each.commission.place, wish)
        except StaleEpoch:  # another process has it again
            return False
        failpoint("settling.wished")
        result = settled.result
        if result.exit_status not in PUBLISHED:
            self._unlearn(each.commission.place.repository, each.job.id)
        self._store.finish(each.job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
        failpoint("settling.settled")
        return True

    def _settled(self, each: Commissioned) -> Settled | None:
        """None while the branch is still under way."""
        branch = self._branch(each.job.id)
        if branch is None:
            return _ended(each, Refused("The work was handed over without a branch."))
        if each.row.stop_requested and branch.state == "wanted":
            self._intents.withdraw(each.job.id)
            branch = self._branch(each.job.id)
        match branch.state if branch else "withdrawn":
            case "done":
                receipt = branch.receipt if branch and branch.receipt else Receipt()
                return self._published(each, receipt)
            case "failed":
                error = branch.error if branch else None
                return _ended(each, error or Refused(branch.reason if branch else ""))
            case "withdrawn":
                return _ended(each, Refused(STOPPED, state="stopped"))
        return None

    def _branch(self, job: str) -> Standing | None:
        found = [each for each in self._intents.of(job) if isinstance(each.intent, OpenDraftPullRequest | PushCommits)]
        return found[-1] if found else None

    def _published(self, each: Commissioned, receipt: Receipt) -> Settled:
        result = Result.model_validate(each.row.result)
        update = {"url": receipt.url, "branch": receipt.branch or result.branch}
        result = result.model_copy(update=update)
        return Settled(result, tuple(self._wishes(each, result)))

    def _wishes(self, each: Commissioned, result: Result) -> Iterator[Intent]:
        commission, config = each.commission, each.commission.config
        if commission.goal != "same_branch" and (config.labels or config.reviewers):
            yield DressPullRequest(branch=result.branch, labels=config.labels, reviewers=config.reviewers)
        for thread in commission.threads[:MOST_THREADS]:
            yield self._answer(each, result, thread)
        if commission.goal == "same_branch" and _is_ours(each) and result.verification is not None:
            facts = facts_of(each.job, result, result.verification)
            yield TellFollowUp(section=follow_up_body(facts, commission.login))

    def _answer(self, each: Commissioned, result: Result, thread: ThreadRef) -> AnswerThread:
        if each.commission.goal != "same_branch":
            return AnswerThread(comment=thread.comment, body=sibling_answer(result.url))
        mirror = self._mirror(each.commission.place.repository)
        diff = mirror.diff(each.job.task.base, result.commit, paths=[thread.path], context=0) if thread.path else ""
        touched = touches(diff, thread)
        body = thread_answer(thread, commit=result.commit, touched=touched, changed=bool(diff), summary=result.summary)
        return AnswerThread(comment=thread.comment, body=body, thread=thread.thread if touched else "")


def _ended(each: Commissioned, error: AgentFixError) -> Settled:
    """It was not published; the reason is the forge's or our own, and the bytes stay among the job's blobs."""
    state: JobState = "error"
    if isinstance(error, Refused):
        state = error.state
    elif isinstance(error, NoAccess):
        state = "no_access"
    branch, compare = (error.branch, error.compare) if isinstance(error, ForgeError) else ("", "")
    result = Result.model_validate(each.row.result) if each.row.result else Result(exit_status=state)
    update = {"exit_status": state, "reason": error.message, "hint": error.hint, "error_code": error.code}
    return Settled(result.model_copy(update={**update, "branch": branch, "compare": compare}))


def _is_ours(each: Commissioned) -> bool:
    """Whether the branch is below our own prefix: the text of anybody else's pull request is not touched."""
    pattern = each.commission.config.branch_for(slug="x", number=1)
    return each.job.branch.partition("/")[0] == pattern.partition("/")[0]
