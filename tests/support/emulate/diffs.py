"""The place of an inline comment: the hunk it was written on, and its line after later commits."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.repositories import git

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def hunk(repository: Path, base: str, commit: str, path: str, line: int) -> str:
    """The part of the pull request's diff that ends at this line of the new file; empty where it is not in the diff."""
    for start, lines in _hunks(git(repository, "diff", f"{base}...{commit}", "--", path)):
        kept, number = [lines[0]], start
        for text in lines[1:]:
            kept.append(text)
            if text.startswith("-"):
                continue
            if number == line:
                return "\n".join(kept)
            number += 1
    return ""


def _hunks(diff: str) -> Iterator[tuple[int, list[str]]]:
    """Each hunk with the first line of its new side."""
    for part in re.split(r"^(?=@@ )", diff, flags=re.MULTILINE)[1:]:
        header = _HEADER.match(part)
        assert header is not None
        yield int(header[3]), part.splitlines()


def followed(repository: Path, old: str, new: str, path: str, line: int) -> int | None:
    """The line's number in a later commit; None where it was changed or is gone."""
    if old == new:
        return line
    moved = line
    for header in _HEADER.finditer(git(repository, "diff", "-U0", old, new, "--", path)):
        start, count, added = int(header[1]), int(header[2] or 1), int(header[4] or 1)
        if count and start <= line < start + count:
            return None
        if start < line:
            moved += added - count
    return moved
