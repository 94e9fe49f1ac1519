"""The port to where a change is published: a folder beside a repository now, a forge's API elsewhere.

Every method is safe to say twice and after a crash: it looks first, and returns where the thing is to be seen.
There is nothing here to approve, to merge or to take a pull request out of draft.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from app.core.record import Record

GIVEN: Final = 1
"""In the place of an installation's number where a token was given to us and no App's number is known."""

Reaction = Literal["eyes", "rocket", "confused", "+1", "-1"]


class ReactionTarget(Record):
    """What a reaction is put on, by its number."""

    kind: Literal["issue", "comment", "review comment"]
    id: int


@dataclass(frozen=True, slots=True)
class NewPullRequest:
    """A draft pull request as it should be. `branch` is its head; one pull request exists per branch."""

    branch: str
    base: str
    title: str
    body: str
    verified: bool = True
    """What is not verified is opened as a draft or not at all; anything else where there are no drafts too."""


Conclusion = Literal["success", "failure", "neutral", "action_required", "cancelled"]


CHECK: Final = "agent-fix"
"""The name of our check."""


class NewCheckRun(Record):
    """Our check on a commit. `key` finds it again; without a conclusion it is in progress."""

    key: str
    name: str
    commit: str
    title: str
    summary: str
    conclusion: Conclusion | None = None


class Forge(Protocol):
    """A place that holds branches, pull requests and comments."""

    async def ensure_branch(self, name: str, commit: str) -> str:
        """Make `commit` a branch; returns its name, numbered where the wanted one holds something else."""
        ...

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        """Open the draft, or bring the open one up to date; returns its address."""
        ...

    async def ensure_comment(self, key: str, body: str) -> str:
        """Write the one comment of this key, or edit it in place; returns its address."""
        ...


class ForgeEffects(Forge, Protocol):
    """A forge where people talk: one issue or pull request with its labels, reactions and threads."""

    @property
    def page(self) -> str:
        """The address that people look at it by."""
        ...

    def comparison(self, base: str, branch: str) -> str:
        """The address at which a person opens the pull request of a branch with one click."""
        ...

    async def tip(self, branch: str) -> str:
        """The id of a branch's newest commit; empty if there is no such branch."""
        ...

    async def replace_branch(self, name: str, commit: str, ours: Collection[str]) -> str:
        """As `ensure_branch`; one of that name, or a numbered one, that holds one of `ours` is moved to `commit`."""
        ...

    async def update_draft_status(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        """Change the body of our open draft of that branch, and `close` it where it still holds nothing but `commit`,
        whose branch goes too; also one without a draft. Returns the draft's address, empty where there is none."""
        ...

    async def advance_branch(self, name: str, commit: str, expected: str) -> str:
        """Move our branch from `expected` to `commit`; refuses where anybody else has been on it."""
        ...

    async def ensure_labels_and_reviewers(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        """Add labels to our open pull request of that branch and ask people to review it; returns its address."""
        ...

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        """Change the body of this pull request, which has to be ours; returns its address."""
        ...

    async def ensure_reaction(self, target: ReactionTarget, content: Reaction) -> None: ...

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None: ...

    async def ensure_check_run(self, wanted: NewCheckRun) -> str:
        """Write our check on a commit, or bring it up to date; returns its address."""
        ...

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        """Answer an inline thread once; returns the answer's address."""
        ...

    async def ensure_resolved(self, thread: str) -> None: ...
