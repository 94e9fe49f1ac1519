"""Finds the literal values of a test, to tell a variation from the reporter's own example."""

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node, Tree

from app.core.verification import SourceText
from app.repo.grammars import language_of, with_tree
from app.verify.sources.literal_branches import NUMBERS, STRINGS, Literal
from app.verify.sources.parsed_sources import COMMENTS

_FIXTURES = frozenset({"setUp", "setUpClass", "setup_method", "setup_class", "setUpTestData"})
_MESSAGES = frozenset({b"match", b"msg", b"message", b"id", b"ids"})
_IMPORTS = re.compile(r"import|require|use_declaration|package_clause")
_INTRODUCED = re.compile(
    r"(?:@[^\n]*\n\s*|#\[[^\n]*\n\s*"
    r"|(?:export|default|async|pub|def|class|func|fn|function\*?|const|let|var|static|type|mut)\s+)*([A-Za-z_$][\w$]*)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NUMBER = re.compile(r"-?(?<![\w.])(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)")


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

    def examine(tree: Tree) -> bool:
        test, *helpers = _region(content, tree.root_node, name)
        return _has_new(content, [test], [issue, body]) or _has_new(content, helpers, [issue, whole])

    return bool(with_tree(language_of(file.path) or "", content, examine))


def _body(file: SourceText, name: str) -> str:
    """The text of one test; of the whole file if it is not found."""
    content = file.text.encode()
    found = with_tree(
        language_of(file.path) or "", content, lambda tree: _text(content, _region(content, tree.root_node, name)[0])
    )
    return found or file.text


def _has_new(content: bytes, parts: Sequence[Node], texts: Sequence[str]) -> bool:
    numbers = {value for text in texts for value in _numbers(text)}
    return any(
        numbers.isdisjoint(_numbers(each.text)) if each.number else not any(each.text in text for text in texts)
        for part in parts
        for each in _literals(content, part)
    )


def _numbers(text: str) -> Iterator[float]:
    """Negative ones also without their sign, because that may be a hyphen."""
    for found in _NUMBER.findall(text):
        plain = found.lstrip("-").replace("_", "")
        value = float(int(plain, 16)) if plain[:2] in ("0x", "0X") else float(plain)
        yield -value if found.startswith("-") else value


def _region(content: bytes, root: Node, name: str) -> list[Node]:
    """The test with the definitions that it uses; the whole file if it is not found."""
    test = next(_named(content, root, name), None)
    if test is None:
        return [root]
    siblings = [*(test.parent.named_children if test.parent else ()), *root.named_children]
    helpers = {_introduced(content, node): node for node in siblings if not _holds(node, test)}
    region, waiting = [test], [test]
    while waiting:
        words = {*_WORD.findall(_text(content, waiting.pop())), *_FIXTURES}
        for word in [word for word in helpers if word in words and not word.lower().startswith("test")]:
            node = helpers.pop(word)
            region.append(node)
            waiting.append(node)
    return region


def _named(content: bytes, root: Node, name: str) -> Iterator[Node]:
    """The functions of this name, with their decorators, and the calls whose title it is."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        called = node.child_by_field_name("name")
        if called is not None and node.child_by_field_name("body") is not None and _text(content, called) == name:
            decorated = node.parent is not None and node.parent.type == "decorated_definition"
            yield node.parent if decorated and node.parent is not None else node
        elif node.type == "call_expression" and (arguments := node.child_by_field_name("arguments")) is not None:
            given = arguments.named_children
            if given and given[0].type in STRINGS and _text(content, given[0])[1:-1] == name:
                yield from (each for each in given[1:] if each.child_by_field_name("body") is not None)
        waiting += reversed(node.children)


def _holds(node: Node, inner: Node) -> bool:
    return node.start_byte <= inner.start_byte and inner.end_byte <= node.end_byte


def _introduced(content: bytes, node: Node) -> str:
    found = _INTRODUCED.match(_text(content, node))
    return found[1] if found else ""


def _literals(content: bytes, root: Node) -> Iterator[Literal]:
    """Numbers and strings, without those that only name or explain something or choose an element of a result."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in COMMENTS or _IMPORTS.search(node.type):
            continue
        if node.type in NUMBERS:
            sign = "-" if node.parent is not None and _text(content, node.parent).startswith("-") else ""
            yield Literal(sign + _text(content, node), number=True)
            continue
        if node.type in STRINGS:
            parts = [child for child in node.named_children if re.search("content|fragment", child.type)]
            texts = [_text(content, part) for part in parts] or [_text(content, node).strip("\"'`")]
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
        return named is not None and _text(content, named).encode() in _MESSAGES
    if node.type in ("argument_list", "arguments") and node.parent is not None:
        function = node.parent.child_by_field_name("function")
        called = _text(content, function) if function is not None else ""
        return called.endswith(("parametrize", "subTest", ".Run", "require")) and child == node.named_children[0]
    return False


def _text(content: bytes, node: Node) -> str:
    return content[node.start_byte : node.end_byte].decode("utf-8", "replace")
