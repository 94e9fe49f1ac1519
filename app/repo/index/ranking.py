"""Which files an issue is about: one sum, each of whose parts can be named as a reason.

    score   = kind * (words / most words + mentions + history)
    words   = BM25(text) + 0.5 * BM25(names defined) + 2.5 * BM25(path)
    history = 0.2 * nearest commits + 0.1 * BM25(subjects of the file's commits) / the most

The issue's text becomes a query: weighted terms, and the files, modules and names it mentions.
`docs/development/localisation.md` says where the numbers come from and what they are worth.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from math import log, sqrt
from typing import Literal, NamedTuple

from app.repo.index.file_index import CodeIndex, is_code, is_source, is_test, is_unlikely_place, module_names
from app.repo.index.file_index import stem as path_stem
from app.repo.index.terms import Hits, bm25, identifiers, rarity, stem, term_id, terms
from app.repo.syntax import language_of

MAX_COMMITS = 2_500
"""As many of the newest commits as are worth giving; older ones speak of other code."""

LARGE_COMMIT = 15
"""Commits that touch more files are sweeps (formatting, renames) and say nothing of one file."""
_SIMILAR_COMMITS = 20
_SHORT_SUBJECT = 3
"""Added to a subject's length, so that one shared word in a subject of two does not win."""

MAX_CHARACTERS = 60_000
"""The beginning and the end of a longer text are read: titles come first, tracebacks end in their cause."""

_SUFFIX = (
    r"(?:pyi?|[cm]?[jt]s|[jt]sx|go|rs|rb|java|kt|scala|swift|php|cs|c|cc|cpp|cxx|hh?|hpp|hxx"
    r"|cfg|toml|ini|ya?ml|json|rst|md|txt|html|css|sh)"
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_LINK = re.compile(r"https?://[^\s)\]>\"'`]+")
_LINKED_FILE = re.compile(r"/(?:blob|tree|blame|raw)/[^/\s]+/([^\s#?]+)")
_INLINE = re.compile(r"(?<!`)`++([^`\n]+)`++")
_PYTHON_FRAME = re.compile(r'File "([^"\n]+)", line \d+')
_FRAME = re.compile(rf"(?<![\w@~.\-/\\])([\w@~.\-/\\]+\.{_SUFFIX}):\d+")
_PATH = re.compile(rf"(?<![\w/.\-@+\\])((?:[\w@.\-+]+[/\\])*[\w@.\-+]+\.{_SUFFIX})\b(?![/\w])")
_DOTTED = re.compile(r"\b([A-Za-z_]\w*(?:(?:\.|::|#)[A-Za-z_]\w*)+)\b")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(\)")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\(")
_ERROR_NAME = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Fault)")
_SYSTEM_LINE = re.compile(
    r"^[ \t>*+-]*\**(?:os|operating system|platform|(?:[\w.]+ )?versions?|python|browser|tex|architecture|kernel"
    r"|(?:sphinx |pytest )?(?:extra tools|extensions|plugins))\**[ \t]*:[^\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_INSTALLED = re.compile(r"^(?:[ \t]*[\w.-]+(?:==|[ \t]+)v?\d+(?:\.\w+)+[^\n]*\n){3,}", re.MULTILINE)
"""What reporters say of their machine: `OS: Ubuntu`, and three or more lines of a list of installed packages."""
_PHRASE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]*+(?:[ -][A-Za-z][A-Za-z0-9]*+)+")
_CODE_NAME = re.compile(
    r"\w*[a-z0-9]_+\w+|_+[a-z]\w+|[a-z]+[A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]\w+|[A-Z0-9]+_\w+"
)
_FILLER_WORDS = (
    "a am an and are as at be been but by can could did do does for from get got had has have here i if in into is it"
    " its it's me my no not of on or our should so than that the their them then there they this to us use used using"
    " was we were what when where which will with would you your"
)
STOP_WORDS = frozenset(term for word in _FILLER_WORDS.split() for term in (word, stem(word)))
"""As terms, so that `here` and `hav` are among them."""

# The weight of a word, by where it occurs. A word that occurs in several places counts for each.
_TITLE = 2.0
_PROSE = 0.8
_CODE = 0.6
_INLINE_CODE = 1.5
_CODE_NAME_BONUS = 0.7
"""Added once for each name that looks like code (`dry_run`, `dryRun`), wherever it occurs."""
_REPEATED = 0.1
"""What each further e-fold of a word's repetitions adds."""

