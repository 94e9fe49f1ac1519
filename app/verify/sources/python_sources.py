"""Python sources by their syntax tree: compared without comments and docstrings, reprinted, and what has no use.

A module with only what a patch adds to it has the new names and optional parameters, with every body unchanged.
"""

import ast
import builtins
import importlib
import re
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike
from pathlib import PurePosixPath
from types import CodeType
from typing import NamedTuple

from app.core.python_source import parse_python

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BINDS = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


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
    before = parse_python(content)
    if before is None or any(_newer_when_printed(node) for node in ast.walk(before)):
        return None
    printed = unparse(before)
    after = parse_python(printed) if printed is not None else None
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
    before, after = parse_python(old), parse_python(new)
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
    tree = parse_python(content)
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


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INITIALIZERS = frozenset({"__init__", "__post_init__", "__attrs_post_init__"})
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol", "NamedTuple", "TypedDict", "Exception", "ValueError"})
# Any other decorator of a function may make it known elsewhere. What a patch adds is the name alone, without it.
_PLAIN_DECORATORS = frozenset(
    {"staticmethod", "classmethod", "property", "cached_property", "cache", "lru_cache", "wraps", "contextmanager"}
    | {"asynccontextmanager", "abstractmethod", "overload", "final", "dataclass", "total_ordering", "unique"}
    | {"deprecated", "runtime_checkable", "define", "frozen", "mutable", "singledispatch"}
    | {"setter", "getter", "deleter"}
)
_REGISTERS = re.compile(
    r"regist|plugin|hook|implement|subscri|provide|handler|listen|receiver|route|command", re.IGNORECASE
)
_DISPATCHED = re.compile(r"(?:visit|depart|generate|handle|do|on|test|clean|validate|_?parse)_")
_MODELS = (object, int, float, complex, str, bytes, list, dict, set, type, property, BaseException, memoryview)
_CONTEXTS = (AbstractContextManager, AbstractAsyncContextManager)
_PROTOCOLS = (Awaitable, AsyncIterator, Callable, Iterable, PathLike, *_CONTEXTS)
_SPECIAL = {name for each in (*_MODELS, *_PROTOCOLS) for name in dir(each) if name.startswith("__")} | {
    *("__getattr__", "__copy__", "__deepcopy__", "__del__", "__missing__", "__post_init__", "__attrs_post_init__"),
    *("__matmul__", "__slots__", "__path__", "__html__", "__length_hint__", "__match_args__"),
}


