"""Alters a Python test so that it certainly fails if the original passes."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from app.verify.launcher.edits import Alteration, ByteEdit, different_number, different_text

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
