"""The same programs with other texts: without comments and in another layout, or with more comments.

A Python module also gets other docstrings and another bytecode.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from app.core.python_source import parse_python
from app.verify.sources import python_sources
from app.verify.sources.parsed_sources import (
    COMMENTS,
    VERBATIM,
    hunks,
    is_obeyed,
    normal_form,
    root_of,
    row_of_cgo,
    text_of,
)

# Comments that only tools read. Dropping one changes no behaviour but can make a build or a check fail.
_TOOLS = re.compile(
    rb"@ts-|eslint|istanbul|[cv]8 ignore|__PURE__|sourceMappingURL|@flow|@license|@preserve|@(?:vitest|jest)-|prettier-"
    rb"|biome-|deno-lint|nolint|go:|rubocop|typed:|NOLINT|clang-format|SAFETY|pragma|noqa|type:"
)
_BLOCKS = frozenset(
    {"program", "module", "source_file", "translation_unit", "statement_block", "block", "statement_list"}
    | {"declaration_list", "class_body", "interface_body", "enum_body", "constructor_body", "body_statement"}
    | {"compound_statement", "field_declaration_list", "switch_block", "then", "begin_block"}
)
_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LOOKS_AT_NAMES = re.compile(r"\b(?:locals|vars|dir|exec|eval|_getframe|currentframe)\b")
_MAX_LOCALS = 30
_MAX_CONSTANT = 200


class _Comment(NamedTuple):
    start: int
    end: int
    row: int
    kept: bool


class _Layout(NamedTuple):
    """The lines of a file that may be changed."""

    comments: list[_Comment]
    fixed_rows: set[int]
    """Rows that start inside something whose text counts."""
    statements: list[tuple[int, bytes]]
    """(row, indentation) of each statement or declaration that starts its line."""
    doubtful: bool
    """The grammar misread more than single words, so an apparent comment may not be one."""


def _layout(language: str, content: bytes) -> _Layout | None:
    root = root_of(language, content)
    if root is None:
        return None
    comments: list[_Comment] = []
    fixed_rows: set[int] = set()
    statements: list[tuple[int, bytes]] = []
    doubtful = False
    lines = content.split(b"\n")
    waiting = [(root, "")]
    while waiting:
        node, parent = waiting.pop()
        first, last = node.start_point[0], node.end_point[0] - (node.end_point[1] == 0)
        if node.type in COMMENTS:
            kept = _kept(language, text_of(content, node))
            comments.append(_Comment(node.start_byte, node.end_byte, last, kept))
            fixed_rows.update(range(first + 1, last + 1))
            continue
        if node.type in VERBATIM or node.type in ("jsx_text", "ERROR") or node.type.startswith("preproc_"):
            fixed_rows.update(range(first + 1, last + 1))
        if node.is_missing or node.type == "ERROR":
            doubtful = doubtful or _misread(text_of(content, node))
        before = lines[first][: node.start_point[1]]
        if node.is_named and parent in _BLOCKS and not before.strip():
            statements.append((first, before))
        waiting += [(child, node.type) for child in reversed(node.children)]
    return _Layout(comments, fixed_rows, statements, doubtful)


def _misread(text: bytes) -> bool:
    return not 0 < len(text) <= 80 or re.search(rb"[\"'`/#\n{}()\[\]]", text) is not None


def _kept(language: str, text: bytes) -> bool:
    """Comments that a reprint keeps: those that are obeyed, tools' own, and Rust's documentation, for its lints."""
    if is_obeyed(language, text) or _TOOLS.search(text):
        return True
    return language == "rust" and text.startswith((b"///", b"//!", b"/**", b"/*!"))


def _is_cgo(language: str, content: bytes) -> bool:
    """True if comments are code."""
    return language == "go" and row_of_cgo(content) is not None


def reprint(language: str, content: bytes, random: Random) -> bytes | None:
    """The same program without comments and with another layout; None if that is not certain."""
    before = normal_form(language, content)
    layout = _layout(language, content)
    if before is None or layout is None or layout.doubtful or _is_cgo(language, content):
        return None
    plain = _without_comments(content, layout)
    printed = plain if language == "python" else _laid_out(language, plain, random)
    return printed if printed is not None and normal_form(language, printed) == before else None


def _without_comments(content: bytes, layout: _Layout) -> bytes:
    parts: list[bytes] = []
    end = 0
    for comment in sorted(layout.comments):
        if comment.kept or comment.start < end:
            continue
        text = content[comment.start : comment.end]
        parts += (content[end : comment.start], b"\n" if b"\n" in text else b" " if text.startswith(b"/*") else b"")
        end = comment.end
    return b"".join((*parts, content[end:]))


def _laid_out(language: str, content: bytes, random: Random) -> bytes | None:
    """Deeper indentation, no empty lines except new ones before some statements."""
    layout = _layout(language, content)
    if layout is None or layout.doubtful:
        return None
    after_comment = {comment.row + 1 for comment in layout.comments}
    begins = {row for row, indentation in layout.statements if not indentation and random.random() < 0.5}
    lines = content.split(b"\n")
    printed: list[bytes] = []
    for row, line in enumerate(lines):
        kept_end = row + 1 in layout.fixed_rows
        if row in layout.fixed_rows:
            printed.append(line if kept_end else line.rstrip(b" \t"))
        elif not line.strip():
            printed += [line] if row in after_comment else []
        else:
            printed += [b""] if row in begins else []
            deeper = line[:1] + line if line[:1] in (b" ", b"\t") else line
            printed.append(deeper if kept_end else deeper.rstrip(b" \t"))
    return b"\n".join((*printed, b""))


def noisy(language: str, content: bytes, changed: bytes | None, random: Random) -> bytes | None:
    """The same program with more comments, among them the lines that a patch adds, in their places.

    A test that only reads the text finds what it looks for. None if nothing is certain.
    """
    layout = _layout(language, content)
    before = normal_form(language, content)
    if layout is None or before is None or _is_cgo(language, content):
        return None
    starts = {row: each for row, each in sorted(layout.statements) if row not in layout.fixed_rows}
    noted = _random_comments(starts, content, changed, random)
    lines = content.split(b"\n")
    noise = b"\n".join(
        part
        for row, line in enumerate(lines)
        for part in (*(starts[row] + _comment_line(language, text) for text in noted.get(row, ())), line)
    )
    return noise if noise != content and normal_form(language, noise) == before else None


def _random_comments(
    starts: Collection[int], content: bytes, changed: bytes | None, random: Random
) -> dict[int, list[bytes]]:
    """Comments to insert before rows: meaningless words in places, and added lines in their own place."""
    if not starts:
        return {}
    rows = sorted(starts)
    chosen = {random.choice(rows), *(row for row in rows if random.random() < 0.1)}
    noted = {row: [f"note {random.getrandbits(32):08x}".encode()] for row in chosen}
    after = changed.split(b"\n") if changed is not None else []
    for hunk in hunks(content, changed) if changed is not None else ():
        added = [line.strip() for line in after[hunk.new_start : hunk.new_end] if line.strip()]
        earlier = [row for row in rows if row <= hunk.old_start][-1:]
        later = [row for row in rows if row > hunk.old_start][:1]
        for row in (*earlier, *later):
            noted.setdefault(row, []).extend(added)
    return noted


def _comment_line(language: str, text: bytes) -> bytes:
    """One line that is only a comment."""
    printable = bytes(max(character, 0x20) for character in text)
    if language in ("python", "ruby"):
        return b"# " + printable
    if language == "c":
        return b"/* " + printable.replace(b"*/", b"* /").replace(b"/*", b"/ *") + b" */"
    return b"// " + printable


def noisy_python(content: bytes, changed: bytes | None, random: Random) -> bytes | None:
    """A Python module with more comments, with the docstrings of the changed version, and with unused locals in the
    functions that it changes, which have the constants and the names that these functions get.

    None if that is not certain to mean the same.
    """
    tree = parse_python(content)
    if tree is None or b"\r" in content.replace(b"\r\n", b"") or not _plain_encoding(content):
        return None
    head = parse_python(changed) if changed is not None else None
    if head is not None and changed is not None:
        content = _with_docstrings(content, tree, changed, head)
        tree = parse_python(content) or tree
    lines = content.split(b"\n")
    starts = _starts(tree, lines)
    noted = _random_comments(starts, content, changed, random)
    unused = _unused_locals(tree, head, random) if head is not None else {}
    made: list[bytes] = []
    added: set[int] = set()
    for row, line in enumerate(lines):
        made += [starts[row] + _comment_line("python", text) for text in noted.get(row, ())]
        for statement in unused.get(row, ()) if row in starts else ():
            made.append(starts[row] + statement)
            added.add(len(made))
        made.append(line)
    text = b"\n".join(made)
    after = parse_python(text)
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
    return min([node.lineno, *(each.lineno for each in decorators)]) - 1


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
    after = parse_python(made)
    before = parse_python(content)
    return made if before is not None and after is not None and python_sources.same_program(before, after) else content


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