# How much a mention adds to a score whose textual part is at most 1.
_PATH_MENTION = 0.5
_FRAME_MENTION = 0.5
_OUTER_FRAME = 0.8
"""The factor for each frame further from the error."""
_MODULE_MENTION = 0.1
_DEFINITION = 0.05
_ALL_DEFINITIONS = 0.1
"""The most that all definitions together can add."""
_MAX_DEFINERS = 8
"""A name that more files define than this says nothing of any."""
_TITLED = 1.0
"""For the one file that defines a name of the title."""

# The parts of a file's score.
_K1 = 3.0
_B = 0.75
_PATH_WORDS = 2.5
_DEFINED_WORDS = 0.5
_FOLDER = 0.4
"""A folder's name, relative to the file's own."""
_SIMILAR_COMMITS_SHARE = 0.2
"""For files changed by the commits with the most similar subjects."""
_COMMIT_SUBJECTS_SHARE = 0.1
"""For all subjects of the file's commits together."""
_IS_TEST = 0.3
_IS_UNLIKELY_PLACE = 0.7
_NO_SOURCE = 0.3

_MAX_EXPLAINED = 50
"""Files whose words are named as reasons; the others are too far down for anyone to ask."""
_MIN_HISTORY_REASON = 0.03
"""Less than this from the history is not named as a reason."""


@dataclass(frozen=True, slots=True)
class IssueQuery:
    """`weights` by term; `frames` are a traceback's files, innermost first; `names` were written as code."""

    weights: Mapping[str, float]
    paths: tuple[str, ...]
    frames: tuple[str, ...]
    modules: tuple[str, ...]
    names: frozenset[str]
    titled: frozenset[str] = frozenset()
    """Names in the title with marks of code, or with a capital letter and written as code or called somewhere."""


@dataclass(frozen=True, slots=True)
class IssueSections:
    """An issue's text in parts: prose without code blocks and comments; all parts without links."""

    title: str
    prose: str
    code: str
    inline: tuple[str, ...]
    whole: str


def parse(text: str) -> IssueQuery:
    """Parse an issue: its first line is the title, the rest Markdown."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    parts = sections(text)
    frames = tuple(_traceback_files(text))
    modules = tuple(dict.fromkeys(_DOTTED.findall(parts.whole)))
    names = frozenset(_code_names(parts, modules))
    return IssueQuery(
        weights=_weights(parts),
        paths=tuple(_named_files(text, parts.whole, frames)),
        frames=frames,
        modules=modules,
        names=names,
        titled=frozenset(_titled(parts, names)),
    )


def sections(text: str) -> IssueSections:
    title, _, body = text.partition("\n")
    body = _SYSTEM_LINE.sub(" ", _INSTALLED.sub("\n", _COMMENT.sub(" ", body)))
    code = "\n".join(match[2] for match in _FENCE.finditer(body))
    prose = _FENCE.sub(" ", body)
    inline = tuple(_INLINE.findall(f"{title}\n{prose}"))
    return IssueSections(_unlinked(title), _unlinked(prose), _unlinked(code), inline, _unlinked(text))


def _unlinked(text: str) -> str:
    return _LINK.sub(" ", text)


def _weights(parts: IssueSections) -> dict[str, float]:
    written_as_code = dict.fromkeys(filter(_CODE_NAME.fullmatch, identifiers(parts.whole)))
    words_by_weight = (
        (_TITLE, identifiers(parts.title)),
        (_PROSE, identifiers(parts.prose)),
        (_CODE, identifiers(parts.code)),
        (_INLINE_CODE, [word for span in parts.inline for word in identifiers(span)]),
        (_CODE_NAME_BONUS, written_as_code),
    )
    weights: dict[str, float] = {}
    for weight, words in words_by_weight:
        counts = Counter(term for word in words for term in terms(word) if term not in STOP_WORDS)
        for term, number in counts.items():
            weights[term] = weights.get(term, 0.0) + weight * (1 + _REPEATED * log(number))
    for phrase, weight in _phrases(parts).items():
        weights.setdefault(phrase, weight)
    return weights


def _phrases(parts: IssueSections) -> dict[str, float]:
    """Neighbouring words joined to one: "type hints" may be `typehints.py`, "dry-run" may be `dryRun`."""
    found: dict[str, float] = {}
    for section, weight in ((parts.prose, _PROSE), (parts.title, _TITLE)):
        for match in _PHRASE.finditer(section):
            words = re.split("[ -]", match[0].lower())
            for first, second in pairwise(words):
                for joined in terms(f"{first}_{second}")[:1]:
                    found[joined] = weight
    return found


def _code_names(parts: IssueSections, modules: Iterable[str]) -> Iterator[str]:
    for span in parts.inline:
        if len(span) < 80:
            yield from identifiers(span)
    yield from _CALL.findall(parts.whole)
    for word in identifiers(parts.whole):
        if _CODE_NAME.fullmatch(word) or _ERROR_NAME.fullmatch(word):
            yield word
    for module in modules:
        yield from re.split(r"\.|::|#", module)[-2:]


def _titled(parts: IssueSections, names: frozenset[str]) -> Iterator[str]:
    called = set(_CALLED.findall(parts.whole))
    for word in identifiers(parts.title):
        if _CODE_NAME.fullmatch(word) or (word[0].isupper() and (word in names or word in called)):
            yield word


def _traceback_files(text: str) -> Iterator[str]:
    """The files of tracebacks, innermost first: Python prints that frame last, other languages first."""
    python = [match[1] for match in _PYTHON_FRAME.finditer(text)]
    other = [match[1] for match in _FRAME.finditer(text)]
    python += [path for path in other if path.endswith(".py")]
    yield from dict.fromkeys(reversed(python))
    yield from dict.fromkeys(path for path in other if not path.endswith(".py"))


def _named_files(text: str, unlinked: str, frames: tuple[str, ...]) -> Iterator[str]:
    linked = (_LINKED_FILE.search(link) for link in _LINK.findall(text))
    mentioned = (match[1] for match in _PATH.finditer(unlinked))
    for path in dict.fromkeys([*(match[1] for match in linked if match), *mentioned]):
        if not any(frame.endswith(path) for frame in frames):
            yield path


class CommitChange(NamedTuple):
    """A commit before the base: its subject and the files it changed."""

    subject: str
    paths: tuple[str, ...]


class CommitSubject(NamedTuple):
    """A commit's subject as terms, and the `number` source files it changed that still exist."""

    terms: frozenset[int]
    paths: Sequence[str]
    number: int


