"""Python sources by their syntax tree: compared without comments and docstrings, reprinted, and what has no use."""

import ast
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import CodeType
from typing import NamedTuple

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


_EFFECTIVE = frozenset({"__future__", "readline", "site", "antigravity", "this", "lib2to3"})
"""Modules of the standard library that do something when they are imported."""
_DYNAMIC = re.compile(rb"\b(?:globals|locals|vars|eval|exec)\(|__dict__|sys\.modules|\bgetattr\(\s*\w+\s*,\s*[^\s\"']")
_QUIET = frozenset({"debug", "info"})
_ACTIVE = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
_LITERAL = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.unaryop, ast.expr_context)


class Unused(NamedTuple):
    """Names that nothing else in the module uses; other modules may."""

    imports: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()


def unused_rows(content: bytes, new: bytes = b"", replaced: Collection[int] = ()) -> dict[int, Unused]:
    """By row, from 0: imports of the standard library, private definitions, and quiet log lines without use.

    All else that nothing refers to may register itself, or be meant for users of the project. What was used only in
    rows that are `replaced` has no use in the `new` version.
    """
    tree = parse(content)
    if tree is None:
        return {}
    loggers = set(_loggers(tree))
    found = {row: Unused() for node in ast.walk(tree) if _is_quiet_log(node, loggers) for row in _rows(node)}
    if _DYNAMIC.search(content) or _DYNAMIC.search(new):
        return found
    lines = [*(b"" if row in replaced else line for row, line in enumerate(content.split(b"\n"))), *new.split(b"\n")]
    for statement in tree.body:
        names = Unused(_imported(statement), _defined(statement))
        rows = set(_rows(statement))
        others = b"\n".join(line for row, line in enumerate(lines) if row not in rows)
        words = [name.encode() for name in (*names.imports, *names.defines)]
        for_name = (re.search(rb"\b%b\b" % word, others) or _quoted(word, content) for word in words)
        if any(names) and not any(for_name):
            found.update(dict.fromkeys(rows, names))
    return found


def _quoted(word: bytes, content: bytes) -> bool:
    """True if the module writes the name as a text, as `__all__` does."""
    return re.search(rb"[\"']%b[\"']" % word, content) is not None


def all_unused(unused: Mapping[int, Unused], rows: Iterable[int]) -> Unused | None:
    """The names on these rows; None if there is anything else on them."""
    found = [unused.get(row) for row in rows]
    names = [each for each in found if each is not None]
    if len(names) < len(found):
        return None
    imports, defines = ({name for each in names for name in each[side]} for side in (0, 1))
    return Unused(tuple(sorted(imports)), tuple(sorted(defines)))


def is_used_elsewhere(unused: Unused, path: str, others: Iterable[bytes]) -> bool:
    """True if the text of another file may refer to one of these names of the module at this path."""
    place = PurePosixPath(path)
    module = re.escape((place.parent if place.stem == "__init__" else place).stem.encode())
    names = b"|".join(re.escape(name.encode()) for name in unused.imports)
    defines = b"|".join(re.escape(name.encode()) for name in unused.defines)
    patterns = [rb"\([\w.]*\b%b\s*[,)]" % module]  # such as of `getattr`, or of `inspect.getmembers`
    patterns += [rb"\b(?:%b)\b" % defines] if defines else []
    if names:
        patterns += [
            rb"\b%b\s*\.\s*(?:%b)\b" % (module, names),
            rb"\b%b\s+import\b[^()\n]*(?:\*|\b(?:%b)\b)" % (module, names),
            rb"\b%b\s+import\s*\([^)]*\b(?:%b)\b" % (module, names),
            rb"\b%b\s+as\s+\w" % module,
            rb"\bimport_module\([^)\n]*\b%b\b" % module,
        ]
    if names and place.stem == "__init__":
        patterns.append(rb"\bfrom\s+\.+\s+import\b[^()\n]*\b(?:%b)\b" % names)
    used = re.compile(b"|".join(patterns))
    return any(used.search(text) for text in others)


def _rows(node: ast.AST) -> range:
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    return range(first - 1, last or first)


def _imported(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, ast.Import):
        modules = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and not statement.level:
        modules = [(statement.module or "").partition(".")[0]]
    else:
        return ()
    if not all(name in sys.stdlib_module_names and name not in _EFFECTIVE for name in modules):
        return ()  # what the project or a package imports may register itself
    names = tuple(alias.asname or alias.name for alias in statement.names)
    return () if "*" in names else names


def _defined(statement: ast.stmt) -> tuple[str, ...]:
    name = ""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if not statement.decorator_list:
            outside = [statement.args, *filter(None, [statement.returns])]
            name = "" if _does_something(outside) else statement.name
        case ast.Assign(targets=[ast.Name(id=target)], value=value):
            name = target if all(isinstance(node, _LITERAL) for node in ast.walk(value)) else ""
    return (name,) if name.startswith("_") and not name.startswith("__") else ()


def _loggers(tree: ast.Module) -> Iterator[str]:
    """The names of this module that are loggers, and no objects of the project that look like one."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.asname or alias.name for alias in names if alias.name == "logging")
            case ast.ImportFrom(module="loguru", names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=made)):
                if re.search(r"(?:^|\.)(?:getLogger|get_logger)$", ast.unparse(made)):
                    yield name


def _is_quiet_log(node: ast.AST, loggers: Collection[str]) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=level)) as call):
            given = [*call.args, *(each.value for each in call.keywords)]
            return name in loggers and level in _QUIET and not _does_something(given)
    return False


def _does_something(nodes: Iterable[ast.AST]) -> bool:
    inner: Iterator[ast.AST] = (each for node in nodes for each in ast.walk(node))
    return any(isinstance(each, _ACTIVE) for each in inner)
