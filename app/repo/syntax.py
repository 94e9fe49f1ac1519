"""Answers whether a file still parses and what it defines, for the edit tool, the syntax gate and the index."""

from app.repo import syntax_checks
from app.repo.grammars import MAX_BYTES, language_of
from app.repo.syntax_checks import Symbol, SyntaxProblem
from app.repo.syntax_process import SHARED

__all__ = ["Symbol", "SyntaxProblem", "first_error", "language_of", "symbols"]

_SMALL = 8_192
"""Bytes that no parser can make much harm of; larger files are parsed in a process of their own."""


def first_error(path: str, content: bytes) -> SyntaxProblem | None:
    """The first syntax error; None if there is none, or if the language cannot be checked."""
    if len(content) <= _SMALL:
        return syntax_checks.first_error(path, content)
    if len(content) > syntax_checks.MAX_BYTES or not syntax_checks.can_be_checked(path):
        return None
    answer = SHARED.ask("first_error", path, content)
    return SyntaxProblem(*answer) if answer else None


def symbols(path: str, content: bytes) -> tuple[Symbol, ...]:
    """All definitions in the file, in order; empty for unknown languages and files too large to be source."""
    if len(content) <= _SMALL:
        return syntax_checks.symbols(path, content)
    if len(content) > MAX_BYTES or language_of(path) is None:
        return ()
    return tuple(Symbol(*each) for each in SHARED.ask("symbols", path, content) or ())