class Additions:
    """One module's; `inherited` collects the new members that a base class may already know by their names."""

    def __init__(self, old: ast.Module, new: ast.Module, known: Iterable[str], *, exports: bool) -> None:
        self._old, self._new, self._exports = old, new, exports
        self._known = frozenset(known)
        self.inherited: set[str] = set()

    def merged(self) -> ast.Module:
        body = self._merge(self._old.body, self._new.body, None)
        used = {name for statement in body for name in _loaded(statement)}
        kept = [each for each in body if not self._is_unused_import(each, used)]
        while (left := self._importable(kept)) != kept:
            kept = left
        return ast.Module(body=kept, type_ignores=[])

    def _merge(self, old: list[ast.stmt], new: list[ast.stmt], owner: ast.ClassDef | None) -> list[ast.stmt]:
        """The old statements, with new ones after the same neighbours as in the new version."""
        result = list(old)
        bound = {name for statement in old for name in _bindings(statement)}
        alike = {ast.dump(statement) for statement in old}
        at = _preamble(result)
        for statement in new:
            place = _place(result, statement)
            if place is not None:
                result[place] = self._joined(result[place], statement, owner)
                at = max(at, place + 1)
            elif ast.dump(statement) not in alike and self._is_addition(_reduced(statement, bound), bound, owner):
                result.insert(at, statement)
                at += 1
        return result

    def _joined(self, old: ast.stmt, new: ast.stmt, owner: ast.ClassDef | None) -> ast.stmt:
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            old.body = self._merge(old.body, new.body, new)
        elif isinstance(old, ast.If) and isinstance(new, ast.If):
            imports: list[ast.stmt] = [each for each in new.body if isinstance(each, ast.Import | ast.ImportFrom)]
            old.body = self._merge(old.body, imports, None)
        elif isinstance(old, _FUNCTIONS) and isinstance(new, _FUNCTIONS):
            _add_parameters(old.args, new.args)
            old.returns = old.returns or new.returns
            if owner is not None and old.name in _INITIALIZERS:
                self._add_fields(old, new)
        elif isinstance(old, ast.Assign) and isinstance(new, ast.Assign) and _is_exports(old) and _is_exports(new):
            _add_exports(old, new)
        return old

    def _add_fields(self, old: _Function, new: _Function) -> None:
        """Set the new attributes of an instance that need only parameters and what the module has."""
        there = {each.attr for each in ast.walk(self._old) if isinstance(each, ast.Attribute)}
        local = {each.id for each in ast.walk(new) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        fields = []
        for statement in new.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            value = getattr(statement, "value", None)
            own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr not in there
            if own and value is not None and not (isinstance(statement, ast.AugAssign) or _names_of(value) & local):
                fields.append(statement)
        at = len(old.body) - isinstance(old.body[-1], ast.Return)
        old.body[at:at] = fields

    def _is_addition(self, statement: ast.stmt, bound: set[str], owner: ast.ClassDef | None) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant()):  # `function.marker = True`
                there = {each.attr for each in ast.walk(self._old) if isinstance(each, ast.Attribute)}
                return owner is None and name not in there | _SPECIAL
        names = set(_bindings(statement))
        if not names or names & bound or names & _SPECIAL:
            return False
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return owner is None
        if isinstance(statement, ast.If | ast.Try):
            return owner is None and all(
                isinstance(each, ast.Import | ast.ImportFrom | ast.Assign | ast.Pass) for each in _inner(statement)
            )
        if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign)):
            return False
        return owner is None or not any(self._is_inherited(name, owner) for name in names)

    def _is_inherited(self, name: str, owner: ast.ClassDef) -> bool:
        """True if something existing may use a new member by its name: then it changes behaviour."""
        bases = [_name(base) for base in owner.bases]
        if any(base.endswith(("Enum", "Flag", "Choices")) for base in bases):
            return True
        if all(base in _PLAIN_BASES for base in bases):
            return False
        self.inherited.add(name)
        if name in self._known or _DISPATCHED.match(name):
            return True
        modules = [*self._old.body, *self._new.body]
        return any(name in standard_members(modules, base) for base in owner.bases)

    def _is_unused_import(self, statement: ast.stmt, used: set[str]) -> bool:
        """A new import that nothing here needs; one of a package's own modules may be what the package is for."""
        if not isinstance(statement, ast.Import | ast.ImportFrom) or statement in self._old.body:
            return False
        names = set(_bindings(statement))
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return False
        return names.isdisjoint(used) and not (self._exports and isinstance(statement, ast.ImportFrom))

    def _importable(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Without new statements that need a missing name when they are imported."""
        if any(isinstance(each, ast.ImportFrom) and each.names[0].name == "*" for each in body):
            return body
        there = {name for statement in body for name in _bindings(statement)}
        there |= {*dir(builtins), "__file__", "__name__"}
        own = {id(statement) for statement in self._old.body}
        lazy = any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in body)
        return [each for each in body if id(each) in own or there.issuperset(_needed(each, lazy=lazy))]


def with_additions(path: str, old: bytes, new: bytes, known: Iterable[str] = ()) -> tuple[bytes | None, set[str]]:
    """(the old module with what is new, new members of derived classes); None if nothing is new or it cannot be
    determined."""
    before, after = parse_python(old), parse_python(new)
    plain = reprint(old)
    if before is None or after is None or plain is None:
        return None, set()
    additions = Additions(before, after, known, exports=path.endswith("__init__.py"))
    printed = unparse(ast.fix_missing_locations(additions.merged()))
    if printed is None or printed == plain or parse_python(printed) is None:
        return None, additions.inherited
    return printed, additions.inherited


def _reduced(statement: ast.stmt, bound: set[str]) -> ast.stmt:
    """Without decorators that may make it known elsewhere, or without existing imports."""
    if isinstance(statement, _FUNCTIONS):
        statement.decorator_list = [each for each in statement.decorator_list if _name(each) in _PLAIN_DECORATORS]
    elif isinstance(statement, ast.ClassDef):
        statement.decorator_list = [each for each in statement.decorator_list if not _REGISTERS.search(_name(each))]
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        new = [alias for alias in statement.names if (alias.asname or alias.name.partition(".")[0]) not in bound]
        statement.names = new or statement.names
    return statement


def _preamble(body: Sequence[ast.stmt]) -> int:
    """The number of statements that must stay in front: the docstring and imports of the future."""
    count = 0
    for statement in body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            break
        count += 1
    return count


def _place(body: Sequence[ast.stmt], statement: ast.stmt) -> int | None:
    """The position of the same statement, or of the only definition of the same name, in the old version."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        found = [
            at
            for at, each in enumerate(body)
            if type(each) is type(statement) and getattr(each, "name", "") == statement.name
        ]
    elif isinstance(statement, ast.If):
        test = ast.dump(statement.test)
        found = [at for at, each in enumerate(body) if isinstance(each, ast.If) and ast.dump(each.test) == test]
    elif isinstance(statement, ast.Assign) and _is_exports(statement):
        found = [at for at, each in enumerate(body) if isinstance(each, ast.Assign) and _is_exports(each)]
    else:
        text = ast.dump(statement)
        found = [at for at, each in enumerate(body) if ast.dump(each) == text]
    return found[0] if len(found) == 1 else None


