"""Finds the values of modules, classes and parameters that a patch changes, so that each can be put back alone."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node, Tree

from app.repo import grammars
from app.verify.sources.parsed_sources import MAX_BYTES, SECONDS, walk_nodes

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
_FUNCTION = re.compile(r"function|method|arrow|lambda|closure|func_literal")
_NAMED = _FUNCTION.pattern + r"|class|impl|mod_item"
_IDENTIFIER = re.compile(r"identifier$")
_LOADED = re.compile(rb"^(?:await\s+)?(?:require|import)\b")
_STATED = re.compile(rb"^(?:__\w+__|_?version)$", re.IGNORECASE)
"""Names that describe a module and decide nothing."""


class Value(NamedTuple):
    """Where the text of a value is; lines are from 1. `body` are the words of the function that it is a default of:
    if these change as well, either default may be right."""

    start: int
    end: int
    first: int
    last: int
    text: bytes
    body: tuple[bytes, ...]


class ChangedValue(NamedTuple):
    """The new version's place, and the old text."""

    name: str
    place: Value
    before: bytes


def changed_values(language: str, old: bytes, new: bytes) -> Iterator[ChangedValue]:
    """Those of both versions that differ. Functions are not values, and names that occur twice are left out."""
    before, after = _values(language, old), _values(language, new)
    for key, place in after.items():
        earlier = before.get(key)
        if earlier is not None and earlier.text.split() != place.text.split() and earlier.body == place.body:
            yield ChangedValue(key[-1].decode("utf-8", "replace"), place, earlier.text)


def _values(language: str, content: bytes) -> dict[tuple[bytes, ...], Value]:
    def examine(tree: Tree) -> dict[tuple[bytes, ...], Value]:
        found: dict[tuple[bytes, ...], Value] = {}
        twice = set[tuple[bytes, ...]]()
        for node in walk_nodes(tree.root_node):
            fields = _FIELDS.get(node.type)
            name, value = (node.child_by_field_name(field) for field in fields) if fields else (None, None)
            if name is None or value is None or not _IDENTIFIER.search(name.type) or not _counts(node, value, content):
                continue
            key = (*_owners(node, content), content[name.start_byte : name.end_byte])
            twice |= {key} & found.keys()
            text = content[value.start_byte : value.end_byte]
            rows = (value.start_point[0] + 1, value.end_point[0] + 1)
            body = _body(node, content) if node.type in _PARAMETERS else ()
            found[key] = Value(value.start_byte, value.end_byte, *rows, text, body)
        return {key: value for key, value in found.items() if key not in twice and not _STATED.match(key[-1])}

    return grammars.with_tree(language, content, examine, max_bytes=MAX_BYTES, seconds=SECONDS) or {}


def _counts(node: Node, value: Node, content: bytes) -> bool:
    inner = (_FUNCTION.search(each.type) for each in walk_nodes(value))
    if any(inner) or _LOADED.match(content[value.start_byte : value.end_byte]):
        return False
    return node.type in _PARAMETERS or not any(_FUNCTION.search(each.type) for each in _around(node))


def _body(parameter: Node, content: bytes) -> tuple[bytes, ...]:
    bodies = (each.child_by_field_name("body") for each in _around(parameter))
    body = next((each for each in bodies if each is not None), None)
    return () if body is None else tuple(content[body.start_byte : body.end_byte].split())


def _owners(node: Node, content: bytes) -> Iterator[bytes]:
    for each in reversed([*_around(node)]):
        if re.search(_NAMED, each.type):
            name = each.child_by_field_name("name") or each.child_by_field_name("type")
            yield content[name.start_byte : name.end_byte] if name is not None else b""


def _around(node: Node) -> Iterator[Node]:
    around = node.parent
    while around is not None:
        yield around
        around = around.parent
