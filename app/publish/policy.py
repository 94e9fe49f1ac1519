"""Checks right before a branch is pushed (the requester's rights, our rules, the rebuilt commit), and merges the base.

effect ─► our own rules ─► the forge's facts now ─► commit rebuilt, same id or never ─► gates on its tree ─► push

The verified commit keeps its id and becomes the merge's first parent. The merge is a function of the two commits and
the recipe, so every retry builds the same one. Nothing is executed on the merge, and the pull request says so.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from pydantic import ValidationError

from app.config.repository import NO_DEFAULTS, SOURCE, OperatorDefaults, RepoConfig, parse_config
from app.config.signing import SigningKey
from app.config.value_rules import BRANCH
from app.core.errors import AgentFixError, ConfigError, ExitCode
from app.core.failpoints import failpoint
from app.core.job import FINAL, Blobs, JobState
from app.core.patch import Patch, TreeEntry
from app.core.task import IssueRef
from app.github.base import ForgeEffects, NoAccess, RateLimited
from app.github.branches import BranchesApi
from app.github.models import Account, ActorPermission, GitHubIssue, PullRequest, Repository
from app.github.permission import refusal
from app.github.reader import RepositoryReader
from app.jobs.store import JobQueries, JobWithContext
from app.publish.body_edits import holds_commits_of_a_fork, insert_note, with_template
from app.publish.effects import (
    Effect,
    OpenDraftPullRequest,
    OpenEarlyDraft,
    PushCommits,
    UpdateDraftStatus,
    UpdateVerdict,
)
from app.publish.markdown import alert
from app.publish.outbox import EffectClaim, EffectStatus, Outbox
from app.publish.pull_request_text import SKIP_CI, merge_subject
from app.publish.secret_scan import SecretScan
from app.publish.status_text import AT_WORK, early_commits, early_key, early_recipe
from app.repo.git_store import GitError, GitStore, UnsafePathError
from app.repo.merge import SideNames, markers_left, merge
from app.verify.gates import CandidatePatch, publisher_gates

_MAX_FINDINGS = 5
WORKFLOWS: Final = ".github/workflows/"
RECHECK_AFTER: Final = timedelta(seconds=2)
"""The publisher asks again so much later whether an effect may be carried out."""


class PublishRefused(AgentFixError):  # noqa: N818  # an answer
    """It is not published, and the job ends in `state`."""

    def __init__(self, message: str, *, state: JobState = "error", hint: str = "") -> None:
        super().__init__(message, code=ExitCode.OUTPUT, hint=hint)
        self.state: JobState = state


class NotYet(RateLimited):
    """The job is not that far; nothing was requested from the forge."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A branch to push for a job, with the bytes it will hold."""

    where: JobWithContext
    issue_ref: IssueRef
    effect: OpenDraftPullRequest | PushCommits
    patch: Patch

    @property
    def empty(self) -> bool:
        """True if it adds nothing of the agent's: a commit that starts CI, or a merge without conflicts."""
        return not self.patch.changes


@dataclass(frozen=True, slots=True)
class LiveState:
    """The current state on the forge. `requester` is None if the bot started by itself.

    `allowed_apps`: the other Apps that the operator now allows to use commands.
    """

    installation: int | None
    repository: Repository
    requester: ActorPermission | None
    issue: GitHubIssue | None
    pull: PullRequest | None
    config: RepoConfig
    allowed_apps: frozenset[int] = frozenset()


def request_refusal(request: PublishRequest) -> PublishRefused | None:
    """Reasons in our own tables."""
    return next((refused for rule in OWN_RULES if (refused := rule(request))), None)


def early_draft_refusal(request: PublishRequest) -> PublishRefused | None:
    """Reasons in our own tables not to open a draft without a change."""
    return next((refused for rule in EARLY_RULES if (refused := rule(request))), None)


