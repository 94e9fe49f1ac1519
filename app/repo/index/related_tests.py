"""Finds the existing tests for a file: by its name, by the names it defines, by what was changed together."""

import re
from collections import Counter
from collections.abc import Iterable
from math import log

from app.repo.index.commit_history import LARGE_COMMIT, CommitChange
from app.repo.index.file_index import CodeIndex, IndexedFile
from app.repo.index.path_kinds import is_code, is_test, is_test_name, stem
from app.repo.index.terms import term_id, terms
from app.repo.syntax import language_of

MAX_TESTS = 10
_MIN_SCORE = 0.1
_CHANGED_TEST_SCORE = 1_000.0
_TEST_AFFIX = re.compile(r"^(test|spec)s?[_-]?|[_-]?(test|spec)s?$", re.IGNORECASE)
_SAME_NAME_SCORE = 3.0
_MENTIONS_SCORE = 2.0
_CHANGED_TOGETHER_SCORE = 2.0
_EXTRA_COMMITS = 2
"""Added to the number of a file's commits, so that one commit alone is no habit."""


def related_tests(index: CodeIndex, paths: Iterable[str], history: Iterable[CommitChange] = ()) -> tuple[str, ...]:
    """At most ten test files that exercise any of these files, best first; includes changed tests themselves.

    The score counts a test of the same name (3), one that mentions names that the file defines (up to 2, by their
    rarity), and one that earlier commits changed together with it (up to 2, by the share of the file's commits).
    """
    tests = _tests(index)
    files = {file.path: file for file in index.files}
    wanted = [path for path in dict.fromkeys(paths) if path in files]
    changed_together = _changed_together(history, frozenset(wanted))
    rare = _rarity(tests)
    nearness: dict[str, float] = {}
    for path in wanted:
        if is_test(path):
            nearness[path] = _CHANGED_TEST_SCORE
            continue
        for test in tests:
            score = _nearness(files[path], test, rare) + _CHANGED_TOGETHER_SCORE * changed_together.get(
                (path, test.path), 0.0
            )
            if score >= _MIN_SCORE:
                nearness[test.path] = max(nearness.get(test.path, 0.0), score)
    return tuple(sorted(nearness, key=lambda path: (-round(nearness[path], 2), path))[:MAX_TESTS])


def _tests(index: CodeIndex) -> list[IndexedFile]:
    """Test files without helpers: beside files that are named as tests, others hold none; in Python, nowhere."""
    found = [file for file in index.files if is_test(file.path) and is_code(file.path)]
    found = [file for file in found if not file.path.endswith("conftest.py")]
    folders = {_folder(file.path) for file in found if is_test_name(file.path)}
    return [
        file
        for file in found
        if is_test_name(file.path) or not (file.path.endswith(".py") or _folder(file.path) in folders)
    ]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _changed_together(history: Iterable[CommitChange], paths: frozenset[str]) -> dict[tuple[str, str], float]:
    """Map (path, test) to the share of the path's commits that changed the test as well."""
    changed: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for change in history:
        changed_paths = paths.intersection(change.paths)
        if not changed_paths or len(change.paths) > LARGE_COMMIT:
            continue
        changed.update(changed_paths)
        both.update((path, test) for test in change.paths if is_test(test) for path in changed_paths)
    return {(path, test): number / (changed[path] + _EXTRA_COMMITS) for (path, test), number in both.items()}


def _rarity(tests: list[IndexedFile]) -> dict[int, float]:
    frequency = Counter(term for test in tests for term in test.features.text.ids)
    return {term: log((1 + len(tests)) / number) for term, number in frequency.items()}


def _nearness(file: IndexedFile, test: IndexedFile, rare: dict[int, float]) -> float:
    """Score by name and by the share of the file's names that the test mentions; 0 across languages."""
    if _family(file.path) != _family(test.path):
        return 0.0
    own = _as_one_term(stem(file.path))
    same_name = _SAME_NAME_SCORE if own and own == _as_one_term(_TEST_AFFIX.sub("", stem(test.path))) else 0.0
    defined = {term_id(_as_one_term(name)) for name in file.features.names if len(name) > 3}
    known = sum(rare.get(term, 0.0) for term in defined)
    shared = sum(rare[term] for term, _ in test.features.text.among(defined))
    score = same_name + (_MENTIONS_SCORE * shared / known if known else 0.0)
    return score if is_test_name(test.path) else score / 2  # some of these are data and helpers


def _family(path: str) -> str:
    language = language_of(path) or path.rpartition(".")[2].lower()
    return {"tsx": "javascript", "typescript": "javascript", "c": "cpp"}.get(language, language)


def _as_one_term(name: str) -> str:
    return terms(name)[0] if terms(name) else name.lower()
