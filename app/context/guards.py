"""Which existing tests guard a file: by its name, by the names it defines, by where they stand."""

import re
from collections import Counter
from collections.abc import Iterable
from math import log

from app.context.index import File, Index
from app.context.kinds import is_test, is_test_name, stem
from app.context.terms import term_id, terms
from app.syntax import language_of

_MOST = 10
_ENOUGH = 0.1
_MARK = re.compile(r"^(test|spec)s?[_-]?|[_-]?(test|spec)s?$", re.IGNORECASE)


def related_tests(index: Index, paths: Iterable[str]) -> tuple[str, ...]:
    """Test files that exercise any of these files, the nearest first; changed tests themselves included."""
    tests = [file for file in index.files if is_test(file.path) and language_of(file.path)]
    files = {file.path: file for file in index.files}
    rare = _rarity(tests)
    nearness: Counter[str] = Counter()
    for path in dict.fromkeys(paths):
        if path not in files:
            continue
        if is_test(path):
            nearness[path] = 1_000
            continue
        for test in tests:
            near = _nearness(files[path], test, rare)
            if near >= _ENOUGH:
                nearness[test.path] = max(nearness[test.path], round(near * 100))
    best = sorted(nearness.items(), key=lambda each: (-each[1], each[0]))
    return tuple(path for path, _ in best[:_MOST])


def _rarity(tests: list[File]) -> dict[int, float]:
    frequency = Counter(term for test in tests for term in test.features.text.ids)
    return {term: log((1 + len(tests)) / number) for term, number in frequency.items()}


def _nearness(file: File, test: File, rare: dict[int, float]) -> float:
    """3 for the same name, and up to 2 by the share of the file's names that the test mentions; 0 across languages."""
    if _family(file.path) != _family(test.path):
        return 0.0
    own = _joined(stem(file.path))
    same_name = 3.0 if own and own == _joined(_MARK.sub("", stem(test.path))) else 0.0
    defined = {term_id(_joined(name)) for name in file.features.names if len(name) > 3}
    known = sum(rare.get(term, 0.0) for term in defined)
    shared = sum(rare[term] for term, _ in test.features.text.among(defined))
    near = same_name + (2 * shared / known if known else 0.0)
    return near if is_test_name(test.path) else near / 2  # the rest of a test folder is data and support


def _family(path: str) -> str | None:
    language = language_of(path)
    return {"tsx": "javascript", "typescript": "javascript", "c": "cpp"}.get(language or "", language)


def _joined(name: str) -> str:
    return terms(name)[0] if terms(name) else name.lower()
