"""Reasons not to publish a change: named rules in order, each a pure function, checked right before the push.

The check at admission may be hours old: meanwhile people lose rights, issues are closed, repositories are archived or
moved, and branches get new commits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.config.repository import RepoConfig
from app.core.errors import AgentFixError, ExitCode
from app.core.job import FINAL, JobState
from app.core.patch import Patch
from app.core.task import IssueRef
from app.github.models import ActorPermission, GitHubIssue, PullRequest, Repository
from app.jobs.job_queries import JobWithContext
from app.publish.body_edits import holds_commits_of_a_fork
from app.publish.effects import OpenDraftPullRequest, PushCommits
from app.publish.pull_request_text import SKIP_CI
from app.repo.merge import markers_left
from app.verify.gates import CandidatePatch, publisher_gates

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)+")
_MAX_FINDINGS = 5


class PublishRefused(AgentFixError):  # noqa: N818  # an answer
    """It is not published, and the job ends in `state`."""

    def __init__(self, message: str, *, state: JobState = "error", hint: str = "") -> None:
        super().__init__(message, code=ExitCode.OUTPUT, hint=hint)
        self.state: JobState = state


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
    """The current state on the forge. `asker` is None if the bot started by itself.

    `bots_may_ask`: the operator still allows other Apps to use commands.
    """

    installation: int | None
    repository: Repository
    asker: ActorPermission | None
    issue: GitHubIssue | None
    pull: PullRequest | None
    config: RepoConfig
    bots_may_ask: bool = False


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
    never = job_context.publish_target == "nowhere" or job_context.aim in {"ask", "plan"}
    if never or job.aim == "ask" or job.plan_mode == "only":
        return PublishRefused("Jobs that only answer or plan publish nothing.")
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
    asker, allowed = now.asker, {login.casefold() for login in now.config.allowed_actors}
    if asker is None or (asker.kind == "Bot" and now.bots_may_ask):
        return None
    if asker.kind != "User":
        return _no_access(f"{asker.login} is not a person, and the operator has not allowed this account.")
    if not asker.may_write:
        return _no_access(f"{asker.login} no longer has write access, so nothing is published for them.")
    if allowed and asker.login.casefold() not in allowed:
        return _no_access(f"{asker.login} is no longer among the `allowed_actors`.")
    return None


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
    if not _BRANCH.fullmatch(branch) or ".." in branch or branch.partition("/")[0] != prefix:
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
