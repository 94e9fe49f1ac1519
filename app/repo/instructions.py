"""Collects what a repository tells agents: its instruction files (such as AGENTS.md) and the list of its skills."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.patch import Tree
from app.core.text import clip, count, one_line, plain
from app.core.yaml_and_toml import front_matter, read_yaml

_ROOT_FILES = ("AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md")
_NESTED_FILES = ("agents.md", "claude.md")
_PEOPLES_FILES = ("CONTRIBUTING.md", ".github/CONTRIBUTING.md", "docs/CONTRIBUTING.md")
"""Written for people: only what these say of code and tests is shown."""
_PEOPLES_TOKENS = 200
_SKILL = re.compile(r"\.(?:agents|github|claude)/skills/[^/]+/SKILL\.md", re.IGNORECASE)
_MAX_DESCRIPTION = 300
_MAX_SKILLS = 50
_SYMLINK = "120000"
_MAX_BYTES = 1_000_000
_CHARACTERS_PER_TOKEN = 4
_MIN_CUT = 200
"""Characters below which a piece of a file tells nothing."""
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_ABOUT_CODE = re.compile(
    r"\b(?:tests?|testing|pytest|unittest|tox|nox|coverage|regression|lint\w*|style|formatt\w*|types?|typing|mypy|ruff|black"
    r"|flake8|eslint|prettier|docstrings?|comments?|nam(?:e|ing)|imports?|changelog|change ?log|changes|news|fragments?"
    r"|towncrier|deprecat\w*|compatib\w*|convention\w*|indent\w*|line length)\b",
    re.IGNORECASE,
)
_ABOUT_OTHER_THINGS = re.compile(
    r"\b(?:bugs?|issues?|report\w*|questions?|support|help|security|vulnerab\w*|conduct|communit\w*|licen[cs]\w*|donat\w*"
    r"|sponsor\w*|contact|chat|mailing|releas\w*|translat\w*|fork\w*|clon\w*|install\w*|set(?:ting)?[- ]?up|environment"
    r"|getting started|review\w*|merg\w*|maintainers?|governance|features? requests?|git|branch\w*|commit\w*"
    r"|pull requests?|acknowledg\w*|table of contents)\b",
    re.IGNORECASE,
)
"""In a heading, unless it also names code."""
_COMMONLY_IGNORED = re.compile(
    r"\W*(?:\*\.(?:py[cod]|class|o|so|log|egg|swp|mo|bak|tmp|orig|rej|cover)|__pycache__|\.?v?env\w*|node_modules|dist|build"
    r"|\.(?:DS_Store|idea|vscode|tox|nox|eggs|cache|coverage|pytest_cache|mypy_cache|ruff_cache|hypothesis|project|pydevproject"
    r"|settings|ipynb_checkpoints|env)|htmlcov|target|coverage|\*?\.egg-info|\w*Thumbs\.db|eggs?|sdist|wheels|lib(?:64)?|parts|var"
    r"|develop-eggs|downloads|MANIFEST|nosetests\.xml|pip-\S*|\*\.(?:py\[\S*|egg-info|iml|sublime\S*))\W*"
)
_MAX_IGNORED = 100
"""Characters of what git ignores."""


class InstructionFile(NamedTuple):
    """One instruction file's text; if it was cut, the text says so."""

    path: str
    text: str
    cut: bool = False


class Instructions(NamedTuple):
    """The files to show, the most binding first, and the paths of those for other parts of the repository."""

    files: tuple[InstructionFile, ...] = ()
    further: tuple[str, ...] = ()


def instructions(tree: Tree, budget_tokens: int, near: Sequence[str] = ()) -> Instructions:
    """The commit's instruction files within the budget (a token is four characters).

    First those in the folders of the files in `near`, the nearest first, then the root's. A file that repeats an
    earlier one, as links to and copies of AGENTS.md do, is included once.
    """
    left = budget_tokens * _CHARACTERS_PER_TOKEN
    files: list[InstructionFile] = []
    seen: set[str] = set()
    nested, further = _nested(tree, near)
    for path in (*nested, *_of_root(tree)):
        text = _text(tree, path)
        if not text or text in seen:
            continue
        seen.add(text)
        peoples = path.rpartition("/")[2].casefold() == "contributing.md"
        limit = min(left, _PEOPLES_TOKENS * _CHARACTERS_PER_TOKEN) if peoples else left
        fitting = _about_code(path, text, limit) if peoples else _cut(path, text, limit)
        if fitting:
            files.append(InstructionFile(path, fitting, cut=not peoples and fitting != text))
            left -= len(fitting)
        elif not peoples:  # no room for it
            further = (path, *further)
    return Instructions(tuple(files), further)


def skills(tree: Tree) -> str:
    """The repository's skills, a line for each: path and description. The text is read where it is needed."""
    paths = [path for path in tree.entries() if _SKILL.fullmatch(path)]
    found: dict[str, str] = {}
    for path in paths:
        head, _ = front_matter(_text(tree, path))
        value = read_yaml(head.encode("utf-8", "replace")).value
        fields = value if isinstance(value, dict) else {}
        name = one_line(str(fields.get("name") or PurePosixPath(path).parent.name))
        description = clip(one_line(str(fields.get("description") or "")), _MAX_DESCRIPTION)
        found.setdefault(name.casefold(), f"- {name} ({one_line(path)}): {description}".rstrip(": "))
    lines = list(found.values())
    more = [f"… and {count(len(lines) - _MAX_SKILLS, 'skill')} more"] if len(lines) > _MAX_SKILLS else []
    return "\n".join([*lines[:_MAX_SKILLS], *more])


