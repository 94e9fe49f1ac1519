"""Finds where Python replaces functions of other modules, of the project as well as of what it imports.

Objects of other distributions get values often (`g.user = load()`), so that there the value must be a function.
"""

import ast
import builtins
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.core.python_source import parse_python

_CLASS_NAME = re.compile(r"_*[A-Z][A-Z\d]*[a-z]")
_PLAIN = (ast.Constant, ast.JoinedStr, ast.ListComp, ast.SetComp, ast.DictComp, ast.List, ast.Tuple, ast.Set, ast.Dict)
_WITH_DECORATORS = frozenset({"contextlib", "functools", "types", "unittest"})
"""Packages of the standard library; what the others return is data."""
_SEQUENCES = (ast.List, ast.Tuple)
_UNKNOWN = ast.Await(ast.Name("", ast.Load()))
"""A value that is not written where it is assigned."""
_CHANGING = frozenset({"update", "setdefault", "pop", "clear", "__setitem__", "__delitem__"})
_PYTHON_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_PYTHON_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class PythonNames(NamedTuple):
    """Names of the project's Python."""

    functions: frozenset[str]
    packages: frozenset[str]
    """What an absolute import of a file may begin with."""


class _Import(NamedTuple):
    """Where a name comes from."""

    package: str
    """What the import begins with; empty if it is relative."""
    name: str
    """Its name there; empty if all that it has may be functions: a module, something from the standard library, or a
    class of another distribution."""
    other: bool = False
    """It is from another distribution, and may be a module as well as an object whose attributes programs set."""


@dataclass(frozen=True)
class _Names:
    """What the names of a module or function of Python stand for."""

    project: PythonNames
    imported: Mapping[str, _Import]
    defined: Collection[str]
    """Its functions and classes, and `Class.method` of these."""
    bound: Collection[str]
    outer: "_Names | None"
    """Those around it. They are not copied: a file may have very many functions."""

    def has_function(self, name: str, attribute: str, value: ast.expr | None) -> bool:
        """True if the attribute of this name may be a function elsewhere, or becomes one by the value."""
        origin, functions = self._origin(name), self.project.functions
        if origin is None or not origin.name:
            return origin is not None
        if origin.other and value is not None:
            builtin = isinstance(value, ast.Name | ast.Attribute) and self._is_builtin(_root(value))
            return (attribute in functions or not builtin) and self._is_function(value, attribute)
        return attribute in functions or (not origin.other and f"{origin.name}.{attribute}" in functions)

    def _origin(self, name: str) -> _Import | None:
        scope = self._with(name)
        return scope.imported.get(name) if scope is not None else None

    def _with(self, name: str) -> "_Names | None":
        """The innermost that has the name."""
        scope: _Names | None = self
        while scope is not None and not any(name in each for each in (scope.imported, scope.defined, scope.bound)):
            scope = scope.outer
        return scope

    def _is_function(self, value: ast.expr, attribute: str = "") -> bool:
        """True if the value is a function, or is probably one in place of this attribute."""
        match value:
            case ast.Name(id=name):
                return self._is_known_function(name, "")
            case ast.Attribute(attr=member):
                return self._is_known_function(_root(value), member)
            case ast.IfExp(body=first, orelse=second):
                return any(self._is_function(each, attribute) for each in (first, second))
            case ast.BoolOp(values=values):
                return any(self._is_function(each, attribute) for each in values)
            case ast.Call() if attribute in self.project.functions and not _makes_function(value):
                return self._wraps(value, attribute)
        return _makes_function(value)

    def _wraps(self, call: ast.Call, attribute: str) -> bool:
        """True if the call gets a function, or what had that name before."""
        called = _root(call.func)
        origin = self._origin(called)
        library = origin is not None and origin.package in sys.stdlib_module_names - _WITH_DECORATORS
        if attribute.isupper() or library or self._is_builtin(called):
            return False
        given = [*call.args, *(each.value for each in call.keywords)]
        return any(_owner_and_name(each)[1] == attribute or self._is_function(each) for each in given)

    def _is_known_function(self, name: str, attribute: str) -> bool:
        """True if that is one of the project or of Python, or may be one of the standard library or of a module."""
        scope, functions = self._with(name), self.project.functions
        if scope is None:
            return (not attribute and name in functions) or self._is_builtin(name, attribute)
        if (f"{name}.{attribute}" if attribute else name) in scope.defined:
            return True
        origin = scope.imported.get(name)
        if origin is None or origin.other:
            return False
        return (attribute or origin.name) in functions or not (origin.name or attribute.isupper())

    def _is_builtin(self, name: str, attribute: str = "") -> bool:
        found = vars(builtins).get(name) if self._with(name) is None else None
        return found is not None and callable(getattr(found, attribute, None) if attribute else found)


