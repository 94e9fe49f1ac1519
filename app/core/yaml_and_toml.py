"""Reads YAML and TOML that anybody may have written.

Settings files in YAML are parsed strictly: plain values with line numbers, no anchors, aliases, merge keys, tags,
duplicate keys or second documents; `yes`, `on` and `12:30` are text, as in YAML 1.2. All problems are collected, so
that the file can be fixed in one go. Not strictyaml or ruamel.yaml: they stop at the first problem.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from app.core.text import is_hidden

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
WHOLE_FILE = "(file)"

Path = tuple[str | int, ...]
Value = None | bool | int | float | str | tuple["Value", ...] | dict[str, "Value"]


class YamlProblem(NamedTuple):
    """A problem at a 1-based line; `key` is dotted, such as `budget.usd` or `network[0]`."""

    line: int
    key: str
    message: str


class YamlDocument(NamedTuple):
    """A file's value with the line number of each path in it; parts with a problem are missing from the value."""

    value: Value
    lines: dict[Path, int]
    problems: tuple[YamlProblem, ...]


class _Stop(Exception):  # noqa: N818  control flow, not an error
    """Parsing cannot continue after this point."""


_BROKEN = object()
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())}
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|nan)", re.IGNORECASE)
_TOP_LEVEL_KEY = re.compile(r"^([\w-]{1,60})[ \t]*:", re.MULTILINE)
_TAB = "found character '\\t'"
_NO_COLON = "mapping values are not allowed here"


def dotted(path: Path) -> str:
    key = ""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return key or WHOLE_FILE


