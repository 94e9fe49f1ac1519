"""Finds the executable lines that a patch changes, and the conditions, statements and values that it adds or removes.

Each condition is altered alone: a test that depends on it fails if it always has one outcome.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tree_sitter import Node

from app.core.python_source import parse_python
from app.verify.sources import python_sources
from app.verify.sources.literals import NUMBERS, STRINGS, operator_of
from app.verify.sources.parsed_sources import (
    COMMENTS,
    Hunk,
    NotParsedError,
    added_rows,
    code_only,
    hunks,
    nodes_around,
    root_of,
    text_of,
    walk_nodes,
)
from app.verify.sources.python_sources import Unused, all_unused, unused_rows

_FUNCTION = re.compile(r"function|method|arrow|lambda|closure|constructor|func_literal|do_block")
_DECLARING = re.compile(r"import|use_declaration|package|interface|type_alias|type_declaration|preproc|attribute")


class ExecutableRows(NamedTuple):
    """Rows from 0: those inside functions, and those that an import executes."""

    inner: set[int]
    outer: set[int]


Executable = dict[int, tuple[set[int], bool]]
"""By row: the rows on which its execution is visible, and whether it is inside a function."""


def changed_rows(language: str, old: bytes | None, new: bytes) -> ExecutableRows:
    """The executable rows of the new version that differ; if lines were only removed, their neighbours."""
    found = (_python_rows(new) if language == "python" else None) or _tree_rows(language, new)
    before, after = (code_rows(language, side) for side in (old or b"", new))
    wanted: set[int] = set()
    for hunk in hunks(before, after):
        wanted.update(range(hunk.new_start, hunk.new_end))
        gone = before.split(b"\n")[hunk.old_start : hunk.old_end]
        if hunk.new_start == hunk.new_end and any(gone):
            wanted.update(_neighbours(found, hunk.new_start))
    chosen = [found[row] for row in wanted if row in found]
    inner, outer = ({row for rows, inside in chosen if inside is side for row in rows} for side in (True, False))
    return ExecutableRows(inner, outer)


def code_rows(language: str, content: bytes) -> bytes:
    """The same rows without comments, docstrings, and trailing space."""
    return b"\n".join(line.rstrip() for line in (code_only(language, content) or content).split(b"\n"))


def _neighbours(rows: Executable, at: int) -> Iterator[int]:
    before, after = [row for row in rows if row < at], [row for row in rows if row >= at]
    if before:
        yield max(before)
    if after:
        yield min(after)


def _python_rows(content: bytes) -> Executable | None:
    tree, executable = parse_python(content), python_sources.executable_rows(content)
    if tree is None or executable is None:
        return None
    found: Executable = {}
    waiting: list[tuple[ast.stmt, bool]] = [(statement, False) for statement in tree.body]
    while waiting:
        statement, inside = waiting.pop()
        function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        below = _below(statement)
        waiting += [(each, inside or function) for each in below]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        own = _rows(statement) - {row for each in below for row in _rows(each)}
        declares = function or isinstance(statement, ast.ClassDef | ast.Import | ast.ImportFrom)
        for row in own:
            seen = {row} if below and row in executable else own & executable
            if seen:
                found[row] = (seen, inside and not declares)
    return found


def _below(statement: ast.stmt) -> list[ast.stmt]:
    parts: list[ast.AST] = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    return [each for part in parts for field in ("body", "orelse", "finalbody") for each in getattr(part, field, [])]


def _rows(statement: ast.stmt) -> set[int]:
    decorators = [each.lineno for each in getattr(statement, "decorator_list", [])]
    return set(range(min([statement.lineno, *decorators]) - 1, statement.end_lineno or statement.lineno))


def _tree_rows(language: str, content: bytes) -> Executable:
    """Rows with more than comments, brackets and type declarations."""
    root = root_of(language, content)
    if root is None:
        raise NotParsedError(f"a source in {language} of {len(content)} bytes")
    found: Executable = {}
    waiting = [(root, False)]
    while waiting:
        node, inside = waiting.pop()
        if node.type in COMMENTS or _DECLARING.search(node.type):
            continue
        if node.child_count:
            body = node.child_by_field_name("body") if _FUNCTION.search(node.type) else None
            waiting += [(child, inside or child == body) for child in node.children]
        elif node.is_named or text_of(content, node).strip().isalnum():
            for row in range(node.start_point[0], node.end_point[0] + 1):
                before = found.get(row, (set(), False))[1]
                found[row] = ({row}, inside or before)
    return found


MAX_TEXT = 60
Kind = Literal["outcome", "boundary", "statement", "removed"]

_LOGIC = frozenset({"and", "or", "&&", "||"})
_ORDER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COMPARING = frozenset({*_ORDER, "==", "!=", "===", "!==", "in", "instanceof", "=~"})
_EXPRESSIONS = frozenset({"comparison_operator", "boolean_operator", "binary_expression", "binary"})
_NOT = frozenset({"not_operator", "unary_expression", "unary"})
_LOOPS = frozenset({"while_statement", "while_expression", "do_statement", "for_statement", "for_clause", "while"})
_ASSERTIONS = frozenset({"assert_statement"})
_FIXED = STRINGS | NUMBERS | {"true", "false", "none", "null", "nil", "undefined", "boolean_literal", "null_literal"}
_STATEMENTS = frozenset(
    {"expression_statement", "return_statement", "raise_statement", "throw_statement", "delete_statement"}
    | {"lexical_declaration", "variable_declaration", "assignment_statement", "short_var_declaration", "inc_statement"}
)
_BRANCHES = frozenset({"if_statement", "if_expression", "if"})
_DEFINITION = re.compile(
    r"^(?:(?:async_)?function_definition|class_definition|(?:generator_)?function_declaration|class_declaration"
    r"|method_(?:definition|declaration)|(?:function|struct|enum|trait)_item|(?:singleton_)?method)$"
)
_AROUND = re.compile(r"^(?:decorated_definition|export_statement)$")
_OWN_CALL = re.compile(rb"(?:(?:self|this|cls)\.)?#?[\w$]+")
_RAISING = (b"raise", b"throw", b"panic")
_OF_MAIN = re.compile(rb"\b__name__\b|\bTYPE_CHECKING\b")
_WORDS = {"python": (b"and", b"False", b"or", b"True"), "c": (b"&&", b"0", b"||", b"1")}
_WORDS_ELSEWHERE = (b"&&", b"false", b"||", b"true")
_WIDE = {b"except": b"except Exception", b"BaseException": b"Exception"}
"""What catches the end of the process as well, and what does not."""
_THROWN = b"(() => { throw 0; })()"
_RAISED = {
    "python": b"1 / 0",
    "ruby": b"raise",
    "java": b"1 / 0 == 0",
    "rust": b"panic!()",
    "go": b"func() bool { panic(0) }()",
    "javascript": _THROWN,
    "typescript": _THROWN,
    "tsx": _THROWN,
}


class NewCondition(NamedTuple):
    """`altered` is what is written in the place of the new version's bytes [start, end). Lines are from 1.

    `raising` replaces the condition with one that raises when the outcome removed by `altered` occurs; empty for
    other kinds. A `statement` is not altered: whether it is executed says enough. If something is `removed`, the old
    version's lines are put back.
    """

    kind: Kind
    first: int
    last: int
    says: str
    start: int
    end: int
    altered: str
    raising: str = ""
    imports: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    """Names of what was removed, if nothing else in its file used them: no test can notice that, unless others do."""


def new_conditions(language: str, old: bytes | None, new: bytes) -> list[NewCondition]:
    """Added conditions and statements in source order. Code that the old version contains verbatim is not new."""
    rows = added_rows(old or b"", new)
    places = _places(language, new)
    new_ones = Counter(place.words for place in places)
    new_ones.subtract(place.words for place in (_places(language, old) if old else ()))
    found: list[NewCondition] = []
    for place in places:
        if new_ones[place.words] > 0 and not rows.isdisjoint(range(place.first - 1, place.last)):
            new_ones[place.words] -= 1
            found += _altered(language, place)
    return found


def removed_conditions(language: str, old: bytes, new: bytes, *, only: bool = False) -> list[NewCondition]:
    """Each place from which conditions, statements that raise, or whole lines were removed: what puts them back.

    `only`: no other file differs, so that putting back a single place would make the old version.
    """
    gone = Counter(place.words for place in _places(language, old) if _decides(place))
    gone.subtract(place.words for place in _places(language, new) if _decides(place))
    parts = _parts(language, old)
    deciding = {place.first - 1 for place in _places(language, old) if _decides(place) and gone[place.words] > 0}
    before, after = (code_rows(language, side).split(b"\n") for side in (old, new))
    kept = {line.strip() for line in after}
    old_lines, new_lines = old.split(b"\n"), new.split(b"\n")
    differences = hunks(b"\n".join(before), b"\n".join(after))
    lost = [each for hunk in differences for each in _lost(parts, hunk, after)]
    deciding |= {row for each in lost for row in each.old_rows}
    replaced = {row for each in differences if each.new_start < each.new_end for row in each.old_rows}
    unused = unused_rows(old, new, replaced - deciding) if language == "python" else {}
    found = []
    for hunk in differences:
        rows = hunk.old_rows
        pieces = [hunk] if len(differences) > 1 or not only else []
        for first, last in parts.branches:  # with a change beside them
            if rows.start <= first and last < rows.stop:
                pieces.append(Hunk(first, last, hunk.new_start, hunk.new_start))
            elif last == rows.stop and first > rows.start:
                pieces.append(Hunk(first, last, hunk.new_end, hunk.new_end))
        pieces += [each for each in lost if each.old_start in rows]
        for part in pieces:
            rows = part.old_rows
            lines = [before[row].strip() for row in rows if before[row].strip() not in kept]
            if not lines or ((part != hunk or hunk.new_start < hunk.new_end) and deciding.isdisjoint(rows)):
                continue
            idle = all_unused(unused, (row for row in rows if before[row].strip()))
            if idle is None or any(idle):
                found.append(_put_back(part, lines[0], old_lines, new_lines, idle or Unused()))
    return [*found, *_changed_values(language, old, new)]


def replaced_data(old: bytes, new: bytes) -> list[NewCondition]:
    """Each place of a data file from which lines were taken away or replaced: what puts them back."""
    found = []
    old_lines, new_lines = old.split(b"\n"), new.split(b"\n")
    for hunk in hunks(old, new):
        if gone := b"\n".join(old_lines[row] for row in hunk.old_rows).strip():
            back = _put_back(hunk, gone.partition(b"\n")[0], old_lines, new_lines, Unused())
            found.append(back._replace(start=min(len(new), back.start), end=min(len(new), back.end)))
    return found


def _put_back(part: Hunk, shown: bytes, old: Sequence[bytes], new: Sequence[bytes], idle: Unused) -> NewCondition:
    """The old lines of a difference in the place of the new ones; all lines are without their ends."""
    start, end = (sum(len(line) + 1 for line in new[:row]) for row in (part.new_start, part.new_end))
    text = b"".join(old[row] + b"\n" for row in part.old_rows).decode("utf-8", "surrogateescape")
    says = f"{_shown(shown)} is put back as it was"
    return NewCondition("removed", part.new_start + 1, part.new_end, says, start, end, text, "", *idle)


class _Part(NamedTuple):
    """The rows of a definition or of a call that is a statement: the first, and the one behind its last."""

    first: int
    end: int
    name: bytes
    outermost: bool


class _Parts(NamedTuple):
    """Branches, calls and definitions whose removal could go unnoticed inside a larger change.

    A branch has its rows: the first, and the one behind its last.
    """

    branches: Sequence[tuple[int, int]]
    calls: Sequence[_Part]
    definitions: Sequence[_Part]


def _parts(language: str, content: bytes) -> _Parts:
    root = root_of(language, content)
    nodes = list(walk_nodes(root)) if root is not None else []
    branches = {(node.start_point[0], node.end_point[0] + 1) for node in nodes if node.type in _BRANCHES}
    calls = (_part(node, content, name) for node in nodes if (name := _called(node)) is not None)
    named = ((node, node.child_by_field_name("name")) for node in nodes if _DEFINITION.search(node.type))
    definitions = [_part(node, content, name) for node, name in named if name is not None]
    definitions += [_part(node, content, name) for node in nodes for name in _offered(node, content)]
    return _Parts(sorted(branches), [call for call in calls if _OWN_CALL.fullmatch(call.name)], sorted(definitions))


def _called(statement: Node) -> Node | None:
    """The function of a statement that is nothing but a call, the name of a decorator, or the word of an assertion."""
    if statement.type in _ASSERTIONS:
        return statement.children[0]
    if statement.type == "decorator":
        return next((node for node in walk_nodes(statement) if node.type == "identifier"), None)
    call = (
        statement.named_children[0] if statement.type == "expression_statement" and statement.named_children else None
    )
    if call is not None and call.type.startswith("await") and call.named_children:
        call = call.named_children[0]
    return None if call is None else call.child_by_field_name("function") or call.child_by_field_name("macro")


def _offered(statement: Node, content: bytes) -> Iterator[Node]:
    """The names that an import of Python binds and that the module names as its own (`__all__`)."""
    for each in statement.children_by_field_name("name") if statement.type.startswith("import_") else ():
        name = each.child_by_field_name("alias") or each
        word = re.escape(text_of(content, name))
        if re.search(rb"__all__[^\]]*[\"']%b[\"']" % word, content):
            yield name


def _part(node: Node, content: bytes, name: Node) -> _Part:
    outer = node.parent
    while outer is not None and _AROUND.search(outer.type) and node.type != "decorator":
        node, outer = outer, outer.parent
    words = text_of(content, name)
    return _Part(node.start_point[0], node.end_point[0] + 1, words, outer is None or outer.parent is None)


def _lost(parts: _Parts, hunk: Hunk, after: Sequence[bytes]) -> Iterator[Hunk]:
    """Calls and definitions of replaced rows that the new version does not have: what puts them back.

    Calls of what was made before may be part of what is computed, and are left out.
    """
    if hunk.new_start == hunk.new_end:
        return
    own, whole = b"\n".join(after[hunk.new_start : hunk.new_end]), b"\n".join(after)
    inside = hunk.old_rows
    for call in parts.calls:
        if call.first in inside and call.end <= inside.stop and not _has(own, call.name.rpartition(b".")[2]):
            yield Hunk(call.first, call.end, hunk.new_start, hunk.new_start)
    for one in parts.definitions:
        if one.first in inside and one.end <= inside.stop and not _has(whole, one.name):
            at = len(after) - (not after[-1]) if one.outermost else hunk.new_end
            yield Hunk(one.first, one.end, at, at)


def _has(content: bytes, name: bytes) -> bool:
    return re.search(rb"(?<![\w$])%b(?![\w$])" % re.escape(name), content) is not None


def _decides(place: "_Place") -> bool:
    return place.kind == "outcome" or place.text.startswith(_RAISING)


class _Place(NamedTuple):
    """`branches`: a branch depends on it. `orders` are the comparisons of order in it: (start, end, operator)."""

    start: int
    end: int
    kind: Kind
    first: int
    last: int
    text: bytes
    in_loop: bool
    branches: bool
    orders: tuple[tuple[int, int, str], ...]

    @property
    def words(self) -> tuple[Kind, bytes]:
        return self.kind, b" ".join(self.text.split())


def _places(language: str, content: bytes) -> list[_Place]:
    root = root_of(language, content)
    if root is None:  # a condition that is not seen would need no test
        raise NotParsedError(f"a source in {language} of {len(content)} bytes")
    found = sorted(set(_found(root, content)), key=lambda place: place.branches)
    return sorted({(place.start, place.end, place.kind): place for place in found}.values())


def _found(root: Node, content: bytes) -> Iterator[_Place]:
    waiting = [(root, False)]
    while waiting:
        node, inside = waiting.pop()
        if node.type in _ASSERTIONS:
            continue
        for leaf, branches in _conditions(node, content):
            yield _place("outcome", leaf, content, branches=branches)
        if inside and node.type in _STATEMENTS and not _is_docstring(node):
            yield _place("statement", node, content)
        inside = inside or _FUNCTION.search(node.type) is not None
        waiting += [(child, inside) for child in node.children]


def _place(kind: Kind, node: Node, content: bytes, *, branches: bool = False) -> _Place:
    comparing = kind == "outcome" and node.type in _EXPRESSIONS
    signs = [child for child in node.children if child.type in _ORDER] if comparing else []
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    orders = tuple((sign.start_byte, sign.end_byte, sign.type) for sign in signs)
    text = text_of(content, node)
    return _Place(node.start_byte, node.end_byte, kind, first, last, text, _in_loop(node), branches, orders)


def _is_docstring(statement: Node) -> bool:
    return statement.named_child_count == 1 and statement.named_children[0].type in STRINGS


def _conditions(node: Node, content: bytes) -> Iterator[tuple[Node, bool]]:
    """What decides at this node, without `and`, `or` and `not`, and whether a branch depends on it."""
    condition = node.child_by_field_name("condition")
    if node.type == "if_clause":
        condition = node.named_children[0]
    if condition is None and node.type == "conditional_expression" and node.named_child_count == 3:
        condition = node.named_children[1]  # Python's has no names for its parts
    if node.type == "except_clause" and b"raise" not in text_of(content, node).split():
        yield from ((one, False) for one in _catching(node) if text_of(content, one) in _WIDE)
    if condition is not None:
        yield from ((leaf, True) for leaf in _leaves(condition))
    if node.type in _EXPRESSIONS:
        if operator_of(node) in _LOGIC:
            yield from ((leaf, True) for leaf in _leaves(node.named_children[0]))
        elif operator_of(node) in _COMPARING or node.type == "comparison_operator":
            yield node, False
    elif node.type in _NOT and node.children[0].type in ("not", "!"):
        yield from ((leaf, False) for leaf in _leaves(node))
    elif node.type == "call" and content[node.start_byte : node.start_byte + 5] == b"bool(":
        yield node, False


def _catching(clause: Node) -> Iterator[Node]:
    """The word `except` if it has no type, otherwise the names in its type."""
    kinds = [child for child in clause.named_children if child.type not in ("block", "comment")]
    yield from (one for kind in kinds for one in walk_nodes(kind)) if kinds else clause.children[:1]


def _leaves(node: Node) -> Iterator[Node]:
    inner = [child for child in node.named_children if "comment" not in child.type]
    negated = node.type in _NOT and node.children[0].type in ("not", "!")
    if negated or "parenthes" in node.type or (node.type in _EXPRESSIONS and operator_of(node) in _LOGIC):
        for child in inner:
            yield from _leaves(child)
    elif node.type not in _FIXED and "let_" not in node.type:
        yield node


def _in_loop(node: Node) -> bool:
    """True for a part of a loop's condition."""
    while node.parent is not None and (node.parent.type in _EXPRESSIONS | _NOT or "parenthes" in node.parent.type):
        node = node.parent
    loop = node.parent
    return loop is not None and loop.type in _LOOPS and loop.child_by_field_name("condition") == node


