"""Which commit is the fix that tests are wanted for: named by whoever asks, or found in what the issue says.

Only a commit that the base has counts. Blocking, and by plumbing that executes nothing a repository configures.
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
    """What may be the id of a commit, in order; a word of letters or of digits only is none."""
    found = (each for each in _ID.findall(text) if re.search(r"[0-9]", each) and re.search(r"[a-f]", each))
    return tuple(dict.fromkeys(found))[:MAX_NAMED]


def named_numbers(text: str) -> tuple[int, ...]:
    """Issues and pull requests that are spoken of, in order."""
    return tuple(dict.fromkeys(map(int, _NUMBER.findall(text))))[:MAX_NAMED]


def requested_fix(repository: Path, base: str, name: str) -> str:
    """The full id of a commit that somebody named; RepositoryError where it is none of the base's."""
    git = Git("-C", str(repository))
    shown = name if name.isprintable() and len(name) <= 100 else ascii(name[:100])
    commit = _resolved(git, name)
    if commit is None:
        raise RepositoryError(f"The fix {shown!r} names no commit in {repository}.", code=ExitCode.UNKNOWN_BASE)
    if not _has(git, base, commit):
        raise RepositoryError(
            f"The fix {shown!r} is not part of the base {base[:10]}.",
            code=ExitCode.UNKNOWN_BASE,
            hint="Name a base that has it with --base REF: tests are written for a fix that is there.",
        )
    return commit


def mentioned_fix(repository: Path, base: str, text: str) -> str:
    """The first commit of the base that a text names by id, or by the number of an issue or pull request; or nothing.

    A number stands for the newest commit that merged, was squashed from, or closed it.
    """
    git = Git("-C", str(repository))
    for name in named_commits(text):
        commit = _resolved(git, name)
        if commit is not None and _has(git, base, commit):
            return commit
    return _of_numbers(git, base, named_numbers(text))


def _resolved(git: Git, name: str) -> str | None:
    if "\0" in name or not name:
        return None
    status, output, _ = git.attempt("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
    return output.decode("ascii").strip() if status == 0 else None


def _has(git: Git, base: str, commit: str) -> bool:
    return git.attempt("merge-base", "--is-ancestor", commit, base)[0] == 0


def _of_numbers(git: Git, base: str, numbers: tuple[int, ...]) -> str:
    """The best commit of the first number that has one, the newest among equals; the past is gone through once."""
    if not numbers:
        return ""
    greps = [f"--grep=#{number}" for number in numbers]
    words = ("rev-list", f"--max-count={MAX_COMMITS}", "-F", *greps, "--format=%x01%H%x00%B", base)
    status, output, _ = git.attempt(*words)
    messages = list(_messages(output)) if status == 0 else []
    return next(filter(None, (_best(messages, number) for number in numbers)), "")


def _best(messages: list[tuple[str, str]], number: int) -> str:
    ranked = [(rank, commit) for commit, message in messages if (rank := _rank(message, number)) is not None]
    return min(ranked, default=(0, ""), key=lambda pair: pair[0])[1]


def _messages(output: bytes) -> Iterator[tuple[str, str]]:
    for record in output.decode("utf-8", "replace").split("\x01")[1:]:
        commit, _, message = record.partition("\0")
        yield commit, message


def _rank(message: str, number: int) -> int | None:
    """How sure it is that a commit is what became of a number; smaller is surer."""
    subject = message.partition("\n")[0]
    signs = (
        rf"^Merge pull request #{number}\b",
        rf"\(#{number}\)\s*$",
        rf"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+#{number}\b",
    )
    places = (subject, subject, message)
    found = (rank for rank, sign in enumerate(signs) if re.search(sign, places[rank], re.IGNORECASE))
    return next(found, None)
