"""Python sources by their syntax tree: compared without comments and docstrings, and reprinted."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from types import CodeType

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BINDS = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parse(content: bytes) -> ast.Module | None:
    """None if this Python cannot parse it, or only with too much depth."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def same_program(old: ast.Module, new: ast.Module) -> bool:
    """True if two modules differ in nothing but docstrings and statements that certainly do nothing."""
    return _dump(old) == _dump(new) or _dump(_Reduced().visit(old)) == _dump(_Reduced().visit(new))


def _dump(tree: ast.AST) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None
    return ast.dump(tree)


class _Reduced(ast.NodeTransformer):
    """Drops docstrings, `pass`, constants as statements, and unreachable code."""

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
    """True if these unreachable statements also mean nothing to the function around them."""
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
    """The module printed from its syntax tree, with its docstrings; None if that would change it."""
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


def executable_rows(content: bytes) -> set[int] | None:
    """Rows, from 0, whose execution is visible; None if this Python cannot compile it."""
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


def stub_additions(old: bytes, new: bytes) -> bytes | None:
    """The new version with nothing in the functions and names that the old one does not have; None if unparsable."""
    before, after = parse(old), parse(new)
    if before is None or after is None:
        return None
    known = {name for name, _ in _definitions(before.body)}
    for name, statement in list(_definitions(after.body)):
        if name in known:
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            statement.body = [ast.Pass()]
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            statement.value = ast.Constant(None)
    return unparse(ast.fix_missing_locations(after))


def _definitions(body: Sequence[ast.stmt], scope: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """The functions and plain names of a module and its classes, each with its qualified name."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{scope}{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            yield from _definitions(statement.body, f"{scope}{statement.name}.")
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if len(names) == len(targets) and not any(name.startswith("__") for name in names):
                yield from ((f"{scope}{name}", statement) for name in names)
