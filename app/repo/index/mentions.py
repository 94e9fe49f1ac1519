"""Finds the files that an issue mentions: by path, by traceback, by dotted module, by a name they define."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.repo.index.file_index import CodeIndex
from app.repo.index.path_kinds import is_test, is_unlikely_place, module_names
from app.repo.index.query import IssueQuery
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
