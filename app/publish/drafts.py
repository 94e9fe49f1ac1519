"""Drafts that were opened early, as the publisher finds them again: how each stands, and which commits are its own."""

import asyncio
from datetime import datetime, timedelta

from app.forge.errors import WaitUntil
from app.gitstore import GitStore
from app.jobs.roster import Commissioned, Roster
from app.publish.early import early_commit, early_key, early_recipe
from app.publish.intent import OpenDraftPullRequest, OpenEarlyDraft, TellDraft
from app.publish.intents import Intents, Standing
from app.publish.rules import Refused

NOT_YET = timedelta(seconds=2)
MOST_FORMER = 5
"""Jobs of the same issue whose drafts may still be open."""


def early_wish(where: Commissioned, wished: OpenEarlyDraft) -> OpenDraftPullRequest:
    """As any other draft, but for its commit."""
    words = wished.model_dump(exclude={"kind"})
    return OpenDraftPullRequest(**words, commit="", recipe=early_recipe(where.job, where.commission))


class Drafts:
    """What is opened early comes to an end before anything else is done to it: the same publisher or another waits."""

    def __init__(self, roster: Roster, intents: Intents) -> None:
        self._roster = roster
        self._intents = intents

    async def settled(self, job: str, now: datetime) -> Standing | None:
        """How the early draft of a job ended; None where none was ever wished for."""
        standing = await asyncio.to_thread(self._intents.standing, early_key(job))
        if standing is not None and standing.state in {"wanted", "claimed"}:
            raise WaitUntil("The draft is just being opened.", until=now + NOT_YET)
        return standing

    async def opened(self, where: Commissioned, wished: OpenDraftPullRequest, store: GitStore) -> OpenDraftPullRequest:
        """The draft with its commit, which is made here, from the job alone."""
        commit, *former = await asyncio.to_thread(self._commits, where, store)
        return wished.model_copy(update={"commit": commit, "replaces": tuple(former)})

    async def placed(
        self, where: Commissioned, wished: OpenDraftPullRequest, draft: Standing | None, store: GitStore
    ) -> OpenDraftPullRequest:
        """The verified change, in the place of the empty commit."""
        commits = await asyncio.to_thread(self._commits, where, store)
        branch = draft.receipt.branch if draft is not None and draft.receipt is not None else ""
        return wished.model_copy(update={"replaces": commits, "draft": branch})

    async def told(self, where: Commissioned, wished: TellDraft, draft: Standing | None, store: GitStore) -> TellDraft:
        """Where the draft is. Of one that never came to be nothing stays."""
        if draft is None or not where.commission.opens_early:
            raise Refused("No draft was opened early.")
        commit, *_ = await asyncio.to_thread(self._commits, where, store)
        branch = draft.receipt.branch if draft.receipt is not None else where.job.branch
        close = wished.close or (draft.receipt is None and where.row.final)
        return wished.model_copy(update={"branch": branch, "commit": commit, "close": close})

    def _commits(self, where: Commissioned, store: GitStore) -> tuple[str, ...]:
        """Empty commits of this job and of former ones of its issue, computed and not read: nobody can slip one in."""
        if where.commission.goal != "new_branch":
            return ()
        place = where.commission.place
        former = self._roster.at(place.repository, place.number, MOST_FORMER)
        here = [where, *(each for each in former if each.job.id != where.job.id and each.row.final)]
        return tuple(
            early_commit(store, each.job, each.commission)
            for each in here
            if each.commission.opens_early and store.keeps(each.job.task.base)
        )
