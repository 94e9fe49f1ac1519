"""The attributes of classes in Python's standard library."""

import ast
import importlib
import sys
from collections.abc import Iterable

_NOT_IMPORTED = frozenset({"antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo"})


def standard_members(module: Iterable[ast.stmt], base: ast.expr) -> frozenset[str]:
    """The attributes of a base class from the standard library, as the module imports it."""
    path = ast.unparse(base).partition("[")[0].split(".")
    for statement in module:
        if isinstance(statement, ast.ImportFrom) and not statement.level:
            original = {alias.asname or alias.name: alias.name for alias in statement.names}.get(path[0])
            if original:
                return _members(statement.module or "", [original, *path[1:]])
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                parts = (alias.asname or alias.name).split(".")
                if path[: len(parts)] == parts:
                    return _members(alias.name, path[len(parts) :])
    return _members("builtins", path)


def _members(module: str, path: list[str]) -> frozenset[str]:
    top = module.partition(".")[0]
    if top not in sys.stdlib_module_names or top in _NOT_IMPORTED or top.startswith("_"):
        return frozenset()
    try:
        found: object = importlib.import_module(module)
    except ImportError:
        return frozenset()
    for part in path:
        found = getattr(found, part, None)
    return frozenset(dir(found)) if found is not None else frozenset()
