"""A short map of the repository for the model: signatures in the likeliest files, then the folders."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from app.repo.index.commit_history import CommitChange
from app.repo.index.file_index import CodeIndex
from app.repo.index.path_kinds import is_test
from app.repo.index.ranking import RankedFile
from app.repo.index.related_tests import related_tests
from app.repo.index.terms import term_id, terms
from app.repo.syntax import Symbol, language_of, symbols

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
_INDENT = "  "
_HEADING = "Files ranked by how well their words match the issue, best first (line: signature):"


def repository_map(
    index: CodeIndex,
    ranked: Sequence[RankedFile],
    *,
    budget_tokens: int,
    text: str = "",
    history: Sequence[CommitChange] = (),
) -> str:
    """Plain text of at most `budget_tokens` (a token is four characters); names in `text` decide what is outlined."""
    limit = budget_tokens * _CHARACTERS_PER_TOKEN
    share = int(limit * _LIST_SHARE)
    likely = [each.path for each in ranked if not is_test(each.path)][:_MAX_NAMED]
    most = [max(number * budget_tokens // _LARGE_MAP, _MIN_SYMBOLS) for number in _SYMBOLS]
    tests = related_tests(index, likely[:3], history)[:6]
    lists = [_list_line("Tests near the first of these: ", tests, share), _folders(index, share)]
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
        if (size := _size(block)) <= space:
            lines += block
            space -= size
    folders = {path.rpartition("/")[0] for path in planned}
    near = [each.path for each in ranked[:_MAX_NAMED] if each.path.rpartition("/")[0] in folders]
    neighbours = [path for path in near if path not in planned and not is_test(path)][:_MAX_NEIGHBOURS]
    return "\n".join([*lines, *filter(None, [_list_line("Beside them: ", neighbours, space)])])


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _list_line(title: str, paths: Sequence[str], space: int) -> str:
    """As many of the paths as fit into one line; empty if none does."""
    fitting: list[str] = []
    for path in map(shown, paths):
        if len(title) + len(", ".join([*fitting, path])) >= space:
            break
        fitting.append(path)
    return f"{title}{', '.join(fitting)}" if fitting else ""


def _outlines(index: CodeIndex, paths: Sequence[str], text: str, most: Sequence[int]) -> Iterator[list[str]]:
    wanted = {term_id(term) for word in text.split() for part in _words(word) for term in terms(part)}
    contents = index.tree.read_many(paths)
    for path, number in zip(paths, most, strict=False):
        found = symbols(path, contents[path]) if path in contents else ()
        yield [shown(path), *_outline(found, wanted, number)]


def _words(word: str) -> list[str]:
    return "".join(each if each.isalnum() or each == "_" else " " for each in word).split()


def _outline(found: Sequence[Symbol], wanted: set[int], most: int) -> Iterator[str]:
    candidates = [symbol for symbol in found if symbol.kind not in {"variable", "constant", "prototype", "macro"}]
    candidates = candidates or list(found)
    best = sorted(candidates, key=lambda symbol: (-_value(symbol, wanted), symbol.line))[:most]
    names = {symbol.name for symbol in best}
    for symbol in sorted(best, key=lambda each: each.line):
        within = f" [{symbol.parent}]" if symbol.parent and symbol.parent not in names else ""
        yield shown(f"{_INDENT * (2 if symbol.parent else 1)}{symbol.line}: {symbol.signature}{within}")
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


def shown(text: str) -> str:
    """Escape a name for a prompt: it may contain line ends, control characters or invalid bytes."""
    return "".join("\ufffd" if unicodedata.category(each) in {"Cc", "Cs", "Cf", "Zl", "Zp"} else each for each in text)