def read_log(output: bytes) -> Iterator[CommitChange]:
    """Parse changes from `git log --no-merges --name-only -z --format=%x01%s`."""
    for record in output.decode("utf-8", "surrogateescape").split("\x01")[1:]:
        subject, *paths = (part.strip("\n") for part in record.split("\0"))
        yield CommitChange(subject, tuple(path for path in paths if path))


def subjects(history: Iterable[CommitChange], present: Collection[str]) -> list[CommitSubject]:
    """The commits that changed source files; `present` are the files of the base."""
    return [
        CommitSubject(
            frozenset(term_id(term) for word in identifiers(change.subject) for term in terms(word)),
            [path for path in sources if path in present],
            len(sources),
        )
        for change in history
        if len(change.paths) <= LARGE_COMMIT and (sources := [path for path in change.paths if is_source(path)])
    ]


def rarity_of(commits: Iterable[CommitSubject]) -> dict[int, float]:
    return rarity([[(term, 1.0) for term in subject.terms] for subject in commits])


def similar_commit_scores(
    commits: Iterable[CommitSubject], weights: Mapping[int, float], rare: Mapping[int, float]
) -> dict[str, float]:
    """Files of the most similar commits, scored between 0 and 1 by how much the subjects share with the query."""
    ranked = []
    for subject in commits:
        shared = sum(weights[term] * rare[term] for term in subject.terms if term in weights)
        if shared:
            ranked.append((shared / sqrt(_SHORT_SUBJECT + len(subject.terms)), subject))
    ranked.sort(key=lambda each: -each[0])
    found: dict[str, float] = {}
    for similarity, subject in ranked[:_SIMILAR_COMMITS]:
        for path in subject.paths:
            found[path] = found.get(path, 0.0) + similarity * similarity / subject.number
    return _relative_to_best(found)


def subject_scores(
    commits: Iterable[CommitSubject], weights: Mapping[int, float], rare: Mapping[int, float]
) -> dict[str, float]:
    """Files scored between 0 and 1 by BM25 over the subjects of all their commits, joined to one text each.

    A subject that applies to several files counts less for each: by the square root of their number.
    """
    texts: dict[str, dict[int, float]] = {}
    lengths: dict[str, float] = {}
    for subject in commits:
        share = 1 / sqrt(subject.number)
        wanted = subject.terms & weights.keys()
        for path in subject.paths:
            lengths[path] = lengths.get(path, 0.0) + len(subject.terms) * share
            text = texts.setdefault(path, {})
            for term in wanted:
                text[term] = text.get(term, 0.0) + share
    hits = [list(text.items()) for text in texts.values()]
    scores = bm25(hits, [lengths[path] for path in texts], weights, k1=_K1, b=_B, rare=rare)
    return _relative_to_best(dict(zip(texts, scores, strict=True)))


