"""Patterns of paths that a model or a repository writes, matched without trying the same thing twice."""

import re

MAX_STARS = 3
"""Stars in one part of a .gitignore pattern: pathspec's expressions take time that grows with this power of a name."""


def has_too_many_stars(pattern: str) -> bool:
    """True for a .gitignore pattern that would keep a regular expression busy for minutes."""
    return pattern.count("**") > MAX_STARS or any(
        len(re.findall(r"\*+", part)) > MAX_STARS for part in pattern.split("/")
    )


def glob_expression(pattern: str) -> re.Pattern[str]:
    """The expression for a whole path. `*` stops at a slash, a part `**` stands for any number of parts, and every
    other letter stands for itself.

    The first place that fits what follows a star is final, so that nothing is tried twice.
    """
    groups: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if part == "**":
            groups.append([])
        else:
            groups[-1].append(_part_expression(part))
    first, *others = map("/".join, groups)
    if not others:
        return re.compile(first)
    *middle, last = others
    text = f"{first}/" if first else ""
    text += "".join(f"(?>(?:[^/]*/)*?{group}/)" for group in middle if group)
    return re.compile(text + (f"(?:[^/]*/)*{last}" if last else ".*"), re.DOTALL)


def _part_expression(part: str) -> str:
    begin, *rest = map(re.escape, re.split(r"\*+", part))
    if not rest:
        return begin
    *middle, end = rest
    return begin + "".join(f"(?>[^/]*?{text})" for text in middle) + f"[^/]*{end}"
