"""Alters a JavaScript or TypeScript test so that it certainly fails if the original passes."""

import re
from collections.abc import Iterator, Sequence
from random import Random

from tree_sitter import Node

from app.verify.launcher.edits import Alteration, ByteEdit, different_number, different_text

_EQUALITIES = frozenset({"equal", "strictEqual", "deepEqual", "deepStrictEqual", "eql"})
_MATCHERS = frozenset({"toBe", "toEqual", "toStrictEqual", "toHaveLength", "equal", "equals", "eql", "eq"})
_ASSERT = re.compile(rb"(?:t\.|chai\.|context\.)?assert(?:\.strict)?(?:\.(?P<name>\w+))?")
_SNAPSHOT = re.compile(rb"[sS]napshot|\bexpect\.|\.(?:poll|soft)\b")
_WAITED = re.compile(rb"\.(?:resolves|rejects|eventually)\b")
_FUNCTIONS = frozenset(
    {"arrow_function", "function_expression", "function_declaration", "method_definition", "class_body"}
)
_ENDING = frozenset({"return_statement", "throw_statement", "break_statement", "continue_statement"})
OTHER = b"Symbol()"
"""Equal to nothing else."""


def body_of(call: Node) -> Node | None:
    """The block, or the one expression, of the function that a call of `test` or `describe` gets last."""
    arguments = call.child_by_field_name("arguments")
    functions = [node for node in arguments.named_children if node.type in _FUNCTIONS] if arguments else []
    return functions[-1].child_by_field_name("body") if functions else None


def alterations(source: bytes, body: Node, random: Random, *, node: bool) -> Iterator[Alteration]:
    """`node`: `assert` is Node's own, of which more is known."""
    for statement in reached(body):
        expression = statement.named_children[0] if statement.type == "expression_statement" else statement
        waited = expression.type == "await_expression"
        inner = expression.named_children[0] if waited else expression
        if text_of(source, inner).startswith(b"expect("):
            yield from _of_expect(source, inner, random, waited=waited)
        elif inner.type == "call_expression":
            yield from _of_assert(source, inner, random, waited=waited, node=node)


def reached(body: Node) -> Iterator[Node]:
    """Statements, or the one expression, that are always executed, as far as that is certain."""
    if body.type != "statement_block":
        yield body
        return
    for statement in body.named_children:
        if any(found.type in _ENDING for found in _inside(statement)):
            return
        yield statement


def failing_end(source: bytes, body: Node, random: Random) -> ByteEdit:
    """A failing statement after the last one, or before the first if the test may end early."""
    one, other = random.sample(range(2, 99), 2)
    text = f"if ({one} !== {other}) throw new Error('expected {one} to be {other}');".encode()
    if body.type != "statement_block":
        expression = source[body.start_byte : body.end_byte]
        return ByteEdit(body.start_byte, body.end_byte, b"((() => { " + text + b" })(), " + expression + b")")
    statements = body.named_children
    if len(list(reached(body))) == len(statements):
        return ByteEdit(body.end_byte - 1, body.end_byte - 1, b"\n" + text + b"\n")
    return ByteEdit(body.start_byte + 1, body.start_byte + 1, b"\n" + text + b"\n")


