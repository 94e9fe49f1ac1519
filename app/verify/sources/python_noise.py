"""A Python module with the same meaning and another text, with other docstrings and bytecode."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from app.verify.sources.parsed_sources import comment_line, random_comments
from app.verify.sources.python_sources import parse, same_program

_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LOOKS_AT_NAMES = re.compile(r"\b(?:locals|vars|dir|exec|eval|_getframe|currentframe)\b")
_MAX_LOCALS = 30
_MAX_CONSTANT = 200


def noisy(content: bytes, changed: bytes | None, random: Random) -> bytes | None:
    """The module with more comments (as `parsed_sources.noisy`), with the docstrings of the changed version, and with
    unused locals in the functions that it changes, which have the constants and the names that these functions get.

    None if that is not certain to mean the same.
    """
    tree = parse(content)
    if tree is None or b"\r" in content.replace(b"\r\n", b"") or not _plain_encoding(content):
        return None
    head = parse(changed) if changed is not None else None
    if head is not None and changed is not None:
        content = _with_docstrings(content, tree, changed, head)
        tree = parse(content) or tree
    lines = content.split(b"\n")
    starts = _starts(tree, lines)
    noted = random_comments(starts, content, changed, random)
    unused = _unused_locals(tree, head, random) if head is not None else {}
    made: list[bytes] = []
    added: set[int] = set()
    for row, line in enumerate(lines):
        made += [starts[row] + comment_line("python", text) for text in noted.get(row, ())]
        for statement in unused.get(row, ()) if row in starts else ():
            made.append(starts[row] + statement)
            added.add(len(made))
        made.append(line)
    text = b"\n".join(made)
    after = parse(text)
    return text if after is not None and _without(after, added) == ast.dump(tree) else None


def _plain_encoding(content: bytes) -> bool:
    try:
        return tokenize.detect_encoding(io.BytesIO(content).readline)[0] in ("utf-8", "utf-8-sig")
    except SyntaxError:
        return False


def _starts(tree: ast.Module, lines: Sequence[bytes]) -> dict[int, bytes]:
    """Rows that start with a statement, each with its indentation."""
    found: dict[int, bytes] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        row = _first_row(node)
        indentation = lines[row][: len(lines[row]) - len(lines[row].lstrip(b" \t\f"))]
        column = node.col_offset if row == node.lineno - 1 else len(indentation)
        if len(indentation) == column and b"\f" not in indentation and not lines[row - 1].endswith(b"\\"):
            found[row] = indentation
    return found


def _first_row(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(node.lineno, *(each.lineno for each in decorators), node.lineno) - 1


def _scopes(tree: ast.Module) -> dict[str, _Scope]:
    """Modules, classes and functions by their qualified names, if these are unique."""
    found: list[tuple[str, _Scope]] = [("", tree)]
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{name}.{child.name}"
                found.append((inner, child))
            waiting.append((inner, child))
    count = Counter(name for name, _ in found)
    return {name: node for name, node in found if count[name] == 1}


def _docstring(scope: _Scope) -> ast.Expr | None:
    first = scope.body[0] if scope.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def _with_docstrings(content: bytes, tree: ast.Module, changed: bytes, head: ast.Module) -> bytes:
    """The content with the docstrings of the changed version, if they can be replaced line by line."""
    lines, later = content.split(b"\n"), changed.split(b"\n")
    new_scopes = _scopes(head)
    edits: list[tuple[int, int, list[bytes]]] = []
    for name, scope in _scopes(tree).items():
        new = _docstring(new_scopes[name]) if name in new_scopes else None
        old = _docstring(scope)
        first = old or (scope.body[0] if scope.body else None)
        if new is None or first is None or not (_alone(first, lines) and _alone(new, later)):
            continue
        end = (old.end_lineno or old.lineno) if old else _first_row(first)
        text = later[new.lineno - 1 : new.end_lineno]
        if first.col_offset == new.col_offset and lines[_first_row(first) : end] != text:
            edits.append((_first_row(first), end, text))
    for start, end, text in sorted(edits, reverse=True):
        lines[start:end] = text
    made = b"\n".join(lines)
    after = parse(made)
    before = parse(content)
    return made if before is not None and after is not None and same_program(before, after) else content


def _alone(statement: ast.stmt, lines: Sequence[bytes]) -> bool:
    """True if nothing else is on the rows of a statement."""
    after = lines[(statement.end_lineno or statement.lineno) - 1][statement.end_col_offset or 0 :]
    before = lines[statement.lineno - 1][: statement.col_offset]
    return not before.strip() and not after.strip() and not lines[_first_row(statement) - 1].endswith(b"\\")


def _unused_locals(tree: ast.Module, head: ast.Module, random: Random) -> Mapping[int, list[bytes]]:
    """Unused assignments for each changed function, by the row before which they are inserted."""
    found: dict[int, list[bytes]] = {}
    later = _scopes(head)
    for name, scope in _scopes(tree).items():
        new = later.get(name)
        body = scope.body[_docstring(scope) is not None :]
        if isinstance(scope, ast.Module | ast.ClassDef) or new is None or not body or ast.dump(scope) == ast.dump(new):
            continue
        if not _LOOKS_AT_NAMES.search(ast.unparse(scope)):
            values = [random.getrandbits(24), *_new_constants(scope, new)]
            made = [f"_note_{number} = {value!a}" for number, value in enumerate(values)]
            made += [f"{local} = None" for local in sorted(_new_locals(scope, new))]
            found[_first_row(body[0])] = [each.encode() for each in made[:_MAX_LOCALS]]
    return found


def _new_constants(old: _Scope, new: _Scope) -> Iterator[str | int | float | bytes]:
    there = {repr(each.value) for each in ast.walk(old) if isinstance(each, ast.Constant)}
    for node in ast.walk(new):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bytes):
            text = repr(node.value)
            if text not in there and len(text) <= _MAX_CONSTANT and text not in ("inf", "nan"):
                there.add(text)
                yield node.value


def _new_locals(old: _Scope, new: _Scope) -> set[str]:
    """Names that the new function binds and the old one does not even mention."""
    bound = {each.id for each in ast.walk(new) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    outer = {name for each in ast.walk(new) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    mentioned = {
        getattr(each, field, None) for each in ast.walk(old) for field in ("id", "arg", "name", "asname", "attr")
    }
    mentioned.update(
        name for each in ast.walk(old) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names
    )
    return {name for name in bound - outer if name not in mentioned and not name.startswith("__")}


def _without(tree: ast.Module, rows: set[int]) -> str:
    """The tree without the statements in the bodies of functions that start on these lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if each.lineno not in rows]
    return ast.dump(tree)
