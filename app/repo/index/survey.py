"""What is known about a base before work starts: its index, its history, the issue's files and their tests."""

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

from app.core.tree import Tree
from app.repo.index.commit_history import CommitChange, read_log
from app.repo.index.file_index import CodeIndex
from app.repo.index.ranking import RankedFile, locate
from app.repo.index.related_tests import related_tests
from app.repo.index.repository_map import outline, repository_map


class RepositorySurvey:
    """Each part is computed once, on first use; the same base and text give the same results."""

    def __init__(self, tree: Tree, text: str, *, cache: Path | None, read_history: Callable[[], bytes] = bytes) -> None:
        """`cache` is a directory that jobs share, or None; `read_history` returns the log of the base's commits."""
        self._tree = tree
        self._text = text
        self._cache = cache
        self._read_history = read_history

    @cached_property
    def index(self) -> CodeIndex:
        return CodeIndex.build(self._tree, self._cache)

    @cached_property
    def history(self) -> tuple[CommitChange, ...]:
        return tuple(read_log(self._read_history()))

    @cached_property
    def ranked(self) -> tuple[RankedFile, ...]:
        return locate(self.index, self._text, history=self.history)

    def map(self, budget_tokens: int) -> str:
        """The short repository map that a plan starts from."""
        return repository_map(
            self.index, self.ranked, budget_tokens=budget_tokens, text=self._text, history=self.history
        )

    def outline(self, paths: Iterable[str], budget_tokens: int) -> str:
        """Signatures of these files, and the likely files beside them."""
        return outline(self.index, self.ranked, list(dict.fromkeys(paths)), self._text, budget_tokens)

    def guards(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Existing tests for these files, best first."""
        return related_tests(self.index, paths, self.history)
