"""Branches that hold commits of a fork: what CI runs there gets this repository's secrets, so it is not let start."""

from typing import Final

from app.github.models import PullRequest

FORK_MARK: Final = "<!-- agent-fix:commits-of-a-fork -->"
"""In the text of our pull requests of which that is so, by which they are known later."""
FORK_NOTE: Final = (
    f"{FORK_MARK}\n> [!WARNING]\n"
    "> **This branch holds commits of a fork.** GitHub gives workflows of a fork's pull request no secrets; those of "
    "this branch would get them. So none is started here, whatever the configuration says, and `/agent ci` does not "
    "start any. Read all commits first; a commit that a person pushes starts them."
)


def holds_commits_of_a_fork(pull: PullRequest, repository: int) -> bool:
    """Whether a branch of this repository that follows this pull request holds commits of another one."""
    return pull.head_repository != repository or FORK_MARK in pull.body