def _inside(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        if child.type not in _FUNCTIONS:
            yield from _inside(child)


def _of_assert(source: bytes, call: Node, random: Random, *, waited: bool, node: bool) -> Iterator[Alteration]:
    function = call.child_by_field_name("function")
    found = _ASSERT.fullmatch(text_of(source, function)) if function else None
    arguments = _arguments(call)
    if found is None or function is None or not arguments:
        return
    name = (found["name"] or b"ok").decode()
    if name == "ok":
        start, end = arguments[0].start_byte, arguments[0].end_byte
        yield Alteration("inverse", [ByteEdit(start, start, b"!("), ByteEdit(end, end, b")")])
    elif name in _EQUALITIES and len(arguments) >= 2:
        yield from _other_value(source, (arguments[1], arguments[0]), random)
    inverse = {"throws": "doesNotThrow", "doesNotThrow": "throws"} if not node else {"throws": "doesNotThrow"}
    inverse |= {"match": "doesNotMatch", "doesNotMatch": "match"} if node else {}
    inverse |= {"rejects": "doesNotReject"} if node and waited else {}
    if name in inverse:
        end = function.end_byte
        yield Alteration("inverse", [ByteEdit(end - len(name), end, inverse[name].encode())])


def _of_expect(source: bytes, expression: Node, random: Random, *, waited: bool) -> Iterator[Alteration]:
    """`expect(x).toBe(y)` of jest and vitest, and chai's `expect(x).to.equal(y)` and `expect(x).to.be.true`."""
    root = expression
    while root.type in ("call_expression", "member_expression"):
        below = root.child_by_field_name("function") or root.child_by_field_name("object")
        if below is None or below.type == "identifier":
            break
        root = below
    chain = text_of(source, expression)[root.end_byte - expression.start_byte :]
    later = _WAITED.search(chain)
    if root.type != "call_expression" or _SNAPSHOT.search(text_of(source, expression)) or (later and not waited):
        return
    if expression.type == "call_expression" and b".not." not in chain:
        function = expression.child_by_field_name("function")
        matcher = function.child_by_field_name("property") if function else None
        arguments = _arguments(expression)
        if matcher is not None and text_of(source, matcher).decode() in _MATCHERS and arguments:
            yield from _other_value(source, (arguments[0],), random)
    if (negation := chain.find(b".not.")) >= 0:
        start = root.end_byte + negation
        yield Alteration("inverse", [ByteEdit(start, start + len(b".not"), b"")])
    else:
        at = root.end_byte + (later.end() if later else 0)
        yield Alteration("inverse", [ByteEdit(at, at, b".not")])


def _arguments(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    found = [node for node in arguments.named_children if node.type != "comment"] if arguments else []
    return [] if any(node.type == "spread_element" for node in found) else found


def _other_value(source: bytes, sides: Sequence[Node], random: Random) -> Iterator[Alteration]:
    """Replace a literal side by another constant; without one, compare the other side with a symbol."""
    for side in sides:
        constants = list(_constants(source, side))
        if constants:
            one = random.choice(constants)
            yield Alteration("value", [ByteEdit(one.start_byte, one.end_byte, _changed(text_of(source, one), random))])
            return
    yield Alteration("value", [ByteEdit(sides[0].start_byte, sides[0].end_byte, OTHER)])


def _constants(source: bytes, node: Node) -> Iterator[Node]:
    if node.type in ("number", "true", "false"):
        if node.type != "number" or re.fullmatch(rb"\d+(?:\.\d+)?", text_of(source, node)):
            yield node
    elif node.type == "string_fragment" or (node.type == "string" and not node.named_children):
        yield node
    elif node.type in ("string", "unary_expression", "array", "object", "pair", "parenthesized_expression"):
        if node.type == "string" and any(child.type == "escape_sequence" for child in node.named_children):
            return
        children = node.named_children[-1:] if node.type == "pair" else node.named_children
        for child in children:
            yield from _constants(source, child)


def _changed(text: bytes, random: Random) -> bytes:
    if text in (b"true", b"false"):
        return b"false" if text == b"true" else b"true"
    if re.fullmatch(rb"\d+", text):
        return str(
            abs(different_number(int(text), random)) if int(text) > 9 else int(text) + random.randint(1, 4)
        ).encode()
    if re.fullmatch(rb"\d+\.\d+", text):
        return str(abs(different_number(float(text), random)) + 0.25).encode()
    if text in (b"''", b'""'):
        return text[:1] + random.choice("aeost").encode() + text[:1]
    return different_text(text.decode("utf-8", "replace"), random).encode()


def text_of(source: bytes, node: Node) -> bytes:
    """The node itself does not have its text, because the parser read it in chunks."""
    return source[node.start_byte : node.end_byte]
