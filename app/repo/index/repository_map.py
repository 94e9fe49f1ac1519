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
_OUTLINED = 8
"""Files whose signatures are shown; the next ones only by path."""
_NAMED = 20
_SYMBOLS = (24, 16, 12, 10, 8, 8, 6, 6)
_FOR_FOLDERS = 0.25
"""Share of the budget that the overview of folders may count on."""
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
    folders = _folders(index, int(limit * _FOR_FOLDERS))
    likely = [each.path for each in ranked if not is_test(each.path)][:_NAMED]
    blocks = [*_outlines(index, likely[:_OUTLINED], text), _also(likely[_OUTLINED:])]
    blocks.append(_tests(index, likely[:3], history))
    lines = [_HEADING] if likely else []
    remaining = limit - _size([*lines, *folders])
    for block in blocks:
        if (size := _size(block)) <= remaining:
            lines += block
            remaining -= size
    return "\n".join([*lines, *folders])[:limit]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _outlines(index: CodeIndex, paths: Sequence[str], text: str) -> Iterator[list[str]]:
    wanted = {term_id(term) for word in text.split() for part in _words(word) for term in terms(part)}
    contents = index.tree.read_many(paths)
    for path, most in zip(paths, _SYMBOLS, strict=False):
        found = symbols(path, contents[path]) if path in contents else ()
        yield [shown(path), *_outline(found, wanted, most)]


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


def _also(paths: Sequence[str]) -> list[str]:
    return [f"Also: {', '.join(map(shown, paths))}"] if paths else []


def _tests(index: CodeIndex, paths: Sequence[str], history: Sequence[CommitChange]) -> list[str]:
    tests = related_tests(index, paths, history)[:6]
    return [f"Tests near the first of these: {', '.join(map(shown, tests))}"] if tests else []


def _folders(index: CodeIndex, remaining: int) -> list[str]:
    """Folders to a depth of two with their contents, the fullest first while there is room."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for file in index.files:
        parts = file.path.split("/")
        kinds["/".join(parts[:-1][:2]) + "/" if len(parts) > 1 else "./"][_kind(file.path)] += 1
    lines = [f"Folders ({len(index.files):,} files in all):"]
    chosen: list[tuple[str, str]] = []
    left = remaining - len(lines[0])
    for folder, counts in sorted(kinds.items(), key=lambda each: (-each[1].total(), each[0])):
        summary = ", ".join(f"{number} {kind}" for kind, number in counts.most_common(3))
        line = shown(f"{_INDENT}{folder} {summary}")
        if len(line) + 1 > left:
            break
        left -= len(line) + 1
        chosen.append((folder, line))
    return [*lines, *(line for _, line in sorted(chosen))]


def _kind(path: str) -> str:
    suffix = path.rpartition("/")[2].rpartition(".")[2] if "." in path.rpartition("/")[2] else ""
    return language_of(path) or (suffix.lower() if suffix.isalnum() else "other")


def shown(text: str) -> str:
    """Escape a name for a prompt: it may contain line ends, control characters or invalid bytes."""
    return "".join("\ufffd" if unicodedata.category(each) in {"Cc", "Cs", "Cf", "Zl", "Zp"} else each for each in text)
