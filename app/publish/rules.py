"""Why a change may not be published after all: named rules in order, each pure, asked right before a branch is made.

What was decided at admission may be hours old: since then people lose rights, issues are closed, repositories are
archived or moved, and a pull request's branch is pushed to.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from app.config import RepoConfig
from app.errors import AgentFixError, ExitCode
from app.forge.facts import Actor, IssueFacts, PullRequestFacts, RepositoryFacts
from app.gitmerge import markers_left
from app.job import FINAL, JobState
from app.jobs.roster import Commissioned
from app.patch import Patch
from app.publish.comments import SKIP_CI
from app.publish.forks import holds_commits_of_a_fork
from app.publish.intent import OpenDraftPullRequest, Place, PushCommits
from app.verify.gates.candidate import Candidate
from app.verify.gates.hidden import hidden_characters
from app.verify.gates.kinds import file_kinds
from app.verify.gates.protected import protected_paths
from app.verify.gates.secret_lines import secret_lines
from app.verify.gates.size import refused_files, size

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)+")
_MOST_FINDINGS = 5


class Refused(AgentFixError):  # noqa: N818  # an answer
    """It is not published, and the job ends in `state`."""

    def __init__(self, message: str, *, state: JobState = "error", hint: str = "") -> None:
        super().__init__(message, code=ExitCode.OUTPUT, hint=hint)
        self.state: JobState = state


@dataclass(frozen=True, slots=True)
class Wish:
    """A branch that is to be pushed, for a job, with the bytes that it is to hold."""

    where: Commissioned
    place: Place
    intent: OpenDraftPullRequest | PushCommits
    patch: Patch

    @property
    def empty(self) -> bool:
        """It adds nothing of the agent's: CI is asked for, or branches were merged without a conflict."""
        return not self.patch.changes


@dataclass(frozen=True, slots=True)
class Now:
    """How things stand on the forge at this moment. `asker` is None where the bot began by itself.

    `bots_may_ask`: the operator still lets some other App ask.
    """

    installation: int | None
    repository: RepositoryFacts
    asker: Actor | None
    issue: IssueFacts | None
    pull: PullRequestFacts | None
    config: RepoConfig
    bots_may_ask: bool = False


def refusal_of_wish(wish: Wish) -> Refused | None:
    """What our own tables say against it."""
    return next((refused for rule in OWN_RULES if (refused := rule(wish))), None)


def refusal_of_early(wish: Wish) -> Refused | None:
    """The same of a draft that is to be opened before there is a change."""
    return next((refused for rule in EARLY_RULES if (refused := rule(wish))), None)


def refusal_now(wish: Wish, now: Now) -> Refused | None:
    """What the forge says against it."""
    return next((refused for rule in FORGE_RULES if (refused := rule(wish, now))), None)


def refusal_of_change(wish: Wish, candidate: Candidate, config: RepoConfig) -> Refused | None:
    """What the resulting tree says against it, looked at as if nobody had before."""
    found = list(_blocked(candidate, config)) if not wish.empty else []
    conflicts = wish.where.job.conflicts
    left = {change.path: change.content for change in wish.patch.changes}
    contents = {**candidate.base.read_many(conflicts), **{path: left[path] for path in conflicts if path in left}}
    markers = markers_left({path: content for path, content in contents.items() if content is not None})
    found += [f"{where}: a conflict's marker is left" for where in markers]
    if not found:
        return None
    more = f"; and {len(found) - _MOST_FINDINGS:,} more" if len(found) > _MOST_FINDINGS else ""
    return Refused(f"The change may not be published: {'; '.join(found[:_MOST_FINDINGS])}{more}.")


def _blocked(candidate: Candidate, config: RepoConfig) -> Iterator[str]:
    gates = [size(candidate), refused_files(candidate), protected_paths(candidate, config.protected_paths)]
    if gates[0].outcome != "blocked":  # of what is too large the contents are not even read
        gates += [examine(candidate) for examine in (file_kinds, secret_lines, hidden_characters)]
    return (detail for gate in gates if gate.outcome == "blocked" for detail in gate.details)


def _belongs(wish: Wish) -> Refused | None:
    theirs, place = wish.where.commission.place, wish.place
    same = (place.installation, place.repository, place.number) == (
        theirs.installation,
        theirs.repository,
        theirs.number,
    )
    return None if same else Refused("The change is wished for another place than its job's.")


def _publishes(wish: Wish) -> Refused | None:
    """A question or a plan never has a branch; whatever its worker says."""
    job, commission = wish.where.job, wish.where.commission
    never = commission.goal == "nowhere" or commission.aim in {"ask", "plan"}
    if never or job.aim == "ask" or job.plan_mode == "only":
        return Refused("A job that asks or plans publishes nothing.")
    pushes = isinstance(wish.intent, PushCommits)
    return Refused("The branch is not of the kind that its job is for.") if pushes != _same_branch(wish) else None


def _lives(wish: Wish) -> Refused | None:
    row = wish.where.row
    if row.stop_requested or row.state == "stopped":
        return Refused("The job was stopped before its change was published.", state="stopped")
    return Refused("The job has ended already.") if row.state in FINAL else None


