"""What a server's job was admitted with: where it belongs, by which configuration, and where its work goes."""

from typing import Literal

from app.config.prompt_overrides import Overrides
from app.config.repository import RepoConfig
from app.core.issue_ref import IssueRef
from app.core.record import Record
from app.core.task import Person
from app.github.base import ReactionTarget

JobAim = Literal["fix", "plan", "ask", "follow_up", "revise", "mend", "conflicts", "ci"]
"""`mend` (failing checks) and `conflicts` may be begun by the bot itself, and then count as rounds. So does `revise`: a
review asked for changes and said no word to the bot. `ci` and a merge without conflicts are the publisher's alone."""
NO_REQUESTER: frozenset[JobAim] = frozenset({"mend", "conflicts"})

PublishTarget = Literal["new_branch", "same_branch", "sibling", "nowhere"]
"""Where the work goes; `nowhere` for questions and plans, which publish no commit."""


class ThreadRef(Record):
    """An inline review thread that the job is to answer. `thread` is its node id, `comment` the one replies go to."""

    comment: int
    thread: str = ""
    path: str = ""
    start: int | None = None
    end: int | None = None


class JobContext(Record):
    """Decided at admission, and only given the threads that join; the configuration is the default branch's then."""

    place: IssueRef
    aim: JobAim
    trigger: str
    """`issue`, `comment:ID`, `review_comment:ID`, `review:ID`, `check_run:ID` and kin."""
    login: str = ""
    """Who asked, as people know them; empty where the bot began by itself."""
    author: Person
    """Whose name stands on the commits: the App's own account."""
    config: RepoConfig
    goal: PublishTarget
    base_ref: str
    """The branch that the pull request is against."""
    pull: int | None = None
    """The pull request that is followed up."""
    fork: bool = False
    """Commits of a fork come along: CI is held back, whatever the repository's configuration says."""
    expected: str = ""
    """Where our branch stands: the head commit that a follow-up moves on from."""
    parents: tuple[str, ...] = ()
    """Of the commit to be made, where these are not just the task's base (a merge)."""
    threads: tuple[ThreadRef, ...] = ()
    overrides: Overrides | None = None
    """The default branch's prompts, where the work begins from another branch."""
    notes: tuple[str, ...] = ()
    """What people are told: hidden characters removed, a description edited since, how much context was left out."""

    @property
    def is_round(self) -> bool:
        """Nobody said a word to the bot: it followed up on its pull request, as often as the repository lets it."""
        return self.aim == "revise" or (self.aim in NO_REQUESTER and not self.login)

    @property
    def opens_early(self) -> bool:
        """Whether its draft is opened once the plan stands, with an empty commit in the place of the change."""
        return self.config.pull_request == "early" and self.goal == "new_branch" and self.aim == "fix"

    @property
    def target(self) -> ReactionTarget | None:
        """What the reactions are put on; None where nothing that was written asked for the job."""
        kind, _, number = self.trigger.partition(":")
        match kind:
            case "issue":
                return ReactionTarget(kind="issue", id=self.place.number)
            case "comment":
                return ReactionTarget(kind="comment", id=int(number))
            case "review_comment":
                return ReactionTarget(kind="review comment", id=int(number))
            case _:
                return None
