"""Makes copies of Python tests that must pass, or must fail, whenever the original passes, to check the runner.

Only changes with a certain effect are made: an assertion that is always reached is negated, or the value it compares
with is changed. Without one, the copy fails after the test's last statement.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from app.core.python_source import parse_python
from app.verify.launcher.base import (
    Alteration,
    ByteEdit,
    CopiedTests,
    CopiesOfTests,
    LocatedTest,
    different_number,
    different_text,
    written,
)

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")
# Inside these, a failing assertion is not swallowed, and the block is executed once.
_TRANSPARENT = frozenset(
    {"open", "patch", "object", "dict", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile", "app_context"}
    | {"test_request_context", "test_client", "chdir", "override_settings", "freeze_time", "closing", "redirect_stdout"}
    | {"redirect_stderr", "nullcontext", "context", "StringIO", "BytesIO", "setenv", "isolated_filesystem", "connect"}
)
_INVERSE = {
    "assertTrue": "assertFalse",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIn": "assertNotIn",
    "assertIsInstance": "assertNotIsInstance",
    "assertAlmostEqual": "assertNotAlmostEqual",
    "assertRegex": "assertNotRegex",
    "assertGreater": "assertLessEqual",
    "assertGreaterEqual": "assertLess",
}
_INVERSE |= {inverse: name for name, inverse in _INVERSE.items()}
_EQUALITIES = frozenset(
    {"assertEqual", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSetEqual", "assertSequenceEqual"}
    | {"assertMultiLineEqual", "assertCountEqual"}
)
_EXPECTING = {"raises": "Exception", "assertRaises": "Exception", "assertRaisesRegex": "Exception"}
_EXPECTING |= {"warns": "Warning", "assertWarns": "Warning", "assertWarnsRegex": "Warning"}
_ENDING = frozenset({"KeyboardInterrupt", "Exit", "exit", "skip", "BaseException"})
_MATCHER = re.compile(rb"ANY\b|[Aa]pprox|\bIs[A-Z]|[Aa]nything|[Mm]atch|[Mm]ock|\bcall\b|Contains|Partial")
"""May be equal to other things than itself on purpose."""


@dataclass(frozen=True)
class PythonSource:
    """A module's bytes, its tree, and the starts of its lines."""

    content: bytes
    tree: ast.Module
    starts: tuple[int, ...]

    @classmethod
    def of(cls, content: bytes) -> "PythonSource | None":
        """None for what this Python cannot parse, or what is not UTF-8."""
        try:
            content.decode()
        except UnicodeDecodeError:
            return None
        if (tree := parse_python(content)) is None:
            return None
        bom = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        starts = [found.start() for found in _LINE.finditer(content)]
        return cls(content, tree, (bom, *starts[1:]))

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def range(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def text(self, node: ast.expr) -> bytes:
        start, end = self.range(node)
        return self.content[start:end]

    def whole(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
        """From the start of its first decorator's line to the end of its last line."""
        first = min([function.lineno, *(node.lineno for node in function.decorator_list)])
        after = function.end_lineno or function.lineno
        end = self.starts[after] if after < len(self.starts) else len(self.content)
        return self.starts[first - 1], end

    def name_of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
        start, end = self.range(function)
        found = re.compile(rb"def[\s\\]+(" + function.name.encode() + rb")\b").search(self.content, start, end)
        return found.span(1) if found else (start, start)


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that are always executed, as far as that is certain."""
    for statement in body:
        if any(isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue) for node in _inside(statement)):
            return
        yield statement
        if isinstance(statement, ast.With) and all(_transparent(item.context_expr) for item in statement.items):
            yield from _reached(statement.body)


def _inside(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _inside(child)


def _transparent(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and _last_name(expression.func) in _TRANSPARENT


def _last_name(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def _of_assert(source: PythonSource, test: ast.expr, random: Random) -> Iterator[Alteration]:
    if isinstance(test, ast.Tuple):  # always true, and Python warns of it
        return
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        yield from _other_value(source, (test.comparators[0], test.left), random)
    start, end = source.range(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield Alteration("inverse", [ByteEdit(start, end, b"(" + source.text(test.operand) + b")")])
    else:
        yield Alteration("inverse", [ByteEdit(start, start, b"not ("), ByteEdit(end, end, b")")])


def _of_call(source: PythonSource, call: ast.Call, random: Random) -> Iterator[Alteration]:
    if not (isinstance(call.func, ast.Attribute) and _last_name(call.func.value) in ("self", "pytest")):
        return
    name = call.func.attr
    if name in _EXPECTING:
        yield from _of_expecting(source, call)
    if name in _EQUALITIES and len(call.args) >= 2:
        yield from _other_value(source, (call.args[1], call.args[0]), random)
    if name in _INVERSE:
        end = source.range(call.func)[1]
        yield Alteration("inverse", [ByteEdit(end - len(name), end, _INVERSE[name].encode())])


def _of_expecting(source: PythonSource, call: ast.Call) -> Iterator[Alteration]:
    kind = _EXPECTING.get(_last_name(call.func))
    if kind is None or not call.args or isinstance(call.args[0], ast.Starred):
        return
    expected = call.args[0]
    names = [expected] if not isinstance(expected, ast.Tuple) else expected.elts
    if all(_last_name(one) and _last_name(one) not in _ENDING for one in names):
        yield Alteration("inverse", [ByteEdit(*source.range(expected), f"type('Other', ({kind},), {{}})".encode())])


def _other_value(source: PythonSource, sides: tuple[ast.expr, ast.expr], random: Random) -> Iterator[Alteration]:
    """Replace a literal side by another constant; without one, compare the other side with an object."""
    for side in sides:
        constants = list(_constants(side))
        if constants:
            chosen = random.choice(constants)
            text = repr(_changed(ast.literal_eval(chosen), random)).encode()
            yield Alteration("value", [ByteEdit(*source.range(chosen), text)])
            return
    if not any(_MATCHER.search(source.text(side)) for side in sides):
        yield Alteration("value", [ByteEdit(*source.range(sides[0]), b"object()")])


def _constants(node: ast.expr) -> Iterator[ast.expr]:
    """Numbers and texts that are part of a literal value."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        if isinstance(node.operand.value, int | float):
            yield node
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, str, bytes):
        yield node
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        for element in node.elts:
            yield from _constants(element)
    elif isinstance(node, ast.Dict) and len({ast.dump(key) for key in node.keys if key}) == len(node.keys):
        for value in node.values:
            yield from _constants(value)


def _changed(value: object, random: Random) -> object:
    if isinstance(value, int | float):
        return different_number(value, random)
    if isinstance(value, bytes):
        return different_text(value.decode("latin-1"), random).encode("latin-1")
    return different_text(str(value), random)


_MAIN = re.compile(rb"if __name__ == ['\"]__main__['\"]")
# A test that may notice its own name, its file's, or its text: it is not renamed.
_NOTICES = re.compile(
    rb"__file__|__name__|__module__|__qualname__|\b(?:inspect|pickle|logging|logger|traceback|subprocess|doctest)\b"
    rb"|\b(?:multiprocessing|request|caplog|capfd|assertLogs|dependency|vcr|cassette|warns|stacklevel)\b|snapshot"
    rb"|datadir|regression|approv|golden|_testMethodName|\.id\(\)|getsource|_getframe|currentframe|sys\.modules"
)
_CONFTEST_NOTICES = re.compile(
    rb"nodeid|\.name\b|fspath|originalname|\.path\b|\.module\b|\.function\b|__file__|\bitem\b"
)


class FunctionLocation(NamedTuple):
    """Where a test is written: file, classes around it, name, and parameters (`[1-a]`)."""

    path: str
    classes: tuple[str, ...]
    name: str
    parameters: str = ""


class _Function(NamedTuple):
    source: PythonSource
    place: FunctionLocation
    function: ast.FunctionDef | ast.AsyncFunctionDef


class PythonCopies(CopiesOfTests[_Function]):
    """Makes copies of chosen tests. `contents` has their files, and the conftest.py files around them."""

    between = b"\n"

    def __init__(self, pytest: bool, modules: str, contents: Mapping[str, bytes], random: Random) -> None:
        words = {word.decode() for content in contents.values() for word in re.findall(rb"\b[a-z_]{8,}\b", content)}
        super().__init__(contents, random, words)
        self._pytest, self._modules = pytest, modules
        self._sources: dict[str, PythonSource | None] = {}

    def locate(self, name: str) -> LocatedTest[_Function] | None:
        place = self.place(name)
        if place is None:
            return None
        if place.path not in self._sources:
            self._sources[place.path] = PythonSource.of(self.contents[place.path])
        source = self._sources[place.path]
        function = function_at(source.tree, place) if source is not None else None
        if source is None or function is None:
            return None
        inner = _Function(source, place, function)
        return LocatedTest(place.path, *source.whole(function), source.name_of(function), inner)

    def place(self, name: str) -> FunctionLocation | None:
        if self._pytest:
            whole, bracket, rest = name.partition("[")
            path, *classes = whole.split("::")
            if not classes or path not in self.contents:
                return None
            return FunctionLocation(path, tuple(classes[:-1]), classes[-1], bracket + rest)
        parts = name.split(".")
        start = f"{self._modules}/" if self._modules else ""
        for end in range(len(parts) - 2, 0, -1):  # the module itself before the packages around it
            for suffix in (".py", "/__init__.py"):
                path = f"{start}{'/'.join(parts[:end])}{suffix}"
                if path in self.contents:
                    return FunctionLocation(path, tuple(parts[end:-1]), parts[-1])
        return None

    def _id(self, place: FunctionLocation) -> str:
        if self._pytest:
            return "::".join([place.path, *place.classes, place.name]) + place.parameters
        path = place.path.removeprefix(f"{self._modules}/") if self._modules else place.path
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return ".".join([module, *place.classes, place.name])

    def notices(self, path: str, tests: Sequence[LocatedTest[_Function]]) -> bool:
        stem = PurePosixPath(path).stem.encode()
        own = _MAIN.sub(b"", self.contents[path])
        around = b"".join(text for path, text in self.contents.items() if path.endswith("conftest.py"))
        names = {re.compile(rb"\b%b\b" % test.inner.function.name.encode()) for test in tests}
        return bool(
            _NOTICES.search(own)
            or _CONFTEST_NOTICES.search(around)
            or stem in own + around
            or path.endswith("__init__.py")
            or any(len(name.findall(own)) > 1 or name.search(around) for name in names)
        )

    def renamed_id(self, original: str, test: LocatedTest[_Function], path: str, name: str) -> str:
        place = self.place(original) or test.inner.place  # with its own parameters
        return self._id(place._replace(path=path, name=name))

    def alterations(self, test: LocatedTest[_Function]) -> Iterator[Alteration]:
        source, random = test.inner.source, self.random
        for statement in _reached(test.inner.function.body):
            if isinstance(statement, ast.Assert):
                yield from _of_assert(source, statement.test, random)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                yield from _of_call(source, statement.value, random)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    if isinstance(item.context_expr, ast.Call):
                        yield from _of_expecting(source, item.context_expr)

    def failing_end(self, test: LocatedTest[_Function]) -> ByteEdit:
        """A failing statement after the last one, or before the first if the test may end early."""
        source, function = test.inner.source, test.inner.function
        one, other = self.numbers()
        text = f"assert {one} == {other}" if self._pytest else f"self.assertEqual({one}, {other})"
        first, last = function.body[0], function.body[-1]
        if list(_reached(function.body))[-1:] == [last] and not isinstance(last, ast.Return):
            start, end = source.range(last)
            indentation = source.content[source.starts[last.lineno - 1] : start]
            if last.lineno == function.lineno or indentation.strip():  # behind something else on its line
                return ByteEdit(end, end, f"; {text}".encode())
            return ByteEdit(end, end, b"\n" + indentation + text.encode())
        start = source.range(first)[0]
        if first.lineno == function.lineno:
            return ByteEdit(start, start, f"{text}; ".encode())
        indentation = source.content[source.starts[first.lineno - 1] : start]
        return ByteEdit(start, start, text.encode() + b"\n" + indentation)

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        places = [place for name in ids if (place := self.place(name))]
        if not places:
            return CopiedTests()
        path, name = self._fresh_path(places[0].path, "test_x"), f"test_{self.names.fresh()}"
        values = self.random.sample(range(2, 60), 3)
        wrong = sum(values) + self.random.randint(1, 9)
        listed, thing = f"sum({values})", self.names.fresh("")
        if self._pytest:
            text = f"def {name}():\n    {thing} = {listed}\n    assert {thing} == {wrong}\n"
            classes: tuple[str, ...] = ()
        else:
            classes = (self.names.fresh(" ").title().replace(" ", ""),)
            text = (
                f"from unittest import TestCase\n\n\nclass {classes[0]}(TestCase):\n    def {name}(self):\n"
                f"        {thing} = {listed}\n        self.assertEqual({thing}, {wrong})\n"
            )
        return CopiedTests(
            files=(written(path, text.encode()),), failing=(self._id(FunctionLocation(path, classes, name)),)
        )

    def fresh_path(self, path: str) -> str:
        return self._fresh_path(path, PurePosixPath(path).stem)

    def _fresh_path(self, path: str, stem: str) -> str:
        fresh = self.names.fresh()
        name = f"{fresh}_test" if stem.endswith("_test") else f"{stem.partition('_')[0]}_{fresh}"
        return str(PurePosixPath(path).with_name(f"{name}.py"))

    def fresh_name(self, test: LocatedTest[_Function]) -> str:
        name = test.inner.function.name
        prefix, underscore, _ = name.partition("_")
        if underscore and prefix:
            return f"{prefix}_{self.names.fresh()}"
        return f"test{self.names.fresh(' ').title().replace(' ', '')}" if name.startswith("test") else name + "_"


def function_at(tree: ast.Module, place: FunctionLocation) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    body: Sequence[ast.stmt] = tree.body
    for wanted in place.classes:
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == wanted]
        if not classes:
            return None
        body = classes[-1].body
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    found = [node for node in functions if node.name == place.name]
    generates = any(isinstance(node, ast.Yield | ast.YieldFrom) for each in found for node in _own_nodes(each))
    return found[-1] if found and not generates else None


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)