def _derived(wish: Wish) -> Refused | None:
    """Names come from the job, never from the agent."""
    intent, commission, job = wish.intent, wish.where.commission, wish.where.job
    expected: list[tuple[str, object, object]] = [
        ("branch", intent.branch, job.branch),
        ("base", wish.patch.base, job.task.base),
        ("parents", intent.recipe.parents, commission.parents),
        ("author", intent.recipe.author, commission.author),
    ]
    if isinstance(intent, PushCommits):
        expected.append(("former head", intent.expected, commission.expected))
    else:
        expected.append(("target branch", intent.base, commission.base_ref))
    wrong = next((name for name, wished, known in expected if wished != known), "")
    return Refused(f"The {wrong} is not what the job was admitted with.") if wrong else None


def _moves_forward(wish: Wish) -> Refused | None:
    """A commit that is on a branch stays below ours, whoever wrote it."""
    if isinstance(wish.intent, OpenDraftPullRequest):
        return Refused("The change is empty.") if wish.empty else None
    parents = wish.intent.recipe.parents or (wish.patch.base,)
    return None if wish.intent.expected in parents else Refused("The commit does not follow the branch's last one.")


def _ci_waits(wish: Wish) -> Refused | None:
    """Code that an agent wrote starts no workflow by itself; an empty commit is how people ask for one."""
    recipe = wish.intent.recipe
    if wish.where.commission.config.ci == "auto" or SKIP_CI in recipe.message:
        return None
    return None if wish.empty and not recipe.parents else Refused(f"The commit's message lacks {SKIP_CI}.")


OWN_RULES: Final[tuple[Callable[[Wish], Refused | None], ...]] = (
    _belongs,
    _publishes,
    _lives,
    _derived,
    _moves_forward,
    _ci_waits,
)


def _comes_early(wish: Wish) -> Refused | None:
    where = wish.where
    if not where.commission.opens_early or not wish.empty:
        return Refused("The draft of this job is opened once its change is verified.")
    return Refused("The change itself is on its way.") if where.handed_over else None


EARLY_RULES: Final[tuple[Callable[[Wish], Refused | None], ...]] = (
    _belongs,
    _publishes,
    _lives,
    _derived,
    _comes_early,
)


def _served(wish: Wish, now: Now) -> Refused | None:
    place = wish.place
    if now.installation != place.installation:
        return _no_access("The App is not installed in this repository any more.")
    if now.repository.id != place.repository:
        return _no_access("Another repository has this name by now.")
    return _no_access("The repository was archived.") if now.repository.archived else None


def _may_ask(wish: Wish, now: Now) -> Refused | None:
    asker, allowed = now.asker, {login.casefold() for login in now.config.allowed_actors}
    if asker is None or (asker.kind == "Bot" and now.bots_may_ask):
        return None
    if asker.kind != "User":
        return _no_access(f"{asker.login} is no person, and the operator lets no such account ask.")
    if not asker.may_write:
        return _no_access(f"{asker.login} has no write access any more, and so nothing is published for them.")
    if allowed and asker.login.casefold() not in allowed:
        return _no_access(f"{asker.login} is not among the `allowed_actors` any more.")
    return None


def _open(wish: Wish, now: Now) -> Refused | None:
    what = "pull request" if now.pull is not None else "issue"
    if now.issue is None:
        return _no_access(f"The {what} is gone.")
    if not now.issue.open:
        return Refused(f"The {what} was closed meanwhile.", state="stopped", hint="Reopen it and ask again.")
    if now.issue.locked:
        return Refused(f"The {what}'s conversation was locked meanwhile.", state="stopped")
    return None


def _branch_may_be_pushed(wish: Wish, now: Now) -> Refused | None:
    branch, config = wish.intent.branch, wish.where.commission.config
    if branch in {now.repository.default_branch, wish.where.commission.base_ref}:
        return Refused(f"{branch} is a branch that only people push to.")
    if _same_branch(wish):
        return None
    prefix = config.branch_for(slug="x", number=1).partition("/")[0]
    if not _BRANCH.fullmatch(branch) or ".." in branch or branch.partition("/")[0] != prefix:
        return Refused(f"New branches begin with {prefix}/ here.")
    return None


def _follows_its_pull_request(wish: Wish, now: Now) -> Refused | None:
    if not _same_branch(wish):
        return None
    pull = now.pull
    if pull is None or pull.number != wish.where.commission.pull:
        return Refused("The pull request is not there any more.")
    if pull.head_repository != wish.place.repository:
        return Refused("The pull request comes from a fork, which is never pushed to.")
    if pull.head_branch != wish.intent.branch or pull.head_branch == pull.base_branch:
        return Refused("The pull request's branch is another one by now.")
    return None


def _starts_nothing_for_a_fork(wish: Wish, now: Now) -> Refused | None:
    """Asked of the forge, and not of what was noted at admission: whose commits these are."""
    if now.pull is None or SKIP_CI in wish.intent.recipe.message:
        return None
    if not holds_commits_of_a_fork(now.pull, wish.place.repository):
        return None
    return Refused(f"The branch holds commits of a fork, and the commit's message lacks {SKIP_CI}.")


FORGE_RULES: Final[tuple[Callable[[Wish, Now], Refused | None], ...]] = (
    _served,
    _may_ask,
    _open,
    _branch_may_be_pushed,
    _follows_its_pull_request,
    _starts_nothing_for_a_fork,
)


def _same_branch(wish: Wish) -> bool:
    return wish.where.commission.goal == "same_branch"


def _no_access(message: str) -> Refused:
    return Refused(message, state="no_access")
