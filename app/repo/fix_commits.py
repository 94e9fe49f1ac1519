"""Finds the fix that tests are wanted for: named by the person who asks, or mentioned in the issue.

Only commits in the base's history count. Calls block, and use plumbing that executes nothing a repository configures.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.core.errors import ExitCode, RepositoryError
from app.repo.git_command import Git

MAX_COMMITS: Final = 2_000
"""That speak of a number and are looked at."""
MAX_NAMED: Final = 10
"""Ids and numbers of a text that are looked up."""
_ID = re.compile(r"(?<![0-9A-Za-z#/_.-])[0-9a-f]{7,40}(?![0-9A-Za-z_-])")
_NUMBER = re.compile(r"(?:(?<![\w/&])#|\bgh-|/pull/|/issues/)([1-9][0-9]{0,8})\b", re.IGNORECASE)


def named_commits(text: str) -> tuple[str, ...]:
    """Words that may be commit ids, in order; a word of only letters or only digits is not one."""
    found = (each for each in _ID.findall(text) if re.search(r"[0-9]", each) and re.search(r"[a-f]", each))
    return tuple(dict.fromkeys(found))[:MAX_NAMED]


def named_numbers(text: str) -> tuple[int, ...]:
    """The numbers of mentioned issues and pull requests, in order."""
    return tuple(dict.fromkeys(map(int, _NUMBER.findall(text))))[:MAX_NAMED]


def requested_fix(repository: Path, base: str, name: str) -> str:
    """The full id of a named commit. Raises RepositoryError if the base's history does not contain it."""
    git = Git("-C", str(repository))
    shown = name if name.isprintable() and len(name) <= 100 else ascii(name[:100])
    commit = _resolved(git, name)
    if commit is None:
        raise RepositoryError(f"The fix {shown!r} is not a commit in {repository}.", code=ExitCode.UNKNOWN_BASE)
    if not _contains(git, base, commit):
        raise RepositoryError(
            f"The fix {shown!r} is not in the history of the base {base[:10]}.",
            code=ExitCode.UNKNOWN_BASE,
            hint="Tests are written for a fix that the base contains; name such a base with --base REF.",
        )
    return commit


def mentioned_fix(repository: Path, base: str, text: str) -> str:
    """The first commit in the base's history that a text names, or an empty text.

    A commit is named by its id, or by the number of an issue or pull request: the newest commit that merged, was
    squashed from, or closed it.
    """
    git = Git("-C", str(repository))
    for name in named_commits(text):
        commit = _resolved(git, name)
        if commit is not None and _contains(git, base, commit):
            return commit
    return _fix_of_numbers(git, base, named_numbers(text))


def _resolved(git: Git, name: str) -> str | None:
    if "\0" in name or not name:
        return None
    status, output, _ = git.attempt("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
    return output.decode("ascii").strip() if status == 0 else None


def _contains(git: Git, base: str, commit: str) -> bool:
    return git.attempt("merge-base", "--is-ancestor", commit, base)[0] == 0


def _fix_of_numbers(git: Git, base: str, numbers: tuple[int, ...]) -> str:
    """The best commit for the first number that has one, the newest among equals; reads the history once."""
    if not numbers:
        return ""
    greps = [f"--grep=#{number}" for number in numbers]
    words = ("rev-list", f"--max-count={MAX_COMMITS}", "-F", *greps, "--format=%x01%H%x00%B", base)
    status, output, _ = git.attempt(*words)
    messages = list(_messages(output)) if status == 0 else []
    return next(filter(None, (_closest_commit(messages, number) for number in numbers)), "")


def _closest_commit(messages: list[tuple[str, str]], number: int) -> str:
    ranked = [(rank, commit) for commit, message in messages if (rank := _closeness(message, number)) is not None]
    return min(ranked, default=(0, ""), key=lambda pair: pair[0])[1]


def _messages(output: bytes) -> Iterator[tuple[str, str]]:
    for record in output.decode("utf-8", "replace").split("\x01")[1:]:
        commit, _, message = record.partition("\0")
        yield commit, message


def _closeness(message: str, number: int) -> int | None:
    """How closely a commit message refers to a number, smaller is closer; None if it does not."""
    subject = message.partition("\n")[0]
    signs = (
        rf"^Merge pull request #{number}\b",
        rf"\(#{number}\)\s*$",
        rf"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+#{number}\b",
    )
    places = (subject, subject, message)
    found = (rank for rank, sign in enumerate(signs) if re.search(sign, places[rank], re.IGNORECASE))
    return next(found, None)