def replaced_functions(content: bytes, project: PythonNames) -> list[range] | None:
    """The rows, from 0, of each statement or expression that replaces what may be a function of something imported.

    None if this Python cannot parse it.
    """
    tree = parse_python(content)
    return None if tree is None else list(_replaced(tree, _names_of(tree, project)))


def _names_of(scope: ast.AST, project: PythonNames, outer: _Names | None = None) -> _Names:
    return _Names(project, dict(_imported(scope, project)), _defined(scope), _bound(scope), outer)


def _replaced(tree: ast.Module, names: _Names) -> Iterator[range]:
    waiting = [(node, names) for node in ast.iter_child_nodes(tree)]
    while waiting:
        node, names = waiting.pop()
        if isinstance(node, _PYTHON_FUNCTIONS):
            names = _names_of(node, names.project, names)
        if isinstance(node, ast.stmt | ast.expr) and _replaces(node, names):
            yield range(node.lineno - 1, node.end_lineno or node.lineno)
        waiting += [(child, names) for child in ast.iter_child_nodes(node)]


def _replaces(node: ast.stmt | ast.expr, names: _Names) -> bool:
    if isinstance(node, ast.expr):
        return _changes_names(node, names.has_function)
    assigned = ((target, value, _owner_and_name(target)) for target, value in _assigned(node))
    return any(names.has_function(*of, value) and _may_be_function(target, value) for target, value, of in assigned)


def _changes_names(node: ast.expr, has_function: Callable[[str, str, ast.expr | None], bool]) -> bool:
    """True for a change of what is imported by its dictionary, or by `setattr` and `delattr`."""
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[target, name, value]):
            return has_function(_root(target), _text_of(name), value) and not _is_plain(value)
        case ast.Call(func=ast.Name(id="delattr"), args=[target, name]):
            return has_function(_root(target), _text_of(name), None)
        case ast.Call(func=ast.Attribute(value=names, attr=attribute), args=args, keywords=keywords):
            return attribute in _CHANGING and any(
                has_function(_owner(names), *each) for each in _entries(args, keywords)
            )
        case ast.Subscript(value=names, slice=name, ctx=ast.Store() | ast.Del()):
            return has_function(_owner(names), _text_of(name), None)
    return False


