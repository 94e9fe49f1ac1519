"""Checks right before a branch is pushed (the requester's rights, our rules, the rebuilt commit), and merges the base.

effect ─► our own rules ─► the forge's facts now ─► commit rebuilt, same id or never ─► gates on its tree ─► push

The verified commit keeps its id and becomes the merge's first parent. The merge is a function of the two commits and
the recipe, so every retry builds the same one. Nothing is executed on the merge, and the pull request says so.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from pydantic import ValidationError

from app.config.repository import NO_DEFAULTS, SOURCE, OperatorDefaults, RepoConfig, parse_config
from app.core.errors import ConfigError
from app.core.failpoints import failpoint
from app.core.job import Blobs
from app.core.patch import Patch
from app.core.tree import TreeEntry
from app.github.base import ForgeEffects
from app.github.branches import BranchesApi
from app.github.errors import NoAccess, RateLimited
from app.github.reader import RepositoryReader
from app.jobs.job_queries import JobQueries, JobWithContext
from app.publish.body_edits import insert_note, with_template
from app.publish.early_draft import AT_WORK, early_commits, early_key, early_recipe
from app.publish.effects import (
    Effect,
    OpenDraftPullRequest,
    OpenEarlyDraft,
    PushCommits,
    UpdateDraftStatus,
    UpdateVerdict,
)
from app.publish.outbox import EffectClaim, EffectStatus, Outbox
from app.publish.policy_rules import (
    LiveState,
    PublishRefused,
    PublishRequest,
    change_refusal,
    early_draft_refusal,
    live_refusal,
    request_refusal,
)
from app.publish.pull_request_text import SKIP_CI
from app.publish.secret_scan import SecretScan
from app.repo.git_store import GitError, GitStore, UnsafePathError
from app.repo.merge import SideNames, merge
from app.verify.gates.candidate import CandidatePatch

WORKFLOWS: Final = ".github/workflows/"
NOT_YET: Final = timedelta(seconds=2)
"""The publisher asks again so much later whether an effect may be carried out."""


def merge_base_branch(store: GitStore, request: PublishRequest, common: str) -> str:
    """Return the id of the merge of the request's commit with `onto`; `common` is their merge base. Blocking.

    All three commits must be in the store. Raises PublishRefused on a conflict, or if it changes a workflow.
    """
    effect, base_ref = request.effect, request.where.job_context.base_ref
    store.keep(effect.commit)
    merged = merge(
        store,
        base=common,
        ours=effect.commit,
        theirs=effect.onto,
        identity=effect.recipe.author,
        date=effect.recipe.date,
        message=_message(request),
        names=SideNames(ours=effect.branch, theirs=base_ref),
    )
    if merged.conflicts:
        raise PublishRefused(
            f"A workflow changed on {base_ref} meanwhile. GitHub refuses a branch without that change, and {base_ref} "
            f"conflicts with this branch in {', '.join(merged.paths[:5])}.",
            hint="`/agent retry` on the issue starts again from there; `/agent rebase` on a pull request resolves it.",
        )
    if _workflows(store, merged.commit) != _workflows(store, effect.onto):
        raise PublishRefused(
            f"GitHub refuses the branch {effect.branch}: it changes a workflow.",
            hint="The App has no permission to change workflows and does not ask for it; a person must push this.",
        )
    return merged.commit


def merge_note(base_ref: str, onto: str, verified: str) -> str:
    """The sentence about the merge; GitHub turns the commit ids into links."""
    return (
        f"{base_ref} was merged into this branch after verification: a workflow changed on {base_ref}, and "
        f"GitHub refuses a branch without that change. The verified commit is {verified}. It was merged with {onto} "
        "without conflicts. Nothing was run on the merge."
    )


def _message(request: PublishRequest) -> str:
    subject = f"Merge branch '{request.where.job_context.base_ref}' into {request.effect.branch}"
    why = "A workflow changed there after this branch began, and GitHub refuses a branch without that change."
    skip = (SKIP_CI,) if SKIP_CI in request.effect.recipe.message else ()
    return "\n\n".join((subject, why, *skip)) + "\n"


def _workflows(store: GitStore, commit: str) -> dict[str, TreeEntry]:
    return {path: entry for path, entry in store.tree(commit).entries().items() if path.startswith(WORKFLOWS)}


class PolicyTarget(ForgeEffects, Protocol):
    """A forge, with the reader for everything that is checked before publishing there."""

    @property
    def reads(self) -> RepositoryReader: ...

    @property
    def branches(self) -> BranchesApi: ...


class PublishPolicy:
    """Decides for each effect whether it may be carried out, and with which text."""

    def __init__(
        self,
        job_queries: JobQueries,
        blobs: Callable[[str], Blobs],
        secret_scan: SecretScan,
        now: Callable[[], datetime],
        outbox: Outbox,
        *,
        allowed_apps: frozenset[int] = frozenset(),
        operator: OperatorDefaults = NO_DEFAULTS,
    ) -> None:
        self._operator = operator
        self._job_queries = job_queries
        self._blobs = blobs
        self._secret_scan = secret_scan
        self._now = now
        self._outbox = outbox
        self._allowed_apps = allowed_apps

    async def check(self, claim: EffectClaim, forge: PolicyTarget) -> Effect:
        """The effect to carry out. Raises PublishRefused, SecretFound or ForgeError."""
        effect = await asyncio.to_thread(self._secret_scan.checked, claim.job, claim.effect)
        checked = OpenEarlyDraft | UpdateDraftStatus | UpdateVerdict | OpenDraftPullRequest | PushCommits
        if not isinstance(effect, checked):
            return effect
        where = self._job_queries.get(claim.job)
        if where is None:
            raise PublishRefused(f"There is no job {claim.job}.")
        match effect:
            case OpenEarlyDraft():
                return await self._early_draft(claim, effect, where, forge)
            case UpdateDraftStatus():
                return await self._draft_status(effect, where, forge)
            case UpdateVerdict():
                if effect.branch != (where.row.result or {}).get("branch"):
                    raise PublishRefused("This is not the branch of the job's pull request.")
                return effect
        return await self._change(claim, effect, where, forge)

    async def _change(
        self, claim: EffectClaim, effect: OpenDraftPullRequest | PushCommits, where: JobWithContext, forge: PolicyTarget
    ) -> Effect:
        """The effect for a verified change."""
        request = await asyncio.to_thread(self._request, claim, effect, where)
        _raise(request_refusal(request))
        if not where.handed_over:
            raise RateLimited("The job has not been handed over yet.", until=self._now() + NOT_YET)
        draft = await self._opened_draft(where)
        now = await self._ask(request, forge.reads)
        _raise(live_refusal(request, now))
        await self._store_commit(request, forge.branches)
        if effect.onto:
            effect = await self._with_base(request, forge)
        tree = forge.branches.store.tree(request.patch.base)
        _raise(await asyncio.to_thread(change_refusal, request, CandidatePatch(tree, request.patch), now.config))
        if isinstance(effect, PushCommits):
            return effect.model_copy(update={"base": where.job_context.base_ref})
        effect = await asyncio.to_thread(with_template, effect, tree, where)
        commits = await asyncio.to_thread(early_commits, forge.branches.store, self._job_queries, where)
        branch = draft.receipt.branch if draft is not None and draft.receipt is not None else ""
        return effect.model_copy(update={"replaces": commits, "draft": branch})

    async def _with_base(self, request: PublishRequest, forge: PolicyTarget) -> OpenDraftPullRequest | PushCommits:
        """The same effect for a merge of the verified commit with `onto`, a commit of the base branch."""
        effect, branches, base_ref = request.effect, forge.branches, request.where.job_context.base_ref
        tip = await forge.tip(base_ref)
        # A worker could name any commit here; only commits that are on the base branch may be merged.
        if effect.onto != tip and (not tip or await forge.reads.merge_base(tip, effect.onto) != effect.onto):
            raise PublishRefused(f"{effect.onto} is not on {base_ref}, so it is not merged into the change.")
        built_on = effect.recipe.parents[-1] if effect.recipe.parents else request.patch.base
        common = await forge.reads.merge_base(effect.onto, built_on)
        await _fetch_missing(branches, effect.onto, common)
        merged = await asyncio.to_thread(merge_base_branch, branches.store, request, common)
        if isinstance(effect, PushCommits):
            return effect.model_copy(update={"commit": merged})
        note = merge_note(base_ref, effect.onto, effect.commit)
        return effect.model_copy(update={"commit": merged, "body": insert_note(effect.body, f"> [!NOTE]\n> {note}")})

    async def _early_draft(
        self, claim: EffectClaim, effect: OpenEarlyDraft, where: JobWithContext, forge: PolicyTarget
    ) -> OpenDraftPullRequest:
        """A draft without a change: the same checks, for an empty commit, which is made here from the job alone."""
        job, recipe = where.job, early_recipe(where.job, where.job_context)
        opening = OpenDraftPullRequest(**effect.model_dump(exclude={"kind"}), commit="", recipe=recipe)
        request = PublishRequest(where, claim.issue_ref, opening, Patch(base=job.task.base))
        _raise(early_draft_refusal(request))
        if where.row.state not in AT_WORK:
            raise RateLimited("The work has not started yet.", until=self._now() + NOT_YET)
        _raise(live_refusal(request, await self._ask(request, forge.reads)))
        await _fetch_missing(forge.branches, job.task.base)
        commit, *former = await asyncio.to_thread(early_commits, forge.branches.store, self._job_queries, where)
        return opening.model_copy(update={"commit": commit, "replaces": tuple(former)})

    async def _draft_status(
        self, effect: UpdateDraftStatus, where: JobWithContext, forge: PolicyTarget
    ) -> UpdateDraftStatus:
        """The effect with the draft's branch and commit. Raises PublishRefused if no draft was opened."""
        draft = await self._opened_draft(where)
        await _fetch_missing(forge.branches, where.job.task.base)
        if draft is None or not where.job_context.opens_early:
            raise PublishRefused("No draft was opened early.")
        commit, *_ = await asyncio.to_thread(early_commits, forge.branches.store, self._job_queries, where)
        branch = draft.receipt.branch if draft.receipt is not None else where.job.branch
        close = effect.close or (draft.receipt is None and where.row.final)
        return effect.model_copy(update={"branch": branch, "commit": commit, "close": close})

    async def _opened_draft(self, where: JobWithContext) -> EffectStatus | None:
        """The status of a job's early draft; None if none was requested.

        Opening it must end before anything else happens to it: RateLimited until then.
        """
        status = await asyncio.to_thread(self._outbox.status, early_key(where.job.id))
        if status is not None and status.state in {"wanted", "claimed"}:
            raise RateLimited("The draft is still being opened.", until=self._now() + NOT_YET)
        return status

    def _request(
        self, claim: EffectClaim, effect: OpenDraftPullRequest | PushCommits, where: JobWithContext
    ) -> PublishRequest:
        try:
            patch = Patch.model_validate_json(self._blobs(claim.job).get(effect.recipe.patch))
        except (KeyError, ValidationError):
            raise PublishRefused(
                "The bytes of the change no longer exist.", hint="`/agent retry` starts again."
            ) from None
        self._secret_scan.refuse_patch(claim.job, patch)
        return PublishRequest(where, claim.issue_ref, effect, patch)

    async def _ask(self, request: PublishRequest, reads: RepositoryReader) -> LiveState:
        """Read only the facts that the rules need."""
        number, job_context, origin = request.issue_ref.number, request.where.job_context, request.where.job.task.origin
        repository = await reads.repository()
        if origin is None:
            raise PublishRefused("No request for this was found on GitHub.")
        try:
            asker = await reads.actor(origin.actor) if job_context.has_requester else None
        except NoAccess:
            gone = "The account of the person who requested this no longer exists."
            raise PublishRefused(gone, state="no_access") from None
        return LiveState(
            installation=await reads.installation(),
            repository=repository,
            asker=asker,
            issue=await reads.issue(number),
            pull=await reads.pull_request(number) if origin.is_pull_request else None,
            config=await _config(reads, job_context.config, self._operator),
            bots_may_ask=bool(self._allowed_apps),
        )

    async def _store_commit(self, request: PublishRequest, branches: BranchesApi) -> None:
        """Put the verified commit, made from its bytes, into the trusted repository (I9)."""
        await _fetch_missing(branches, request.patch.base, *request.effect.recipe.parents)
        recipe = request.effect.recipe
        try:
            made = await asyncio.to_thread(
                branches.store.commit,
                request.patch,
                message=recipe.message,
                author=recipe.author,
                date=recipe.date,
                parents=recipe.parents,
            )
        except (GitError, UnsafePathError) as error:
            raise PublishRefused(f"The commit cannot be rebuilt: {error}") from None
        failpoint("commit.rebuilt")
        if made != request.effect.commit:
            raise PublishRefused("The rebuilt commit is not the verified one; nothing was pushed.")


async def _fetch_missing(branches: BranchesApi, *commits: str) -> None:
    await asyncio.to_thread(branches.store.ensure)
    for commit in commits:
        if not await asyncio.to_thread(branches.store.keeps, commit):
            await branches.fetch(commit)


async def _config(reads: RepositoryReader, admitted: RepoConfig, operator: OperatorDefaults) -> RepoConfig:
    """The default branch's configuration now: it may protect more and allow fewer people. An invalid one is ignored."""
    text = await reads.file(SOURCE)
    if text is None:
        return admitted
    try:
        newest = operator.apply_to(parse_config(text))
    except ConfigError:
        return admitted
    protected = (*admitted.protected_paths, *newest.protected_paths)
    actors = newest.allowed_actors or admitted.allowed_actors
    return admitted.model_copy(update={"protected_paths": protected, "allowed_actors": actors})


def _raise(refused: PublishRefused | None) -> None:
    if refused is not None:
        raise refused
