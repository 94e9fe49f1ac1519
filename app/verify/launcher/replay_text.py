"""Rewrites Python tests so that they run without their framework: assertions and literals become calls of our own."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.verify.launcher.python_alterations import PythonSource
from app.verify.launcher.python_copies import FunctionLocation, function_at

_OF_PYTEST = frozenset({"raises", "mark", "param", "approx", "fail"})
_OF_UNITTEST = frozenset({"TestCase", "main"})
_OF_CASE = frozenset(
    """
    addCleanup assertAlmostEqual assertCountEqual assertDictEqual assertEqual assertFalse assertGreater
    assertGreaterEqual assertIn assertIs assertIsInstance assertIsNone assertIsNot assertIsNotNone assertLess
    assertLessEqual assertListEqual assertMultiLineEqual assertNotEqual assertNotIn assertNotIsInstance assertRaises
    assertRaisesRegex assertRegex assertSequenceEqual assertSetEqual assertTrue assertTupleEqual fail maxDiff subTest
    """.split()
)
_UNITTEST = re.compile(r"assert[A-Z]\w*$|skip\w*$|id$|shortDescription$|enter\w*Context$|doCleanups$|_test\w+$")
# What only a framework has, or what a test needs of the file that it stands in.
_BOUND = re.compile(rb"__file__|__name__|__main__\.|\b(?:skip\w*|xfail|fixture|importorskip|usefixtures|caplog|capsys)\b")


class ReplayedTests(NamedTuple):
    """The rewritten files as the program `python_replay` reads them, the ids in them, and the files they stand in."""

    files: tuple[Mapping[str, Any], ...]
    ids: tuple[str, ...]
    paths: tuple[str, ...]


def replayed(places: Mapping[str, FunctionLocation], contents: Mapping[str, bytes], modules: str) -> ReplayedTests:
    """The tests that can be called so; others need their framework."""
    by_path: dict[str, dict[str, FunctionLocation]] = {}
    for name, place in places.items():
        by_path.setdefault(place.path, {})[name] = place
    files, ids, paths = list[Mapping[str, Any]](), list[str](), list[str]()
    for path, mine in by_path.items():
        source = PythonSource.of(contents[path])
        if source is None or _BOUND.search(_without_main(source.content)):
            continue
        tests = [
            {"id": name, "owner": ".".join(place.classes), "name": place.name}
            for name, place in mine.items()
            if len(place.classes) < 2 and _callable(source.tree, place)
        ]
        text = _rewritten(source.tree) if tests else None
        if text is not None:
            package = ".".join(PurePosixPath(path.removeprefix(f"{modules}/") if modules else path).parts[:-1])
            files.append({"module": "examples", "package": package, "text": text, "tests": tests})
            ids += [test["id"] for test in tests]
            paths.append(path)
    return ReplayedTests(tuple(files), tuple(ids), tuple(paths))


def _without_main(content: bytes) -> bytes:
    return re.sub(rb"if __name__ == ['\"]__main__['\"]", b"", content)


def _callable(tree: ast.Module, place: FunctionLocation) -> bool:
    """True if everything that the function is given is written beside it."""
    function = function_at(tree, place)
    if function is None or any(isinstance(node, ast.Nonlocal) for node in ast.walk(function)):
        return False
    needed = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return needed - {"self"} <= set(_parameters(function)) and function.args.vararg is None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.parametrize"):
            for node in ast.walk(decorator.args[0]) if decorator.args else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from (name.strip() for name in node.value.split(","))


class _NeedsFramework(Exception):
    """Something in the file cannot be run without its framework."""


def _rewritten(tree: ast.Module) -> str | None:
    """The text of the module; None where it needs its framework."""
    try:
        rewritten = ast.fix_missing_locations(_Rewriter().visit(tree))
        return ast.unparse(rewritten)
    except (_NeedsFramework, RecursionError, ValueError):
        return None


class _Rewriter(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> Any:  # noqa: N802 - ast's names here and below
        kept, made = list[ast.alias](), list[ast.stmt]()
        for alias in node.names:
            if alias.name in ("pytest", "unittest"):
                made.append(_bound(alias.asname or alias.name, ast.Name(f"_replay_{alias.name}", ast.Load())))
            else:
                kept.append(alias)
        return [*([ast.Import(kept)] if kept else []), *made]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:  # noqa: N802
        if node.module not in ("pytest", "unittest") or node.level:
            return node
        offered = _OF_PYTEST if node.module == "pytest" else _OF_UNITTEST
        made: list[ast.stmt] = []
        for alias in node.names:
            if alias.name == "mock" and node.module == "unittest":
                made.append(ast.ImportFrom(node.module, [alias], 0))
            elif alias.name not in offered:
                raise _NeedsFramework
            else:
                value = ast.Attribute(ast.Name(f"_replay_{node.module}", ast.Load()), alias.name, ast.Load())
                made.append(_bound(alias.asname or alias.name, value))
        return made

    def visit_Attribute(self, node: ast.Attribute) -> Any:  # noqa: N802
        if isinstance(node.value, ast.Name):
            of = {"pytest": _OF_PYTEST, "unittest": _OF_UNITTEST}.get(node.value.id)
            if of is not None and node.attr not in of:
                raise _NeedsFramework
            if node.value.id in ("self", "cls") and _UNITTEST.match(node.attr) and node.attr not in _OF_CASE:
                raise _NeedsFramework
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:  # noqa: N802
        if any(ast.unparse(base).endswith(("AsyncioTestCase", "TransactionTestCase")) for base in node.bases):
            raise _NeedsFramework
        node.body = self._body(node.body)
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:  # noqa: N802
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:  # noqa: N802
        return self._function(node)

    def visit_Module(self, node: ast.Module) -> Any:  # noqa: N802
        node.body = self._body(node.body)
        return node

    def _function(self, node: Any) -> Any:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        node.body = self._body(node.body)
        return node

    def _body(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements without the docstring, which is no value."""
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            body = body[1:]
        made: list[ast.stmt] = []
        for statement in body:
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        return made or [ast.Pass()]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:  # noqa: N802
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:  # noqa: N802
        return node

    def visit_Match(self, node: ast.AST) -> Any:  # noqa: N802
        raise _NeedsFramework

    def visit_Constant(self, node: ast.Constant) -> Any:  # noqa: N802
        if type(node.value) in (str, bytes, int, float) and node.value not in (0, "", b""):
            return ast.Call(ast.Name("_replay_fresh", ast.Load()), [node], [])
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:  # noqa: N802
        test = self.visit(node.test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return ast.Expr(
                ast.Call(ast.Name("_replay_equal", ast.Load()), [test.left, *test.comparators], [])
            )
        return ast.Expr(ast.Call(ast.Name("_replay_true", ast.Load()), [test], []))


def _bound(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
