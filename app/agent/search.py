"""The search tool: finds a text in the work tree, definitions before uses before tests, and files by name."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from app.core.globs import glob_expression
from app.repo.index.ranking import STOP_WORDS, kind_of
from app.repo.index.terms import identifiers, terms
from app.sandbox.base import Sandbox
from app.sandbox.changes import LITTER_DIRECTORIES

# Searches for a description: files with the rarest of its words, and their most relevant lines.
#
# file = kind * sum over words of rarity * (occurrences / (occurrences + 2) + 1 if the path has the word)
#
# The kinds are those of `app.repo.index.ranking`: tests, documentation and files that are not source count less.

MAX_WORDS = 10
MAX_FILES = 30
"""Files whose lines are searched."""
SHOWN_FILES = 10
SHOWN_LINES = 3
_MIN_WORD_LENGTH = 3
_DEFINES = re.compile(
    r"^\s*(?:export |default |public |private |protected |static |abstract |async |pub(?:\([^)]*\))? )*"
    r"(?:def|class|function\*?|func|fn|struct|enum|interface|type|trait|impl|module)\b"
)


_Run = Callable[..., Awaitable[str]]
"""Runs a shell script with arguments in the sandbox, and gives its output. Raises SearchError."""


class FoundLine(NamedTuple):
    """A line of a file that has one of the words."""

    path: str
    number: int
    text: str


def words_of(query: str) -> tuple[str, ...]:
    """The search words, without endings, with names split into parts and without stop words."""
    found = [part for word in identifiers(query) for part in (terms(word)[1:] or terms(word))]
    informative = [word for word in dict.fromkeys(found) if len(word) >= _MIN_WORD_LENGTH and word not in STOP_WORDS]
    return tuple(informative[:MAX_WORDS])


def word_rarity(having: Mapping[str, Sequence[str]], files: int) -> dict[str, float]:
    """The weight of each word: the fewer files have it, the more it weighs."""
    return {word: log(1 + files / (1 + len(paths))) for word, paths in having.items() if paths}


def best_files(having: Mapping[str, Sequence[str]], rare: Mapping[str, float]) -> list[str]:
    """Files with at least two of the words, best first."""
    shared: dict[str, list[str]] = {}
    for word in rare:
        for path in having[word]:
            shared.setdefault(path, []).append(word)
    worth = {
        path: kind_of(path) * sum(rare[word] * (1 + (word in path.lower())) for word in words)
        for path, words in shared.items()
        if len(words) > 1
    }
    return sorted(worth, key=lambda path: (-worth[path], path))[:MAX_FILES]


def best_lines(lines: Iterable[FoundLine], rare: Mapping[str, float]) -> list[FoundLine]:
    """The lines to show: those of the best files, each with its best lines in order."""
    by_file: dict[str, list[FoundLine]] = {}
    for line in lines:
        by_file.setdefault(line.path, []).append(line)

    def file_worth(path: str) -> float:
        lowered = [line.text.lower() for line in by_file[path]]
        total = 0.0
        for word, rarity in rare.items():
            number = sum(word in text for text in lowered)
            total += rarity * (number / (number + 2) + (word in path.lower()))
        return kind_of(path) * total

    def line_worth(line: FoundLine) -> float:
        text = line.text.lower()
        return sum(rarity for word, rarity in rare.items() if word in text) * (1.5 if _DEFINES.match(line.text) else 1)

    shown: list[FoundLine] = []
    for path in sorted(by_file, key=lambda path: (-file_worth(path), path))[:SHOWN_FILES]:
        best = sorted(by_file[path], key=lambda line: (-line_worth(line), line.number))[:SHOWN_LINES]
        shown += sorted(best, key=lambda line: line.number)
    return shown


_SECONDS = 20.0
_MAX_BYTES = 4_000_000
_MAX_LINES = 60
_LINES_PER_FILE = 8
_MAX_NAMES = 12
_MAX_LINE_LENGTH = 240
_SKIPPED = (".git", "venv", *sorted(LITTER_DIRECTORIES))
"""Names of directories that are neither searched nor listed. A patch may have a new `venv`, but not the others."""
PRUNE_GENERATED = "\\( {} \\) -prune".format(" -o ".join(f"-name {name}" for name in _SKIPPED))
"""As words of find in a shell script."""
_EXCLUDED = [f"--exclude-dir={name}" for name in _SKIPPED]
_GREP = 'flags=$1 pattern=$2 most=$3; shift 3; grep -rnIZ "$flags" "$@" -e "$pattern" . | head -c "$most"'
_FIND = f"find . {PRUNE_GENERATED} -o -type f -print0"
_FILES_OF_WORDS = (
    'most=$1 words=$2; shift 2; for word in $words; do grep -rlIZi "$@" -e "$word" . | head -c "$most"; '
    "printf '\\0=\\0'; done"
)
"""The files of each word as `./path`, with `=` after each word's files."""
_LINES_OF_FILES = 'most=$1 pattern=$2; shift 2; grep -nIZHEi -e "$pattern" -- "$@" | head -c "$most"'
_FIND_AND_GREP = f"{_FIND} | head -c {_MAX_BYTES}; printf '\\0\\0'; {_GREP}"
"""In one command, because starting one takes longer than searching most repositories."""

