"""Finds what a Python module imports, defines or logs without any use, so that no test can notice that it is gone."""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from app.verify.sources import python_sources

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
    tree = python_sources.parse(content)
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
