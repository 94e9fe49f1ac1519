"""Branches with commits from a fork: CI would run with this repository's secrets, so it is not started."""

from typing import Final

from app.github.models import PullRequest

FORK_MARK: Final = "<!-- agent-fix:commits-of-a-fork -->"
"""A marker in our pull requests with commits from a fork, to recognise them later."""
FORK_NOTE: Final = (
    f"{FORK_MARK}\n> [!WARNING]\n"
    "> **This branch holds commits from a fork.** GitHub gives no secrets to workflows of a fork's pull request, but "
    "workflows of this branch would get them. So agent-fix starts none, whatever the configuration says, not even for "
    "`/agent ci`. Review all commits first; a commit pushed by a person starts them."
)


def holds_commits_of_a_fork(pull: PullRequest, repository: int) -> bool:
    """True if a branch based on this pull request holds commits of another repository."""
    return pull.head_repository != repository or FORK_MARK in pull.body