def _bindings(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds in its own scope."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    else:
        for field in ast.iter_child_nodes(statement):
            if isinstance(field, ast.stmt):
                yield from _bindings(field)
            elif isinstance(field, ast.ExceptHandler | ast.match_case):
                yield from (name for each in field.body for name in _bindings(each))
            else:
                yield from (
                    each.id
                    for each in ast.walk(field)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                )


def _inner(statement: ast.If | ast.Try) -> Iterator[ast.stmt]:
    for each in ast.walk(statement):
        if isinstance(each, ast.stmt) and each is not statement:
            yield each


def _name(node: ast.expr) -> str:
    """The last part of what is called or indexed: `a.b.C[int](x)` is `C`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _loaded(statement: ast.stmt) -> set[str]:
    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    texts = (
        each.value for each in ast.walk(statement) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
    return names.union(*(text.replace("[", " ").replace(".", " ").split() for text in texts))


def _needed(statement: ast.stmt, *, lazy: bool) -> set[str]:
    """The names that a definition loads when it is imported; `lazy` annotations load none."""
    if isinstance(statement, _FUNCTIONS):
        arguments = statement.args
        parts = [*statement.decorator_list, *arguments.defaults, *arguments.kw_defaults, statement.returns]
        if not lazy:
            parts += (each.annotation for each in ast.walk(arguments) if isinstance(each, ast.arg))
        return {name for part in parts if part is not None for name in _names_of(part)}
    if isinstance(statement, ast.ClassDef):
        heads = [*statement.decorator_list, *statement.bases, *(each.value for each in statement.keywords)]
        own = {name for each in statement.body for name in _bindings(each)}
        inner = {name for each in statement.body for name in _needed(each, lazy=lazy)}
        return {name for part in heads for name in _names_of(part)} | (inner - own)
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.If | ast.Try):
        return set()
    return _names_of(statement)


def _names_of(node: ast.AST) -> set[str]:
    inner = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    inner |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)} - inner


def _add_parameters(old: ast.arguments, new: ast.arguments) -> None:
    """Give a function its new optional parameters, after its own, and its parameters their new annotations."""
    annotations = {each.arg: each.annotation for each in ast.walk(new) if isinstance(each, ast.arg)}
    for each in ast.walk(old):
        if isinstance(each, ast.arg) and each.annotation is None:
            each.annotation = annotations.get(each.arg)
    names = {each.arg for each in ast.walk(old) if isinstance(each, ast.arg)}
    optional = list(zip(new.args[max(len(new.args) - len(new.defaults), 0) :], new.defaults, strict=False))
    plain = len(new.defaults) <= len(new.args) and len(old.defaults) <= len(old.args)
    for argument, default in optional if plain else ():
        if argument.arg not in names:
            old.args.append(argument)
            old.defaults.append(default)
    for argument, value in zip(new.kwonlyargs, new.kw_defaults, strict=True):
        if argument.arg not in names and value is not None:
            old.kwonlyargs.append(argument)
            old.kw_defaults.append(value)
    if new.kwarg and not old.kwarg and new.kwarg.arg not in names:
        old.kwarg = new.kwarg
    if new.vararg and not old.vararg and new.vararg.arg not in names and not old.kwonlyargs:
        old.vararg = new.vararg


def _is_exports(statement: ast.Assign) -> bool:
    target = statement.targets[0]
    return isinstance(target, ast.Name) and target.id == "__all__" and isinstance(statement.value, ast.List | ast.Tuple)


def _add_exports(old: ast.Assign, new: ast.Assign) -> None:
    if isinstance(old.value, ast.List | ast.Tuple) and isinstance(new.value, ast.List | ast.Tuple):
        there = {ast.dump(each) for each in old.value.elts}
        old.value.elts += [each for each in new.value.elts if ast.dump(each) not in there]
