"""Finds branches that a patch adds only for the literals of an issue or a test: special cases instead of a fix."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from tree_sitter import Node, Tree

from app.repo import grammars
from app.verify.sources.parsed_sources import MAX_BYTES, SECONDS, added_rows

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

    def examine(tree: Tree) -> list[tuple[int, list[Literal]]]:
        found: dict[int, list[Literal]] = {}
        for node in _conditions(tree.root_node):
            if node.type in _PAIRS:
                literals = _calculated(node, new)
            else:
                literals = _pattern(node, new) if node.type in _PATTERNS else _admitted(node, new)
            last = node.start_point[0] if node.type in _PATTERNS else node.end_point[0]
            if not literals or rows.isdisjoint(range(node.start_point[0], last + 1)):
                continue
            wanted = _wanted(literals) if node.type in _PAIRS else literals
            if all(_mentioned(each, texts) for each in wanted):
                found.setdefault(node.start_point[0] + 1, sorted(set(literals)))
        return sorted(found.items())

    return grammars.with_tree(language, new, examine, max_bytes=MAX_BYTES, seconds=SECONDS) or []


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


def _conditions(root: Node) -> Iterator[Node]:
    """Everything that can decide a branch: patterns, comparisons, calls that test something, and table entries."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in _PATTERNS | _COMPARISONS | _CALLS | _PAIRS:
            yield node
        waiting += reversed(node.children)


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
    receiver = next(
        (name.child_by_field_name(field) for field in ("object", "receiver") if name.child_by_field_name(field)), None
    )
    parts = [*([receiver] if receiver else []), *arguments.named_children]
    values = [_literals(part, content) for part in parts]
    if None not in values and len(parts) > 1:
        return None
    return [literal for value in values if value for literal in value] or None


def _literals(node: Node, content: bytes) -> list[Literal] | None:
    """The parts of a literal, or of a collection of only literals; None for everything else."""
    text = content[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.type in _NOTHING:
        return []
    if node.type in NUMBERS:
        return [Literal(text, number=True)]
    if node.type in STRINGS and not any("interpolation" in child.type for child in node.children):
        return [Literal(text.lstrip("rbuRBU").strip("\"'`"), number=False)]
    if node.type in _WRAPPED and node.named_child_count:
        parts = [_literals(child, content) for child in node.named_children]
        sign = "-" if text.startswith("-") else ""
        return (
            None
            if None in parts
            else [Literal(sign + each.text, each.number) for part in parts if part for each in part]
        )
    return None


def _calculated(pair: Node, content: bytes) -> list[Literal] | None:
    """A table entry that maps numbers to numbers, instead of calculating them. Tables of names are ordinary."""
    key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
    sides = (key, value) if key is not None and value is not None else tuple(pair.named_children)
    parts = [_literals(side, content) for side in sides]
    if len(parts) != 2 or not all(part and all(map(_is_number, part)) for part in parts):
        return None
    return [Literal(text, number=True) for part in parts if part for each in part for text in _numerals(each)]


def _numerals(literal: Literal) -> list[str]:
    """The number, or the numbers of a text such as a key for two of them."""
    return [literal.text] if literal.number else re.findall(_NUMERAL, literal.text)


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
