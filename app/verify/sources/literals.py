"""Finds literals and names that a patch has in common with an issue or with tests.

Branches that are entered only for such literals are special cases instead of a fix; names that only tests and patch
have were agreed on; and a test whose literals all occur elsewhere is no variation of the reporter's example.
"""

import builtins
import codecs
import io
import pathlib
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar
from unittest import TestCase

from tree_sitter import Node

from app.core.examples import SourceText
from app.repo.grammars import language_of, with_tree
from app.verify.sources.parsed_sources import COMMENTS, added_rows, nodes_around, root_of, text_of, walk_nodes

_MIN_STRING = 3
_ORDINARY = frozenset({"-1", "0", "1", "2"})
STRINGS = frozenset(
    {"string", "string_literal", "interpreted_string_literal", "raw_string_literal", "char_literal", "rune_literal"}
    | {"character_literal", "character"}
)
NUMBERS = frozenset(
    {"integer", "float", "number", "int_literal", "float_literal", "integer_literal", "number_literal"}
    | {"decimal_integer_literal", "decimal_floating_point_literal", "hex_integer_literal"}
)
_NOTHING = frozenset({"none", "null", "nil", "undefined", "true", "false", "null_literal", "boolean_literal"})
_COMPARISONS = frozenset({"comparison_operator", "binary_expression", "binary", "boolean_operator"})
_EQUAL = frozenset({"==", "===", "is", "in", "!=", "!==", "is not", "not in"})
_ALL = frozenset({"and", "&&"})
_CALLS = frozenset({"call", "call_expression", "method_invocation"})
_MEMBERSHIP = re.compile(
    rb"\b(?:startswith|endswith|fullmatch|equals|equalsIgnoreCase|includes|contains|startsWith|endsWith|include\?"
    rb"|start_with\?|end_with\?|eql\?|starts_with|ends_with|HasPrefix|HasSuffix|Contains|EqualFold|eq_ignore_ascii_case"
    rb"|strcmp|strncmp|has)$"
)
_WRAPPED = frozenset(
    {"tuple", "list", "set", "array", "composite_literal", "array_expression", "reference_expression"}
    | {"parenthesized_expression", "unary_expression", "unary_operator", "unary"}
)
_PATTERNS = frozenset(
    {"case_pattern", "switch_case", "expression_case", "match_pattern", "when", "switch_label", "case_statement"}
)
_PAIRS = frozenset({"pair", "keyed_element"})
_NUMERAL = r"-?\d[\d.]*"
_KEY = rf"{_NUMERAL}(?:[ ,;:|/x_]{{1,3}}{_NUMERAL}){{0,7}}"
_ROW = re.compile(
    rf"(?<![\w.])[\"']?{_KEY}[\"']?\s{{0,80}}[:=]\s{{0,80}}[\"']?{_NUMERAL}(?![\w.])"
    rf"|\[\s{{0,80}}{_NUMERAL}(?:\s{{0,80}},\s{{0,80}}{_NUMERAL}){{1,7}}\s{{0,80}}\]"
    rf"|(?m:^{_NUMERAL}(?:[ \t]?[,;|\t ][ \t]?{_NUMERAL}){{1,7}}[ \t]*$)"
)
"""A number of a key, list or line of a data file, and the number that it stands for."""
_BODIES = re.compile(r"statement|block|then|body|expression_statement|clause")


T = TypeVar("T")


class Literal(NamedTuple):
    text: str
    number: bool


def literal_conditions(
    language: str, old: bytes | None, new: bytes, texts: Sequence[str]
) -> list[tuple[int, list[Literal]]]:
    """(line, literals) of each added condition or table entry that only literals fulfil, all of them in the texts."""
    rows = added_rows(old or b"", new)
    root = root_of(language, new)
    found: dict[int, list[Literal]] = {}
    for node in walk_nodes(root, only_named=False) if root is not None else ():
        if node.type in _PAIRS:
            literals = _calculated(node, new)
        elif node.type in _PATTERNS:
            literals = _pattern(node, new)
        else:
            literals = _admitted(node, new) if node.type in _COMPARISONS | _CALLS else None
        last = node.start_point[0] if node.type in _PATTERNS else node.end_point[0]
        if not literals or rows.isdisjoint(range(node.start_point[0], last + 1)):
            continue
        wanted = _wanted(literals) if node.type in _PAIRS else literals
        if all(_mentioned(each, texts) for each in wanted):
            found.setdefault(node.start_point[0] + 1, sorted(set(literals)))
    return sorted(found.items())