def _altered(language: str, place: _Place) -> Iterator[NewCondition]:
    shown = _shown(place.text)

    def made(kind: Kind, says: str, text: bytes = b"", raising: bytes = b"") -> NewCondition:
        written, raises = (each.decode("utf-8", "surrogateescape") for each in (text, raising))
        return NewCondition(kind, place.first, place.last, says, place.start, place.end, written, raises)

    if place.kind == "statement":
        yield made("statement", shown)
    elif place.text in _WIDE:
        narrow = _WIDE[place.text]
        yield made("outcome", f"{shown} replaced by `{narrow.decode()}`", narrow)
    elif not _OF_MAIN.search(place.text):
        both, false, either, true = _WORDS.get("c" if language == "cpp" else language, _WORDS_ELSEWHERE)
        raised = _RAISED.get(language) if place.branches else None

        def outcome(operator: bytes, value: bytes, word: str) -> NewCondition:
            text, raising = (b"((%b) %b %b)" % (place.text, operator, end) for end in (value, raised or b""))
            return made("outcome", f"{shown} is always {word}", text=text, raising=raising if raised else b"")

        yield outcome(both, false, "false")
        if not place.in_loop:  # which would not end
            yield outcome(either, true, "true")
        for start, end, operator in place.orders:
            other = _ORDER[operator]
            sign = made("boundary", f"`{operator}` replaced by `{other}` in {shown}", other.encode())
            yield sign._replace(start=start, end=end)


