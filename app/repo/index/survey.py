"""What is known about a base before work starts: its index, its history, the issue's files and their tests."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import log
from pathlib import Path

from app.core.patch import Tree
from app.repo.index.file_index import CodeIndex, IndexedFile, is_code, is_test, is_test_name, stem
from app.repo.index.ranking import LARGE_COMMIT, CommitChange, RankedFile, rank_files, read_log
from app.repo.index.terms import term_id, terms
from app.repo.syntax import Symbol, language_of, symbols

MAX_TESTS = 10
_MIN_SCORE = 0.1
_CHANGED_TEST_SCORE = 1_000.0
_TEST_AFFIX = re.compile(r"^(test|spec)s?[_-]?|[_-]?(test|spec)s?$", re.IGNORECASE)
_SAME_NAME_SCORE = 3.0
_MENTIONS_SCORE = 2.0
_CHANGED_TOGETHER_SCORE = 2.0
_EXTRA_COMMITS = 2
"""Added to the number of a file's commits, so that one commit alone does not count as a habit."""


def related_tests(index: CodeIndex, paths: Iterable[str], history: Iterable[CommitChange] = ()) -> tuple[str, ...]:
    """At most ten test files that exercise any of these files, best first; includes changed tests themselves.

    The score counts a test of the same name (3), one that mentions names that the file defines (up to 2, by their
    rarity), and one that earlier commits changed together with it (up to 2, by the share of the file's commits).
    """
    tests = _tests(index)
    files = {file.path: file for file in index.files}
    wanted = [path for path in dict.fromkeys(paths) if path in files]
    changed_together = _changed_together(history, frozenset(wanted))
    frequency = Counter(term for test in tests for term in test.features.text.ids)
    rare = {term: log((1 + len(tests)) / number) for term, number in frequency.items()}
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


_CHARACTERS_PER_TOKEN = 4
_MAX_OUTLINED = 8
"""Files whose signatures are shown; the next ones only by path."""
_MAX_NAMED = 20
_SYMBOLS = (24, 16, 12, 10, 8, 8, 6, 6)
"""How many signatures of each, in a map of _LARGE tokens; fewer in a smaller one."""
_LARGE_MAP = 2_500
_MIN_SYMBOLS = 2
_SYMBOLS_OF_PLANNED = 6
"""Signatures of each of a plan's files."""
_MAX_NEIGHBOURS = 4
_LIST_SHARE = 0.2
"""Share of the budget that each of the lists of further files, tests and folders may count on."""
_CLEAR_LEAD = 0.4
"""Of the first file's score over the second's; then the files to be changed are nearly always among the first three."""
_FILES_OF_CLEAR = 3
_INDENT = "  "
_HEADING = "Files that the issue's words match, best first (line: signature):"


