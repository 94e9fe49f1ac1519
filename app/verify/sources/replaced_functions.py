"""Finds where Python code assigns what may be a function to an attribute of a module that it imports."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from app.verify.sources import python_sources

_PLAIN = (ast.Constant, ast.JoinedStr, ast.ListComp, ast.SetComp, ast.DictComp)
_CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
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
        waiting += ast.iter_child_nodes(node)


def _targets(statement: ast.stmt) -> Iterator[ast.Attribute]:
    """The attributes that the statement itself assigns to, as far as it is no block, and those of a block's head."""
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
    """True unless it can be told that this is none: by the value, or by a name that is written as a setting's."""
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
    """The names of modules that are imported here; not those in functions inside."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


def _bound(function: ast.AST) -> set[str]:
    """The names of a function's own: parameters, and what is assigned in it."""
    nodes = list(ast.walk(function))
    shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (stored - shared) | {node.arg for node in nodes if isinstance(node, ast.arg)}