def literal_rows(old: bytes | None, new: bytes, texts: Sequence[str]) -> list[tuple[int, list[Literal]]]:
    """(line, literals) of each added row of a data file that maps numbers of the texts to a number."""
    rows, text = added_rows(old or b"", new), new.decode("utf-8", "replace")
    mentioned = cache(lambda numeral: _mentioned(Literal(numeral, number=True), texts))
    found: list[tuple[int, list[Literal]]] = []
    line, end = 0, 0
    for match in _ROW.finditer(text):
        line, end = line + text.count("\n", end, match.start()), match.start()
        wanted = _wanted(re.findall(_NUMERAL, match[0]))
        is_new = not rows.isdisjoint(range(line, line + match[0].count("\n") + 1))
        if is_new and all(map(mentioned, wanted)):
            found.append((line + 1, [Literal(numeral, number=True) for numeral in sorted(set(wanted))]))
    return found


def _wanted(numbers: Sequence[T]) -> Sequence[T]:
    """What of a row the texts must have: both numbers, or the several that the last one stands for."""
    return numbers if len(numbers) < 3 else numbers[:-1]


def indicate_special_case(literals: Sequence[Literal], known: Collection[str]) -> bool:
    """True if one of them is not in the program's own vocabulary, or several numbers must come together."""
    strange = [each for each in literals if each.text not in known]
    if any(each.text not in _ORDINARY if each.number else len(each.text.strip()) >= _MIN_STRING for each in strange):
        return True
    return len({each.text for each in strange if each.number} - {"0", "1", "-1"}) > 1


def operator_of(node: Node) -> str:
    return " ".join(child.type for child in node.children if not child.is_named)


def _admitted(node: Node, content: bytes) -> list[Literal] | None:
    """The literals that the condition requires; None if it can be fulfilled without any."""
    if node.type == "parenthesized_expression" and node.named_child_count == 1:
        return _admitted(node.named_children[0], content)
    if node.type in _CALLS:
        return _method_literals(node, content)
    return _compared(node, content) if node.type in _COMPARISONS and node.named_child_count == 2 else None


def _compared(node: Node, content: bytes) -> list[Literal] | None:
    operator, sides = operator_of(node), node.named_children
    if operator in _ALL:
        found = [_admitted(side, content) for side in sides]
        return [each for part in found if part for each in part] if any(part is not None for part in found) else None
    if operator not in _EQUAL:
        return None
    left, right = (_literals(side, content) for side in sides)
    return right if left is None else left if right is None else None


def _method_literals(call: Node, content: bytes) -> list[Literal] | None:
    """The literals of `x.startswith("a")`, `["a"].includes(x)`, `strings.HasPrefix(x, "a")`."""
    arguments = call.child_by_field_name("arguments")
    if arguments is None or not _MEMBERSHIP.search(content[call.start_byte : arguments.start_byte].rstrip()):
        return None
    name = call.child_by_field_name("function") or call
    receiver = name.child_by_field_name("object") or name.child_by_field_name("receiver")
    parts = [*([receiver] if receiver else []), *arguments.named_children]
    values = [_literals(part, content) for part in parts]
    if None not in values and len(parts) > 1:
        return None
    return [literal for value in values if value for literal in value] or None


def _literals(node: Node, content: bytes) -> list[Literal] | None:
    """The parts of a literal, or of a collection of only literals; None for everything else."""
    text = text_of(content, node).decode("utf-8", "replace")
    if node.type in _NOTHING:
        return []
    if node.type in NUMBERS:
        return [Literal(text, number=True)]
    if node.type in STRINGS and not any("interpolation" in child.type for child in node.children):
        return [Literal(text.lstrip("rbuRBU").strip("\"'`"), number=False)]
    if node.type in _WRAPPED and node.named_child_count:
        parts = [_literals(child, content) for child in node.named_children]
        sign = "-" if text.startswith("-") else ""
        if None not in parts:
            return [Literal(sign + each.text, each.number) for part in parts if part for each in part]
    return None


def _calculated(pair: Node, content: bytes) -> list[Literal] | None:
    """A table entry that maps numbers to numbers, instead of calculating them. Tables of names are ordinary."""
    key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
    sides = (key, value) if key is not None and value is not None else tuple(pair.named_children)
    parts = [_literals(side, content) for side in sides]
    if len(parts) != 2 or not all(part and all(map(_is_number, part)) for part in parts):
        return None
    numerals = (  # a text may be a key for two numbers
        [each.text] if each.number else re.findall(_NUMERAL, each.text) for part in parts if part for each in part
    )
    return [Literal(text, number=True) for texts in numerals for text in texts]


