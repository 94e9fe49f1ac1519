"""Answers whether a file still parses and what it defines, for the edit tool, the syntax gate and the index."""

import ast
import atexit
import json
import re
import tomllib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml
from tree_sitter import Node, Tree

from app.core.yaml_and_toml import toml_table, with_depth
from app.repo import grammars
from app.repo.grammars import language_of
from app.repo.syntax_process import SyntaxProcess, answer_requests

__all__ = ["Symbol", "SyntaxProblem", "first_error", "language_of", "symbols"]

MAX_BYTES = 1_000_000
"""Larger files are data or generated: not judged."""
_SMALL = 8_192
"""Files of up to so many bytes are parsed in this process, because they cannot do a parser much harm; larger ones in a
separate process."""
_PROCESS = SyntaxProcess("app.repo.syntax")
atexit.register(_PROCESS.close)
_MAX_SIGNATURE = 160
_MAX_YAML_DEPTH = 200
"""The YAML scanner is quadratic in the depth of nesting."""

_OTHER_DIALECT = """[(print_statement) (exec_statement) (type_alias_statement) (type_parameter)] @dialect"""
_DIALECT_MESSAGES = re.compile(
    r"f-string|multiple exception types|leading zeros|invalid decimal literal|unterminated string"
)
_BRACKETS = """["{" "}" "(" ")" "[" "]"] @bracket"""


class SyntaxProblem(NamedTuple):
    """Why a file does not parse; `line` counts from 1."""

    line: int
    text: str


class Symbol(NamedTuple):
    """A definition: `signature` is its head on one line, `parent` the name of the enclosing definition or empty."""

    name: str
    kind: str
    line: int
    signature: str
    parent: str


def first_error(path: str, content: bytes) -> SyntaxProblem | None:
    """The first syntax error; None if there is none, or if the language cannot be checked."""
    if len(content) <= _SMALL:
        return _first_error_here(path, content)
    can_be_checked = PurePosixPath(path).suffix.lower() in _DATA_CHECKS or language_of(path) is not None
    if len(content) > MAX_BYTES or not can_be_checked:
        return None
    answer = _PROCESS.ask("first_error", path, content)
    return SyntaxProblem(*answer) if answer else None


def symbols(path: str, content: bytes) -> tuple[Symbol, ...]:
    """All definitions in the file, in order; empty for unknown languages and files too large to be source."""
    if len(content) <= _SMALL:
        return _symbols_here(path, content)
    if len(content) > grammars.MAX_BYTES or language_of(path) is None:
        return ()
    return tuple(Symbol(*each) for each in _PROCESS.ask("symbols", path, content) or ())


def _first_error_here(path: str, content: bytes) -> SyntaxProblem | None:
    """`first_error` without the separate process."""
    if check := _DATA_CHECKS.get(PurePosixPath(path).suffix.lower()):
        return check(content)
    language = language_of(path)
    if language is None:
        return None
    return _python_error(content) if language == "python" else _grammar_error(language, content)


def _grammar_error(language: str, content: bytes) -> SyntaxProblem | None:
    def ask(tree: Tree) -> SyntaxProblem | None:
        if not tree.root_node.has_error:
            return None
        if language in {"c", "cpp"} and _balanced(language, tree):
            return None  # without the preprocessor these grammars misread valid macros; only bracket errors are certain
        return _describe(tree.root_node, content)

    return grammars.with_tree(language, content, ask)


def _describe(node: Node, content: bytes) -> SyntaxProblem:
    while not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    line = node.start_point[0] + 1
    if node.is_missing:
        return SyntaxProblem(line, f"missing `{node.type}`")
    near = _text(content, node.start_byte, min(node.end_byte, node.start_byte + 200)).strip().partition("\n")[0][:60]
    return SyntaxProblem(line, f"syntax error near `{near}`" if near else "syntax error")


def _balanced(language: str, tree: Tree) -> bool:
    counts = dict.fromkeys("{}()[]", 0)
    for bracket in grammars.captured_nodes(language, _BRACKETS, tree):
        if not bracket.is_missing:
            counts[bracket.type] += 1
    return all(counts[opening] == counts[closing] for opening, closing in ("{}", "()", "[]"))


