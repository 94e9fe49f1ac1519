"""What was decided when a server's job was admitted: its place on GitHub, its configuration and its target."""

from typing import Final, Literal

from app.config.repository import Overrides, RepoConfig
from app.core.job import Job
from app.core.record import Record
from app.core.task import IssueRef, Person
from app.github.base import ReactionTarget

JobAim = Literal["fix", "plan", "reproduce", "ask", "verify", "follow_up", "revise", "fix_checks", "conflicts", "ci"]
"""The bot itself may start `fix_checks` and `conflicts`, which then count as rounds. So does `revise`: a review asked
for changes without a command. `ci` and a merge without conflicts are the publisher's alone."""
NO_REQUESTER: frozenset[JobAim] = frozenset({"fix_checks", "conflicts"})

BY_PROGRAM: Final = "api:"
"""Prefix of a job's trigger if a program or an operator asked; the name follows."""
ON_DASHBOARD: Final = "dashboard"
"""The trigger of a job that a person asked for on the dashboard."""

PublishTarget = Literal["new_branch", "same_branch", "sibling", "nowhere"]
"""Where the work goes; `nowhere` for questions, plans and reproductions, which publish no commit."""


class ThreadRef(Record):
    """An inline review thread that the job must answer.

    `thread` is its node id, `comment` the comment that replies go to.
    """

    comment: int
    thread: str = ""
    path: str = ""
    start: int | None = None
    end: int | None = None


class JobContext(Record):
    """Everything decided at admission. Only review threads are added later.

    The configuration is the default branch's at that time.
    """

    issue_ref: IssueRef
    aim: JobAim
    trigger: str
    """`issue`, `comment:ID`, `review_comment:ID`, `review:ID`, `check_run:ID`, `api:KEY`, `dashboard` and so on."""
    login: str = ""
    """The login of the person who asked; empty if the bot started the job by itself."""
    app: int | None = None
    """The id of the App, if a bot asked."""
    author: Person
    """The author of the commits: the App's own account."""
    config: RepoConfig
    publish_target: PublishTarget
    base_ref: str
    """The base branch of the pull request."""
    required: bool = False
    """For a verification: the base branch requires its check, so that one without a clear verdict must not pass."""
    pull: int | None = None
    """The number of the pull request that the job follows up."""
    fork: bool = False
    """The commits include a fork's: CI is held back, whatever the repository's configuration says."""
    expected: str = ""
    """The head commit of our branch that a follow-up expects to build on."""
    parents: tuple[str, ...] = ()
    """The parents of the new commit, if they are not just the task's base (a merge)."""
    threads: tuple[ThreadRef, ...] = ()
    overrides: Overrides | None = None
    """The default branch's prompts, if the work starts from another branch."""
    notes: tuple[str, ...] = ()
    """Notes for people: hidden characters removed, a description edited since, how much context was left out."""

    @property
    def active_key(self) -> str:
        """The key that makes an active job unique for its issue; a question or a verification runs beside another."""
        place = f"{self.issue_ref.repository}#{self.issue_ref.number}"
        suffixes = {"ask": f"/ask:{self.trigger}", "verify": "/verify"}
        return f"{place}{suffixes.get(self.aim, '')}"

    @property
    def is_round(self) -> bool:
        """True for a follow-up that the bot started by itself, within the repository's limit."""
        return self.aim == "revise" or (self._has_no_login and not self._is_by_program)

    @property
    def has_requester(self) -> bool:
        """True if a person on GitHub asked, whose permission counts. For a program's job its key was the authority."""
        return not self._has_no_login and not self._is_by_program

    @property
    def _has_no_login(self) -> bool:
        return self.aim in NO_REQUESTER and not self.login

    @property
    def _is_by_program(self) -> bool:
        return self.trigger.startswith(BY_PROGRAM)

    @property
    def opens_pull_request(self) -> bool:
        """True if the work becomes a new pull request."""
        return self.publish_target in {"new_branch", "sibling"}

    def continues_ours(self, branch: str) -> bool:
        """True if the work goes on our own branch of a pull request."""
        return self.publish_target == "same_branch" and branch.partition("/")[0] == self.config.branch_prefix

    @property
    def opens_early(self) -> bool:
        """True if the draft is opened as soon as the plan is ready, with an empty commit in place of the change."""
        return self.config.pull_request == "early" and self.publish_target == "new_branch" and self.aim == "fix"

    @property
    def target(self) -> ReactionTarget | None:
        """What the reactions are added to; None if no comment or issue text asked for the job."""
        return reaction_target(self.trigger, self.issue_ref.number)


def reaction_target(trigger: str, issue: int) -> ReactionTarget | None:
    """What a reaction to a trigger on this issue is added to; None for a review, which accepts none, or for checks."""
    kind, _, number = trigger.partition(":")
    match kind:
        case "issue" | "api" | "dashboard":
            return ReactionTarget(kind="issue", id=issue)
        case "comment":
            return ReactionTarget(kind="comment", id=int(number))
        case "review_comment":
            return ReactionTarget(kind="review comment", id=int(number))
        case _:
            return None


def paid_by(job: Job, job_context: JobContext) -> int:
    """The id of the person whose budget a job uses; 0 if the bot started it by itself."""
    origin = job.task.origin
    return origin.actor if origin is not None and job_context.login else 0
