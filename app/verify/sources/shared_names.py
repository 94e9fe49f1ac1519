"""Finds names that tests and a patch agree on: attributes, environment variables, files, and names in strings."""

import builtins
import codecs
import io
import pathlib
import re
from typing import NamedTuple
from unittest import TestCase

from tree_sitter import Node, Tree

from app.repo import grammars
from app.verify.sources.literal_branches import STRINGS
from app.verify.sources.parsed_sources import MAX_BYTES, SECONDS, walk_nodes

MIN_LENGTH = 3
_ORDINARY = frozenset(
    name
    for kind in (str, bytes, list, dict, set, int, float, type, object, io.StringIO, pathlib.Path, TestCase, builtins)
    for name in dir(kind)
)
_MEMBERS = {"attribute": "attribute", "member_expression": "property", "selector_expression": "field"}
_NAMED = frozenset(
    {"function_definition", "class_definition", "function_declaration", "generator_function_declaration"}
    | {"class_declaration", "method_definition", "method_declaration", "function_item", "struct_item", "static_item"}
    | {"const_item", "const_spec", "var_spec", "variable_declarator", "public_field_definition"}
)
_TABLES = frozenset({"list", "tuple", "set", "dictionary", "array", "object", "composite_literal", "array_expression"})
_ASSIGNED = frozenset(
    {"assignment", "augmented_assignment", "assignment_expression", "augmented_assignment_expression"}
)
_MIN_TABLE = 3


class Names(NamedTuple):
    """What one file names: attributes that it reads or sets, strings without white space, and what it defines."""

    attributes: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()


def names_of(language: str, content: bytes) -> Names:
    return (
        grammars.with_tree(language, content, lambda tree: _names(content, tree), max_bytes=MAX_BYTES, seconds=SECONDS)
        or Names()
    )


def names_shared_by_test_and_source(test: Names, source: Names) -> set[str]:
    """Names that the test uses and the source defines, and those that the one sets and the other asks for."""
    found = (test.attributes | test.strings) & source.defined
    found |= test.stored & (source.attributes | source.strings)
    found |= test.strings & (source.strings | source.attributes)
    return {name for name in found if len(name) >= MIN_LENGTH and name not in _ORDINARY and not _is_encoding(name)}


def _names(content: bytes, tree: Tree) -> Names:
    attributes, stored, strings, defined = set[str](), set[str](), set[str](), set[str]()
    for node in walk_nodes(tree.root_node):
        if node.type in _MEMBERS:
            name, own = _text(content, node.child_by_field_name(_MEMBERS[node.type])), _is_own(content, node)
            if not own:
                attributes.add(name)
            if _is_set(node):
                defined.add(name)
                stored |= set() if own else {name}
        elif node.type.startswith("import"):
            attributes.update(re.findall(r"\w+", _text(content, node)))
        elif node.type in STRINGS and not _is_row(node):
            text = _text(content, node).lstrip("rbuRBU").strip("\"'`")
            strings |= {text} if text and not re.search(r"\s", text) else set()
        elif node.type in _NAMED and not (node.type == "variable_declarator" and _is_local(node)):
            defined.add(_text(content, node.child_by_field_name("name")))
        elif node.type == "assignment" and not _is_local(node):
            defined.add(_text(content, node.child_by_field_name("left")))
    return Names(frozenset(attributes), frozenset(stored), frozenset(strings), frozenset(defined))


def _is_own(content: bytes, member: Node) -> bool:
    return bool(member.named_children) and _text(content, member.named_children[0]) in ("self", "this", "cls")


def _is_set(member: Node) -> bool:
    parent = member.parent
    return parent is not None and parent.type in _ASSIGNED and parent.child_by_field_name("left") == member


def _is_row(string: Node) -> bool:
    """True in a table of several literals, which is data, and for a docstring."""
    parent = string.parent
    if parent is not None and parent.type in ("pair", "keyed_element"):
        parent = parent.parent
    if parent is None or parent.type == "expression_statement":
        return True
    return parent.type in _TABLES and parent.named_child_count >= _MIN_TABLE


def _is_local(node: Node) -> bool:
    around = node.parent
    while around is not None:
        if "function" in around.type or around.type in ("method_definition", "function_item", "lambda"):
            return True
        around = around.parent
    return False


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return True


def _text(content: bytes, node: Node | None) -> str:
    return content[node.start_byte : node.end_byte].decode("utf-8", "replace") if node is not None else ""
