"""A source with only what a patch adds to it: new definitions and members, and every existing body unchanged.

The new definitions are cut out of the new version and put after the same neighbours as there.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tree_sitter import Node

from app.verify.sources.parsed_sources import COMMENTS, ECMASCRIPT, root_of, text_of

IMPORTS = frozenset(
    {"import_statement", "import_declaration", "use_declaration", "package_clause", "package_declaration"}
)


class Side(NamedTuple):
    """One version of a file."""

    language: str
    content: bytes

    def text(self, node: Node) -> bytes:
        return text_of(self.content, node)


class Edit(NamedTuple):
    start: int
    end: int
    text: bytes


def deep(node: Node, depth: int) -> Iterator[Node]:
    yield node
    if depth:
        for child in node.named_children:
            yield from deep(child, depth - 1)


def imports(root: Node) -> list[Node]:
    return [each for each in root.named_children if each.type in IMPORTS]


def imported(before: Side, after: Side, old: Node, new: Node, added: bytes) -> Iterator[bytes]:
    """The new imports that the additions need, one line each."""
    there = {name for _, name in _bound_imports(before, old)}
    for line, name in _bound_imports(after, new):
        if name not in there and re.search(rb"(?<![\w$])" + re.escape(name) + rb"(?![\w$])", added):
            there.add(name)
            yield line


def _bound_imports(side: Side, root: Node) -> Iterator[tuple[bytes, bytes]]:
    """(a line that imports it alone, the name) of everything that is imported."""
    for node in root.named_children:
        if node.type == "import_statement":
            yield from _script_imports(side, node)
        elif side.language == "go" and node.type == "import_declaration":
            for spec in (each for each in deep(node, 2) if each.type == "import_spec"):
                path = side.text(spec).split()[-1].strip(b'"`')
                alias = spec.child_by_field_name("name")
                name = re.sub(rb"/v\d+$|\.v\d+$", b"", path).rpartition(b"/")[2].removeprefix(b"go-")
                yield b"import " + side.text(spec), side.text(alias) if alias is not None else name
        elif node.type == "import_declaration":
            yield side.text(node), side.text(node).rstrip(b"; ").rpartition(b".")[2]
        elif node.type == "use_declaration":
            argument = node.child_by_field_name("argument")
            for path in _used_paths(side, argument) if argument is not None else ():
                yield b"use " + path + b";", re.split(rb"::|\s", path)[-1]


def _script_imports(side: Side, node: Node) -> Iterator[tuple[bytes, bytes]]:
    source = node.child_by_field_name("source")
    if source is None:
        return
    keyword = b"import type " if re.match(rb"import\s+type\b", side.text(node)) else b"import "
    for part in deep(node, 4):
        text = side.text(part)
        if part.type == "import_specifier":
            yield keyword + b"{ " + text + b" } from " + side.text(source) + b";", text.split()[-1]
        elif part.type == "namespace_import" or (
            part.type == "identifier" and part.parent and part.parent.type == "import_clause"
        ):
            yield keyword + text + b" from " + side.text(source) + b";", text.split()[-1]


def _used_paths(side: Side, node: Node, depth: int = 20) -> Iterator[bytes]:
    """`a::{b, c::d as e}` is `a::b` and `a::c::d as e`."""
    if node.type == "scoped_use_list" and depth:
        path, names = node.child_by_field_name("path"), node.child_by_field_name("list")
        for inner in names.named_children if names is not None else ():
            for rest in _used_paths(side, inner, depth - 1):
                yield (side.text(path) + b"::" if path is not None else b"") + rest
    elif node.type not in COMMENTS:
        yield b" ".join(side.text(node).split())


def exported(before: Side, after: Side, old: Node, new: Node) -> Iterator[Edit]:
    """Existing definitions that a script newly exports by a list of names."""
    if before.language not in ECMASCRIPT:
        return
    end = len(before.content)
    there = {name for _, name in _export_lists(before, old)}
    for line, name in _export_lists(after, new):
        if name not in there:
            yield Edit(end, end, b"\n" + line + b"\n")
    objects = [_exports_object(side, root) for side, root in ((before, old), (after, new))]
    if objects[0] is not None and objects[1] is not None and objects[0].named_children:
        keys = {before.text(each).partition(b":")[0].strip() for each in objects[0].named_children}
        texts = [
            after.text(each)
            for each in objects[1].named_children
            if each.type in ("pair", "shorthand_property_identifier")
        ]
        at = objects[0].named_children[-1].end_byte
        extra = [text for text in texts if text.partition(b":")[0].strip() not in keys]
        yield from [Edit(at, at, b"".join(b",\n" + text for text in extra))] if extra else []


def _export_lists(side: Side, root: Node) -> Iterator[tuple[bytes, bytes]]:
    for node in root.named_children:
        if node.type != "export_statement":
            continue
        source = node.child_by_field_name("source")
        origin = b" from " + side.text(source) if source is not None else b""
        for spec in (each for each in deep(node, 2) if each.type == "export_specifier"):
            yield b"export { " + side.text(spec) + b" }" + origin + b";", side.text(spec).split()[-1]
        if source is not None and not any(each.type == "export_clause" for each in node.children):
            yield side.text(node), side.text(node)


def _exports_object(side: Side, root: Node) -> Node | None:
    for node in root.named_children:
        if node.type == "expression_statement" and node.named_children[0].type == "assignment_expression":
            left, right = (node.named_children[0].child_by_field_name(field) for field in ("left", "right"))
            exports = left is not None and side.text(left) == b"module.exports"
            if exports and right is not None and right.type == "object":
                return right
    return None


LANGUAGES = ECMASCRIPT | {"go", "rust", "java", "ruby"}
_BEFORE = COMMENTS | {"attribute_item", "decorator"}
_BODIES = frozenset(
    {"class_body", "interface_body", "object_type", "statement_block", "declaration_list", "body_statement"}
)
_CONTAINERS = frozenset(
    {"class_declaration", "abstract_class_declaration", "interface_declaration", "internal_module", "mod_item"}
    | {"impl_item", "trait_item", "class", "module", "record_declaration"}
)
_VARIABLES = frozenset(
    {"lexical_declaration", "variable_declaration", "const_declaration", "var_declaration", "type_declaration"}
    | {"field_declaration"}
)
_NAMED = _CONTAINERS | {
    *("function_declaration", "generator_function_declaration", "function_signature", "type_alias_declaration"),
    *("method_definition", "method_signature", "public_field_definition", "field_definition", "enum_declaration"),
    *("method_declaration", "function_item", "struct_item", "enum_item", "type_item", "const_item", "static_item"),
    *("macro_definition", "union_item", "constructor_declaration", "method", "singleton_method"),
    *("abstract_method_signature", "property_signature", "annotation_type_declaration"),
}
_HEAD = frozenset({"hash_bang_line", "inner_attribute_item", "extern_crate_declaration"})
_NAMES = frozenset({"identifier", "shorthand_property_identifier_pattern"})
_TEST = re.compile(rb"#\[(?:\w+::)*test\b|#\[cfg\(test\)\]")
_DERIVED = re.compile(r"heritage|superclass|super_interfaces|extends")
_ASSIGNED = re.compile(rb"(?:module\.)?exports\.[\w$]+|[\w$]+(?:\.prototype)?\.[\w$]+")

# Definitions that a language or its library calls by itself: a new one changes existing behaviour.
_CALLED = {
    "javascript": {"constructor", "toString", "toJSON", "valueOf", "then", "next", "return", "throw", "inspect"},
    "go": {
        *("String", "Error", "Unwrap", "Is", "As", "Format", "GoString", "MarshalJSON", "UnmarshalJSON", "MarshalText"),
        *("UnmarshalText", "MarshalYAML", "UnmarshalYAML", "MarshalBinary", "UnmarshalBinary", "Scan", "Value", "init"),
        *("Read", "Write", "Close", "Seek", "ReadFrom", "WriteTo", "ServeHTTP", "RoundTrip", "Len", "Less", "Swap"),
        *("Flush", "Hijack", "Push", "Unlock", "Lock", "LogValue"),
    },
    "java": {"equals", "hashCode", "toString", "compareTo", "close", "clone", "finalize", "iterator"},
    "ruby": {
        *("initialize", "to_s", "to_str", "to_h", "to_a", "to_ary", "to_proc", "inspect", "hash", "eql?", "each"),
        *("call", "method_missing", "respond_to_missing?", "coerce", "inherited", "included"),
        *("==", "<=>", "===", "[]", "[]="),
    },
}


class _Member(NamedTuple):
    """A definition in a file or a class. `names` are the names it takes there, `plain` is the last part of its name."""

    names: tuple[bytes, ...]
    plain: str
    node: Node
    text: bytes
    """Its source, with its comments, attributes and decorators."""


def with_additions(language: str, old: bytes, new: bytes, known: Collection[str]) -> tuple[bytes | None, set[str]]:
    """(the old source with what is new, new members that something may already use by name); None if nothing is new
    or it cannot be determined."""
    if language not in LANGUAGES:
        return None, set()
    before, after = Side(language, old), Side(language, new)
    earlier, later = root_of(language, old), root_of(language, new)
    if earlier is None or later is None:
        return None, set()
    inherited: set[str] = set()
    edits = list(_merged(before, after, (earlier, later), known, inherited=inherited, derived=False))
    added = b"\n".join(edit.text for edit in edits)
    edits += exported(before, after, earlier, later)
    if lines := b"".join(b"\n" + text for text in imported(before, after, earlier, later, added)):
        at = max(_beginning(earlier), *(each.end_byte for each in imports(earlier)), 0)
        edits.insert(0, Edit(at, at, lines + b"\n"))
    if not edits:
        return None, inherited
    made = old
    for _, edit in sorted(enumerate(edits), key=lambda each: (each[1].start, each[0]), reverse=True):
        made = made[: edit.start] + edit.text + made[edit.end :]
    return (made if _errors(language, made) <= _errors(language, old) else None), inherited


def _errors(language: str, content: bytes) -> int:
    root = root_of(language, content)
    if root is None:
        return 1 << 30
    waiting, found = [root], 0
    while waiting:
        node = waiting.pop()
        found += node.is_error or node.is_missing
        waiting += [child for child in node.children if child.has_error or child.is_missing]
    return found


def _merged(
    before: Side, after: Side, nodes: tuple[Node, Node], known: Collection[str], *, inherited: set[str], derived: bool
) -> Iterator[Edit]:
    """What the new container has and the old one lacks, and the same for containers in both."""
    old, new = nodes
    there = {member.names: member for member in _members(before, old)}
    taken = {name for names in there for name in names}
    at = _beginning(old)
    for member in _members(after, new):
        counterpart = there.get(member.names)
        if counterpart is not None:
            at = _line_end(before.content, counterpart.node.end_byte)
            yield from _parameters(before, after, counterpart.node, member.node)
            earlier, later = (_body(_definition(each.node)) for each in (counterpart, member))
            if earlier is not None and later is not None and not _TEST.search(_head(member)):
                inner = any(_DERIVED.search(child.type) for child in _definition(member.node).children)
                yield from _merged(before, after, (earlier, later), known, inherited=inherited, derived=inner)
        elif taken.isdisjoint(member.names) and not _is_called(after, member):
            usable = derived or (after.language == "go" and member.node.type == "method_declaration")
            inherited |= {member.plain} if usable else set()
            if not (usable and member.plain in known):
                yield Edit(at, at, b"\n" + member.text + b"\n")


def _head(member: _Member) -> bytes:
    """The source of a member before its body."""
    body = _definition(member.node).child_by_field_name("body")
    return member.text[: len(member.text) - (member.node.end_byte - body.start_byte)] if body else member.text


def _is_called(side: Side, member: _Member) -> bool:
    """True if something existing calls it, or if it only exists in a build of tests."""
    called = _CALLED.get("javascript" if side.language in ECMASCRIPT else side.language, ())
    if member.plain in called or member.plain.startswith("["):
        return True
    head = _head(member)
    return (side.language == "java" and b"@Override" in head) or (side.language == "rust" and bool(_TEST.search(head)))


def _members(side: Side, container: Node) -> Iterator[_Member]:
    start: int | None = None
    for child in container.named_children:
        if child.type in _BEFORE and not side.text(child).startswith((b"//!", b"/*!")):
            start = child.start_byte if start is None else start
            continue
        begin = child.start_byte if start is None else start
        start = None
        begin = max(side.content.rfind(b"\n", 0, begin) + 1, begin - len(_indentation(side.content, begin)))
        text = side.content[begin : child.end_byte]
        inner = _definition(child)
        if inner.type in _VARIABLES:
            yield from _variables(side, child, inner, text)
        elif named := _named(side, inner):
            yield _Member((named[0],), named[1], child, text)


def _indentation(content: bytes, offset: int) -> bytes:
    line = content[content.rfind(b"\n", 0, offset) + 1 : offset]
    return line if not line.strip() else b""


def _variables(side: Side, outer: Node, node: Node, text: bytes) -> Iterator[_Member]:
    """One for each of a group in Go, unless they number themselves; one for all names of another declaration."""
    specs = [each for each in deep(node, 2) if each.type in ("const_spec", "var_spec", "type_spec", "type_alias")]
    if specs and b"iota" not in side.text(node):
        keyword = side.text(node).split(None, 1)[0]
        for spec in specs:
            names = tuple(side.text(each) for each in spec.children_by_field_name("name"))
            yield _Member(names, names[0].decode() if names else "", outer, keyword + b" " + side.text(spec))
        return
    parts = specs or [each for each in node.named_children if each.type == "variable_declarator"]
    patterns = [name for each in parts for name in each.children_by_field_name("name")]
    found = tuple(side.text(each) for pattern in patterns for each in deep(pattern, 4) if each.type in _NAMES)
    if found:
        yield _Member(found, found[0].decode("utf-8", "replace"), outer, text)


def _named(side: Side, node: Node) -> tuple[bytes, str] | None:
    """(the names it takes, its plain name) of a definition, or of an assignment that makes one."""
    if node.type == "expression_statement" and node.named_child_count == 1:
        return _assigned(side, node.named_children[0])
    if node.type == "assignment" and side.language == "ruby":
        left = node.child_by_field_name("left")
        return (side.text(left), side.text(left).decode()) if left is not None and left.type == "constant" else None
    if node.type not in _NAMED:
        return None
    name = node.child_by_field_name("name") or node.child_by_field_name("property")
    if node.type == "impl_item":
        body = node.child_by_field_name("body")
        end = body.start_byte if body is not None else node.end_byte
        head = b" ".join(side.content[node.start_byte : end].split())
        return head, head.decode("utf-8", "replace")
    if name is None:
        return None
    plain = side.text(name)
    marks = b"".join(
        each.type.encode() + b" " for each in node.children if each.type in ("get", "set", "static", "self")
    )
    marks += b"type " if node.type in ("interface_declaration", "type_alias_declaration") else b""
    whole = marks + plain
    if receiver := node.child_by_field_name("receiver"):
        whole = re.sub(rb"^\(\s*\w*\s+|[()*\s]|\[.*?\]", b"", side.text(receiver)) + b"." + plain
    elif side.language == "java" and (parameters := node.child_by_field_name("parameters")):
        whole += b" ".join(side.text(parameters).split())
    return whole, plain.decode("utf-8", "replace")


def _assigned(side: Side, node: Node) -> tuple[bytes, str] | None:
    """`exports.name = …`, `Name.prototype.method = …`."""
    left = node.child_by_field_name("left")
    if node.type != "assignment_expression" or left is None or not _ASSIGNED.fullmatch(side.text(left)):
        return None
    target = side.text(left)
    return None if target == b"module.exports" else (target, target.rpartition(b".")[2].decode("utf-8", "replace"))


def _definition(node: Node) -> Node:
    """What an `export` or `declare` is about."""
    while node.type in ("export_statement", "ambient_declaration"):
        inner = node.child_by_field_name("declaration") or next(iter(node.named_children), None)
        if inner is None or (inner.type not in _NAMED | _VARIABLES and inner.type != "ambient_declaration"):
            return node
        node = inner
    return node


def _body(node: Node) -> Node | None:
    """Where a container holds its members; none for a trait's implementation, whose names are all known."""
    if node.type not in _CONTAINERS or node.child_by_field_name("trait") is not None:
        return None
    return node.child_by_field_name("body") or next((each for each in node.children if each.type in _BODIES), None)