def front_matter(text: str) -> tuple[str, str]:
    """The YAML between lines of `---` at the beginning, or an empty text, and the rest."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if lines[0].rstrip() != "---" or not end:
        return "", text
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])


def read_yaml(content: bytes) -> YamlDocument:
    """Parse a file. Never raises because of the file's content: problems are returned."""
    if len(content) > MAX_BYTES:
        return _refused(1, f"is {len(content):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return _refused(content.count(b"\n", 0, error.start) + 1, "is not UTF-8 text")
    if text.startswith("\ufeff"):
        return _refused(1, "begins with a byte order mark; save it as UTF-8 without one")
    return _YamlReader(text).document()


def _refused(line: int, message: str) -> YamlDocument:
    return YamlDocument(None, {}, (YamlProblem(line, WHOLE_FILE, message),))


class _YamlReader:
    """Reads the parser's events in one pass; recursion is bounded by MAX_DEPTH."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._events: Iterator[yaml.Event] = iter(())
        self._path: Path = ()
        self._lines: dict[Path, int] = {}
        self._problems: list[YamlProblem] = []

    def document(self) -> YamlDocument:
        value: object = None
        try:
            self._events = yaml.parse(self._text, Loader=yaml.SafeLoader)
            value = self._root()
        except yaml.MarkedYAMLError as error:
            line = _error_line(error)
            self._problems.append(YamlProblem(line, self._key_above(line), _explained(error)))
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            self._problem(line, f"holds the control character U+{ord(self._text[error.position]):04X}")
        except _Stop:
            pass
        return YamlDocument(None if value is _BROKEN else value, self._lines, tuple(self._problems))  # type: ignore[arg-type]

    def _root(self) -> object:
        value: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._path = ()
                    self._problem(_line(event), "a second document (`---`) begins; only one is allowed")
                    raise _Stop
            elif isinstance(event, yaml.NodeEvent):
                value = self._value(event, ())
        return value

    def _key_above(self, line: int) -> str:
        """The top-level key whose text contains the line. The parser looks ahead, so its own position is not exact."""
        keys = _TOP_LEVEL_KEY.findall("\n".join(self._text.split("\n")[:line]))
        return keys[-1] if keys else WHOLE_FILE

    def _problem(self, line: int, message: str) -> None:
        self._problems.append(YamlProblem(line, dotted(self._path), message))

    def _value(self, event: yaml.Event, path: Path) -> object:
        self._path = path
        line = _line(event)
        self._lines.setdefault(path, line)
        if isinstance(event, yaml.AliasEvent):
            self._problem(line, f"aliases (`*{event.anchor}`) are not allowed; write the value out")
            return _BROKEN
        if len(path) > MAX_DEPTH:
            self._problem(line, f"is nested more than {MAX_DEPTH} deep")
            raise _Stop
        sound = self._sound(event, line)
        value: object = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        return value if sound else _BROKEN

    def _sound(self, event: yaml.Event, line: int) -> bool:
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if anchor:
            self._problem(line, f"anchors (`&{anchor}`) are not allowed")
        if tag:
            self._problem(line, "tags (`!…`) are not allowed")
        return not anchor and not tag

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> object:
        if hidden := sum(map(is_hidden, event.value)):
            self._problem(line, f"holds {hidden} hidden character{'s' if hidden > 1 else ''}")
            return _BROKEN
        return _resolved(event.value) if event.style is None else event.value

    def _sequence(self, path: Path) -> object:
        items: list[object] = []
        for index, event in enumerate(self._events):
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._value(event, (*path, index)))
        return _BROKEN if any(item is _BROKEN for item in items) else tuple(items)

    def _mapping(self, path: Path) -> object:
        mapping: dict[str, object] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, path)
            first = self._lines.get((*path, key))
            self._lines.setdefault((*path, key), _line(event))
            value = self._value(next(self._events), (*path, key))
            self._path = (*path, key)
            if first is not None:
                self._problem(_line(event), f"is given twice (first on line {first})")
            elif value is not None and value is not _BROKEN:
                mapping[key] = value
        return mapping

    def _key(self, event: yaml.Event, path: Path) -> str:
        self._path = path
        if not isinstance(event, yaml.ScalarEvent):
            self._problem(_line(event), "a key must be a word")
            raise _Stop
        self._sound(event, _line(event))
        self._scalar(event, _line(event))
        if event.value == "<<" and event.style is None:
            self._problem(_line(event), "merge keys (`<<`) are not allowed; write the keys out")
            raise _Stop
        return str(event.value)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _resolved(text: str) -> object:
    """Resolve a plain scalar by the core schema of YAML 1.2."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if special := _NOT_FINITE.fullmatch(text):
        return float(special[1] + special[2])
    return text


def _error_line(error: yaml.MarkedYAMLError) -> int:
    """The line of an unclosed construct, or else the line at which the parser gave up."""
    unclosed = "end of stream" in (error.problem or "") or "<stream end>" in (error.problem or "")
    mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 1


def _explained(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "is not YAML"
    if problem.startswith(_TAB):
        return "a tab cannot indent YAML; use spaces"
    if problem == _NO_COLON:
        return "a `:` is not expected here; put text that holds `: ` in quotes, and check the indentation"
    return f"{error.context}, {problem}" if error.context else problem


_MAX_TABLE_SIZE = 512 * 1024
"""Characters of a YAML file as it is, and with its aliases written out."""
_MAX_TABLE_DEPTH = 100


def yaml_table(text: str) -> dict[str, Any]:
    """The table in a file of another program, with every scalar as text, so that none is an invalid date; empty if it
    is no table. Raises ValueError if it cannot be read, or only with very much memory."""
    try:
        _check_size(text)
        found = yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506  # knows no objects, only text
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    return found if isinstance(found, dict) else {}


def _check_size(text: str) -> None:
    """Raises ValueError for text that is too large, or too deep for the loader: it recurses in C, without a limit."""
    if len(text) > _MAX_TABLE_SIZE:
        raise ValueError("it is too large")
    size = 0
    begun: list[tuple[str | None, int]] = []
    anchored: dict[str | None, int] = {}
    for event, depth in with_depth(yaml.parse(text, Loader=yaml.CBaseLoader)):
        if isinstance(event, yaml.AliasEvent):
            size += anchored.get(event.anchor, 0)
        elif isinstance(event, yaml.NodeEvent):
            begun.append((event.anchor, size))
            size += len(event.value) + 1 if isinstance(event, yaml.ScalarEvent) else 1
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            anchored[anchor] = size - before
        if size > _MAX_TABLE_SIZE or depth > _MAX_TABLE_DEPTH:
            raise ValueError("it is too large with its aliases, or nested too deeply")


def with_depth(events: Iterable[yaml.Event]) -> Iterator[tuple[yaml.Event, int]]:
    """Each event of a parser with the number of lists and tables that are open after it."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        yield event, depth


_MAX_TOML_COST = 25_000_000


def toml_table(text: str) -> dict[str, Any]:
    """Raises ValueError if this cannot be read (TOMLDecodeError if it is not TOML), or only with very much memory."""
    lines = text.split("\n")  # a quoted key may contain all else that Python takes for the end of a line
    dots = [line.count(".") for line in lines]
    # The parser keeps every beginning of a dotted key (5,000 parts take 100 MB), and each key goes through all tables
    # that contain its own.
    depth = max((count for line, count in zip(lines, dots, strict=True) if line.lstrip().startswith("[")), default=0)
    if sum(count**2 for count in dots) + depth * (sum(dots) + len(dots)) > _MAX_TOML_COST:
        raise ValueError("its keys have too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
