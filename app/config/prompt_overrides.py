"""Reads a repository's prompt files, which extend or replace the prompt of a kind of work or of planning.

They are read from the base commit if it is on the default branch, never from a pull request's branch. They are shown
like the repository's other rules, and cannot change the rules for all jobs.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Final, Literal, get_args

from app.core.record import Record
from app.core.strict_yaml import read_yaml
from app.core.task import TaskKind
from app.core.text import one_line, visible
from app.core.tree import Tree

DIRECTORY: Final = ".github/agent-fix/prompts"
MAX_BYTES: Final = 4_000
"""Of one file: some thousand tokens, which are sent with every turn of a job."""
MAX_NOTES: Final = 5

OverrideName = Literal[TaskKind, "plan"]
NAMES: Final[tuple[OverrideName, ...]] = (*get_args(TaskKind), "plan")


class Override(Record):
    """One file, which extends our prompt or replaces it."""

    name: OverrideName
    text: str
    replace: bool = False

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.name}.md"


class Overrides(Record):
    """A repository's usable files; `notes` explain why others are ignored."""

    files: tuple[Override, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, name: OverrideName) -> Override | None:
        return next((each for each in self.files if each.name == name), None)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.files)


NO_OVERRIDES: Final = Overrides()


def read_overrides(tree: Tree) -> Overrides:
    """The prompt files of a commit, without symbolic links."""
    prefix = f"{DIRECTORY}/"
    entries = {path: entry for path, entry in tree.entries().items() if path.startswith(prefix)}
    plain = [path for path, entry in entries.items() if entry.mode.startswith("100")]
    small = [path for path in plain if entries[path].size <= MAX_BYTES]
    found = parse_overrides(tree.read_many(small))
    large = [_too_large(path, entries[path].size) for path in plain if entries[path].size > MAX_BYTES]
    other = [f"`{one_line(path)}` is ignored: it is not a regular file." for path in entries if path not in plain]
    return found.model_copy(update={"notes": _bounded((*found.notes, *large, *other))})


def parse_overrides(contents: dict[str, bytes]) -> Overrides:
    """As `read_overrides`, from contents by path."""
    read = [_read(path, content) for path, content in sorted(contents.items())]
    files = tuple(each for each in read if isinstance(each, Override))
    return Overrides(files=files, notes=_bounded(each for each in read if isinstance(each, str)))


def _read(path: str, content: bytes) -> Override | str:
    """The override, or a sentence that says why the file is ignored."""
    name = _name(path)
    if name is None:
        return _unknown(path)
    if len(content) > MAX_BYTES:
        return _too_large(path, len(content))
    try:
        front_matter, body = _parts(content.decode())
    except UnicodeDecodeError:
        return f"`{path}` is ignored: it is not UTF-8 text."
    replace, text = _replaces(front_matter), visible(body).text.strip()
    if replace is None:
        return f"`{path}` is ignored: its front matter may only contain `replace: true` or `replace: false`."
    return Override(name=name, text=text, replace=replace) if text else f"`{path}` is ignored: it is empty."


def _replaces(front_matter: str) -> bool | None:
    """The value of `replace`, False without front matter; None if the front matter is invalid."""
    document = read_yaml(front_matter.encode())
    settings = document.value if document.value is not None else {}
    if document.problems or not isinstance(settings, dict) or settings.keys() - {"replace"}:
        return None
    replace = settings.get("replace", False)
    return replace if isinstance(replace, bool) else None


def _parts(text: str) -> tuple[str, str]:
    """The front matter, or an empty text, and the rest."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return "", text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    return ("", text) if end is None else ("\n".join(lines[1:end]), "\n".join(lines[end + 1 :]))


def _name(path: str) -> OverrideName | None:
    place = PurePosixPath(path)
    return next((name for name in NAMES if place == PurePosixPath(DIRECTORY, f"{name}.md")), None)


def _unknown(path: str) -> str:
    stem = PurePosixPath(path).stem
    similar = get_close_matches(stem, NAMES, n=1, cutoff=0.6)
    meant = f" Did you mean `{similar[0]}.md`?" if similar else ""
    return f"`{one_line(path)[:120]}` is ignored: prompts are {', '.join(f'`{name}.md`' for name in NAMES)}.{meant}"


def _too_large(path: str, size: int) -> str:
    shown = one_line(path)[:120]
    return f"`{shown}` is ignored: it has {size:,} bytes, and the limit is {MAX_BYTES:,}."


def _bounded(notes: Iterable[str]) -> tuple[str, ...]:
    all_notes = tuple(notes)
    more = len(all_notes) - MAX_NOTES
    return all_notes if more <= 0 else (*all_notes[:MAX_NOTES], f"{more} more files in `{DIRECTORY}` are ignored too.")