def _relative_to_best(found: Mapping[str, float]) -> dict[str, float]:
    best = max(found.values(), default=0.0) or 1.0
    return {path: score / best for path, score in found.items() if score > 0}


@dataclass(frozen=True, slots=True)
class Mention:
    """`worth` is added to a file's score: the best of its places (path, frame, module) plus the sum of definitions."""

    path: str
    kind: Literal["place", "definition"]
    worth: float
    reason: str


def mentions(index: CodeIndex, query: IssueQuery) -> Iterator[Mention]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in index.files:
        by_name[file.path.rpartition("/")[2]].append(file.path)
    yield from _paths(by_name, query)
    yield from _frames(by_name, query)
    yield from _modules(index, query)
    yield from _definitions(index, query)


def _paths(by_name: dict[str, list[str]], query: IssueQuery) -> Iterator[Mention]:
    for mentioned in query.paths:
        meant = resolve(mentioned, by_name)
        for path in meant:
            yield Mention(path, "place", _PATH_MENTION / len(meant), f"the text names {mentioned}")


def _frames(by_name: dict[str, list[str]], query: IssueQuery) -> Iterator[Mention]:
    weight = _FRAME_MENTION
    for frame in query.frames:
        meant = resolve(frame, by_name)
        if len(meant) == 1:
            yield Mention(meant[0], "place", weight, "it appears in a traceback")
            weight *= _OUTER_FRAME


def resolve(mentioned: str, by_name: dict[str, list[str]]) -> list[str]:
    """The files that a path means; it may start elsewhere (`site-packages/…`) or be a bare, unique name."""
    wanted = mentioned.replace("\\", "/").removeprefix("./").split("/")
    best: list[str] = []
    longest = 0
    for path in by_name.get(wanted[-1], ()):
        parts = path.split("/")
        last_parts = zip(reversed(parts), reversed(wanted), strict=False)
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], last_parts)))
        if common > longest:
            best, longest = [path], common
        elif common == longest:
            best.append(path)
    if longest == 1 and (len(best) > 1 or (len(wanted) > 1 and "/" in best[0])):
        return []
    return best


def _modules(index: CodeIndex, query: IssueQuery) -> Iterator[Mention]:
    by_module = _by_module(file.path for file in index.files) if query.modules else {}
    meant: dict[str, str] = {}
    for module in query.modules:
        parts = module.replace("::", ".").replace("#", ".").split(".")
        for end in range(len(parts), 1, -1):
            if paths := by_module.get(".".join(parts[:end])):
                if len(paths) == 1:
                    meant.setdefault(paths[0], module)
                break
    for path, module in meant.items():
        yield Mention(path, "place", _MODULE_MENTION / len(meant), f"the text names {module}")