def _beginning(container: Node) -> int:
    """Where a first member can be inserted."""
    if container.children and container.children[0].type == "{":
        return container.children[0].end_byte
    if container.parent is not None:
        return container.start_byte
    at = 0
    for child in container.children:
        directive = child.type == "expression_statement" and child.named_children[0].type == "string"
        if not (directive or child.type in IMPORTS | COMMENTS | _HEAD):
            break
        at = child.end_byte
    return at


def _line_end(content: bytes, offset: int) -> int:
    """The end of the line, if only punctuation and a comment follow."""
    rest = re.compile(rb"[ \t]*[;,]?[ \t]*(?://[^\n]*)?(?=\n|$)").match(content, offset)
    return rest.end() if rest else offset


def _parameters(before: Side, after: Side, old: Node, new: Node) -> Iterator[Edit]:
    """Optional parameters after the existing ones, if a call with too many arguments is an error."""
    if before.language not in ("typescript", "tsx", "ruby"):
        return
    lists = [_definition(each).child_by_field_name("parameters") for each in (old, new)]
    if lists[0] is None or lists[1] is None:
        return
    earlier = [before.text(each) for each in lists[0].named_children]
    later = [after.text(each) for each in lists[1].named_children]
    extra = lists[1].named_children[len(earlier) :]
    if extra and later[: len(earlier)] == earlier and all(map(_is_optional, extra)):
        yield Edit(lists[0].start_byte, lists[0].end_byte, after.text(lists[1]))


def _is_optional(node: Node) -> bool:
    if node.type in ("optional_parameter", "splat_parameter", "hash_splat_parameter", "block_parameter"):
        return True
    valued = node.child_by_field_name("value") is not None
    return valued and node.type in ("required_parameter", "keyword_parameter")
