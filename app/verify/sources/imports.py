"""What a source imports and exports, name by name."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from app.verify.sources.parsed_sources import COMMENTS, ECMASCRIPT

IMPORTS = frozenset(
    {"import_statement", "import_declaration", "use_declaration", "package_clause", "package_declaration"}
)


class Side(NamedTuple):
    """One version of a file."""

    language: str
    content: bytes

    def text(self, node: Node) -> bytes:
        return self.content[node.start_byte : node.end_byte]


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
            if (
                left is not None
                and right is not None
                and side.text(left) == b"module.exports"
                and right.type == "object"
            ):
                return right
    return None