_DEFINITION = (
    r"^\s*(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|abstract\s+|async\s+|pub(?:\([^)]*\))?\s+)*"
    r"(?:def|class|function\*?|func(?:\s*\([^)]*\))?|fn|struct|enum|interface|type|trait|impl|module|const|let|var|"
    r"#\s*define|typedef)\s+(?:\S+[.:])?{}\b|^{}\s*(?::[^=]+)?=[^=]"
)
_TEST_PATH = re.compile(
    r"(^|/)(tests?|spec|specs|__tests__|testdata)/|(^|/)test_|[._-](test|spec)s?\.|_test\.|conftest\.py$"
)
_PROSE_PATH = re.compile(r"\.(md|rst|txt|adoc|html?)$|(^|/)[A-Z]+$")


class SearchError(Exception):
    """The search was stopped; the message is for the model."""


async def search(sandbox: Sandbox, query: str, seconds: float = _SECONDS) -> tuple[str, str]:
    """The text to show, and a line with the number of results. Raises SearchError."""
    seconds = min(seconds, _SECONDS)

    async def run(*argv: str) -> str:
        done = await sandbox.exec(["sh", "-c", *argv], timeout=seconds, separate_stderr=True)
        if done.timed_out:
            raise SearchError(f"The search was stopped after {seconds:g} s. Search for something simpler.")
        return done.output.decode("utf-8", "replace")

    query = max(query.split("\n"), key=len).strip()  # grep reads lines; the longest of several says most
    found = await run(*_grep_arguments(_FIND_AND_GREP, f"-F{_case(query)}", query))
    all_files, _, lines = found.partition("\0\0")
    files = sorted(name.removeprefix("./") for name in all_files.split("\0") if name)
    names = _matching_names(files, query)
    hits, how = _ranked(lines.removeprefix("\0"), query), ""  # the last name's own NUL, if it was not cut
    if not hits:
        hits, how = await _search_loosely(run, query, len(files))
    text = "\n\n".join(filter(None, [_show_names(names), _show_hits(hits, how, query)]))
    summary = f"{len(hits):,} lines in {len({hit.path for hit in hits}):,} files"
    summary += f", {len(names):,} file names" if names else ""
    return text or f"Nothing matches {query[:200]!r}, neither in a text nor as a file name.", summary


async def _search_loosely(run: _Run, query: str, files: int) -> tuple[list[FoundLine], str]:
    """Lines by the strictest other reading of the query with any result: regular expression, other case, its words."""
    case = _case(query)
    if re.search(r"[\\^$.|?*+()\[\]{}]", query):
        found = _ranked(await run(*_grep_arguments(_GREP, f"-E{case}", _posix(query))), query)
        if found:
            return found, "as a regular expression"
    if case == "" and (found := _ranked(await run(*_grep_arguments(_GREP, "-Fi", query)), query)):
        return found, "in other case"
    words = words_of(query)
    if len(words) < 2:
        return [], ""
    output = await run(_FILES_OF_WORDS, "sh", str(_MAX_BYTES), " ".join(words), *_EXCLUDED)
    having = {
        word: [path.removeprefix("./") for path in names.split("\0") if path]
        for word, names in zip(words, output.split("\0=\0"), strict=False)
    }
    rare = word_rarity(having, files)
    likely = best_files(having, rare)
    if not likely:
        return [], ""
    output = await run(_LINES_OF_FILES, "sh", str(_MAX_BYTES), "|".join(rare), *(f"./{path}" for path in likely))
    return best_lines(_parse(output), rare), "by its words, files that share most of them first"


