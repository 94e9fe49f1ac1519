"""Finds added code that tests may not see through: it examines the test framework or its own process, or keeps state.

`watching.toml` has the patterns of the first; where Python code replaces functions of other modules is found by its
syntax tree. State is kept outside of the objects that callers hold: a counter in a module, a memory of calls. Such
code can be right for the first calls and wrong afterwards, and a test makes only a few.
"""

import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from tree_sitter import Node

from app.verify.sources import node_modules
from app.verify.sources.parsed_sources import (
    ECMASCRIPT,
    added_rows,
    code_only,
    root_of,
    row_of_cgo,
    text_of,
    walk_nodes,
)
from app.verify.sources.replaced_functions import PythonNames, replaced_functions

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
_SHARED = "changes what all modules share"
"""By its patterns, and by the syntax tree where it changes Node modules."""
_ATTRIBUTE = re.compile(
    rb"[ \t]*#\[cfg(?:_attr)?\([^\n]*\)\](?=\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|struct|enum)\b)"
)
_FEATURE = re.compile(rb'\bfeature\s*=\s*"([\w-]+)"')
_CONSTRAINT = re.compile(rb"^//(?:go:build|[ \t]*\+build)[ \t][^\n]*", re.MULTILINE)
_MACHINE = re.compile(
    r"_(?:linux|windows|darwin|freebsd|netbsd|openbsd|dragonfly|solaris|illumos|aix|plan9|android|ios|js|wasip1|wasm|unix"
    r"|amd64|386|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x)$"
)
_COMPILED = re.compile(rb"\b(?:debug_assertions|overflow_checks|test)\b|\$")


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
    language: str,
    path: str,
    old: bytes | None,
    new: bytes,
    *,
    features: Collection[str] = (),
    functions: Collection[str] = (),
    packages: Collection[str] = (),
) -> Iterator[tuple[int, str]]:
    """(line, what it does) of the added lines, from 1.

    `features` are those that a Rust item may depend on. Of the project's Python: `functions` are the names of what may
    be one, as `module.name` if only that module has it, and `packages` those that an absolute import may begin with,
    as `directory:name` if only files in or below that directory may have such an import.
    """
    yield from _constraints(path, old or b"", new) if language == "go" else ()
    code = code_only(language, new) or new
    before = b"" if old is None else code_only(language, old) or old
    rows = added_rows(old or b"", new)
    around, places = {str(each) for each in PurePosixPath(path).parents}, [each.rpartition(":") for each in packages]
    near = frozenset(name for place, _, name in places if not place or place in around)
    command, project = _is_command(path, new), PythonNames(frozenset(functions), near)
    for rule in _rules(language):
        if rule.usual and command:
            continue
        if rule.what == _REPLACES and (replaced := replaced_functions(new, project)) is not None:
            if not replaced_functions(before, project):
                yield from ((one.start + 1, rule.what) for one in replaced if rows.intersection(one))
            continue
        if rule.usual and next(_places(rule, language, before), None) is not None:
            continue
        for start, end in _places(rule, language, code):
            if features and _is_known_feature(code, start, features):
                continue
            first = code.count(b"\n", 0, start)
            if rows.intersection(range(first, first + code.count(b"\n", start, end) + 1)):
                yield first + 1, rule.what


def _places(rule: _Rule, language: str, code: bytes) -> Iterator[tuple[int, int]]:
    """(start, end), in bytes. Raises NotParsedError."""
    yield from (match.span() for match in rule.pattern.finditer(code))
    if rule.what == _SHARED and language in ECMASCRIPT:
        yield from node_modules.changed_places(language, code)


def _constraints(path: str, old: bytes, new: bytes) -> Iterator[tuple[int, str]]:
    """The build constraint that a Go file has and did not have before: in its text, its name, or its imports.

    Files that need cgo are left out of builds that are made for another machine.
    """
    constraint = next((found for found in _CONSTRAINT.finditer(new) if found[0] not in old), None)
    by_name = not old and _MACHINE.search(PurePosixPath(path).stem) is not None
    row = None
    if constraint is not None:
        row = new.count(b"\n", 0, constraint.start())
    elif by_name:
        row = 0
    elif (cgo := row_of_cgo(new)) is not None and row_of_cgo(old) is None:
        row = cgo
    if row is not None:
        yield row + 1, "is compiled only for some machines or builds"