def _shown(text: bytes) -> str:
    shown = " ".join(text.decode("utf-8", "replace").split()).replace("`", "'")
    return f"`{shown if len(shown) <= MAX_TEXT else f'{shown[:MAX_TEXT]}…'}`"


_FIELDS = {
    "assignment": ("left", "right"),
    "default_parameter": ("name", "value"),
    "typed_default_parameter": ("name", "value"),
    "variable_declarator": ("name", "value"),
    "field_definition": ("property", "value"),
    "public_field_definition": ("name", "value"),
    "assignment_pattern": ("left", "right"),
    "const_spec": ("name", "value"),
    "var_spec": ("name", "value"),
    "const_item": ("name", "value"),
    "static_item": ("name", "value"),
}
_PARAMETERS = frozenset({"default_parameter", "typed_default_parameter", "assignment_pattern"})
_CALLABLE = re.compile(r"function|method|arrow|lambda|closure|func_literal")
_OWNER = re.compile(_CALLABLE.pattern + r"|class|impl|mod_item")
_LOADED = re.compile(rb"^(?:await\s+)?(?:require|import)\b")
_STATED = re.compile(rb"^(?:__\w+__|_?version)$", re.IGNORECASE)
"""Names that describe a module and decide nothing."""


class _Value(NamedTuple):
    """Where the text of a value is; lines are from 1. `body` are the words of the function that it is a default of:
    if these change as well, either default may be right."""

    start: int
    end: int
    first: int
    last: int
    text: bytes
    body: tuple[bytes, ...]


