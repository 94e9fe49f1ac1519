"""Finds added source lines that examine the test framework, the harness, or their own process.

`watching.toml` has the patterns; where Python code replaces functions of other modules is found by its syntax tree.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from app.verify.sources import python_sources
from app.verify.sources.parsed_sources import ECMASCRIPT, added_rows, code_only

MAX_FINDINGS = 50
EQUALITY = ("is equal to everything", "compares a built-in type in its own way")
"""Findings that say nothing about tests, but that results may equal what they are not."""
_COMMANDS = frozenset({"__main__.py", "cli.py", "main.py", "manage.py", "setup.py", "conf.py", "noxfile.py"})
_COMMAND_DIRECTORIES = frozenset(
    {"bin", "scripts", "script", "tools", "cmd", "examples", "_examples", "docs", "benchmarks", "bench"}
)
_STARTED = re.compile(rb"^(?:if __name__ == |package main\b|fn main\(|#!)|\bpublic static void main\(", re.MULTILINE)

_REPLACES = "replaces a function of another module"
"""Found by the syntax tree; by its patterns only if it cannot be parsed."""
_ATTRIBUTE = re.compile(
    rb"[ \t]*#\[cfg(?:_attr)?\([^\n]*\)\](?=\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|struct|enum)\b)"
)
_FEATURE = re.compile(rb'\bfeature\s*=\s*"([\w-]+)"')
_CONSTRAINT = re.compile(rb"^//(?:go:build|[ \t]*\+build)[ \t][^\n]*", re.MULTILINE)
_MACHINE = re.compile(
    r"_(?:linux|windows|darwin|freebsd|netbsd|openbsd|dragonfly|solaris|illumos|aix|plan9|android|ios|js|wasip1|wasm|unix"
    r"|amd64|386|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x)$"
)
_COMPILED = re.compile(rb"\b(?:debug_assertions|overflow_checks)\b")


_PLAIN = (ast.Constant, ast.JoinedStr, ast.ListComp, ast.SetComp, ast.DictComp, ast.List, ast.Tuple, ast.Set, ast.Dict)
_CHANGING = frozenset({"update", "setdefault", "pop", "clear", "__setitem__", "__delitem__"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class _Rule(NamedTuple):
    what: str
    pattern: re.Pattern[bytes]
    usual: bool
    """Only what the file did not do before counts, and only in a file that is no command of its own."""


@cache
def _rules(language: str) -> tuple[_Rule, ...]:
    document = tomllib.loads(files("app.verify.sources").joinpath("watching.toml").read_text("utf-8"))
    table = "script" if language in ECMASCRIPT else "c" if language == "cpp" else language
    return tuple(
        _Rule(what, re.compile("|".join(patterns).encode(), re.MULTILINE), kind == "usual")
        for name in ("any", table)
        for kind, rules in document.get(name, {}).items()
        for what, patterns in rules.items()
    )


def watching_lines(
    language: str, path: str, old: bytes | None, new: bytes, features: Collection[str] = ()
) -> Iterator[tuple[int, str]]:
    """(line, what it does) of the added lines, from 1. `features` are those that a Rust item may depend on."""
    yield from _constraints(path, old or b"", new) if language == "go" else ()
    code = code_only(language, new) or new
    before = b"" if old is None else code_only(language, old) or old
    rows = added_rows(old or b"", new)
    command = _is_command(path, new)
    for rule in _rules(language):
        if rule.usual and command:
            continue
        if rule.what == _REPLACES and (replaced := replaced_functions(new)) is not None:
            if not replaced_functions(before):
                yield from ((one.start + 1, rule.what) for one in replaced if rows.intersection(one))
            continue
        if rule.usual and rule.pattern.search(before):
            continue
        for match in rule.pattern.finditer(code):
            if features and _is_known_feature(code, match.start(), features):
                continue
            first = code.count(b"\n", 0, match.start())
            if rows.intersection(range(first, first + match[0].count(b"\n") + 1)):
                yield first + 1, rule.what


def _constraints(path: str, old: bytes, new: bytes) -> Iterator[tuple[int, str]]:
    """The build constraint that a Go file has and did not have before, in its text or in its name."""
    constraint = _CONSTRAINT.search(new)
    by_name = not old and _MACHINE.search(PurePosixPath(path).stem) is not None
    if by_name or (constraint is not None and constraint[0] not in old):
        at = constraint.start() if constraint is not None else 0
        yield new.count(b"\n", 0, at) + 1, "is compiled only for some machines or builds"


def _is_known_feature(code: bytes, at: int, features: Collection[str]) -> bool:
    """True for the attribute of a Rust item that is there only with a feature, and has no counterpart without it."""
    attribute = _ATTRIBUTE.match(code, code.rfind(b"\n", 0, at) + 1)
    if attribute is None or b"not(" in attribute[0]:
        return False
    named = _FEATURE.findall(attribute[0])
    return bool(named) and all(name.decode() in features for name in named) and not _COMPILED.search(attribute[0])


def _is_command(path: str, content: bytes) -> bool:
    """True for a file that people start, which may read its command line and end its process."""
    parts = PurePosixPath(path)
    if parts.name in _COMMANDS or not _COMMAND_DIRECTORIES.isdisjoint(parts.parts[:-1]):
        return True
    return _STARTED.search(content) is not None


def replaced_functions(content: bytes) -> list[range] | None:
    """The rows, from 0, of each statement that replaces what may be a function of an imported module.

    None if this Python cannot parse it.
    """
    tree = python_sources.parse(content)
    return None if tree is None else list(_replaced(tree, set(_imported(tree))))


def _replaced(scope: ast.AST, modules: set[str]) -> Iterator[range]:
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            yield from _replaced(node, (modules - _bound(node)) | set(_imported(node)))
            continue
        if isinstance(node, ast.stmt):
            for target in _targets(node):
                if _root(target) in modules and _may_be_function(target, getattr(node, "value", None)):
                    yield range(node.lineno - 1, node.end_lineno or node.lineno)
        if isinstance(node, ast.expr) and _changes_names(node, modules):
            yield range(node.lineno - 1, node.end_lineno or node.lineno)
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
    return isinstance(value, _PLAIN)


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
