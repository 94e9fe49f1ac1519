"""Finds where Python code replaces what may be a function of a module that it imports."""

import ast
import sys
from collections.abc import Iterator
from typing import NamedTuple

from app.verify.sources import python_sources

_PLAIN = (ast.Constant, ast.JoinedStr, ast.ListComp, ast.SetComp, ast.DictComp)
_CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_CHANGING = frozenset({"update", "setdefault", "pop", "clear", "__setitem__", "__delitem__"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Replacement(NamedTuple):
    """The rows of an assignment, from 0: the first, and the one behind its last."""

    first: int
    end: int


def replaced_functions(content: bytes) -> list[Replacement] | None:
    """None if this Python cannot parse the module."""
    tree = python_sources.parse(content)
    return None if tree is None else list(_replaced(tree, set(_imported(tree))))


def _replaced(scope: ast.AST, modules: set[str]) -> Iterator[Replacement]:
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            yield from _replaced(node, (modules - _bound(node)) | set(_imported(node)))
            continue
        if isinstance(node, ast.stmt):
            for target in _targets(node):
                if _root(target) in modules and _may_be_function(target, getattr(node, "value", None)):
                    yield Replacement(node.lineno - 1, node.end_lineno or node.lineno)
        if isinstance(node, ast.expr) and _changes_names(node, modules):
            yield Replacement(node.lineno - 1, node.end_lineno or node.lineno)
        waiting += ast.iter_child_nodes(node)


def _changes_names(node: ast.expr, modules: set[str]) -> bool:
    """True for a change of a module by its dictionary, or by `setattr` and `delattr`."""
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[target, _, value]):
            return _root(target) in modules and not _is_plain(value)
        case ast.Call(func=ast.Name(id="delattr"), args=[target, _]):
            return _root(target) in modules
        case ast.Call(func=ast.Attribute(value=names, attr=attribute)):
            return attribute in _CHANGING and _of_module(names, modules)
        case ast.Subscript(value=names, ctx=ast.Store() | ast.Del()):
            return _of_module(names, modules)
    return False


def _of_module(names: ast.expr, modules: set[str]) -> bool:
    match names:
        case ast.Call(func=ast.Name(id="vars"), args=[target]) | ast.Attribute(value=target, attr="__dict__"):
            return _root(target) in modules
    return False


def _targets(statement: ast.stmt) -> Iterator[ast.Attribute]:
    """The attributes that the statement itself assigns to, unless it is a block, and those of a block's head."""
    match statement:
        case ast.Assign(targets=targets):
            heads: list[ast.expr] = list(targets)
        case ast.AnnAssign(target=target) if statement.value is not None:
            heads = [target]
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            heads = [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            heads = [item.optional_vars for item in items if item.optional_vars is not None]
        case _:
            heads = []
    for head in heads:
        for node in ast.walk(head):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node


def _may_be_function(target: ast.Attribute, value: ast.expr | None) -> bool:
    """True unless it is known that this is none: by the value, or by a name that is written as a setting's."""
    if value is not None and _is_plain(value):
        return False
    return not (target.attr.isupper() and isinstance(value, ast.Name | ast.Compare | ast.BoolOp | ast.BinOp))


def _is_plain(value: ast.expr) -> bool:
    match value:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_plain(operand)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
    return isinstance(value, _PLAIN + _CONTAINERS)


def _root(target: ast.expr) -> str:
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _imported(scope: ast.AST) -> Iterator[str]:
    """The names of modules that are imported here, or from the standard library; not those in functions inside."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            library = not node.level and (node.module or "").partition(".")[0] in sys.stdlib_module_names
            yield from (alias.asname or alias.name for alias in node.names if library)
        elif not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


def _bound(function: ast.AST) -> set[str]:
    """The names of a function's own: parameters, and what is assigned in it."""
    nodes = list(ast.walk(function))
    shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (stored - shared) | {node.arg for node in nodes if isinstance(node, ast.arg)}