def _python_error(content: bytes) -> SyntaxProblem | None:
    """The error from this Python's own parser, unless the file is valid in an older or newer Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
    except SyntaxError as error:
        if _other_dialect(content, error.msg):
            return None
        return SyntaxProblem(error.lineno or 1, error.msg)
    except ValueError as error:
        return SyntaxProblem(1, str(error))
    except (RecursionError, MemoryError):
        return None  # too deeply nested for the parser, which says nothing about the file
    return None


def _other_dialect(content: bytes, message: str) -> bool:
    def ask(tree: Tree) -> bool:
        if tree.root_node.has_error:
            return False
        return bool(_DIALECT_MESSAGES.search(message) or grammars.captured_nodes("python", _OTHER_DIALECT, tree))

    return bool(grammars.with_tree("python", content, ask))


def _json_error(content: bytes) -> SyntaxProblem | None:
    try:
        json.loads(content.decode("utf-8-sig"), parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        return SyntaxProblem(error.lineno, error.msg)
    except UnicodeDecodeError:
        return SyntaxProblem(1, "not UTF-8")
    except RecursionError:
        return None
    return None


def _toml_error(content: bytes) -> SyntaxProblem | None:
    try:
        toml_table(content.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        return SyntaxProblem(int(found[1]) if found else 1, str(error))
    except UnicodeDecodeError:
        return SyntaxProblem(1, "not UTF-8")
    except ValueError:
        return None  # too large a number, too many parts: which says nothing about the file
    return None


def _yaml_error(content: bytes) -> SyntaxProblem | None:
    """Reads YAML events only: no alias is expanded and no tag obeyed, so bombs and custom tags do no harm."""
    anchors: set[str] = set()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event, depth in with_depth(yaml.parse(content, Loader=loader)):
            if depth > _MAX_YAML_DEPTH:
                return None
            if isinstance(event, yaml.AliasEvent) and event.anchor not in anchors:
                line = event.start_mark.line + 1 if event.start_mark else 1
                return SyntaxProblem(line, f"undefined alias `{event.anchor}`")
            if isinstance(event, yaml.DocumentStartEvent):
                anchors.clear()
            elif anchor := getattr(event, "anchor", None):
                anchors.add(anchor)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return SyntaxProblem(mark.line + 1 if mark else 1, error.problem or "invalid YAML")
    except yaml.YAMLError as error:
        return SyntaxProblem(1, str(error).partition("\n")[0])
    return None


_DATA_CHECKS: dict[str, Callable[[bytes], SyntaxProblem | None]] = {
    ".json": _json_error,
    ".toml": _toml_error,
    ".yml": _yaml_error,
    ".yaml": _yaml_error,
}


def _symbols_here(path: str, content: bytes) -> tuple[Symbol, ...]:
    """`symbols` without the separate process."""
    language = language_of(path)
    if language is None:
        return ()
    return grammars.with_tree(language, content, partial(_symbols_of, language, content)) or ()


def _symbols_of(language: str, content: bytes, tree: Tree) -> tuple[Symbol, ...]:
    found: list[Symbol] = []
    enclosing: list[tuple[int, Symbol]] = []
    seen: set[int] = set()
    for kind, node, name in sorted(grammars.definitions(language, tree), key=_outermost_first):
        if name.start_byte in seen:
            continue
        seen.add(name.start_byte)
        while enclosing and enclosing[-1][0] <= node.start_byte:
            enclosing.pop()
        symbol = _symbol(kind, node, name, enclosing[-1][1] if enclosing else None, text=partial(_text, content))
        enclosing.append((node.end_byte, symbol))
        found.append(symbol)
    return tuple(found)


def _outermost_first(definition: tuple[str, Node, Node]) -> tuple[int, int, bool]:
    kind, node, _ = definition
    return node.start_byte, -node.end_byte, kind == "variable"  # a function assigned to a constant is a function


def _symbol(kind: str, node: Node, name: Node, outer: Symbol | None, text: Callable[[int, int], str]) -> Symbol:
    scope, _, own = text(name.start_byte, name.end_byte).rpartition("::")
    parent = scope or (outer.name if outer else "")
    if receiver := node.child_by_field_name("receiver"):  # Go: `func (s *Server) Close()`
        words: list[str] = re.findall(r"\w+", text(receiver.start_byte, receiver.end_byte))
        parent = next((word for word in reversed(words) if word[0].isupper()), words[-1] if words else "")
    if kind == "function" and outer and outer.kind in {"class", "impl", "trait", "struct"}:
        kind = "method"
    body = _body(node)
    head = text(node.start_byte, body.start_byte) if body else text(node.start_byte, node.end_byte).partition("\n")[0]
    signature = " ".join(head.split()).removesuffix("=>").rstrip(" {:=")
    if len(signature) > _MAX_SIGNATURE:
        signature = signature[: _MAX_SIGNATURE - 1] + "…"
    if kind == "impl":
        own = own.partition("<")[0]
    return Symbol(own[:100], kind, node.start_point[0] + 1, signature, parent[:100])


def _body(node: Node) -> Node | None:
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    return node.child_by_field_name("body") or (value.child_by_field_name("body") if value else None)


def _text(content: bytes, start: int, end: int) -> str:
    return content[start:end].decode("utf-8", "replace")


def _answer(question: str, path: str, content: bytes) -> Any:
    return _symbols_here(path, content) if question == "symbols" else _first_error_here(path, content)


if __name__ == "__main__":
    answer_requests(_answer)