def _is_number(literal: Literal) -> bool:
    return literal.number or re.fullmatch(r"[+-]?\d[\d.,_ ]*", literal.text) is not None


def _pattern(node: Node, content: bytes) -> list[Literal]:
    """The literals of a pattern without names or wildcards."""
    found: list[Literal] = []
    waiting = [child for child in node.named_children if not _BODIES.search(child.type)]
    while waiting:
        child = waiting.pop()
        literals = _literals(child, content)
        if literals is not None:
            found += literals
        elif child.named_child_count and child.type not in _CALLS:
            waiting += child.named_children
        else:
            return []
    return found


def _mentioned(literal: Literal, texts: Sequence[str]) -> bool:
    if not literal.text:
        return False
    if not literal.number:
        return any(literal.text in text for text in texts)
    pattern = re.compile(rf"(?<![\w.]){re.escape(literal.text)}(?![\w.]*\w)")
    return any(pattern.search(text) for text in texts)


_MIN_NAME = 3
_ORDINARY_NAMES = frozenset(
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
    attributes, stored, strings, defined = set[str](), set[str](), set[str](), set[str]()
    root = root_of(language, content)
    for node in walk_nodes(root) if root is not None else ():
        if node.type in _MEMBERS:
            name, parent = _decoded(content, node.child_by_field_name(_MEMBERS[node.type])), node.parent
            own = bool(node.named_children) and text_of(content, node.named_children[0]) in (b"self", b"this", b"cls")
            is_set = parent is not None and parent.type in _ASSIGNED and parent.child_by_field_name("left") == node
            attributes |= set() if own else {name}
            defined |= {name} if is_set else set()
            stored |= {name} if is_set and not own else set()
        elif node.type.startswith("import"):
            attributes.update(re.findall(r"\w+", _decoded(content, node)))
        elif node.type in STRINGS and not _is_row(node):
            text = _decoded(content, node).lstrip("rbuRBU").strip("\"'`")
            strings |= {text} if text and not re.search(r"\s", text) else set()
        elif node.type in _NAMED and not (node.type == "variable_declarator" and _is_local(node)):
            defined.add(_decoded(content, node.child_by_field_name("name")))
        elif node.type == "assignment" and not _is_local(node):
            defined.add(_decoded(content, node.child_by_field_name("left")))
    return Names(frozenset(attributes), frozenset(stored), frozenset(strings), frozenset(defined))


def names_shared_by_test_and_source(test: Names, source: Names) -> set[str]:
    """Names that the test uses and the source defines, and those that the one sets and the other asks for."""
    found = (test.attributes | test.strings) & source.defined
    found |= test.stored & (source.attributes | source.strings)
    found |= test.strings & (source.strings | source.attributes)
    return {name for name in found if len(name) >= _MIN_NAME and name not in _ORDINARY_NAMES and not _is_encoding(name)}


def _is_row(string: Node) -> bool:
    """True in a table of several literals, which is data, and for a docstring."""
    parent = string.parent
    if parent is not None and parent.type in ("pair", "keyed_element"):
        parent = parent.parent
    if parent is None or parent.type == "expression_statement":
        return True
    return parent.type in _TABLES and parent.named_child_count >= _MIN_TABLE


def _is_local(node: Node) -> bool:
    owners = frozenset({"method_definition", "function_item", "lambda"})
    return any("function" in around.type or around.type in owners for around in nodes_around(node))


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return True


_FIXTURES = frozenset({"setUp", "setUpClass", "setup_method", "setup_class", "setUpTestData"})
_EXPLANATIONS = frozenset({b"match", b"msg", b"message", b"id", b"ids"})
_IMPORTS = re.compile(r"import|require|use_declaration|package_clause")
_INTRODUCED = re.compile(
    r"(?:@[^\n]*\n\s*|#\[[^\n]*\n\s*"
    r"|(?:export|default|async|pub|def|class|func|fn|function\*?|const|let|var|static|type|mut)\s+)*([A-Za-z_$][\w$]*)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_WRITTEN_NUMBER = re.compile(r"-?(?<![\w.])(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)")


def uses_unseen_values(
    name: str, file: SourceText, issue: str, example: SourceText | None = None, shown: str = ""
) -> bool:
    """True if the test of this name uses a number or a string that neither the issue nor the example has.

    `example` is the file of the test that is called `shown`. What the test's helpers use must not be in that file at
    all, because both tests may have the same helpers.
    """
    content = file.text.encode()
    body = _body(example, shown) if example is not None else ""
    whole = example.text if example is not None else ""
    root = _root_of_test(file)
    if root is None:
        return False
    test, *helpers = _region(content, root, name)
    return _has_new(content, [test], [issue, body]) or _has_new(content, helpers, [issue, whole])


def _root_of_test(file: SourceText) -> Node | None:
    language = language_of(file.path)
    return with_tree(language, file.text.encode(), lambda tree: tree.root_node) if language else None


def _body(file: SourceText, name: str) -> str:
    """The text of one test; of the whole file if it is not found."""
    content, root = file.text.encode(), _root_of_test(file)
    return (_decoded(content, _region(content, root, name)[0]) if root is not None else "") or file.text


def _has_new(content: bytes, parts: Sequence[Node], texts: Sequence[str]) -> bool:
    numbers = {value for text in texts for value in _numbers(text)}
    return any(
        numbers.isdisjoint(_numbers(each.text)) if each.number else not any(each.text in text for text in texts)
        for part in parts
        for each in _literals_in(content, part)
    )


def _numbers(text: str) -> Iterator[float]:
    """Negative ones also without their sign, because that may be a hyphen."""
    for found in _WRITTEN_NUMBER.findall(text):
        plain = found.lstrip("-").replace("_", "")
        value = float(int(plain, 16)) if plain[:2] in ("0x", "0X") else float(plain)
        yield -value if found.startswith("-") else value


def _region(content: bytes, root: Node, name: str) -> list[Node]:
    """The test with the definitions that it uses; the whole file if it is not found."""
    test = next(_named(content, root, name), None)
    if test is None:
        return [root]
    helpers: dict[str, Node] = {}
    for node in (*(test.parent.named_children if test.parent else ()), *root.named_children):
        if node.start_byte > test.start_byte or test.end_byte > node.end_byte:  # it is not around the test
            introduced = _INTRODUCED.match(_decoded(content, node))
            helpers[introduced[1] if introduced else ""] = node
    region, waiting = [test], [test]
    while waiting:
        words = {*_WORD.findall(_decoded(content, waiting.pop())), *_FIXTURES}
        for word in [word for word in helpers if word in words and not word.lower().startswith("test")]:
            node = helpers.pop(word)
            region.append(node)
            waiting.append(node)
    return region


def _named(content: bytes, root: Node, name: str) -> Iterator[Node]:
    """The functions of this name, with their decorators, and the calls whose title it is."""
    for node in walk_nodes(root, only_named=False):
        called = node.child_by_field_name("name")
        if called is not None and node.child_by_field_name("body") is not None and _decoded(content, called) == name:
            decorated = node.parent is not None and node.parent.type == "decorated_definition"
            yield node.parent if decorated and node.parent is not None else node
        elif node.type == "call_expression" and (arguments := node.child_by_field_name("arguments")) is not None:
            given = arguments.named_children
            if given and given[0].type in STRINGS and _decoded(content, given[0])[1:-1] == name:
                yield from (each for each in given[1:] if each.child_by_field_name("body") is not None)


def _literals_in(content: bytes, root: Node) -> Iterator[Literal]:
    """Numbers and strings, without those that only name or explain something or choose an element of a result."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in COMMENTS or _IMPORTS.search(node.type):
            continue
        if node.type in NUMBERS:
            sign = "-" if node.parent is not None and _decoded(content, node.parent).startswith("-") else ""
            yield Literal(sign + _decoded(content, node), number=True)
            continue
        if node.type in STRINGS:
            parts = [child for child in node.named_children if re.search("content|fragment", child.type)]
            texts = [_decoded(content, part) for part in parts] or [_decoded(content, node).strip("\"'`")]
            yield from (Literal(text, number=False) for text in texts)
        waiting += [child for child in node.named_children if not _explains(content, node, child)]


def _explains(content: bytes, node: Node, child: Node) -> bool:
    """True for docstrings, messages, names of parameters and modules, and indexes."""
    if node.type == "expression_statement":
        return child.type == "string"
    if node.type == "assert_statement":
        return child != node.named_children[0]
    if node.type in ("subscript", "subscript_expression", "index_expression"):
        return child.type in NUMBERS and child != node.named_children[0]
    if node.type == "keyword_argument":
        named = node.child_by_field_name("name")
        return named is not None and text_of(content, named) in _EXPLANATIONS
    if node.type in ("argument_list", "arguments") and node.parent is not None:
        function = node.parent.child_by_field_name("function")
        called = _decoded(content, function) if function is not None else ""
        return called.endswith(("parametrize", "subTest", ".Run", "require")) and child == node.named_children[0]
    return False


def _decoded(content: bytes, node: Node | None) -> str:
    return text_of(content, node).decode("utf-8", "replace") if node is not None else ""