def _is_known_feature(code: bytes, at: int, features: Collection[str]) -> bool:
    """True for the attribute of a Rust item that is there only with a feature, and has no counterpart without it."""
    attribute = _ATTRIBUTE.match(code, code.rfind(b"\n", 0, at) + 1)
    if attribute is None or b"not(" in attribute[0]:
        return False
    named, rest = _FEATURE.findall(attribute[0]), _FEATURE.sub(b"", attribute[0])
    return bool(named) and all(name.decode() in features for name in named) and not _COMPILED.search(rest)


def _is_command(path: str, content: bytes) -> bool:
    """True for a file that people start, which may read its command line and end its process."""
    parts = PurePosixPath(path)
    if parts.name in _COMMANDS or not _COMMAND_DIRECTORIES.isdisjoint(parts.parts[:-1]):
        return True
    return _STARTED.search(content) is not None


_FUNCTIONS = frozenset(
    {"function_definition", "function_declaration", "generator_function_declaration", "function_expression"}
    | {"generator_function", "arrow_function", "method_definition", "method_declaration", "func_literal"}
    | {"function_item", "closure_expression", "lambda"}
)
_CLASSES = frozenset({"class_definition", "class_declaration", "class", "impl_item", "trait_item"})
_BINDINGS = {
    "assignment": "left",
    "named_expression": "name",
    "variable_declarator": "name",
    "var_spec": "name",
    "short_var_declaration": "left",
    "static_item": "name",
    "let_declaration": "pattern",
    "public_field_definition": "name",
    "field_definition": "property",
}
_ASSIGNMENTS = {
    "assignment": "left",
    "augmented_assignment": "left",
    "assignment_expression": "left",
    "augmented_assignment_expression": "left",
    "compound_assignment_expr": "left",
    "assignment_statement": "left",
    "update_expression": "argument",
}
_CHANGES = frozenset({"inc_statement", "dec_statement", "delete_statement"})
_CALLS = frozenset({"call", "call_expression"})
_PARTS = ("object", "value", "operand", "function", "argument")
_NAMES = frozenset({"identifier", "property_identifier", "field_identifier", "type_identifier", "self", "this"})
_PATTERNS = frozenset({"pattern_list", "expression_list", "tuple_pattern", "list_pattern", "array_pattern"})
_MUTATORS = re.compile(
    r"(?:append|extend|insert|add|update|setdefault|pop|popitem|popleft|appendleft|remove|discard|clear"
    r"|rotate|push|unshift|shift|splice|set|delete|fill|sort|reverse|put|put_nowait|get_nowait|write"
    r"|writelines|inc|incr|increment|decrement|fetch_add|fetch_sub|fetch_or|fetch_and|fetch_xor"
    r"|fetch_update|store|swap|compare_exchange|lock|borrow_mut|replace|with|push_back|pop_front|Add|Store"
    r"|Swap|CompareAndSwap|LoadOrStore|Delete|Inc|send|__next__|__setitem__|__iadd__|__setattr__"
    r"|cache_info|subtract|next)$"
)
_EMPTY = re.compile(
    r"^(?:\[\]|\{\}|(?:new )?(?:\w+\.)*(?:list|dict|set|bytearray|deque|Counter|OrderedDict|defaultdict|object|Map|Set"
    r"|WeakMap|WeakSet|SimpleNamespace|Array|Object|WeakKeyDictionary|WeakValueDictionary|local|ContextVar|Queue)"
    r"(?:<[^()]*>)?\([\w.]*\))$"
)
_STEPS = re.compile(r"^(?:\w+\.)*(?:count|iter|cycle|repeat|Iterator)\(|\.__next__$|^\([^()]*\bfor\b.*\)$", re.DOTALL)
_CALLED = "()"
_GLOBAL = frozenset({"globals", "vars", "module", "exports", "globalThis", "global", "process", "window", "builtins"})


class _Change(NamedTuple):
    """A place that changes something: the name at its root, and the parts on the way from there."""

    node: Node
    root: str
    parts: tuple[str, ...]


@dataclass
class _Scope:
    """The names that live as long as the module, each with its row if it is a reason by itself."""

    names: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    suspicious: dict[str, int] = field(default_factory=dict)


def added_state(language: str, old: bytes | None, new: bytes) -> list[tuple[int, str]]:
    """(line, name) of each added place that keeps something, unless the old version kept it in the same name."""
    before = {name for _, name in _all_kept(language, old)} if old else set[str]()
    rows = added_rows(old or b"", new)
    first: dict[str, int] = {}
    for row, name in _all_kept(language, new):
        if row in rows and name not in before:
            first.setdefault(name, row + 1)
    return sorted((line, name) for name, line in first.items())


def _all_kept(language: str, content: bytes) -> list[tuple[int, str]]:
    root = root_of(language, content)
    return sorted(_Reader(content, root).kept()) if root is not None else []