def ignored_by_git(tree: Tree) -> str:
    """The patterns of the root's .gitignore that are not the same everywhere, in one line, as far as there is room."""
    entry = tree.entries().get(".gitignore")
    if entry is None or entry.mode == _SYMLINK or entry.size > _MAX_BYTES:
        return ""
    patterns = ""
    for line in tree.read(".gitignore").decode("utf-8", "replace").splitlines():
        pattern = line.strip()
        too_long = len(pattern) > _MAX_IGNORED  # never shown, and slow to compare
        if not pattern or pattern.startswith(("#", "!")) or (not too_long and _COMMONLY_IGNORED.fullmatch(pattern)):
            continue
        if len(patterns) + len(pattern) > _MAX_IGNORED:
            return f"{patterns} …" if patterns else ""
        patterns = f"{patterns} {pattern}".strip()
    return patterns


def _about_code(path: str, text: str, limit: int) -> str:
    """What the text says of code and tests."""
    pieces = list(_pieces(text))
    headed = any(piece.headings for piece in pieces)
    wanted = [piece for piece in pieces if piece.worth is not None and (piece.worth > 0 or not headed)]
    if not wanted:
        return ""
    if len(whole := _join_pieces(wanted)) <= limit or len(wanted) == 1:
        return _cut(path, whole, limit)
    note = f"\n[cut here: {path} goes on, {len(text):,} characters in all]"
    kept: list[_Piece] = []
    for piece in sorted(wanted, key=lambda each: -(each.worth or 0)):
        if len(_join_pieces([*kept, piece])) + len(note) <= limit:
            kept = sorted([*kept, piece], key=lambda each: each.number)
    return f"{_join_pieces(kept)}{note}" if kept else _cut(path, whole, limit)


class _Piece(NamedTuple):
    """A paragraph, list item or code block. `worth` is None if its heading says that it is about other things."""

    number: int
    headings: tuple[str, ...]
    text: str

    @property
    def worth(self) -> int | None:
        under = " / ".join(self.headings)
        of_code = bool(_ABOUT_CODE.search(under))
        if _ABOUT_OTHER_THINGS.search(under) and not of_code:
            return None
        return 2 * of_code + bool(_ABOUT_CODE.search(self.text))


def _pieces(text: str) -> Iterator[_Piece]:
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    fenced = False
    number = 0
    for line in [*text.splitlines(), ""]:
        fence = bool(_FENCE.match(line))
        heading = None if fenced else _HEADING.fullmatch(line.strip())
        ends = not fenced and (heading or not line.strip() or _ITEM.match(line) or (fence and lines))
        if ends and lines:
            yield _Piece(number, tuple(title for _, title in headings[-2:]), "\n".join(lines))
            lines, number = [], number + 1
        fenced ^= fence
        if heading:
            headings = [each for each in headings if each[0] < len(heading[1])]
            headings.append((len(heading[1]), heading[2]))
        elif line.strip() or fenced:
            lines.append(line.rstrip())
    if lines:
        yield _Piece(number, tuple(title for _, title in headings[-2:]), "\n".join(lines))


def _join_pieces(pieces: Iterable[_Piece]) -> str:
    """The pieces below their headings, each named once."""
    lines: list[str] = []
    under: tuple[str, ...] = ()
    for piece in pieces:
        if piece.headings and piece.headings != under:
            under = piece.headings
            lines.append(f"# {under[-1]}")
        lines.append(piece.text)
    return "\n".join(lines)


def _of_root(tree: Tree) -> Iterator[str]:
    by_folded = {path.casefold(): path for path in tree.entries() if path.count("/") <= 1}
    yield from filter(None, (by_folded.get(name.casefold()) for name in _ROOT_FILES))
    yield from [path for name in _PEOPLES_FILES if (path := by_folded.get(name.casefold()))][:1]


def _nested(tree: Tree, near: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instruction files of folders: those that hold a file in `near`, the deepest first, and all others."""
    places = [PurePosixPath(path) for path in tree.entries() if "/" in path]
    found = sorted(
        (path for path in places if path.name.casefold() in _NESTED_FILES), key=lambda path: -len(path.parts)
    )
    above = {parent for path in near for parent in PurePosixPath(path).parents}
    return (
        tuple(str(path) for path in found if path.parent in above),
        tuple(sorted(str(path) for path in found if path.parent not in above)),
    )


def _text(tree: Tree, path: str) -> str:
    """Without hidden characters; empty for links and for what is too large."""
    entry = tree.entries()[path]
    if entry.mode == _SYMLINK or entry.size > _MAX_BYTES:
        return ""
    return plain(tree.read(path).decode("utf-8", "replace")).strip()


def _cut(path: str, text: str, limit: int) -> str:
    """The text, or its first whole lines with a note of what is missing; empty if too little would be left."""
    if len(text) <= limit:
        return text
    note = f"\n[cut here: {path} goes on, {len(text):,} characters in all]"
    remaining = limit - len(note)
    if remaining < _MIN_CUT:
        return ""
    lines_end = text.rfind("\n", 0, remaining)
    return text[: lines_end if lines_end > 0 else remaining].rstrip() + note
