"""Finds the executable lines that a patch changes or adds."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from app.verify.sources import python_sources
from app.verify.sources.parsed_sources import COMMENTS, code_only, hunks, root_of, text_of

_FUNCTION = re.compile(r"function|method|arrow|lambda|closure|constructor|func_literal|do_block")
_DECLARING = re.compile(r"import|use_declaration|package|interface|type_alias|type_declaration|preproc|attribute")


class ExecutableRows(NamedTuple):
    """Rows from 0: those inside functions, and those that an import executes."""

    inner: set[int]
    outer: set[int]


Executable = dict[int, tuple[set[int], bool]]
"""By row: the rows on which its execution is visible, and whether it is inside a function."""


def changed_rows(language: str, old: bytes | None, new: bytes) -> ExecutableRows:
    """The executable rows of the new version that differ; if lines were only removed, their neighbours."""
    found = (_python_rows(new) if language == "python" else None) or _tree_rows(language, new)
    before, after = (code_rows(language, side) for side in (old or b"", new))
    wanted: set[int] = set()
    for hunk in hunks(before, after):
        wanted.update(range(hunk.new_start, hunk.new_end))
        gone = before.split(b"\n")[hunk.old_start : hunk.old_end]
        if hunk.new_start == hunk.new_end and any(gone):
            wanted.update(_neighbours(found, hunk.new_start))
    chosen = [found[row] for row in wanted if row in found]
    inner, outer = ({row for rows, inside in chosen if inside is side for row in rows} for side in (True, False))
    return ExecutableRows(inner, outer)


def code_rows(language: str, content: bytes) -> bytes:
    """The same rows without comments, docstrings, and trailing space."""
    return b"\n".join(line.rstrip() for line in (code_only(language, content) or content).split(b"\n"))


def _neighbours(rows: Executable, at: int) -> Iterator[int]:
    before, after = [row for row in rows if row < at], [row for row in rows if row >= at]
    if before:
        yield max(before)
    if after:
        yield min(after)


def _python_rows(content: bytes) -> Executable | None:
    tree, executable = python_sources.parse(content), python_sources.executable_rows(content)
    if tree is None or executable is None:
        return None
    found: Executable = {}
    waiting: list[tuple[ast.stmt, bool]] = [(statement, False) for statement in tree.body]
    while waiting:
        statement, inside = waiting.pop()
        function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        below = _below(statement)
        waiting += [(each, inside or function) for each in below]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        own = _rows(statement) - {row for each in below for row in _rows(each)}
        declares = function or isinstance(statement, ast.ClassDef | ast.Import | ast.ImportFrom)
        for row in own:
            seen = {row} if below and row in executable else own & executable
            if seen:
                found[row] = (seen, inside and not declares)
    return found


def _below(statement: ast.stmt) -> list[ast.stmt]:
    parts: list[ast.AST] = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    return [each for part in parts for field in ("body", "orelse", "finalbody") for each in getattr(part, field, [])]


def _rows(statement: ast.stmt) -> set[int]:
    decorators = [each.lineno for each in getattr(statement, "decorator_list", [])]
    return set(range(min([statement.lineno, *decorators]) - 1, statement.end_lineno or statement.lineno))


def _tree_rows(language: str, content: bytes) -> Executable:
    """Rows with more than comments, brackets and type declarations."""
    root = root_of(language, content)
    found: Executable = {}
    waiting = [(root, False)] if root is not None else []
    while waiting:
        node, inside = waiting.pop()
        if node.type in COMMENTS or _DECLARING.search(node.type):
            continue
        if node.child_count:
            body = node.child_by_field_name("body") if _FUNCTION.search(node.type) else None
            waiting += [(child, inside or child == body) for child in node.children]
        elif node.is_named or text_of(content, node).strip().isalnum():
            for row in range(node.start_point[0], node.end_point[0] + 1):
                before = found.get(row, (set(), False))[1]
                found[row] = ({row}, inside or before)
    return found