class _Reader:
    """One source file."""

    def __init__(self, content: bytes, root: Node) -> None:
        self._content, self._root = content, root
        self._changing = set[str]()
        functions = [node for node in walk_nodes(self._root) if node.type in _FUNCTIONS]
        self._changing = {self._name(node) for node in functions if self._changes_parameter(node)} - {""}
        self._caching = {
            self._name(node)
            for node in functions
            if node.parent is not None and node.parent.type == "decorated_definition"
            if "cache" in self._text(node.parent.named_children[0])
        }
        self._stateful = {
            self._name(node)
            for node in walk_nodes(self._root)
            if node.type in _CLASSES
            for inner in walk_nodes(node)
            if inner.type in _FUNCTIONS and self._name(inner) not in ("__init__", "constructor")
            if any(change.root in ("self", "this") for change in self._changes(inner))
        }

    def kept(self) -> Iterator[tuple[int, str]]:
        scope = self._scope(self._root)
        scope.names |= _GLOBAL
        yield from self._kept_in(self._root, scope)

    def _kept_in(self, node: Node, scope: _Scope) -> Iterator[tuple[int, str]]:
        used = set[str]()
        for child in _outermost_functions(node):
            yield from self._kept_by(child, scope)
            used |= {self._text(each) for each in walk_nodes(child) if each.type in _NAMES}
        yield from ((row, name) for name, row in scope.suspicious.items() if name in used)

    def _kept_by(self, function: Node, scope: _Scope) -> Iterator[tuple[int, str]]:
        local, defaults = self._local(function)
        outer = _Scope(scope.names - local | defaults, scope.imported - local)
        for alias, value in self._bound(function):
            root, _ = self._path(value)
            if root in outer.names - _GLOBAL and value.type not in _CALLS:
                outer.names.add(alias)
        for change in self._changes(function):
            if self._keeps(change, outer, local):
                yield change.node.start_point[0], self._label(change, outer)
        for inner in _outermost_functions(function, itself=False):
            lasting = self._scope(function) if self._is_called_once(function) else _Scope()
            names = outer.names | lasting.names
            yield from self._kept_by(inner, _Scope(names, outer.imported))

    def _keeps(self, change: _Change, scope: _Scope, local: set[str]) -> bool:
        if change.root in ("cls", "type") or "__class__" in change.parts or "prototype" in change.parts:
            return True
        if change.parts[:1] == (_CALLED,) and change.root not in _GLOBAL | self._caching:
            return False  # what a function returns is a new object
        if change.root in scope.imported:
            return len(change.parts) > 1 or change.node.type not in _CALLS
        if not change.parts and change.root in local:
            return False
        return change.root in scope.names

    def _label(self, change: _Change, scope: _Scope) -> str:
        if change.root in scope.names - _GLOBAL:
            return change.root
        return ".".join(
            [change.root, *(part for part in change.parts if part not in ("[]", _CALLED) and not _MUTATORS.match(part))]
        )

    def _changes(self, function: Node) -> Iterator[_Change]:
        """Every place of a function, without those inside it, that changes what has a name elsewhere."""
        for node in _within(function):
            if node.type in _ASSIGNMENTS or node.type in _CHANGES:
                target = node.child_by_field_name(_ASSIGNMENTS.get(node.type, "")) or node.named_children[0]
                for each in _targets(target):
                    yield _Change(node, *self._path(each))
            elif node.type in _CALLS and (function_ := node.child_by_field_name("function")) is not None:
                root, parts = self._path(function_)
                arguments = node.child_by_field_name("arguments")
                given = arguments.named_children if arguments is not None else []
                if parts and _MUTATORS.match(parts[-1]):
                    yield _Change(node, root, parts)
                elif not parts and root in {"next", "setattr", "delattr", *self._changing}:
                    for each in given:
                        inner, path = self._path(each)
                        yield _Change(node, inner, (*path, root))

    def _path(self, node: Node) -> tuple[str, tuple[str, ...]]:
        """The name at the root of `a.b[c].d`, and the names that follow."""
        parts: list[str] = []
        while node.type not in _NAMES:
            name = next(
                (found for each in ("attribute", "property", "field") if (found := node.child_by_field_name(each))),
                None,
            )
            inner = next((found for each in _PARTS if (found := node.child_by_field_name(each))), None)
            if name is not None:
                parts.append(self._text(name))
            elif inner is not None:
                parts.append(_CALLED if node.type in _CALLS else "[]")
            if inner is None:
                inner = next(iter(node.named_children), None)
                if inner is None or node.type in ("string", "dictionary", "object", "list", "array"):
                    return "", tuple(reversed(parts))
            node = inner
        return self._text(node), tuple(reversed(parts))

    def _local(self, function: Node) -> tuple[set[str], set[str]]:
        """The names that are the function's own; and its parameters whose default lasts."""
        declared = {
            self._text(each)
            for node in _within(function)
            if node.type in ("global_statement", "nonlocal_statement")
            for each in node.named_children
        }
        parameters = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
        own = {self._text(each) for each in walk_nodes(parameters) if each.type in _NAMES} if parameters else set[str]()
        for node in _within(function):
            if target := node.child_by_field_name(_BINDINGS.get(node.type, "")):
                own |= {self._text(each) for each in _targets(target) if each.type in _NAMES}
            if node.type in ("for_statement", "for_in_statement", "for_in_clause", "range_clause", "with_item"):
                target = node.child_by_field_name("left")
                own |= {self._text(each) for each in walk_nodes(target) if each.type in _NAMES} if target else set()
        lasting = set[str]()
        for node in walk_nodes(parameters) if parameters else ():
            value = node.child_by_field_name("value")
            name = node.child_by_field_name("name")
            if value is not None and name is not None and "default_parameter" in node.type:
                lasting |= {self._text(name)} if value.type in ("list", "dictionary", "set", "call") else set()
        return own - declared, lasting

    def _bound(self, function: Node) -> Iterator[tuple[str, Node]]:
        for node in _within(function):
            target = node.child_by_field_name(_BINDINGS.get(node.type, ""))
            value = node.child_by_field_name("right") or node.child_by_field_name("value")
            if target is not None and value is not None and target.type in _NAMES:
                yield self._text(target), value

    def _scope(self, root: Node) -> _Scope:
        """What is bound there, outside of functions inside it; members of classes too."""
        found = _Scope()
        for node in _within(root):
            if node.type.startswith("import") or node.type == "use_declaration":
                found.imported |= {self._text(each) for each in walk_nodes(node) if each.type in _NAMES}
            elif node.type in _FUNCTIONS | _CLASSES:
                found.names.add(self._name(node))
            elif (target := node.child_by_field_name(_BINDINGS.get(node.type, ""))) is not None:
                value = node.child_by_field_name("right") or node.child_by_field_name("value")
                names = {self._text(each) for each in _targets(target) if each.type in _NAMES}
                text = self._text(value) if value is not None else ""
                if text.startswith("require("):
                    found.imported |= names
                    continue
                found.names |= names
                called = self._path(value)[0] if value is not None and value.type in (*_CALLS, "new_expression") else ""
                if _EMPTY.match(text) or _STEPS.match(text) or called in self._stateful:
                    found.suspicious |= dict.fromkeys(names, node.start_point[0])
        found.names.discard("")
        return found

    def _changes_parameter(self, function: Node) -> bool:
        parameters = function.child_by_field_name("parameters")
        names = {self._text(each) for each in walk_nodes(parameters) if each.type in _NAMES} if parameters else set()
        return any(
            change.root in names - {"self", "this", "cls"} and change.parts for change in self._changes(function)
        )

    def _is_called_once(self, function: Node) -> bool:
        """True if the module itself calls the function while it is loaded."""
        name = self._name(function)
        outside = [node for node in _within(self._root) if node.type in (*_CALLS, "decorator")]
        if name and any(re.search(rf"\b{re.escape(name)}\b", self._text(node)) for node in outside):
            return True
        around = function.parent
        while around is not None and around.type == "parenthesized_expression":
            around = around.parent
        return around is not None and around.type in _CALLS

    def _name(self, node: Node) -> str:
        named = node.child_by_field_name("name")
        if named is None and node.parent is not None and node.parent.type == "variable_declarator":
            named = node.parent.child_by_field_name("name")
        return self._text(named) if named is not None else ""

    def _text(self, node: Node) -> str:
        return text_of(self._content, node).decode("utf-8", "replace")


def _within(root: Node) -> Iterator[Node]:
    """All nodes that are not inside another function; such a function itself is one of them."""
    waiting = list(reversed(root.named_children))
    while waiting:
        node = waiting.pop()
        yield node
        if node.type not in _FUNCTIONS:
            waiting += reversed(node.named_children)


def _targets(target: Node) -> list[Node]:
    return target.named_children if target.type in _PATTERNS else [target]


def _outermost_functions(root: Node, *, itself: bool = True) -> Iterator[Node]:
    waiting = [root] if itself else list(reversed(root.named_children))
    while waiting:
        node = waiting.pop()
        if node.type in _FUNCTIONS:
            yield node
        else:
            waiting += reversed(node.named_children)
