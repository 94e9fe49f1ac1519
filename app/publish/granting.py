"""Right before a branch is made: who asked is asked about again, the commit made again from its bytes, and looked at.

wish ─► our own rules ─► the forge's facts now ─► commit rebuilt, same id or never ─► gates on its tree ─► push
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pydantic import ValidationError

from app.commission import OWN_INITIATIVE
from app.config import SOURCE, RepoConfig, parse_config
from app.errors import ConfigError
from app.failpoints import failpoint
from app.forge.base import Conversation
from app.forge.errors import NoAccess, WaitUntil
from app.forge.facts import Actor, IssueFacts, PullRequestFacts, RepositoryFacts
from app.gitstore import GitError, GitStore, UnsafePathError
from app.job import Blobs
from app.jobs.roster import Commissioned
from app.patch import Patch
from app.publish.drafts import NOT_YET, Drafts, early_wish
from app.publish.early import AT_WORK
from app.publish.house_style import dressed
from app.publish.intent import Intent, OpenDraftPullRequest, OpenEarlyDraft, PushCommits, TellDraft
from app.publish.intents import Claim
from app.publish.quarantine import Quarantine
from app.publish.rules import (
    Now,
    Refused,
    Wish,
    refusal_now,
    refusal_of_change,
    refusal_of_early,
    refusal_of_wish,
)
from app.verify.gates.candidate import Candidate


class Reads(Protocol):
    """What is asked of the forge (`app.forge.github.reads`)."""

    async def installation(self) -> int | None: ...

    async def repository(self) -> RepositoryFacts: ...

    async def actor(self, user: int) -> Actor: ...

    async def issue(self, number: int) -> IssueFacts | None: ...

    async def pull_request(self, number: int) -> PullRequestFacts | None: ...

    async def file(self, path: str, ref: str = "") -> bytes | None: ...


class Stock(Protocol):
    """The trusted repository, and how commits come into it (`app.forge.github.branches`)."""

    @property
    def store(self) -> GitStore: ...

    async def bring(self, commit: str) -> None: ...


class Ground(Conversation, Protocol):
    """A conversation together with what is looked at before anything is published there."""

    @property
    def reads(self) -> Reads: ...

    @property
    def branches(self) -> Stock: ...


class Roster(Protocol):
    """Jobs with their commissions (`app.jobs.roster`)."""

    def get(self, job_id: str) -> Commissioned | None: ...


class Granting:
    """Says of each intent whether it may be carried out, and how it is worded then."""

    def __init__(
        self,
        roster: Roster,
        blobs: Callable[[str], Blobs],
        quarantine: Quarantine,
        now: Callable[[], datetime],
        drafts: Drafts,
        *,
        allowed_apps: frozenset[int] = frozenset(),
    ) -> None:
        self._roster = roster
        self._blobs = blobs
        self._quarantine = quarantine
        self._now = now
        self._drafts = drafts
        self._allowed_apps = allowed_apps

    async def grant(self, claim: Claim, forge: Ground) -> Intent:
        """The intent to carry out. Raises Refused, Quarantined, or a forge's error."""
        intent = await asyncio.to_thread(self._quarantine.checked, claim.job, claim.intent)
        match intent:
            case OpenEarlyDraft():
                return await self._early(claim, intent, forge)
            case TellDraft():
                return await self._told(claim, intent, forge)
            case OpenDraftPullRequest() | PushCommits():
                return await self._change(claim, intent, forge)
        return intent

    async def _change(self, claim: Claim, intent: OpenDraftPullRequest | PushCommits, forge: Ground) -> Intent:
        """The verified change."""
        wish = await asyncio.to_thread(self._wish, claim, intent)
        _raise(refusal_of_wish(wish))
        if not wish.where.handed_over:
            raise WaitUntil("The job is not handed over yet.", until=self._now() + NOT_YET)
        draft = await self._drafts.settled(claim.job, self._now())
        now = await self._ask(wish, forge.reads)
        _raise(refusal_now(wish, now))
        await self._stock(wish, forge.branches)
        tree = forge.branches.store.tree(wish.patch.base)
        _raise(await asyncio.to_thread(refusal_of_change, wish, Candidate(tree, wish.patch), now.config))
        if isinstance(intent, PushCommits):
            return intent
        worded = await asyncio.to_thread(dressed, intent, tree, wish.where)
        return await self._drafts.placed(wish.where, worded, draft, forge.branches.store)

    async def _early(self, claim: Claim, intent: OpenEarlyDraft, forge: Ground) -> Intent:
        """A draft before there is a change: the same questions, of an empty commit."""
        where = self._where(claim)
        wish = Wish(where, claim.place, early_wish(where, intent), Patch(base=where.job.task.base))
        _raise(refusal_of_early(wish))
        if where.row.state not in AT_WORK:
            raise WaitUntil("The work has not begun yet.", until=self._now() + NOT_YET)
        _raise(refusal_now(wish, await self._ask(wish, forge.reads)))
        await _have(forge.branches, where.job.task.base)
        return await self._drafts.opened(where, early_wish(where, intent), forge.branches.store)

    async def _told(self, claim: Claim, intent: TellDraft, forge: Ground) -> Intent:
        where = self._where(claim)
        draft = await self._drafts.settled(claim.job, self._now())
        await _have(forge.branches, where.job.task.base)
        return await self._drafts.told(where, intent, draft, forge.branches.store)

    def _where(self, claim: Claim) -> Commissioned:
        where = self._roster.get(claim.job)
        if where is None:
            raise Refused(f"There is no job {claim.job}.")
        return where

    def _wish(self, claim: Claim, intent: OpenDraftPullRequest | PushCommits) -> Wish:
        where = self._where(claim)
        try:
            patch = Patch.model_validate_json(self._blobs(claim.job).get(intent.recipe.patch))
        except (KeyError, ValidationError):
            raise Refused(
                "The bytes of the change are not there any more.", hint="`/agent retry` begins anew."
            ) from None
        self._quarantine.refuse_patch(claim.job, patch)
        return Wish(where, claim.place, intent, patch)

    async def _ask(self, wish: Wish, reads: Reads) -> Now:
        """The fewest questions that the rules can be answered from."""
        number, commission, origin = wish.place.number, wish.where.commission, wish.where.job.task.origin
        repository = await reads.repository()
        by_itself = commission.aim in OWN_INITIATIVE and not commission.login
        if origin is None:
            raise Refused("Nobody asked for this on a forge.")
        return Now(
            installation=await reads.installation(),
            repository=repository,
            asker=None if by_itself else await _asker(reads, origin.actor),
            issue=await reads.issue(number),
            pull=await reads.pull_request(number) if origin.is_pull_request else None,
            config=await _config(reads, commission.config),
            bots_may_ask=bool(self._allowed_apps),
        )

    async def _stock(self, wish: Wish, branches: Stock) -> None:
        """Have the very commit that was verified in the trusted repository, made from its bytes (I9)."""
        await _have(branches, wish.patch.base, *wish.intent.recipe.parents)
        try:
            made = await asyncio.to_thread(_rebuilt, branches.store, wish)
        except (GitError, UnsafePathError) as error:
            raise Refused(f"The commit cannot be made again: {error}") from None
        failpoint("commit.rebuilt")
        if made != wish.intent.commit:
            raise Refused("The commit is not what was verified; nothing was pushed.")


