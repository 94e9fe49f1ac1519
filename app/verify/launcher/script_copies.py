"""Makes copies of JavaScript and TypeScript tests that must pass, or must fail, whenever the original passes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from tree_sitter import Node

from app.repo.grammars import language_of, with_tree
from app.verify.frameworks import FrameworkName
from app.verify.launcher.base import CopiedTests
from app.verify.launcher.copies import (
    Alteration,
    ByteEdit,
    CopiesOfTests,
    LocatedTest,
    always_reached,
    different_number,
    different_text,
    written,
)
from app.verify.sources.parsed_sources import text_of

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
    return always_reached(body, _ENDING, _FUNCTIONS) if body.type == "statement_block" else iter([body])


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


_TESTS = frozenset({b"test", b"it", b"specify"})
_SUITES = frozenset({b"describe", b"suite", b"context"})
# A test that may notice its own name, its file's, or its text: it is not renamed.
_NOTICES = re.compile(
    rb"__filename|import\.meta|[sS]napshot|currentTestName|getState|fullTitle|this\.test\b|\.stack\b|process\.argv"
    rb"|\b(?:t|context|task|ctx)\.name\b|golden|cassette|nock\.back|child_process|\.only\b"
)
_STEM = re.compile(r"^(?P<start>test-|test_)?(?P<name>.*?)(?P<end>(?:[._-](?:test|spec))?\.[cm]?[jt]sx?)$")


class _Call(NamedTuple):
    """A call of `test`: its statement, its title's string, its function's block or expression."""

    titles: tuple[str, ...]
    statement: Node
    title: Node
    body: Node


class ScriptCopies(CopiesOfTests[_Call]):
    """Makes copies of chosen tests of JavaScript and TypeScript. `contents` has their files."""

    between = b";\n"

    def __init__(self, framework: FrameworkName, contents: Mapping[str, bytes], random: Random) -> None:
        super().__init__(contents, random)
        self._framework = framework
        self._separator = " " if framework == "mocha" else " > "
        self._by_id: dict[str, dict[str, list[_Call]]] = {}

    def locate(self, name: str) -> LocatedTest[_Call] | None:
        """If a title occurs twice, it is unknown which of the two was meant."""
        path = name.partition("::")[0]
        language = language_of(path)
        if path not in self.contents or language not in ("javascript", "typescript", "tsx"):
            return None
        if path not in self._by_id:
            found = self._by_id.setdefault(path, {})
            root = with_tree(language, self.contents[path], lambda tree: tree.root_node)
            for one in _tests(self.contents[path], root, ()) if root is not None else ():
                found.setdefault(f"{path}::{self._separator.join(one.titles)}", []).append(one)
        calls = self._by_id[path].get(name, [])
        if len(calls) != 1:
            return None
        statement, title = calls[0].statement, calls[0].title
        span = (title.start_byte, title.end_byte)
        return LocatedTest(path, statement.start_byte, statement.end_byte, span, calls[0])

    def notices(self, path: str, tests: Sequence[LocatedTest[_Call]]) -> bool:
        stem = _STEM.match(PurePosixPath(path).name)
        content = self.contents[path]
        return bool(_NOTICES.search(content)) or (stem is not None and f"{stem['name']}.test".encode() in content)

    def renamed_id(self, original: str, test: LocatedTest[_Call], path: str, name: str) -> str:
        titles = [*test.inner.titles[:-1], name.strip("'")]
        return f"{path}::{self._separator.join(titles)}"

    def fresh_name(self, test: LocatedTest[_Call]) -> str:
        return f"'{self.names.fresh(' ')}'"

    def alterations(self, test: LocatedTest[_Call]) -> Iterator[Alteration]:
        return alterations(self.contents[test.path], test.inner.body, self.random, node=self._framework == "node")

    def failing_end(self, test: LocatedTest[_Call]) -> ByteEdit:
        return failing_end(self.contents[test.path], test.inner.body, self.random)

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        path = ids[0].partition("::")[0]
        content = self.contents.get(path, b"")
        title, numbers = self.names.fresh(" "), self.random.sample(range(2, 60), 3)
        wrong = sum(numbers) + self.random.randint(1, 9)
        old = path.endswith((".cjs", ".cts")) or not re.search(rb"^\s*import\b", content, re.MULTILINE)
        required = old and not path.endswith((".mjs", ".mts"))
        node = "const test = require('node:test');\n" if required else "import test from 'node:test';\n"
        head = {"node": node, "vitest": 'import { test } from "vitest";\n'}.get(self._framework, "")
        call = "it" if self._framework == "mocha" else "test"
        text = (
            f"{head}\n{call}('{title}', () => {{\n  const value = {' + '.join(map(str, numbers))};\n"
            f"  if (value !== {wrong}) throw new Error('expected {wrong}');\n}});\n"
        )
        fresh = self.fresh_path(path)
        return CopiedTests(files=(written(fresh, text.encode()),), failing=(f"{fresh}::{title}",))

    def fresh_path(self, path: str) -> str:
        name = PurePosixPath(path).name
        found = _STEM.match(name)
        start, end = (found["start"] or "", found["end"]) if found else ("", PurePosixPath(path).suffix)
        return str(PurePosixPath(path).with_name(f"{start}{self.names.fresh('-')}{end}"))


def _tests(source: bytes, node: Node, around: tuple[str, ...]) -> Iterator[_Call]:
    """Every call of `test` as a statement, with the titles around it."""
    for statement in node.named_children:
        if statement.type != "expression_statement" or not statement.named_children:
            continue
        call = statement.named_children[0]
        if call.type == "await_expression" and call.named_children:
            call = call.named_children[0]
        title, body = _title(call), body_of(call) if call.type == "call_expression" else None
        function = call.child_by_field_name("function")
        if title is None or body is None or function is None:
            continue
        names = set(text_of(source, function).split(b"."))
        titles = (*around, text_of(source, title)[1:-1].decode("utf-8", "replace"))
        if names & _TESTS:
            yield _Call(titles, statement, title, body)
        if names & (_TESTS | _SUITES):
            yield from _tests(source, body, titles)


def _title(call: Node) -> Node | None:
    arguments = call.child_by_field_name("arguments") if call.type == "call_expression" else None
    first = next(iter(arguments.named_children), None) if arguments else None
    if first is None or first.type not in ("string", "template_string"):
        return None
    plain = all(child.type == "string_fragment" for child in first.named_children)
    return first if plain else None
