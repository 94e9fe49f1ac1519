"""Python sources by their syntax tree: compared without comments and docstrings, printed again, made noisy."""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from random import Random
from types import CodeType

from app.verify.sources.hunks import hunks
from app.verify.sources.parsed_sources import comment_line, scattered

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BINDS = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOKS_AT_NAMES = re.compile(rb"\b(?:locals|vars|dir|exec|eval|_getframe|currentframe)\b")


def parse(content: bytes) -> ast.Module | None:
    """None where this Python cannot parse it, or only with more depth than there is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def same_program(old: ast.Module, new: ast.Module) -> bool:
    """Whether two modules differ in nothing but docstrings and statements that certainly do nothing."""
    return _dump(old) == _dump(new) or _dump(_Reduced().visit(old)) == _dump(_Reduced().visit(new))


def _dump(tree: ast.AST) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None
    return ast.dump(tree)


class _Reduced(ast.NodeTransformer):
    """Drops docstrings, `pass`, constants that stand alone, and what cannot be reached."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                kept = list(_kept(statements))
                setattr(node, field, kept or ([ast.Pass()] if field == "body" else []))
        return node


def _kept(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for number, statement in enumerate(statements):
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If) and _false(statement.test) and _inert(statement.body):
            yield from statement.orelse
            continue
        yield statement
        if isinstance(statement, _ENDS) and _inert(statements[number + 1 :]):
            return


def _false(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and not test.value


def _inert(statements: Sequence[ast.stmt]) -> bool:
    """Whether these, never executed, also mean nothing to the function around them."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (*_BINDS, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.ExceptHandler)):
                return False
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                return False
            if isinstance(node, ast.MatchAs | ast.MatchStar | ast.MatchMapping):
                return False
    return True


def reprint(content: bytes) -> bytes | None:
    """The module printed from its syntax tree, with its docstrings; None where it would not be the same one."""
    before = parse(content)
    if before is None or any(_newer_when_printed(node) for node in ast.walk(before)):
        return None
    printed = unparse(before)
    after = parse(printed) if printed is not None else None
    return printed if after is not None and ast.dump(after) == ast.dump(before) else None


def unparse(module: ast.Module) -> bytes | None:
    try:
        return f"{ast.unparse(module)}\n".encode()
    except (ValueError, RecursionError):  # lone surrogates; numbers and nestings beyond the interpreter's limits
        return None


def _newer_when_printed(node: ast.AST) -> bool:
    """`a[(*b, c)]` is printed without its parentheses, which only newer Pythons can read."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return False
    return any(isinstance(element, ast.Starred) for element in node.slice.elts)


def noisy(content: bytes, changed: bytes | None, random: Random) -> bytes | None:
    """The same module with more comments, as `trees.noisy`, and unused locals in the functions that a patch changes.

    The locals change what a function's code object looks like.
    """
    tree = parse(content)
    if tree is None or b"\r" in content.replace(b"\r\n", b"") or not _plain_encoding(content):
        return None
    lines = content.split(b"\n")
    starts = _starts(tree, lines)
    noted = scattered(starts, content, changed, random)
    assigned = _first_rows(tree, content, changed) & starts.keys() if changed is not None else set()
    noise: list[bytes] = []
    for row, line in enumerate(lines):
        noise += [starts[row] + comment_line("python", text) for text in noted.get(row, ())]
        if row in assigned:
            number = random.getrandbits(24)
            noise.append(starts[row] + b"_note_%d = %d" % (number, number))
        noise.append(line)
    made = b"\n".join(noise)
    after = parse(made)
    return made if after is not None and _without_notes(after) == ast.dump(tree) else None


def _plain_encoding(content: bytes) -> bool:
    try:
        return tokenize.detect_encoding(io.BytesIO(content).readline)[0] in ("utf-8", "utf-8-sig")
    except SyntaxError:
        return False


def _starts(tree: ast.Module, lines: Sequence[bytes]) -> dict[int, bytes]:
    """Rows that begin with a statement, each with its indentation."""
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


def _first_rows(tree: ast.Module, content: bytes, changed: bytes) -> set[int]:
    """Where the bodies of those functions begin that a patch changes, after their docstrings."""
    lines = content.split(b"\n")
    touched = [range(hunk.old_start, max(hunk.old_end, hunk.old_start + 1)) for hunk in hunks(content, changed)]
    found: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _FUNCTIONS):
            continue
        first, end = node.lineno - 1, node.end_lineno or node.lineno
        body = node.body[ast.get_docstring(node, clean=False) is not None :]
        if body and any(first < rows.stop and rows.start < end for rows in touched):
            text = b"\n".join(lines[first:end])
            found |= set() if _LOOKS_AT_NAMES.search(text) else {_first_row(body[0])}
    return found


def _without_notes(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            node.body = [each for each in node.body if not _is_note(each)]
    return ast.dump(tree)


def _is_note(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and target.id.startswith("_note_")


def executable_rows(content: bytes) -> set[int] | None:
    """Rows, from 0, that an execution can be seen on; None where this Python cannot compile it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(content, "module", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    rows: set[int] = set()
    waiting: list[CodeType] = [code]
    while waiting:
        each = waiting.pop()
        rows.update(line - 1 for _, _, line in each.co_lines() if line)
        waiting += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
    return rows