async def _have(branches: Stock, *commits: str) -> None:
    for needed in commits:
        if not await asyncio.to_thread(_has, branches.store, needed):
            await branches.bring(needed)


def _rebuilt(store: GitStore, wish: Wish) -> str:
    recipe = wish.intent.recipe
    return store.commit(
        wish.patch, message=recipe.message, author=recipe.author, date=recipe.date, parents=recipe.parents
    )


def _has(store: GitStore, commit: str) -> bool:
    store.ensure()
    return store.keeps(commit)


async def _asker(reads: Reads, user: int) -> Actor:
    """Who asked; an account that is gone may nothing."""
    try:
        return await reads.actor(user)
    except NoAccess:
        raise Refused("Who asked for this has no account any more.", state="no_access") from None


async def _config(reads: Reads, admitted: RepoConfig) -> RepoConfig:
    """What the default branch says now: it may protect more, and let fewer people ask. A broken one changes nothing."""
    text = await reads.file(SOURCE)
    if text is None:
        return admitted
    try:
        newest = parse_config(text)
    except ConfigError:
        return admitted
    protected = (*admitted.protected_paths, *newest.protected_paths)
    actors = newest.allowed_actors or admitted.allowed_actors
    return admitted.model_copy(update={"protected_paths": protected, "allowed_actors": actors})


def _raise(refused: Refused | None) -> None:
    if refused is not None:
        raise refused
