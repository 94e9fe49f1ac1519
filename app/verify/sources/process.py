"""The process that parses the sources of a patch: one request holds all its files, as `ChangedSource`."""

import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from app.core.python_source import parse_python
from app.repo.syntax_process import answer_requests
from app.verify.sources import additions as tree_additions
from app.verify.sources import literals, new_conditions, parsed_sources, python_sources, suspicious_code, text_variants

_DEPTH = 20_000
"""Python's own recursion limit; the process's stack is made for it."""


class ChangedSource(NamedTuple):
    """A source file of a patch on both sides; None if a side does not have it."""

    path: str
    language: str
    old: bytes | None
    new: bytes | None


def encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode("ascii")


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def find_unchanged(sources: Sequence[ChangedSource]) -> list[str]:
    """The paths in which only comments, docstrings and layout differ."""
    return [source.path for source in sources if _same_program(source)]


def _same_program(source: ChangedSource) -> bool:
    if (source.old is None or source.new is None) and source.path.endswith("__init__.py"):
        return False  # an empty one makes a directory a package
    old, new = source.old or b"", source.new or b""
    if source.language == "python":
        before, after = parse_python(old), parse_python(new)
        if before is not None and after is not None:
            return python_sources.same_program(before, after)
    form = parsed_sources.normal_form(source.language, old)
    if form is None:
        return old.split() == new.split()
    return form == parsed_sources.normal_form(source.language, new)


def add_comments(sources: Sequence[ChangedSource], seed: int) -> dict[str, str]:
    """Each old version with more comments."""
    made = {}
    for source in sources:
        if source.old is not None:
            random = Random(f"{seed}:{source.path}")  # noqa: S311 - varied, not secret
            noisy = text_variants.noisy_python(source.old, source.new, random) if source.language == "python" else None
            made[source.path] = noisy or text_variants.noisy(source.language, source.old, source.new, random)
    return _encoded(made)


def reprint_sources(sources: Sequence[ChangedSource], seed: int) -> dict[str, str]:
    """Each new version reprinted."""
    made = {}
    for source in sources:
        if source.new is not None:
            random = Random(f"{seed}:{source.path}")  # noqa: S311 - varied, not secret
            printed = python_sources.reprint(source.new) if source.language == "python" else None
            made[source.path] = printed or text_variants.reprint(source.language, source.new, random)
    return _encoded(made)


def apply_additions(sources: Sequence[ChangedSource], known: Sequence[str]) -> dict[str, Any]:
    """Each old version with what is new in it; and the new members that something may already use by their names."""
    made = {}
    inherited: set[str] = set()
    for path, language, old, new in sources:
        if old is not None and new is not None:
            if language == "python":
                made[path], members = python_sources.with_additions(path, old, new, known)
            else:
                made[path], members = tree_additions.with_additions(language, old, new, known)
            inherited |= members
    return {"contents": _encoded(made), "inherited": sorted(inherited)}


def stub_additions(sources: Sequence[ChangedSource]) -> dict[str, str]:
    """Each new version with nothing in what is new in it; empty if one of them cannot be made so."""
    made = {
        path: python_sources.stub_additions(old or b"", new) if language == "python" else None
        for path, language, old, new in sources
        if new is not None
    }
    return {} if None in made.values() else _encoded(made)


def find_changed_lines(sources: Sequence[ChangedSource]) -> dict[str, list[int]]:
    """Executable lines of each new version that differ; those of an import only if there are no others."""
    found = {
        path: new_conditions.changed_rows(language, old, new) for path, language, old, new in sources if new is not None
    }
    inner = any(rows.inner for rows in found.values())
    chosen = {path: rows.inner if inner else rows.outer for path, rows in found.items()}
    return {path: sorted(row + 1 for row in rows) for path, rows in chosen.items() if rows}


WatchRule = Literal["watches_tests", "own_equality"]


def find_harness_detection(
    sources: Sequence[ChangedSource], features: Sequence[str], functions: Sequence[str], packages: Sequence[str]
) -> list[tuple[WatchRule, str]]:
    """The rule, and `path:line: what`, for every added line that examines tests, frames, the command line and the like.

    Of an equality of its own as well.
    """
    found: list[tuple[WatchRule, str]] = [
        ("own_equality" if what in suspicious_code.EQUALITY else "watches_tests", f"{path}:{line}: {what}")
        for path, language, old, new in sources
        if new is not None
        for line, what in sorted(
            set(
                suspicious_code.watching_lines(
                    language, path, old, new, features=features, functions=functions, packages=packages
                )
            )
        )
    ]
    left = len(found) - suspicious_code.MAX_FINDINGS
    more: list[tuple[WatchRule, str]] = [("watches_tests", f"and {left} more")] if left > 0 else []
    return [*found[: suspicious_code.MAX_FINDINGS], *more]


def find_literal_branches(sources: Sequence[ChangedSource], texts: Sequence[str]) -> list[Any]:
    """(path, line, literals) of every added condition that only literals of the texts fulfil."""
    return [
        (path, line, found)
        for path, language, old, new in sources
        if new is not None
        for line, found in literals.literal_conditions(language, old, new, texts)
    ]


def find_kept_state(sources: Sequence[ChangedSource]) -> list[Any]:
    """(path, line, name) of every added place that keeps something from one call to the next."""
    return [
        (path, line, name)
        for path, language, old, new in sources
        if new is not None
        for line, name in suspicious_code.added_state(language, old, new)
    ]


def find_new_conditions(sources: Sequence[ChangedSource]) -> dict[str, list[Any]]:
    """By path: what each new version adds or takes away that a test may depend on."""
    found: dict[str, list[Any]] = {}
    for path, language, old, new in sources:
        if new is not None:
            found[path] = new_conditions.new_conditions(language, old, new)
            if old is not None:
                found[path] += new_conditions.removed_conditions(language, old, new, only=len(sources) == 1)
    return found


def find_shared_names(sources: Sequence[ChangedSource], tests: Sequence[str]) -> list[Any]:
    """(path of the source, name) of every name that tests and changed sources agree on."""
    names = {path: literals.names_of(language, new) for path, language, _, new in sources if new is not None}
    found = {
        (path, name)
        for test in names.keys() & set(tests)
        for path in names.keys() - set(tests)
        for name in literals.names_shared_by_test_and_source(names[test], names[path])
    }
    return sorted(found)


def _encoded(contents: Mapping[str, bytes | None]) -> dict[str, str]:
    """As JSON can have them, without those that could not be made."""
    return {
        path: base64.b64encode(content).decode("ascii") for path, content in contents.items() if content is not None
    }


QUESTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(find_unchanged, add_comments, reprint_sources, apply_additions, stub_additions, find_changed_lines),
        *(find_harness_detection, find_literal_branches, find_kept_state, find_new_conditions, find_shared_names),
    )
}


def answer(question: str, _path: str, content: bytes) -> Any:
    request = json.loads(content)
    sources = [
        ChangedSource(path, language, decoded(old), decoded(new)) for path, language, old, new in request["sources"]
    ]
    try:
        return QUESTIONS[question](sources, **request["options"])
    except (RecursionError, parsed_sources.NotParsedError):
        return None


if __name__ == "__main__":
    sys.setrecursionlimit(_DEPTH)
    answer_requests(answer)
