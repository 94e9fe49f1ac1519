"""Which files an issue is about: one sum, each of whose parts can be named as a reason.

    score   = kind * (words / most words + mentions + history)
    words   = BM25(text) + 0.5 * BM25(names defined) + 2.5 * BM25(path)
    history = 0.2 * nearest commits + 0.1 * BM25(subjects of the file's commits) / the most

`docs/development/localisation.md` says where the numbers come from and what they are worth.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from app.repo.index.commit_history import CommitChange, rarity_of, similar_commit_scores, subject_scores, subjects
from app.repo.index.file_index import CodeIndex
from app.repo.index.path_kinds import is_code, is_test, is_unlikely_place, module_names, stem
from app.repo.index.query import IssueQuery, TermWeights, parse
from app.repo.index.terms import Hits, bm25, identifiers, rarity, term_id, terms
from app.repo.syntax import language_of

_MAX_DEFINERS = 8
"""A name that more files define than this says nothing of any."""


@dataclass(frozen=True, slots=True)
class MentionWeights:
    """How much a mention adds to a score whose textual part is at most 1."""

    path: float = 0.5
    frame: float = 0.5
    outer_frame: float = 0.8
    """The factor for each frame further from the error."""
    module: float = 0.1
    definition: float = 0.05
    definitions: float = 0.1
    """The most that all definitions together can add."""
    titled: float = 1.0
    """For the one file that defines a name of the title."""


@dataclass(frozen=True, slots=True)
class Mention:
    """`worth` is added to a file's score: the best of its places (path, frame, module) plus the sum of definitions."""

    path: str
    kind: Literal["place", "definition"]
    worth: float
    reason: str


def mentions(index: CodeIndex, query: IssueQuery, boosts: MentionWeights) -> Iterator[Mention]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in index.files:
        by_name[file.path.rpartition("/")[2]].append(file.path)
    yield from _paths(by_name, query, boosts)
    yield from _frames(by_name, query, boosts)
    yield from _modules(index, query, boosts)
    yield from _definitions(index, query, boosts)


def _paths(by_name: dict[str, list[str]], query: IssueQuery, boosts: MentionWeights) -> Iterator[Mention]:
    for mentioned in query.paths:
        meant = resolve(mentioned, by_name)
        for path in meant:
            yield Mention(path, "place", boosts.path / len(meant), f"the text names {mentioned}")


def _frames(by_name: dict[str, list[str]], query: IssueQuery, boosts: MentionWeights) -> Iterator[Mention]:
    weight = boosts.frame
    for frame in query.frames:
        meant = resolve(frame, by_name)
        if len(meant) == 1:
            yield Mention(meant[0], "place", weight, "it appears in a traceback")
            weight *= boosts.outer_frame


def resolve(mentioned: str, by_name: dict[str, list[str]]) -> list[str]:
    """The files that a path means; it may start elsewhere (`site-packages/…`) or be a bare, unique name."""
    wanted = mentioned.replace("\\", "/").removeprefix("./").split("/")
    best: list[str] = []
    longest = 0
    for path in by_name.get(wanted[-1], ()):
        parts = path.split("/")
        common = _shared_end(parts, wanted)
        if common > longest:
            best, longest = [path], common
        elif common == longest:
            best.append(path)
    if longest == 1 and (len(best) > 1 or (len(wanted) > 1 and "/" in best[0])):
        return []
    return best


def _shared_end(one: Sequence[str], other: Sequence[str]) -> int:
    common = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        common += 1
    return common


def _modules(index: CodeIndex, query: IssueQuery, boosts: MentionWeights) -> Iterator[Mention]:
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
        yield Mention(path, "place", boosts.module / len(meant), f"the text names {module}")