def _changed_values(language: str, old: bytes, new: bytes) -> Iterator[NewCondition]:
    """Those of both versions that differ. Functions are not values, and names that occur twice are left out."""
    before, after = _values(language, old), _values(language, new)
    for key, place in after.items():
        earlier = before.get(key)
        if earlier is not None and earlier.text.split() != place.text.split() and earlier.body == place.body:
            text = earlier.text.decode("utf-8", "surrogateescape")
            says = f"{_shown(key[-1])} is {_shown(earlier.text)} again"
            yield NewCondition("removed", place.first, place.last, says, place.start, place.end, text)


def _values(language: str, content: bytes) -> dict[tuple[bytes, ...], _Value]:
    """The values of modules, classes and parameters, by the names around them and their own."""
    root = root_of(language, content)
    found: dict[tuple[bytes, ...], _Value] = {}
    twice = set[tuple[bytes, ...]]()
    for node in walk_nodes(root) if root is not None else ():
        fields = _FIELDS.get(node.type)
        name, value = (node.child_by_field_name(field) for field in fields) if fields else (None, None)
        if name is None or value is None or not name.type.endswith("identifier") or not _counts(node, value, content):
            continue
        key = (*_owners(node, content), text_of(content, name))
        twice |= {key} & found.keys()
        rows = (value.start_point[0] + 1, value.end_point[0] + 1)
        body = _body(node, content) if node.type in _PARAMETERS else ()
        found[key] = _Value(value.start_byte, value.end_byte, *rows, text_of(content, value), body)
    return {key: value for key, value in found.items() if key not in twice and not _STATED.match(key[-1])}


def _counts(node: Node, value: Node, content: bytes) -> bool:
    inner = (_CALLABLE.search(each.type) for each in walk_nodes(value))
    if any(inner) or _LOADED.match(text_of(content, value)):
        return False
    return node.type in _PARAMETERS or not any(_CALLABLE.search(each.type) for each in nodes_around(node))


def _body(parameter: Node, content: bytes) -> tuple[bytes, ...]:
    bodies = (each.child_by_field_name("body") for each in nodes_around(parameter))
    body = next((each for each in bodies if each is not None), None)
    return () if body is None else tuple(text_of(content, body).split())


def _owners(node: Node, content: bytes) -> Iterator[bytes]:
    for each in reversed([*nodes_around(node)]):
        if _OWNER.search(each.type):
            name = each.child_by_field_name("name") or each.child_by_field_name("type")
            yield text_of(content, name) if name is not None else b""