def repository_map(
    index: CodeIndex,
    ranked: Sequence[RankedFile],
    *,
    budget_tokens: int,
    text: str = "",
    history: Sequence[CommitChange] = (),
) -> str:
    """Plain text of at most `budget_tokens` (a token is four characters); names in `text` decide what is outlined.

    If one file is clearly the best, nothing further than its next ones is listed.
    """
    limit = budget_tokens * _CHARACTERS_PER_TOKEN
    share = int(limit * _LIST_SHARE)
    sources = [each for each in ranked if not is_test(each.path)]
    clear = len(sources) > 1 and sources[0].score - sources[1].score >= _CLEAR_LEAD
    likely = [each.path for each in sources][: _FILES_OF_CLEAR if clear else _MAX_NAMED]
    most = [max(number * budget_tokens // _LARGE_MAP, _MIN_SYMBOLS) for number in _SYMBOLS]
    tests = related_tests(index, likely[:3], history)[:6]
    lists = [_list_line("Tests near the first of these: ", tests, share), "" if clear else _folders(index, share)]
    lines = [_HEADING] if likely else []
    space = limit - _size([*lines, *filter(None, lists)])
    outlined = 0
    for block in _outlines(index, likely[:_MAX_OUTLINED], text, most):
        if (size := _size(block)) > space - (share if len(likely) > outlined + 1 else 0):
            break
        lines += block
        space -= size
        outlined += 1
    lists.insert(0, _list_line("Also: ", likely[outlined:], space - 1))
    return "\n".join([*lines, *filter(None, lists)])[:limit]


def outline(index: CodeIndex, ranked: Sequence[RankedFile], paths: Sequence[str], text: str, budget_tokens: int) -> str:
    """The signatures of a plan's files, and which likely files are beside them; tests are left out."""
    space = budget_tokens * _CHARACTERS_PER_TOKEN
    present = {file.path for file in index.files}
    planned = [path for path in paths if path in present and not is_test(path)]
    lines: list[str] = []
    for block in _outlines(index, planned, text, [_SYMBOLS_OF_PLANNED] * len(planned)):
        fitting = block if _size(block) <= space else block[:1]  # at least its path
        lines += fitting
        space = max(space - _size(fitting), 0)
    folders = {path.rpartition("/")[0] for path in planned}
    near = [each.path for each in ranked[:_MAX_NAMED] if each.path.rpartition("/")[0] in folders]
    neighbours = [path for path in near if path not in planned and not is_test(path)][:_MAX_NEIGHBOURS]
    return "\n".join([*lines, *filter(None, [_list_line("Beside them: ", neighbours, space)])])


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _list_line(title: str, paths: Sequence[str], space: int) -> str:
    """As many of the paths as fit into one line; empty if none does."""
    fitting: list[str] = []
    for path in map(escape_name, paths):
        if len(title) + len(", ".join([*fitting, path])) >= space:
            break
        fitting.append(path)
    return f"{title}{', '.join(fitting)}" if fitting else ""


def _outlines(index: CodeIndex, paths: Sequence[str], text: str, most: Sequence[int]) -> Iterator[list[str]]:
    words = {part for word in text.split() for part in _words(word)}
    wanted = {term_id(term) for part in words for term in terms(part)}
    named = set(filter(_is_identifier, words))
    contents = index.tree.read_many(paths)
    for path, number in zip(paths, most, strict=False):
        found = symbols(path, contents[path]) if path in contents else ()
        yield [escape_name(path), *_outline(found, wanted, named, number)]


def _words(word: str) -> list[str]:
    return "".join(each if each.isalnum() or each == "_" else " " for each in word).split()


def _is_identifier(word: str) -> bool:
    """Whether a word of prose can only be the name of something: `get` is a word, `get_all` and `getAll` are names."""
    return "_" in word.strip("_") or not (word[1:].islower() or word.isupper() or word[1:] == "")


def _outline(found: Sequence[Symbol], wanted: set[int], named: set[str], most: int) -> Iterator[str]:
    candidates = [symbol for symbol in found if symbol.kind not in {"variable", "constant", "prototype", "macro"}]
    candidates = candidates or list(found)
    best = sorted(candidates, key=lambda symbol: (symbol.name not in named, -_value(symbol, wanted), symbol.line))[
        :most
    ]
    names = {symbol.name for symbol in best}
    for symbol in sorted(best, key=lambda each: each.line):
        within = f" [{symbol.parent}]" if symbol.parent and symbol.parent not in names else ""
        yield escape_name(f"{_INDENT * (2 if symbol.parent else 1)}{symbol.line}: {symbol.signature}{within}")
    if left := len(candidates) - len(best):
        yield f"{_INDENT}… {left} more"


def _value(symbol: Symbol, wanted: set[int]) -> float:
    named = {term_id(term) for term in terms(symbol.name)}
    shared = len(named & wanted) / len(named) if named else 0.0
    return 2 * shared + (0.0 if symbol.parent else 1.0) + (0.5 if symbol.kind == "class" else 0.0)


def _folders(index: CodeIndex, space: int) -> str:
    """Folders to a depth of two with their contents, the fullest first while there is room."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for file in index.files:
        parts = file.path.split("/")
        kinds["/".join(parts[:-1][:2]) + "/" if len(parts) > 1 else "./"][_kind(file.path)] += 1
    fullest = sorted(kinds.items(), key=lambda each: (-each[1].total(), each[0]))
    folder_counts = [
        f"{folder} ({', '.join(f'{number} {kind}' for kind, number in counts.most_common(2))})"
        for folder, counts in fullest
    ]
    return _list_line(f"Folders ({len(index.files):,} files in all): ", folder_counts, space)


def _kind(path: str) -> str:
    suffix = path.rpartition("/")[2].rpartition(".")[2] if "." in path.rpartition("/")[2] else ""
    return language_of(path) or (suffix.lower() if suffix.isalnum() else "other")


def escape_name(text: str) -> str:
    """Escape a name for a prompt: it may contain line ends, control characters or invalid bytes."""
    return "".join("\ufffd" if unicodedata.category(each) in {"Cc", "Cs", "Cf", "Zl", "Zp"} else each for each in text)


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
        return rank_files(self.index, self._text, history=self.history)

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