def _entries(args: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[tuple[str, ast.expr | None]]:
    """The names, and the values if they are known, that a call with these arguments may change in a dictionary."""
    yield "", None
    yield from ((keyword.arg or "", keyword.value) for keyword in keywords)
    for each in (*args, *(keyword.value for keyword in keywords if keyword.arg is None)):
        if isinstance(each, ast.Dict):
            yield from ((_text_of(key), value) for key, value in zip(each.keys, each.values, strict=True))
        else:
            yield from (("", each), (_text_of(each), None))


def _text_of(expression: ast.expr | None) -> str:
    """The text that a literal is; empty for anything else."""
    return expression.value if isinstance(expression, ast.Constant) and isinstance(expression.value, str) else ""


def _owner(names: ast.expr) -> str:
    """The name whose dictionary this is; empty if it is none."""
    match names:
        case ast.Call(func=ast.Name(id="vars"), args=[target]) | ast.Attribute(value=target, attr="__dict__"):
            return _root(target)
    return ""


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What the statement itself assigns to, unless it is a block, or a block's head does.

    Each with its value; None if it is deleted.
    """
    heads: list[tuple[ast.expr, ast.expr | None]] = []
    match statement:
        case ast.Assign(targets=targets):
            heads = [(target, statement.value) for target in targets]
        case ast.AnnAssign(target=target) if statement.value is not None:
            heads = [(target, statement.value)]
        case ast.AugAssign(target=target):
            heads = [(target, statement.value)]
        case ast.For(target=target, iter=several) | ast.AsyncFor(target=target, iter=several):
            heads = [(target, each) for each in (several.elts if isinstance(several, _SEQUENCES) else [_UNKNOWN])]
        case ast.Delete(targets=targets):
            heads = [(target, None) for target in targets]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            heads = [(item.optional_vars, _UNKNOWN) for item in items if item.optional_vars is not None]
    while heads:
        target, value = heads.pop()
        if isinstance(target, ast.Starred):
            heads.append((target.value, _UNKNOWN))
        elif isinstance(target, _SEQUENCES):
            values = value.elts if isinstance(value, _SEQUENCES) else []
            known = len(values) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in values)
            unknown: list[ast.expr | None] = [value and _UNKNOWN] * len(target.elts)
            heads += zip(target.elts, values if known else unknown, strict=True)
        else:
            yield target, value


def _owner_and_name(target: ast.expr) -> tuple[str, str]:
    """The name at the root, and the attribute of it that this is; empty for anything else."""
    match target:
        case ast.Attribute(attr=attribute):
            return _root(target), attribute
        case ast.Subscript(value=names, slice=name):
            return _owner(names), _text_of(name)
        case ast.Call(func=ast.Name(id="getattr"), args=[of, name, *_]):
            return _root(of), _text_of(name)
    return "", ""


def _may_be_function(target: ast.expr, value: ast.expr | None) -> bool:
    """True unless it is known that this is none: by the value, or by a name that is written as a setting's."""
    if value is not None and _is_plain(value):
        return False
    setting = isinstance(target, ast.Attribute) and target.attr.isupper()
    return not (setting and isinstance(value, ast.Name | ast.Compare | ast.BoolOp | ast.BinOp))


def _is_plain(value: ast.expr) -> bool:
    match value:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_plain(operand)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
    return isinstance(value, _PLAIN)


def _root(target: ast.expr) -> str:
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _imported(scope: ast.AST, project: PythonNames) -> Iterator[tuple[str, _Import]]:
    """The names that are imported here, but not in functions inside."""
    for node in _outside(_PYTHON_FUNCTIONS, scope):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                yield alias.asname or package, _Import(package, "")
        elif isinstance(node, ast.ImportFrom):
            module = node.module if node.module and not node.level else ""
            package = module.partition(".")[0]
            library = package in sys.stdlib_module_names
            for alias in node.names:
                begins = (package, module, f"{module}.{alias.name}")
                other = not node.level and project.packages.isdisjoint(begins)
                every = library or (other and _CLASS_NAME.match(alias.name) is not None)
                yield alias.asname or alias.name, _Import(package, "" if every else alias.name, other and not library)


def _defined(scope: ast.AST) -> frozenset[str]:
    """The names of the functions and classes that are defined here, but not in functions inside; `Class.method` too."""
    found, nodes = set[str](), list(_outside(_SCOPES, scope))
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            inside = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{each.name}" for each in inside if isinstance(each, _PYTHON_FUNCTIONS[:2])}
        elif isinstance(node, ast.Assign) and _makes_function(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found - _shared(nodes))


def _makes_function(value: ast.expr) -> bool:
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial")):
            return True
        case ast.Call(func=ast.Name(id="staticmethod" | "classmethod" | "property")):
            return True
    return False


def _outside(inner: tuple[type[ast.AST], ...], scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are not inside one of these kinds in it; such a node itself is one of them."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, inner):
            waiting += ast.iter_child_nodes(node)


def _bound(scope: ast.AST) -> frozenset[str]:
    """The names of its own: parameters, and what is assigned in it."""
    nodes = list(_outside(_SCOPES, scope))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    caught = {
        node.name for node in nodes if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) if node.name
    }
    return frozenset(((stored | caught) - _shared(nodes)) | {node.arg for node in nodes if isinstance(node, ast.arg)})


def _shared(nodes: Collection[ast.AST]) -> set[str]:
    return {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