def _by_module(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if language_of(path):
            for name in module_names(path):
                if "." in name:
                    found[name].append(path)
    return found


def _definitions(index: CodeIndex, query: IssueQuery, boosts: MentionWeights) -> Iterator[Mention]:
    definers: dict[str, list[str]] = defaultdict(list)
    wanted = {name for name in query.names | query.titled if not name.startswith("__")}
    for file in index.files:
        if file.features.names and not is_test(file.path):
            for name in wanted.intersection(file.features.names):
                definers[name].append(file.path)
    for name, paths in definers.items():
        only = [path for path in paths if not is_unlikely_place(path)]
        if name in query.titled and len(only) == 1:
            yield Mention(only[0], "place", boosts.titled, f"alone defines {name}, which the title names")
        if name in query.names and len(paths) <= _MAX_DEFINERS:
            for path in paths:
                yield Mention(path, "definition", boosts.definition / len(paths), f"defines {name}")


_MAX_EXPLAINED = 50
"""Files whose words are named as reasons; the others are too far down for anyone to ask."""

_MIN_HISTORY_REASON = 0.03
"""Less than this from the history is not named as a reason."""


@dataclass(frozen=True, slots=True)
class RankingFormula:
    """Every number of the ranking."""

    emphasis: TermWeights = field(default_factory=TermWeights)
    boosts: MentionWeights = field(default_factory=MentionWeights)
    k1: float = 3.0
    b: float = 0.75
    path: float = 2.5
    defined: float = 0.5
    folder: float = 0.4
    """A folder's name, relative to the file's own."""
    similar_commits: float = 0.2
    """For files changed by the commits with the most similar subjects."""
    commit_subjects: float = 0.1
    """For all subjects of the file's commits together."""
    test: float = 0.3
    unlikely_place: float = 0.7
    no_source: float = 0.3


FORMULA = RankingFormula()


class RankedFile(NamedTuple):
    """A file, its score (0 to about 2) and the reasons, the weightiest first."""

    path: str
    score: float
    reasons: tuple[str, ...]


def locate(
    index: CodeIndex, text: str, *, history: Iterable[CommitChange] = (), formula: RankingFormula = FORMULA
) -> tuple[RankedFile, ...]:
    """Rank the commit's files by how likely the issue is about them; files without any sign of it are left out.

    `history` are the commits before this one, newest first (`history.MAX_COMMITS` are plenty).
    """
    query = parse(text, formula.emphasis)
    weights = {term_id(term): weight for term, weight in query.weights.items()}
    words = _word_scores(index, weights, formula)
    reasons: dict[str, list[tuple[float, str]]] = defaultdict(list)
    added = _add_up(mentions(index, query, formula.boosts), formula.boosts, reasons)
    for path, score, reason in _history_scores(index, history, weights, formula):
        added[path] += score
        if score >= _MIN_HISTORY_REASON:
            reasons[path].append((score, reason))
    most = max(words, default=0.0) or 1.0
    scored = [
        (kind_of(file.path, formula) * (word / most + added[file.path]), position)
        for position, (file, word) in enumerate(zip(index.files, words, strict=True))
    ]
    best = sorted((each for each in scored if each[0] > 0), key=lambda each: (-each[0], each[1]))
    explain = _Explainer(index, query, reasons, [position for _, position in best[:_MAX_EXPLAINED]])
    return tuple(RankedFile(index.files[position].path, score, explain(position)) for score, position in best)


def _history_scores(
    index: CodeIndex, history: Iterable[CommitChange], weights: Mapping[int, float], formula: RankingFormula
) -> Iterator[tuple[str, float, str]]:
    """Yield (path, added score, reason)."""
    commits = subjects(history, frozenset(file.path for file in index.files))
    rare = rarity_of(commits)
    for path, similarity in similar_commit_scores(commits, weights, rare).items():
        yield path, formula.similar_commits * similarity, "changed by commits with similar subjects"
    for path, similarity in subject_scores(commits, weights, rare, k1=formula.k1, b=formula.b).items():
        yield path, formula.commit_subjects * similarity, "its commit messages use similar words"


def _word_scores(index: CodeIndex, weights: Mapping[int, float], formula: RankingFormula) -> list[float]:
    """BM25 of each file over its text, the names it defines and its path, summed."""
    wanted = set(weights)
    text: list[Hits] = [list(file.features.text.among(wanted)) for file in index.files]
    defined: list[Hits] = [list(file.features.defined.among(wanted)) for file in index.files]
    paths: list[Hits] = [
        [hit for hit in path_terms(file.path, formula.folder) if hit[0] in wanted] for file in index.files
    ]
    lengths = [file.features.length for file in index.files]
    by_text = bm25(text, lengths, weights, k1=formula.k1, b=formula.b)
    by_name = bm25(defined, None, weights, k1=1.0)
    by_path = bm25(paths, None, weights, k1=1.0)
    return [
        one + formula.defined * two + formula.path * three
        for one, two, three in zip(by_text, by_name, by_path, strict=True)
    ]


@lru_cache(maxsize=100_000)
def path_terms(path: str, folder: float) -> Hits:
    """The terms of the file's own name, and those of its folders at a lower count."""
    counts: dict[int, float] = {}
    *folders, _ = path.split("/")
    for part, weight in [(stem(path), 1.0), *((each, folder) for each in folders)]:
        for word in identifiers(part.replace("-", "_")):
            for term in map(term_id, terms(word)):
                counts[term] = counts.get(term, 0.0) + weight
    return tuple(counts.items())


def _add_up(
    found: Iterable[Mention], boosts: MentionWeights, reasons: dict[str, list[tuple[float, str]]]
) -> dict[str, float]:
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
        total[path] += min(worth, boosts.definitions)
    return total


def kind_of(path: str, formula: RankingFormula = FORMULA) -> float:
    """The factor for a file's kind: test, unlikely place, or no source."""
    factor = 1.0 if is_code(path) else formula.no_source
    if is_test(path):
        return factor * formula.test
    return factor * formula.unlikely_place if is_unlikely_place(path) else factor


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
