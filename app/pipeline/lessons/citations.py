"""Finds a citation for a lesson: a line of the base commit about the same subject, and whether it still exists."""

import hashlib
from collections.abc import Iterator, Mapping

from app.core.lessons import Citation
from app.core.tree import Tree
from app.repo.index.terms import identifiers, stem, terms

MAX_BYTES = 1_000_000
_MIN_LINE = 6
_SYMLINK = "120000"
_COMMON_WORDS = """
a an and are as at be been before but by can do does done each every file files first for from had has have
here if in into is it its line must need needs no not of off on one only or other over own same should so such
than that the their them then there these they this to too under until up use used uses using via was way were
what when where which while who why will with without would you your code repository project test tests thing
lesson
"""
_STOP_WORDS = frozenset(form for word in _COMMON_WORDS.split() for form in (word, stem(word)))
"""Words that do not make two texts similar."""


def topics(text: str) -> frozenset[str]:
    """The words of a text that show its subject, identifiers whole and in parts."""
    found = {term for word in identifiers(text) for term in terms(word)}
    return frozenset(term for term in found if term not in _STOP_WORDS and (len(term) > 1 or not term.isascii()))


def find_citation(
    tree: Tree, path: str, text: str, after: Mapping[str, bytes | None] | None = None, *, least: int = 1
) -> Citation | None:
    """The line of a file that shares most words with a text; None if no line shares `least`.

    `after` are files as a patch leaves them: a line that the patch removes does not count.
    """
    wanted = topics(text)
    remains = _remaining(path, after)
    best, most = "", least - 1
    for line in _lines(tree, path):
        shared = len(wanted & topics(line)) if len(line) >= _MIN_LINE else -1
        if shared > most and (remains is None or line in remains):
            best, most = line, shared
    return Citation(path=path, commit=tree.commit, digest=_digest(best)) if best else None


def holds(tree: Tree, citation: Citation) -> bool:
    """True if the file still has the line, whatever its indentation and position."""
    return any(_digest(line) == citation.digest for line in _lines(tree, citation.path))


def _remaining(path: str, after: Mapping[str, bytes | None] | None) -> frozenset[str] | None:
    """The lines of a changed or deleted file after a patch; None for any other file."""
    if after is None or path not in after:
        return None
    return frozenset(_stripped(after[path] or b""))


def _lines(tree: Tree, path: str) -> Iterator[str]:
    entry = tree.entries().get(path)
    if entry is None or entry.mode == _SYMLINK or entry.size > MAX_BYTES:
        return iter(())
    return _stripped(tree.read(path))


def _stripped(content: bytes) -> Iterator[str]:
    return (line.strip() for line in content.decode("utf-8", "replace").split("\n"))


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:32]
