"""The work that every harness is given: steps of a script file, edits made exact against the files of that moment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Bash:
    """A command, the same bytes for everybody."""

    command: str


@dataclass(frozen=True, slots=True)
class View:
    """Lines of a file; both ends None: the whole of it."""

    path: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` is in the file exactly once. `line` is the first that changes, `before` stood there, `after` will."""

    path: str
    old: str
    new: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    def reverse(self) -> "Edit":
        return replace(self, old=self.new, new=self.old, before=self.after, after=self.before)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the work, with a command that shows it."""

    summary: str
    reproduction: str


Act = Bash | View | Edit | Finish


@dataclass(frozen=True, slots=True)
class Move:
    """What the model says in one answer, and the one thing it does."""

    report: str
    act: Act


@dataclass(frozen=True, slots=True)
class Script:
    """A task and the moves that solve it, without its end."""

    task: str
    finish: Finish
    steps: Sequence[dict[str, Any]]
    name: str = "clauses"

    def moves(self, count: int, files: "Files") -> list[Move]:
        """`count` of them, the last a submission. Where the steps do not reach so far they are done again."""
        return [*islice(self._endless(files), count - 1), Move("It is done.", self.finish)]

    def _endless(self, files: "Files") -> Iterator[Move]:
        """Every second time the edits are taken back, the last one first, so that each applies."""
        first = [Move(step["say"], _act(step, files)) for step in self.steps]
        edits = iter([move.act.reverse() for move in reversed(first) if isinstance(move.act, Edit)])
        second = [replace(move, act=next(edits)) if isinstance(move.act, Edit) else move for move in first]
        while True:
            yield from first
            yield from second


@dataclass(frozen=True, slots=True)
class Search:
    """A query of the tool that searches the repository."""

    query: str


Part = Literal["plan", "specification", "work", "second tests", "summary"]
"""Which conversation a request belongs to."""


@dataclass(frozen=True, slots=True)
class AuthorScript:
    """What an author of tests looks at, turn after turn, and hands in."""

    looks: Sequence[Sequence[View | Search]]
    files: Mapping[str, str]
    tests: Sequence[str]


def authors(name: str) -> Mapping[Part, AuthorScript]:
    """The authors of the short task of that name."""
    each = yaml.safe_load((SCRIPTS / "authors.yml").read_text("utf-8"))[name]
    return {
        part: AuthorScript([list(map(_look, turn)) for turn in one["looks"]], one["files"], one["tests"])
        for part, one in each.items()
    }


def _look(look: dict[str, Any]) -> View | Search:
    return View(**look["view"]) if "view" in look else Search(look["search"])


def load(name: str = "clauses") -> Script:
    content = yaml.safe_load((SCRIPTS / f"{name}.yml").read_text("utf-8"))
    return Script(content["task"], Finish(**content["submit"]), content["steps"], name)


def short() -> list[Script]:
    """The short tasks, each from its beginning to its end."""
    each = yaml.safe_load((SCRIPTS / "short.yml").read_text("utf-8"))
    return [Script(one["task"], Finish(**one["submit"]), one["steps"], one["name"]) for one in each]


@dataclass(slots=True)
class Files:
    """The texts of a checkout as the edits so far have left them; nothing is written."""

    root: Path
    _texts: dict[str, str] = field(default_factory=dict)

    def edit(self, path: str, at: int, before: Sequence[str], after: Sequence[str]) -> Edit:
        """Lines `before` at index `at` become `after`; as much around them is taken along as makes them unique."""
        lines = self.lines(path)
        changed = [*lines[:at], *after, *lines[at + len(before) :]]
        spans = ((lines, len(before)), (changed, len(after)))  # the second, because an edit is also taken back
        around = next(n for n in range(1, len(lines) + 2) if all(_unique(text, at, size, n) for text, size in spans))
        first, behind = max(at - around, 0), around
        edit = Edit(
            path,
            "\n".join(lines[first : at + len(before) + behind]),
            "\n".join(changed[first : at + len(after) + behind]),
            at + 1,
            tuple(before),
            tuple(after),
        )
        self._texts[path] = "\n".join(changed)
        return edit

    def lines(self, path: str) -> list[str]:
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text("utf-8")
        return self._texts[path].split("\n")

    def find(self, path: str, part: str) -> int:
        """The index of the one line that has `part`."""
        found = [index for index, line in enumerate(self.lines(path)) if part in line]
        if len(found) != 1:
            raise ValueError(f"{path} has {part!r} in {len(found)} lines instead of one")
        return found[0]


def _unique(lines: Sequence[str], at: int, size: int, around: int) -> bool:
    """Whether `size` lines at `at` with so many around them are only once in the text."""
    return "\n".join(lines).count("\n".join(lines[max(at - around, 0) : at + size + around])) == 1


def _act(step: dict[str, Any], files: Files) -> Act:
    if "bash" in step:
        return Bash(step["bash"].rstrip("\n"))
    if "view" in step:
        return View(**step["view"])
    edit, path = step["edit"], step["edit"]["path"]
    if "at" in edit:
        index = files.find(path, edit["at"])
        line = files.lines(path)[index]
        return files.edit(path, index, [line], line.replace(edit["replace"], edit["by"], 1).split("\n"))
    inserted = edit["insert"].removesuffix("\n").split("\n")
    if edit.get("end"):
        return files.edit(path, len(files.lines(path)) - 1, [], inserted)
    return files.edit(path, files.find(path, edit["after"]) + (0 if edit.get("before") else 1), [], inserted)
