"""Reads a repository's prompt files: for a kind of work, for planning, or with a name of their own to ask for.

They are read from the base commit if it is on the default branch, never from a pull request's branch. They are shown
like the repository's other rules, and cannot change the rules for all jobs.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Final, Literal, get_args

from app.core.errors import ConfigError
from app.core.record import Record
from app.core.task import TaskKind
from app.core.text import one_line, visible
from app.core.tree import Tree
from app.core.yaml_and_toml import read_yaml

DIRECTORY: Final = ".github/agent-fix/prompts"
MAX_BYTES: Final = 4_000
"""Of one file: some thousand tokens, which are sent with every turn of a job."""
MAX_NOTES: Final = 5

OverrideName = Literal[TaskKind, "plan"]
KINDS: Final[tuple[TaskKind, ...]] = get_args(TaskKind)
NAMES: Final[tuple[OverrideName, ...]] = (*KINDS, "plan")
RESERVED: Final = frozenset({"system", "ask", "default", "with"})
"""Names that would suggest that a file changes what no file can change."""
_OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FRONT_MATTER = "`replace: true` or `replace: false`"


class Override(Record):
    """One file, which extends our prompt or replaces it."""

    name: str
    """One of `NAMES`, or another: then it is used only if it is asked for."""
    text: str
    replace: bool = False
    kind: TaskKind | None = None
    """Of a prompt with a name of its own: the kind of the tasks that it is used for."""

    @property
    def path(self) -> str:
        return path_of(self.name)


class Overrides(Record):
    """A repository's usable files; `notes` explain why others are ignored."""

    files: tuple[Override, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> Override | None:
        return next((each for each in self.files if each.name == name), None)

    def with_file(self, file: Override) -> "Overrides":
        return self.model_copy(update={"files": (*self.files, file)})

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.files)


NO_OVERRIDES: Final = Overrides()


def own_prompt_names(paths: Iterable[str]) -> list[str]:
    """The names of a repository's own prompts, from the paths of its files."""
    names = (path.removeprefix(f"{DIRECTORY}/").removesuffix(".md") for path in paths if path.endswith(".md"))
    return sorted(filter(is_own_name, names))


def requested_prompt(name: str, overrides: Overrides, listed: Iterable[str] = ()) -> Override:
    """The prompt of that name. Raises ConfigError that names similar ones; `listed` are paths of more files."""
    if (found := overrides.of(name)) is not None and name not in NAMES:
        return found
    own = sorted({*(each.name for each in overrides.files), *own_prompt_names(listed)} - {*NAMES, name})
    similar = get_close_matches(name, own, n=1, cutoff=0.6)
    meant = f" Did you mean `{similar[0]}`?" if similar else f" There are {', '.join(own)}." if own else ""
    why = next((note for note in overrides.notes if path_of(name) in note), "")
    raise ConfigError(f"There is no usable prompt `{path_of(name)}`.{meant} {why}".strip())


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
    name = PurePosixPath(path).stem
    if path != path_of(name) or not (name in NAMES or is_own_name(name)):
        meant = f" Did you mean `{similar}.md`?" if (similar := _slip(name)) else ""
        names = ", ".join(f"`{known}.md`" for known in NAMES)
        how = f"prompts are {names}, and names of your own in small letters, digits and `-`"
        return f"`{one_line(path)[:120]}` is ignored: {how}.{meant}"
    if len(content) > MAX_BYTES:
        return _too_large(path, len(content))
    try:
        front_matter, body = _parts(content.decode())
    except UnicodeDecodeError:
        return f"`{path}` is ignored: it is not UTF-8 text."
    override, text = _settings(name, front_matter), visible(body).text.strip()
    if override is None:
        also = "" if name in NAMES else f", and `kind:` with one of {', '.join(KINDS)}"
        return f"`{path}` is ignored: its front matter may only contain {_FRONT_MATTER}{also}."
    return override.model_copy(update={"text": text}) if text else f"`{path}` is ignored: it is empty."


def _settings(name: str, front_matter: str) -> Override | None:
    """The override without its text; None if the front matter is invalid."""
    document = read_yaml(front_matter.encode())
    settings = document.value if document.value is not None else {}
    known = {"replace"} if name in NAMES else {"replace", "kind"}
    if document.problems or not isinstance(settings, dict) or settings.keys() - known:
        return None
    replace, kind = settings.get("replace", False), settings.get("kind")
    if not isinstance(replace, bool) or (kind is not None and kind not in KINDS):
        return None
    return Override.model_validate({"name": name, "text": "", "replace": replace, "kind": kind})


def _parts(text: str) -> tuple[str, str]:
    """The front matter, or an empty text, and the rest."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return "", text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    return ("", text) if end is None else ("\n".join(lines[1:end]), "\n".join(lines[end + 1 :]))


def path_of(name: str) -> str:
    return f"{DIRECTORY}/{name}.md"


def is_own_name(name: str) -> bool:
    """True for the name that a repository may give to a prompt of its own."""
    return bool(_OWN_NAME.fullmatch(name)) and name not in NAMES and name not in RESERVED and not _slip(name)


def _slip(name: str) -> str:
    """The known name that was probably meant: `bugs` is not a prompt of its own."""
    return next(iter(get_close_matches(name, NAMES, n=1, cutoff=0.8)), "")


def _too_large(path: str, size: int) -> str:
    return f"`{one_line(path)[:120]}` is ignored: it has {size:,} bytes, and the limit is {MAX_BYTES:,}."


def _bounded(notes: Iterable[str]) -> tuple[str, ...]:
    all_notes = tuple(notes)
    more = len(all_notes) - MAX_NOTES
    return all_notes if more <= 0 else (*all_notes[:MAX_NOTES], f"{more} more files in `{DIRECTORY}` are ignored too.")