def _by_module(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if language_of(path):
            for name in module_names(path):
                if "." in name:
                    found[name].append(path)
    return found


def _definitions(index: CodeIndex, query: IssueQuery) -> Iterator[Mention]:
    definers: dict[str, list[str]] = defaultdict(list)
    wanted = {name for name in query.names | query.titled if not name.startswith("__")}
    for file in index.files:
        if file.features.names and not is_test(file.path):
            for name in wanted.intersection(file.features.names):
                definers[name].append(file.path)
    for name, paths in definers.items():
        only = [path for path in paths if not is_unlikely_place(path)]
        if name in query.titled and len(only) == 1:
            yield Mention(only[0], "place", _TITLED, f"alone defines {name}, which the title names")
        if name in query.names and len(paths) <= _MAX_DEFINERS:
            for path in paths:
                yield Mention(path, "definition", _DEFINITION / len(paths), f"defines {name}")


class RankedFile(NamedTuple):
    """A file, its score (0 to about 2) and the reasons, the weightiest first."""

    path: str
    score: float
    reasons: tuple[str, ...]


def rank_files(index: CodeIndex, text: str, *, history: Iterable[CommitChange] = ()) -> tuple[RankedFile, ...]:
    """Rank the commit's files by how likely the issue is about them; files without any sign of it are left out.

    `history` are the commits before this one, newest first (`MAX_COMMITS` are plenty).
    """
    query = parse(text)
    weights = {term_id(term): weight for term, weight in query.weights.items()}
    words = _word_scores(index, weights)
    reasons: dict[str, list[tuple[float, str]]] = defaultdict(list)
    added = _add_up(mentions(index, query), reasons)
    for path, score, reason in _history_scores(index, history, weights):
        added[path] += score
        if score >= _MIN_HISTORY_REASON:
            reasons[path].append((score, reason))
    most = max(words, default=0.0) or 1.0
    scored = [
        (kind_of(file.path) * (word / most + added[file.path]), position)
        for position, (file, word) in enumerate(zip(index.files, words, strict=True))
    ]
    best = sorted((each for each in scored if each[0] > 0), key=lambda each: (-each[0], each[1]))
    explain = _Explainer(index, query, reasons, [position for _, position in best[:_MAX_EXPLAINED]])
    return tuple(RankedFile(index.files[position].path, score, explain(position)) for score, position in best)


def _history_scores(
    index: CodeIndex, history: Iterable[CommitChange], weights: Mapping[int, float]
) -> Iterator[tuple[str, float, str]]:
    """Yield (path, added score, reason)."""
    commits = subjects(history, frozenset(file.path for file in index.files))
    rare = rarity_of(commits)
    for path, similarity in similar_commit_scores(commits, weights, rare).items():
        yield path, _SIMILAR_COMMITS_SHARE * similarity, "changed by commits with similar subjects"
    for path, similarity in subject_scores(commits, weights, rare).items():
        yield path, _COMMIT_SUBJECTS_SHARE * similarity, "its commit messages use similar words"


def _word_scores(index: CodeIndex, weights: Mapping[int, float]) -> list[float]:
    """BM25 of each file over its text, the names it defines and its path, summed."""
    wanted = set(weights)
    text: list[Hits] = [list(file.features.text.among(wanted)) for file in index.files]
    defined: list[Hits] = [list(file.features.defined.among(wanted)) for file in index.files]
    paths: list[Hits] = [[hit for hit in path_terms(file.path) if hit[0] in wanted] for file in index.files]
    lengths = [file.features.length for file in index.files]
    by_text = bm25(text, lengths, weights, k1=_K1, b=_B)
    by_name = bm25(defined, None, weights, k1=1.0)
    by_path = bm25(paths, None, weights, k1=1.0)
    return [
        one + _DEFINED_WORDS * two + _PATH_WORDS * three
        for one, two, three in zip(by_text, by_name, by_path, strict=True)
    ]


@lru_cache(maxsize=100_000)
def path_terms(path: str) -> Hits:
    """The terms of the file's own name, and those of its folders at a lower count."""
    counts: dict[int, float] = {}
    *folders, _ = path.split("/")
    for part, weight in [(path_stem(path), 1.0), *((each, _FOLDER) for each in folders)]:
        for word in identifiers(part.replace("-", "_")):
            for term in map(term_id, terms(word)):
                counts[term] = counts.get(term, 0.0) + weight
    return tuple(counts.items())


def _add_up(found: Iterable[Mention], reasons: dict[str, list[tuple[float, str]]]) -> dict[str, float]:
    place: dict[str, float] = defaultdict(float)
    defining: dict[str, float] = defaultdict(float)
    for mention in found:
        reasons[mention.path].append((mention.worth, mention.reason))
        if mention.kind == "place":
            place[mention.path] = max(place[mention.path], mention.worth)
        else:
            defining[mention.path] += mention.worth
    total: dict[str, float] = defaultdict(float, place)
    for path, worth in defining.items():
        total[path] += min(worth, _ALL_DEFINITIONS)
    return total


def kind_of(path: str) -> float:
    """The factor for a file's kind: test, unlikely place, or no source."""
    factor = 1.0 if is_code(path) else _NO_SOURCE
    if is_test(path):
        return factor * _IS_TEST
    return factor * _IS_UNLIKELY_PLACE if is_unlikely_place(path) else factor


class _Explainer:
    """Explains a file's rank, with the words that weigh most in it."""

    def __init__(
        self, index: CodeIndex, query: IssueQuery, reasons: Mapping[str, list[tuple[float, str]]], positions: list[int]
    ) -> None:
        self._index = index
        self._reasons = reasons
        self._terms = {term_id(term): term for term in query.weights}
        self._weights = {term_id(term): weight for term, weight in query.weights.items()}
        self._positions = frozenset(positions)
        hits = {position: self._hits(position) for position in positions}
        rare = rarity(hits.values())
        self._top = {
            position: sorted(found, key=lambda hit: -self._weights[hit[0]] * rare[hit[0]] * hit[1] / (hit[1] + 1))[:5]
            for position, found in hits.items()
        }

    def __call__(self, position: int) -> tuple[str, ...]:
        path = self._index.files[position].path
        reasons = [reason for _, reason in sorted(self._reasons.get(path, ()), reverse=True)]
        if position in self._positions and self._top[position]:
            reasons.append("words: " + ", ".join(self._terms[term] for term, _ in self._top[position]))
        return tuple(dict.fromkeys(reasons))

    def _hits(self, position: int) -> Hits:
        return list(self._index.files[position].features.text.among(set(self._weights)))
