"""Collects a repository's instruction files for agents (such as AGENTS.md), as data, cut to a budget."""

from collections.abc import Iterable
from typing import NamedTuple

from app.core.tree import Tree

FILES = ("AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md", "CONTRIBUTING.md")
"""In this order; a repository that has the first seldom needs the last, so earlier ones are served first."""

_ALSO_AT = {"CONTRIBUTING.md": (".github/CONTRIBUTING.md", "docs/CONTRIBUTING.md")}
_SYMLINK = "120000"
_MAX_BYTES = 1_000_000
_CHARACTERS_PER_TOKEN = 4
_MIN_CUT = 200
"""Characters below which a piece of a file tells nothing."""


class InstructionFile(NamedTuple):
    """One instruction file's text; if it was cut, the text says so."""

    path: str
    text: str


def instructions(tree: Tree, budget_tokens: int) -> tuple[InstructionFile, ...]:
    """The commit's instruction files, the most binding first, within the budget (a token is four characters).

    A file that repeats an earlier one, as links to and copies of AGENTS.md do, is included once.
    """
    left = budget_tokens * _CHARACTERS_PER_TOKEN
    instruction_files: list[InstructionFile] = []
    seen: set[str] = set()
    for path, text in _texts(tree):
        if text in seen:
            continue
        seen.add(text)
        fitting = _cut(path, text, left)
        if not fitting:
            break
        instruction_files.append(InstructionFile(path, fitting))
        left -= len(fitting)
    return tuple(instruction_files)


def _texts(tree: Tree) -> Iterable[tuple[str, str]]:
    entries = tree.entries()
    by_folded = {path.casefold(): path for path in entries if path.count("/") <= 1}
    for name in FILES:
        places = (by_folded.get(place.casefold()) for place in (name, *_ALSO_AT.get(name, ())))
        path = next((place for place in places if place), None)
        if path is None or entries[path].mode == _SYMLINK or entries[path].size > _MAX_BYTES:
            continue
        text = tree.read(path).decode("utf-8", "replace").strip()
        if text:
            yield path, text


def _cut(path: str, text: str, limit: int) -> str:
    """The text, or its first whole lines with a note of what is missing; empty if too little would be left."""
    if len(text) <= limit:
        return text
    note = f"\n[cut here: {path} goes on, {len(text):,} characters in all]"
    remaining = limit - len(note)
    if remaining < _MIN_CUT:
        return ""
    lines_end = text.rfind("\n", 0, remaining)
    return text[: lines_end if lines_end > 0 else remaining].rstrip() + note
