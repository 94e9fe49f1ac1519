"""The port to where a change is published: a folder beside a repository now, a forge's API elsewhere.

Every method is safe to say twice and after a crash: it looks first, and returns where the thing is to be seen.
There is nothing here to approve, to merge or to take a pull request out of draft.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A draft pull request as it should be. `branch` is its head; one pull request exists per branch."""

    branch: str
    base: str
    title: str
    body: str


class Forge(Protocol):
    """A place that holds branches, pull requests and comments."""

    async def ensure_branch(self, name: str, commit: str) -> str:
        """Make `commit` a branch; returns its name, numbered where the wanted one holds something else."""
        ...

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        """Open the draft, or bring the open one up to date; returns its address."""
        ...

    async def ensure_comment(self, key: str, body: str) -> str:
        """Write the one comment of this key, or edit it in place; returns its address."""
        ...