def _case(query: str) -> str:
    """grep's option if case does not count for the query."""
    return "" if query != query.lower() else "i"


def _grep_arguments(script: str, flags: str, pattern: str) -> list[str]:
    return [script, "sh", flags, pattern, str(_MAX_BYTES), *_EXCLUDED]


def _parse(output: str) -> Iterable[FoundLine]:
    for row in output.split("\n"):
        path, _, rest = row.partition("\0")
        number, _, text = rest.partition(":")
        if number.isdecimal():
            yield FoundLine(path.removeprefix("./"), int(number), text)


def _ranked(output: str, query: str) -> list[FoundLine]:
    """The found lines: definitions, uses, parts of other words; then tests, then prose.

    Only a query that is a name (`parse`, `Money.add`, `parse(`) has definitions.
    """
    name = re.fullmatch(r"(?:[\w$]+[.:]+)*([A-Za-z_$][\w$]*)\(?", query)
    word = re.escape(name[1]) if name else ""
    definition = re.compile(_DEFINITION.replace("{}", word))
    whole_word = re.compile(rf"\b{word}\b", re.IGNORECASE)

    def rank(line: FoundLine) -> int:
        if _PROSE_PATH.search(line.path):
            return 4
        if _TEST_PATH.search(line.path):
            return 3
        if name and definition.search(line.text):
            return 0
        return 1 if name is None or whole_word.search(line.text) else 2

    return sorted(_parse(output), key=lambda line: (rank(line), line.path, line.number))


def _posix(query: str) -> str:
    """A Perl regular expression in the form of grep -E."""
    return query.replace(r"\d", "[0-9]").replace("(?:", "(")


def _matching_names(names: Sequence[str], query: str) -> list[str]:
    """Files that the query may name: by a glob, the end of a path, or part of a name."""
    wanted = query.removeprefix("/workspace/").removeprefix("./").lower()
    if len(wanted) < 3 or re.search(r"\s", wanted):
        return []
    if "*" in wanted:
        glob = glob_expression(wanted)
        return [
            name for name in names if glob.fullmatch(name.lower()) or glob.fullmatch(name.lower().rpartition("/")[2])
        ]
    if "/" in wanted:
        return [name for name in names if wanted in name.lower()]
    return [name for name in names if wanted in name.lower().rpartition("/")[2]]


def _show_names(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f"\n(… and {len(names) - _MAX_NAMES:,} more)" if len(names) > _MAX_NAMES else ""
    return "Files of that name:\n" + "\n".join(names[:_MAX_NAMES]) + more


def _show_hits(hits: Sequence[FoundLine], how: str, query: str) -> str:
    """`path:line: text`, a few lines of each file; files that do not fit are listed with their counts."""
    rows = [f"Found {how}:"] if how else []
    left_out: dict[str, int] = {}
    by_file: dict[str, list[FoundLine]] = {}
    for hit in hits:
        by_file.setdefault(hit.path, []).append(hit)
    for path, of_file in by_file.items():
        shown = of_file[: max(min(_LINES_PER_FILE, _MAX_LINES - len(rows)), 0)]
        rows += [f"{path}:{hit.number}: {_around(hit.text, query)}" for hit in shown]
        if not shown:
            left_out[path] = len(of_file)
        elif len(shown) < len(of_file):
            rows.append(f"(… {len(of_file) - len(shown):,} more in {path})")
    if left_out:
        named = ", ".join(f"{path} ({count})" for path, count in list(left_out.items())[:10])
        rows.append(f"(… and in {len(left_out):,} more files: {named}{', …' if len(left_out) > 10 else ''})")
    return "\n".join(rows) if hits else ""


def _around(text: str, query: str) -> str:
    """The line, or the part of a long line around the match."""
    text = text.strip()
    if len(text) <= _MAX_LINE_LENGTH:
        return text
    place = max(text.lower().find(query.lower()), 0)
    begin = max(place - _MAX_LINE_LENGTH // 3, 0)
    part = text[begin : begin + _MAX_LINE_LENGTH]
    return f"{'… ' if begin else ''}{part}{' …' if begin + _MAX_LINE_LENGTH < len(text) else ''}"
