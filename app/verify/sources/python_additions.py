"""A Python module with only what a patch adds to it: new names and optional parameters, with every body unchanged."""

import ast
import builtins
import importlib
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike

from app.verify.sources import python_sources

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
    | {
        "asynccontextmanager",
        "abstractmethod",
        "overload",
        "final",
        "dataclass",
        "total_ordering",
        "unique",
        "deprecated",
    }
    | {"runtime_checkable", "define", "frozen", "mutable", "singledispatch", "setter", "getter", "deleter"}
)
_REGISTERS = re.compile(
    r"regist|plugin|hook|implement|subscri|provide|handler|listen|receiver|route|command", re.IGNORECASE
)
_DISPATCHED = (
    "visit_",
    "depart_",
    "generate_",
    "handle_",
    "do_",
    "on_",
    "test_",
    "clean_",
    "validate_",
    "parse_",
    "_parse_",
)
_MODELS = (object, int, float, complex, str, bytes, list, dict, set, type, property, BaseException, memoryview)
_PROTOCOLS = (
    Awaitable,
    AsyncIterator,
    Callable,
    Iterable,
    PathLike,
    AbstractContextManager,
    AbstractAsyncContextManager,
)
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
        if name in self._known or name.startswith(_DISPATCHED):
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
        there = (
            {name for statement in body for name in _bindings(statement)}
            | set(dir(builtins))
            | {"__file__", "__name__"}
        )
        own = {id(statement) for statement in self._old.body}
        lazy = any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in body)
        return [each for each in body if id(each) in own or there.issuperset(_needed(each, lazy=lazy))]


def with_additions(path: str, old: bytes, new: bytes, known: Iterable[str] = ()) -> tuple[bytes | None, set[str]]:
    """(the old module with what is new, new members of derived classes); None if nothing is new or it cannot be
    determined."""
    before, after = python_sources.parse(old), python_sources.parse(new)
    plain = python_sources.reprint(old)
    if before is None or after is None or plain is None:
        return None, set()
    additions = Additions(before, after, known, exports=path.endswith("__init__.py"))
    printed = python_sources.unparse(ast.fix_missing_locations(additions.merged()))
    if printed is None or printed == plain or python_sources.parse(printed) is None:
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
            at for at, each in enumerate(body) if type(each) is type(statement) and _defined(each) == statement.name
        ]
    elif isinstance(statement, ast.If):
        found = [
            at
            for at, each in enumerate(body)
            if isinstance(each, ast.If) and ast.dump(each.test) == ast.dump(statement.test)
        ]
    elif isinstance(statement, ast.Assign) and _is_exports(statement):
        found = [at for at, each in enumerate(body) if isinstance(each, ast.Assign) and _is_exports(each)]
    else:
        text = ast.dump(statement)
        found = [at for at, each in enumerate(body) if ast.dump(each) == text]
    return found[0] if len(found) == 1 else None


def _defined(statement: ast.stmt) -> str:
    return str(getattr(statement, "name", ""))


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
        parts: list[ast.expr | None] = [
            *statement.decorator_list,
            *arguments.defaults,
            *arguments.kw_defaults,
            statement.returns,
        ]
        if not lazy:
            parts += [
                statement.returns,
                *(each.annotation for each in ast.walk(arguments) if isinstance(each, ast.arg)),
            ]
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
    for argument, default in (
        optional if len(new.defaults) <= len(new.args) and len(old.defaults) <= len(old.args) else ()
    ):
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
