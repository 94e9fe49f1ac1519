"""Makes copies of Go and Rust tests that must pass, or must fail, whenever the original passes."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from tree_sitter import Node

from app.repo.grammars import with_tree
from app.verify.launcher.base import (
    Alteration,
    ByteEdit,
    CopiedTests,
    CopiesOfTests,
    LocatedTest,
    always_reached,
    different_digits,
    different_text,
    written,
)

_ENDING = frozenset({"return_statement", "return_expression", "goto_statement", "break_statement", "break_expression"})
_NUMBER = re.compile(rb"\d+")
_STRINGS = frozenset({"interpreted_string_literal", "string_literal"})
_CONTENTS = frozenset({"interpreted_string_literal_content", "string_content"})
_INTEGERS = frozenset({"int_literal", "integer_literal"})


class Place(NamedTuple):
    """Where a test is written, according to its id: `within` are the modules around it in the file."""

    path: str
    name: str
    within: tuple[str, ...] = ()


class Function(NamedTuple):
    """A test function and its block."""

    node: Node
    body: Node


class CompiledCopies(CopiesOfTests[Function]):
    """Makes copies of chosen tests in one language."""

    moves = True
    language = ""
    may_notice = re.compile(rb"$^")

    def __init__(self, contents: Mapping[str, bytes], directory: str, random: Random) -> None:
        super().__init__(contents, random)
        self.directory = directory

    @abstractmethod
    def places(self, name: str) -> Iterator[Place]:
        """Where the test of an id may be written."""

    @abstractmethod
    def find(self, content: bytes, root: Node, place: Place) -> tuple[int, Function] | None:
        """The test, and the start of what belongs to it."""

    def locate(self, name: str) -> LocatedTest[Function] | None:
        for place in self.places(name):
            content = self.contents.get(place.path)
            root = with_tree(self.language, content, lambda tree: tree.root_node) if content is not None else None
            if content is not None and root is not None and (found := self.find(content, root, place)):
                start, function = found
                name_node = function.node.child_by_field_name("name") or function.node
                span = (name_node.start_byte, name_node.end_byte)
                return LocatedTest(place.path, start, function.node.end_byte, span, function)
        return None

    def notices(self, path: str, tests: Sequence[LocatedTest[Function]]) -> bool:
        return self.may_notice.search(self.contents[path]) is not None

    def other_value(self, content: bytes, sides: Iterable[Node]) -> Iterator[Alteration]:
        """Another value for the first that is a number or a text, written in the same way."""
        for side in sides:
            inner = side.named_children[0] if side.type in _STRINGS and side.named_children else side
            text = content[inner.start_byte : inner.end_byte]
            digits = _NUMBER.fullmatch(text) is not None
            if inner.type in _CONTENTS or (digits and inner.type in _INTEGERS):
                words = text.decode("utf-8", "replace")
                other = different_digits(text, self.random) if digits else different_text(words, self.random).encode()
                yield Alteration("value", [ByteEdit(inner.start_byte, inner.end_byte, other)])
                return


def reached(block: Node) -> Iterator[Node]:
    return always_reached(block, _ENDING, frozenset({"func_literal", "closure_expression", "function_item"}))


_SYSTEMS = re.compile(r"_(?:linux|windows|darwin|unix|freebsd|js|wasm|amd64|arm64|386|arm)_test\.go$")
_GO_INVERSE = {"Equal": "NotEqual", "True": "False", "Nil": "NotNil", "NoError": "Error", "Contains": "NotContains"}
_GO_INVERSE |= {"Empty": "NotEmpty", "Zero": "NotZero"}
_GO_INVERSE |= {inverse: name for name, inverse in _GO_INVERSE.items()}


class GoCopies(CompiledCopies):
    """Ids are `package::Test`."""

    language = "go"
    may_notice = re.compile(
        rb"\.Name\(\)|runtime\.|os\.Args|-test\.|golden|_test\.go|os/exec|testing\.M\b|snapshot|approv"
    )

    def places(self, name: str) -> Iterator[Place]:
        package, _, test = name.partition("::")
        for path in self.contents:
            if path.endswith("_test.go") and self._package(path) == package:
                yield Place(path, test.partition("/")[0])

    def _package(self, path: str) -> str:
        module = re.search(rb"(?m)^module\s+\"?([^\s\"]+)", self.contents.get(self._inside("go.mod"), b""))
        below = str(PurePosixPath(path).parent).removeprefix(self.directory).strip("/.")
        return "/".join(part for part in (module[1].decode() if module else "", below) if part)

    def _inside(self, name: str) -> str:
        return f"{self.directory}/{name}" if self.directory else name

    def renamed_id(self, original: str, test: LocatedTest[Function], path: str, name: str) -> str:
        return f"{original.partition('::')[0]}::{name}"

    def fresh_name(self, test: LocatedTest[Function] | None = None) -> str:
        return "Test" + self.names.fresh(" ").title().replace(" ", "")

    def fresh_path(self, path: str) -> str:
        return path if _SYSTEMS.search(path) else str(PurePosixPath(path).with_name(f"{self.names.fresh()}_test.go"))

    def find(self, content: bytes, root: Node, place: Place) -> tuple[int, Function] | None:
        for node in root.named_children:
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if node.type != "function_declaration" or name is None or body is None or not body.named_children:
                continue
            if content[name.start_byte : name.end_byte].decode() == place.name and self._testing(content, node):
                return node.start_byte, Function(node, body.named_children[0])
        return None

    def _testing(self, content: bytes, node: Node) -> str:
        """The name of the parameter that failures are reported to."""
        parameters = node.child_by_field_name("parameters")
        text = content[parameters.start_byte : parameters.end_byte] if parameters else b""
        found = re.fullmatch(rb"\(\s*(\w+) \*testing\.T\s*\)", text)
        return found[1].decode() if found else ""

    def alterations(self, test: LocatedTest[Function]) -> Iterator[Alteration]:
        content, function = self.contents[test.path], test.inner
        failing = re.compile(rb"%b\.(?:Error|Fatal)f?\(" % self._testing(content, function.node).encode())
        for statement in reached(function.body):
            if statement.type == "if_statement" and statement.child_by_field_name("alternative") is None:
                yield from self._of_if(content, statement, failing)
            elif statement.type == "expression_statement" and statement.named_children[0].type == "call_expression":
                yield from self._of_call(content, statement.named_children[0])

    def _of_if(self, content: bytes, statement: Node, failing: re.Pattern[bytes]) -> Iterator[Alteration]:
        condition = statement.child_by_field_name("condition")
        consequence = statement.child_by_field_name("consequence")
        if condition is None or consequence is None or not consequence.named_children:
            return
        failures = [one for one in reached(consequence.named_children[0]) if failing.match(content, one.start_byte)]
        if not failures:
            return
        start, end = condition.start_byte, condition.end_byte
        yield Alteration("inverse", [ByteEdit(start, start, b"!("), ByteEdit(end, end, b")")])
        operator = condition.child_by_field_name("operator")
        if condition.type == "binary_expression" and operator is not None and operator.type == "!=":
            sides = [condition.child_by_field_name("right"), condition.child_by_field_name("left")]
            yield from self.other_value(content, [side for side in sides if side is not None])

    def _of_call(self, content: bytes, call: Node) -> Iterator[Alteration]:
        function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if function is None or arguments is None:
            return
        found = re.fullmatch(rb"(?:assert|require)\.(\w+)", content[function.start_byte : function.end_byte])
        name = found[1].decode() if found else ""
        if name in ("Equal", "EqualValues", "Exactly"):
            yield from self.other_value(content, arguments.named_children[:3])
        if name in _GO_INVERSE:
            end = function.end_byte
            yield Alteration("inverse", [ByteEdit(end - len(name), end, _GO_INVERSE[name].encode())])

    def failing_end(self, test: LocatedTest[Function]) -> ByteEdit:
        content, function = self.contents[test.path], test.inner
        one, other = self.numbers()
        testing = self._testing(content, function.node)
        text = f'if {one} != {other} {{ {testing}.Fatalf("got %d", {one}) }}'.encode()
        whole = len(list(reached(function.body))) == len(function.body.named_children)
        at = function.body.end_byte if whole else function.body.start_byte
        return ByteEdit(at, at, b"\n\t" + text if whole else text + b"\n\t")

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        place = next((place for name in ids for place in self.places(name)), None)
        if place is None:
            return CopiedTests()
        package = re.search(rb"(?m)^package\s+(\w+)", self.contents[place.path])
        name, path = self.fresh_name(), str(PurePosixPath(place.path).with_name(f"{self.names.fresh()}_test.go"))
        one, other = self.numbers()
        text = (
            f'package {package[1].decode() if package else "main"}\n\nimport "testing"\n\n'
            f"func {name}(t *testing.T) {{\n"
            f'\tvalue := {one}\n\tif value != {other} {{\n\t\tt.Errorf("got %d", value)\n\t}}\n}}\n'
        )
        failing = f"{next(n for n in ids for p in self.places(n)).partition('::')[0]}::{name}"
        return CopiedTests(files=(written(path, text.encode()),), failing=(failing,))


class RustCopies(CompiledCopies):
    """Ids are `src/lib.rs::module::test` or `tests/file.rs::test`, or the test's name alone.

    The path is relative to the package, which is any member of a workspace.
    """

    language = "rust"
    may_notice = re.compile(
        rb"module_path!|\bfile!|\bline!|thread::current|type_name|insta::|snapshot|env::args|current_exe|trybuild|golden"
    )

    def places(self, name: str) -> Iterator[Place]:
        for path, test, within in self.within_package(name):
            top = str(PurePosixPath(self.directory, path))
            below = f"{self.directory}/" if self.directory else ""
            members = (one for one in self.contents if one.startswith(below) and one.endswith(f"/{path}"))
            for found in dict.fromkeys((top, *sorted(members))):
                yield Place(found, test, within)

    def within_package(self, name: str) -> Iterator[Place]:
        """The same with paths relative to the package."""
        section, parts = rust_parts(name)
        top = section or "src/lib.rs"
        yield Place(top, parts[-1], tuple(parts[:-1]))
        for end in range(1, len(parts)):
            stem = PurePosixPath(top).parent.joinpath(*parts[:end])
            for path in (f"{stem}.rs", f"{stem}/mod.rs"):
                yield Place(path, parts[-1], tuple(parts[end:-1]))

    def renamed_id(self, original: str, test: LocatedTest[Function], path: str, name: str) -> str:
        section, parts = rust_parts(original)
        if section.startswith("tests/"):
            section = f"tests/{PurePosixPath(path).name}"
        return "::".join([*([section] if section else []), *parts[:-1], name])

    def fresh_name(self, test: LocatedTest[Function] | None = None) -> str:
        return self.names.fresh()

    def fresh_path(self, path: str) -> str:
        parent = PurePosixPath(path).parent
        return str(parent / f"{self.names.fresh()}.rs") if parent.name == "tests" else path

    def find(self, content: bytes, root: Node, place: Place) -> tuple[int, Function] | None:
        block = root
        for module in place.within:
            inner = [
                body
                for node in block.named_children
                if node.type == "mod_item" and self._named(content, node) == module
                if (body := node.child_by_field_name("body")) is not None
            ]
            if not inner:
                return None
            block = inner[0]
        attributes: list[Node] = []
        for node in block.named_children:
            if node.type in ("attribute_item", "line_comment", "block_comment"):
                attributes.append(node)
                continue
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if node.type == "function_item" and name and body and self._named(content, node) == place.name:
                attribute_text = b"".join(content[one.start_byte : one.end_byte] for one in attributes)
                if b"test" not in attribute_text or b"should_panic" in attribute_text:
                    return None
                start = min([node.start_byte, *(one.start_byte for one in attributes)])
                return start, Function(node, body)
            attributes = []
        return None

    def _named(self, content: bytes, node: Node) -> str:
        name = node.child_by_field_name("name")
        return content[name.start_byte : name.end_byte].decode("utf-8", "replace") if name else ""

    def alterations(self, test: LocatedTest[Function]) -> Iterator[Alteration]:
        content, function = self.contents[test.path], test.inner
        for statement in reached(function.body):
            macro = statement.named_children[0] if statement.type == "expression_statement" else statement
            tokens = next((node for node in macro.named_children if node.type == "token_tree"), None)
            named = macro.child_by_field_name("macro")
            if macro.type != "macro_invocation" or tokens is None or named is None:
                continue
            name = content[named.start_byte : named.end_byte]
            arguments = _arguments(tokens)
            if name == b"assert" and arguments:
                start, end = arguments[0][0].start_byte, arguments[0][-1].end_byte
                yield Alteration("inverse", [ByteEdit(start, start, b"!("), ByteEdit(end, end, b")")])
            elif name in (b"assert_eq", b"assert_ne") and len(arguments) >= 2:
                other = b"assert_ne" if name == b"assert_eq" else b"assert_eq"
                yield Alteration("inverse", [ByteEdit(named.start_byte, named.end_byte, other)])
                if name == b"assert_eq":
                    sides = (argument[0] for argument in (arguments[1], arguments[0]) if len(argument) == 1)
                    yield from self.other_value(content, sides)

    def failing_end(self, test: LocatedTest[Function]) -> ByteEdit:
        one, other = self.numbers()
        at = test.inner.body.start_byte + 1
        return ByteEdit(at, at, f"\n    assert_eq!({one}, {other});".encode())

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        places = (place for name in ids for place in self.places(name) if place.path in self.contents)
        package = next((_package_of(place.path) for place in places), self.directory)
        manifest = self.contents.get(str(PurePosixPath(package, "Cargo.toml")), b"")
        if b"[package]" not in manifest or b"autotests" in manifest:
            return CopiedTests()
        name, file = self.names.fresh(), f"tests/{self.names.fresh()}.rs"
        one, other = self.numbers()
        text = f"#[test]\nfn {name}() {{\n    let value = {one};\n    assert_eq!(value, {other});\n}}\n"
        path = str(PurePosixPath(package, file))
        return CopiedTests(files=(written(path, text.encode()),), failing=(f"{file}::{name}",))


def _package_of(path: str) -> str:
    """The directory of the Rust package that a file in `src` or `tests` belongs to."""
    return re.sub(r"(?:^|/)(?:src|tests)/.*$", "", path)


def rust_parts(name: str) -> tuple[str, list[str]]:
    """The section of an id (`src/lib.rs`), empty if it has none, and the parts of the test's name."""
    parts = name.split("::")
    return (parts[0], parts[1:]) if parts[0].endswith(".rs") and len(parts) > 1 else ("", parts)


def _arguments(tokens: Node) -> list[list[Node]]:
    """The tokens of a macro's arguments, split at its own commas."""
    found: list[list[Node]] = [[]]
    for token in tokens.children[1:-1]:
        if token.type == ",":
            found.append([])
        elif token.type not in ("line_comment", "block_comment"):
            found[-1].append(token)
    return [argument for argument in found if argument]
