"""Makes copies of Python tests that must pass, or must fail, whenever the original passes, to check the runner.

Only changes with a certain effect are made: an assertion that is always reached is negated, or the value it compares
with is changed. Without one, the copy fails after the test's last statement.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from app.verify.launcher.base import CopiedTests
from app.verify.launcher.edits import (
    Alteration,
    ByteEdit,
    CopyNames,
    apply_edits,
    chosen,
    different_number,
    different_text,
    joined,
    written,
)

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")
# Inside these, a failing assertion is not swallowed, and the block is executed once.
_TRANSPARENT = frozenset(
    {
        "open",
        "patch",
        "object",
        "dict",
        "TemporaryDirectory",
        "NamedTemporaryFile",
        "TemporaryFile",
        "app_context",
        "test_request_context",
        "test_client",
        "chdir",
        "override_settings",
        "freeze_time",
        "closing",
        "redirect_stdout",
        "redirect_stderr",
        "nullcontext",
        "context",
        "StringIO",
        "BytesIO",
        "setenv",
        "isolated_filesystem",
        "connect",
    }
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
    {
        "assertEqual",
        "assertListEqual",
        "assertTupleEqual",
        "assertDictEqual",
        "assertSetEqual",
        "assertSequenceEqual",
        "assertMultiLineEqual",
        "assertCountEqual",
    }
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
            content.decode("utf-8")
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
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


def alterations(
    source: PythonSource, function: ast.FunctionDef | ast.AsyncFunctionDef, random: Random
) -> Iterator[Alteration]:
    for statement in _reached(function.body):
        if isinstance(statement, ast.Assert):
            yield from _of_assert(source, statement.test, random)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from _of_call(source, statement.value, random)
        elif isinstance(statement, ast.With):
            for item in statement.items:
                if isinstance(item.context_expr, ast.Call):
                    yield from _of_expecting(source, item.context_expr)


def failing_end(
    source: PythonSource, function: ast.FunctionDef | ast.AsyncFunctionDef, random: Random, *, method: bool
) -> ByteEdit:
    """A failing statement after the last one, or before the first if the test may end early."""
    one, other = random.sample(range(2, 99), 2)
    text = f"self.assertEqual({one}, {other})" if method else f"assert {one} == {other}"
    reached = list(_reached(function.body))
    last = function.body[-1]
    if reached[-1:] == [last] and not isinstance(last, ast.Return):
        start, end = source.range(last)[0], source.range(last)[1]
        if last.lineno == function.lineno:
            return ByteEdit(end, end, f"; {text}".encode())
        indentation = source.content[source.starts[last.lineno - 1] : start]
        if indentation.strip():  # behind another statement on its line
            return ByteEdit(end, end, f"; {text}".encode())
        return ByteEdit(end, end, b"\n" + indentation + text.encode())
    start = source.range(function.body[0])[0]
    if function.body[0].lineno == function.lineno:
        return ByteEdit(start, start, f"{text}; ".encode())
    indentation = source.content[source.starts[function.body[0].lineno - 1] : start]
    return ByteEdit(start, start, text.encode() + b"\n" + indentation)


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


ALTERED_COPIES = 2
"""Maximum number of altered copies of one test."""

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


@dataclass
class _CopiedFile:
    """A test file with the chosen tests in it: id, place and function of each."""

    path: str
    source: PythonSource
    tests: list[tuple[str, FunctionLocation, ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=list)


@dataclass
class PythonCopies:
    """Makes copies of chosen tests. `contents` has their files, and the conftest.py files around them."""

    pytest: bool
    modules: str
    contents: Mapping[str, bytes]
    random: Random

    def __post_init__(self) -> None:
        words = {
            word.decode() for content in self.contents.values() for word in re.findall(rb"\b[a-z_]{8,}\b", content)
        }
        self._names = CopyNames(self.random, words)

    def renamed(self, ids: Sequence[str]) -> CopiedTests:
        """Renamed copies, unchanged and altered, in new files; in place if the test may notice its name."""
        files = self._files(ids)
        copies = [self._in_place(file) if self._notices(file) else self._elsewhere(file) for file in files]
        return joined([self.plain_failure(ids), *copies])

    def in_place(self, ids: Sequence[str]) -> CopiedTests:
        """Altered copies under their own names, in a separate run."""
        return joined([self.plain_failure(ids), *(self._in_place(file) for file in self._files(ids))])

    def _files(self, ids: Sequence[str]) -> list[_CopiedFile]:
        files: dict[str, _CopiedFile] = {}
        for name in ids:
            place = self.place(name)
            if place is None:
                continue
            if place.path not in files:
                source = PythonSource.of(self.contents[place.path])
                if source is None:
                    continue
                files[place.path] = _CopiedFile(place.path, source)
            function = function_at(files[place.path].source.tree, place)
            if function is not None:
                files[place.path].tests.append((name, place, function))
        return [file for file in files.values() if file.tests]

    def place(self, name: str) -> FunctionLocation | None:
        if self.pytest:
            whole, bracket, rest = name.partition("[")
            path, *classes = whole.split("::")
            if not classes or path not in self.contents:
                return None
            return FunctionLocation(path, tuple(classes[:-1]), classes[-1], bracket + rest)
        parts = name.split(".")
        start = f"{self.modules}/" if self.modules else ""
        for end in range(len(parts) - 2, 0, -1):  # the module itself before the packages around it
            for suffix in (".py", "/__init__.py"):
                path = f"{start}{'/'.join(parts[:end])}{suffix}"
                if path in self.contents:
                    return FunctionLocation(path, tuple(parts[end:-1]), parts[-1])
        return None

    def _id(self, place: FunctionLocation) -> str:
        if self.pytest:
            return "::".join([place.path, *place.classes, place.name]) + place.parameters
        path = place.path.removeprefix(f"{self.modules}/") if self.modules else place.path
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return ".".join([module, *place.classes, place.name])

    def _notices(self, file: _CopiedFile) -> bool:
        stem = PurePosixPath(file.path).stem.encode()
        own = _MAIN.sub(b"", self.contents[file.path])
        around = b"".join(text for path, text in self.contents.items() if path.endswith("conftest.py"))
        names = {re.compile(rb"\b%b\b" % place.name.encode()) for _, place, _ in file.tests}
        return bool(
            _NOTICES.search(own)
            or _CONFTEST_NOTICES.search(around)
            or stem in own + around
            or file.path.endswith("__init__.py")
            or any(len(name.findall(own)) > 1 or name.search(around) for name in names)
        )

    def _elsewhere(self, file: _CopiedFile) -> CopiedTests:
        path = self._fresh_path(file.path)
        edits: list[ByteEdit] = []
        same, altered, done = dict[str, str](), dict[str, str](), dict[ast.AST, tuple[str, list[str]]]()
        for name, place, function in file.tests:
            if function not in done:  # several ids may be one function with other parameters
                done[function] = self._add_copies(file.source, function, edits)
            copy, altered_names = done[function]
            same[self._id(place._replace(path=path, name=copy))] = name
            altered |= {self._id(place._replace(path=path, name=altered_name)): name for altered_name in altered_names}
        return CopiedTests(files=(written(path, apply_edits(file.source.content, edits)),), same=same, altered=altered)

    def _add_copies(
        self, source: PythonSource, function: ast.FunctionDef | ast.AsyncFunctionDef, edits: list[ByteEdit]
    ) -> tuple[str, list[str]]:
        """Rename a test, and put altered ones before or after it; returns all their names."""
        renaming = source.name_of(function)
        start, end = source.whole(function)
        copy, altered_names = self._fresh_name(function.name), list[str]()
        for change in self._changes(source, function)[:ALTERED_COPIES]:
            altered_name = self._fresh_name(function.name)
            text = apply_edits(source.content, [*change, ByteEdit(*renaming, altered_name.encode())], start, end)
            at = self.random.choice((start, end))
            edits.append(ByteEdit(at, at, text + b"\n" if at == start else b"\n" + text))
            altered_names.append(altered_name)
        edits.append(ByteEdit(*renaming, copy.encode()))
        return copy, altered_names

    def _in_place(self, file: _CopiedFile) -> CopiedTests:
        edits: list[ByteEdit] = []
        altered: dict[str, str] = {}
        done: set[ast.AST] = set()
        for name, _, function in file.tests:
            if function not in done:
                edits += self._changes(file.source, function)[0]
                done.add(function)
            altered[name] = name
        return CopiedTests(files=(written(file.path, apply_edits(file.source.content, edits)),), altered=altered)

    def _changes(self, source: PythonSource, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[list[ByteEdit]]:
        found = chosen(list(alterations(source, function, self.random)), self.random)
        return found or [[failing_end(source, function, self.random, method=not self.pytest)]]

    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        places = [place for name in ids if (place := self.place(name))]
        if not places:
            return CopiedTests()
        path, name = self._fresh_path(places[0].path, "test_x.py"), f"test_{self._names.fresh()}"
        values = self.random.sample(range(2, 60), 3)
        wrong = sum(values) + self.random.randint(1, 9)
        listed, thing = f"sum({values})", self._names.fresh("")
        if self.pytest:
            text = f"def {name}():\n    {thing} = {listed}\n    assert {thing} == {wrong}\n"
            classes: tuple[str, ...] = ()
        else:
            classes = (self._names.fresh(" ").title().replace(" ", ""),)
            text = (
                f"from unittest import TestCase\n\n\nclass {classes[0]}(TestCase):\n    def {name}(self):\n"
                f"        {thing} = {listed}\n        self.assertEqual({thing}, {wrong})\n"
            )
        return CopiedTests(
            files=(written(path, text.encode()),), failing=(self._id(FunctionLocation(path, classes, name)),)
        )

    def _fresh_path(self, path: str, like: str = "") -> str:
        stem = PurePosixPath(like or path).stem
        fresh = self._names.fresh()
        name = f"{fresh}_test" if stem.endswith("_test") else f"{stem.partition('_')[0]}_{fresh}"
        return str(PurePosixPath(path).with_name(f"{name}.py"))

    def _fresh_name(self, name: str) -> str:
        prefix, underscore, _ = name.partition("_")
        if underscore and prefix:
            return f"{prefix}_{self._names.fresh()}"
        return f"test{self._names.fresh(' ').title().replace(' ', '')}" if name.startswith("test") else name + "_"


def function_at(tree: ast.Module, place: FunctionLocation) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    body: Sequence[ast.stmt] = tree.body
    for wanted in place.classes:
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == wanted]
        if not classes:
            return None
        body = classes[-1].body
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    found = [node for node in functions if node.name == place.name]
    return found[-1] if found and not any(_generates(node) for node in found) else None


def _generates(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)