def live_refusal(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    """Reasons in the forge's current state."""
    return next((refused for rule in FORGE_RULES if (refused := rule(request, now))), None)


def change_refusal(request: PublishRequest, candidate: CandidatePatch, config: RepoConfig) -> PublishRefused | None:
    """Reasons in the resulting tree, checked independently of earlier checks."""
    found: list[str] = []
    if not request.empty:
        gates = publisher_gates(candidate, config.protected_paths, request.where.job.task.allowed_paths)
        found += [detail for gate in gates if gate.outcome == "blocked" for detail in gate.details]
    conflicts = request.where.job.conflicts
    left = {change.path: change.content for change in request.patch.changes}
    contents = {**candidate.base.read_many(conflicts), **{path: left[path] for path in conflicts if path in left}}
    markers = markers_left({path: content for path, content in contents.items() if content is not None})
    found += [f"{where}: contains a conflict marker" for where in markers]
    if not found:
        return None
    more = f"; and {len(found) - _MAX_FINDINGS:,} more" if len(found) > _MAX_FINDINGS else ""
    return PublishRefused(f"The change may not be published: {'; '.join(found[:_MAX_FINDINGS])}{more}.")


def _belongs(request: PublishRequest) -> PublishRefused | None:
    ours, theirs = request.where.job_context.issue_ref, request.issue_ref
    # The repository's name may have changed meanwhile.
    same = (ours.installation, ours.repository, ours.number) == (theirs.installation, theirs.repository, theirs.number)
    return None if same else PublishRefused("The change is meant for another repository or issue than its job.")


def _publishes(request: PublishRequest) -> PublishRefused | None:
    """A question or a plan never has a branch, whatever its worker says."""
    job, job_context = request.where.job, request.where.job_context
    never = job_context.publish_target == "nowhere" or job_context.aim in {"ask", "plan", "reproduce", "verify"}
    if never or job.aim != "fix" or job.plan_mode == "only":
        return PublishRefused("Jobs that only answer, plan or verify publish nothing.")
    if isinstance(request.effect, PushCommits) != _same_branch(request):
        return PublishRefused("The branch is not of the kind that the job may push to.")
    return None


def _is_active(request: PublishRequest) -> PublishRefused | None:
    row = request.where.row
    if row.stop_requested or row.state == "stopped":
        return PublishRefused("The job was stopped before its change was published.", state="stopped")
    return PublishRefused("The job has already ended.") if row.state in FINAL else None


def _derived(request: PublishRequest) -> PublishRefused | None:
    """Names come from the job, never from the agent."""
    effect, job_context, job = request.effect, request.where.job_context, request.where.job
    expected: list[tuple[str, object, object]] = [
        ("branch", effect.branch, job.branch),
        ("base", request.patch.base, job.task.base),
        ("parents", effect.recipe.parents, job_context.parents),
        ("author", effect.recipe.author, job_context.author),
    ]
    if isinstance(effect, PushCommits):
        expected.append(("former head", effect.expected, job_context.expected))
    else:
        expected.append(("target branch", effect.base, job_context.base_ref))
    wrong = next((name for name, requested, known in expected if requested != known), "")
    return PublishRefused(f"The {wrong} differs from the job's.") if wrong else None


def _moves_forward(request: PublishRequest) -> PublishRefused | None:
    """Existing commits on a branch stay ancestors of ours, whoever wrote them."""
    if isinstance(request.effect, OpenDraftPullRequest):
        return PublishRefused("The change is empty.") if request.empty else None
    if request.effect.expected not in (request.effect.recipe.parents or (request.patch.base,)):
        return PublishRefused("The commit is not based on the branch's newest commit.")
    return None


def _ci_waits(request: PublishRequest) -> PublishRefused | None:
    """An agent's code starts no workflow by itself; people request CI with an empty commit."""
    recipe = request.effect.recipe
    if request.where.job_context.config.ci == "auto" or SKIP_CI in recipe.message:
        return None
    return None if request.empty and not recipe.parents else PublishRefused(f"The commit's message lacks {SKIP_CI}.")


OWN_RULES: Final[tuple[Callable[[PublishRequest], PublishRefused | None], ...]] = (
    _belongs,
    _publishes,
    _is_active,
    _derived,
    _moves_forward,
    _ci_waits,
)


def _comes_early(request: PublishRequest) -> PublishRefused | None:
    where = request.where
    if not where.job_context.opens_early or not request.empty:
        return PublishRefused("This job's draft is opened after its change is verified.")
    return PublishRefused("The change itself is being published.") if where.handed_over else None


EARLY_RULES: Final[tuple[Callable[[PublishRequest], PublishRefused | None], ...]] = (
    _belongs,
    _publishes,
    _is_active,
    _derived,
    _comes_early,
)


def _served(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    issue_ref = request.issue_ref
    if now.installation != issue_ref.installation:
        return _no_access("The App is no longer installed in this repository.")
    if now.repository.id != issue_ref.repository:
        return _no_access("This name now belongs to another repository.")
    return _no_access("The repository was archived.") if now.repository.archived else None


def _requester_allowed(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    requester, app = now.requester, request.where.job_context.app
    if requester is None:
        return None
    actor = Account(id=requester.id, login=requester.login, kind=requester.kind)
    actors, apps = now.config.allowed_actors, now.allowed_apps
    reason = refusal(actor, requester, via=app, allowed_actors=actors, allowed_apps=apps)
    return _no_access(f"Nothing is published for {requester.login}: {reason}.") if reason else None


def _open(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    what = "pull request" if now.pull is not None else "issue"
    if now.issue is None:
        return _no_access(f"The {what} no longer exists.")
    if not now.issue.open:
        return PublishRefused(f"The {what} has been closed.", state="stopped", hint="Reopen it and try again.")
    if now.issue.locked:
        return PublishRefused(f"The {what}'s conversation was locked meanwhile.", state="stopped")
    return None


def _branch_may_be_pushed(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    branch, config = request.effect.branch, request.where.job_context.config
    if branch in {now.repository.default_branch, request.where.job_context.base_ref}:
        return PublishRefused(f"agent-fix does not push to the branch {branch}.")
    if _same_branch(request):
        return None
    prefix = config.branch_prefix
    if not BRANCH.fullmatch(branch) or ".." in branch or branch.partition("/")[0] != prefix:
        return PublishRefused(f"New branches must start with {prefix}/ here.")
    return None


def _follows_its_pull_request(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    if not _same_branch(request):
        return None
    pull = now.pull
    if pull is None or pull.number != request.where.job_context.pull:
        return PublishRefused("The pull request no longer exists.")
    if pull.head_repository != request.issue_ref.repository:
        return PublishRefused("The pull request comes from a fork, and agent-fix never pushes to forks.")
    if pull.head_branch != request.effect.branch or pull.head_branch == pull.base_branch:
        return PublishRefused("The pull request now has a different branch.")
    return None


def _starts_nothing_for_a_fork(request: PublishRequest, now: LiveState) -> PublishRefused | None:
    """Checks the forge's current facts about whose commits these are, not those from admission."""
    if now.pull is None or SKIP_CI in request.effect.recipe.message:
        return None
    if not holds_commits_of_a_fork(now.pull, request.issue_ref.repository):
        return None
    return PublishRefused(f"The branch holds commits from a fork, and the commit's message lacks {SKIP_CI}.")


FORGE_RULES: Final[tuple[Callable[[PublishRequest, LiveState], PublishRefused | None], ...]] = (
    _served,
    _requester_allowed,
    _open,
    _branch_may_be_pushed,
    _follows_its_pull_request,
    _starts_nothing_for_a_fork,
)


def _same_branch(request: PublishRequest) -> bool:
    return request.where.job_context.publish_target == "same_branch"


def _no_access(message: str) -> PublishRefused:
    return PublishRefused(message, state="no_access")


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


def signed_note(commit: str, verified: str) -> str:
    return f"The published commit {commit} has the same files as the verified one, {verified}, and a signature."


def _message(request: PublishRequest) -> str:
    subject = merge_subject(request.where.job_context.base_ref, request.effect.branch)
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


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """Decides for each effect whether it may be carried out, and with which text."""

    job_queries: JobQueries
    blobs: Callable[[str], Blobs]
    secret_scan: SecretScan
    now: Callable[[], datetime]
    outbox: Outbox
    allowed_apps: frozenset[int] = frozenset()
    operator: OperatorDefaults = NO_DEFAULTS
    signing_key: SigningKey | None = None

    async def check(self, claim: EffectClaim, forge: PolicyTarget) -> Effect:
        """The effect to carry out. Raises PublishRefused, SecretFound or ForgeError."""
        effect = await asyncio.to_thread(self.secret_scan.checked, claim.job, claim.effect)
        checked = OpenEarlyDraft | UpdateDraftStatus | UpdateVerdict | OpenDraftPullRequest | PushCommits
        if not isinstance(effect, checked):
            return effect
        where = await asyncio.to_thread(self.job_queries.get, claim.job)
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
            raise NotYet("The job has not been handed over yet.", until=self.now() + RECHECK_AFTER)
        draft = await self._opened_draft(where)
        now = await self._ask(request, forge.reads)
        _raise(live_refusal(request, now))
        await self._store_commit(request, forge.branches)
        if effect.onto:
            effect = await self._with_base(request, forge)
        tree = forge.branches.store.tree(request.patch.base)
        _raise(await asyncio.to_thread(change_refusal, request, CandidatePatch(tree, request.patch), now.config))
        effect = effect.model_copy(update=await self._signature(effect, request.effect.commit, where, forge.branches))
        if isinstance(effect, PushCommits):
            return effect.model_copy(update={"base": where.job_context.base_ref})
        effect = await asyncio.to_thread(with_template, effect, tree, where)
        commits = await asyncio.to_thread(early_commits, forge.branches.store, self.job_queries, where)
        branch = draft.receipt.branch if draft is not None and draft.receipt is not None else ""
        pushed = tuple([await asyncio.to_thread(forge.branches.store.as_pushed, each) for each in commits])
        return effect.model_copy(update={"replaces": pushed, "draft": branch})

    async def _signature(
        self, effect: OpenDraftPullRequest | PushCommits, verified: str, where: JobWithContext, branches: BranchesApi
    ) -> dict[str, str]:
        """What changes in the effect if commits are signed: the commit, and the texts that name it."""
        if self.signing_key is None and not where.job_context.config.sign:
            return {}
        signed = await branches.signed(verified, self.signing_key)
        commit = signed if effect.commit == verified else await branches.signed(effect.commit, self.signing_key)
        failpoint("commit.signed")
        update = {"commit": commit, "signed": signed}
        if isinstance(effect, OpenDraftPullRequest):
            update["body"] = effect.body.replace(verified, signed).replace(verified[:10], signed[:10])
        return update

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
        return effect.model_copy(update={"commit": merged, "body": insert_note(effect.body, alert("NOTE", note))})

    async def _early_draft(
        self, claim: EffectClaim, effect: OpenEarlyDraft, where: JobWithContext, forge: PolicyTarget
    ) -> OpenDraftPullRequest:
        """A draft without a change: the same checks, for an empty commit, which is made here from the job alone."""
        job, recipe = where.job, early_recipe(where.job, where.job_context)
        opening = OpenDraftPullRequest(**effect.model_dump(exclude={"kind"}), commit="", recipe=recipe)
        request = PublishRequest(where, claim.issue_ref, opening, Patch(base=job.task.base))
        _raise(early_draft_refusal(request))
        if where.row.state not in AT_WORK:
            raise NotYet("The work has not started yet.", until=self.now() + RECHECK_AFTER)
        _raise(live_refusal(request, await self._ask(request, forge.reads)))
        await _fetch_missing(forge.branches, job.task.base)
        commit, *former = await asyncio.to_thread(early_commits, forge.branches.store, self.job_queries, where)
        former = [await asyncio.to_thread(forge.branches.store.as_pushed, each) for each in former]
        opening = opening.model_copy(update={"commit": commit, "replaces": tuple(former)})
        return opening.model_copy(update=await self._signature(opening, commit, where, forge.branches))

    async def _draft_status(
        self, effect: UpdateDraftStatus, where: JobWithContext, forge: PolicyTarget
    ) -> UpdateDraftStatus:
        """The effect with the draft's branch and commit. Raises PublishRefused if no draft was opened."""
        draft = await self._opened_draft(where)
        await _fetch_missing(forge.branches, where.job.task.base)
        if draft is None or not where.job_context.opens_early:
            raise PublishRefused("No draft was opened early.")
        commit, *_ = await asyncio.to_thread(early_commits, forge.branches.store, self.job_queries, where)
        commit = await asyncio.to_thread(forge.branches.store.as_pushed, commit)
        branch = draft.receipt.branch if draft.receipt is not None else where.job.branch
        close = effect.close or (draft.receipt is None and where.row.final)
        return effect.model_copy(update={"branch": branch, "commit": commit, "close": close})

    async def _opened_draft(self, where: JobWithContext) -> EffectStatus | None:
        """The status of a job's early draft; None if none was requested.

        Opening it must end before anything else happens to it: NotYet until then.
        """
        status = await asyncio.to_thread(self.outbox.status, early_key(where.job.id))
        if status is not None and status.state in {"wanted", "claimed"}:
            raise NotYet("The draft is still being opened.", until=self.now() + RECHECK_AFTER)
        return status

    def _request(
        self, claim: EffectClaim, effect: OpenDraftPullRequest | PushCommits, where: JobWithContext
    ) -> PublishRequest:
        try:
            patch = Patch.model_validate_json(self.blobs(claim.job).get(effect.recipe.patch))
        except (KeyError, ValidationError):
            raise PublishRefused(
                "The bytes of the change no longer exist.", hint="`/agent retry` starts again."
            ) from None
        self.secret_scan.refuse_patch(claim.job, patch)
        return PublishRequest(where, claim.issue_ref, effect, patch)

    async def _ask(self, request: PublishRequest, reads: RepositoryReader) -> LiveState:
        """Read only the facts that the rules need."""
        number, job_context, origin = request.issue_ref.number, request.where.job_context, request.where.job.task.origin
        repository = await reads.repository()
        if origin is None:
            raise PublishRefused("No request for this was found on GitHub.")
        try:
            requester = await reads.actor(origin.actor) if job_context.has_requester else None
        except NoAccess:
            gone = "The account of the person who requested this no longer exists."
            raise PublishRefused(gone, state="no_access") from None
        return LiveState(
            installation=await reads.installation(),
            repository=repository,
            requester=requester,
            issue=await reads.issue(number),
            pull=await reads.pull_request(number) if origin.is_pull_request else None,
            config=await _config(reads, job_context.config, self.operator),
            allowed_apps=self.allowed_apps,
        )

    async def _store_commit(self, request: PublishRequest, branches: BranchesApi) -> None:
        """Put the verified commit, made from its bytes, into the trusted repository (I9)."""
        await _fetch_missing(branches, request.patch.base, *request.effect.recipe.parents)
        try:
            made = await asyncio.to_thread(request.effect.recipe.commit, branches.store, request.patch)
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
