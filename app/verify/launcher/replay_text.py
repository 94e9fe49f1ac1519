"""Rewrites Python tests so that they run without their framework: assertions and literals become calls of our own."""

import ast
import builtins
import copy
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from app.verify.launcher.python_copies import FunctionLocation, PythonSource, function_at
from app.verify.launcher.python_test_doubles import TestCase

MAX_PLAIN = 60_000
"""Bytes of tests that are given to a program as its argument, which may have 128 KiB; more are in its input."""
_READ = "sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))"
_OF_PYTEST = frozenset({"raises", "mark", "param", "approx", "fail"})
_OF_UNITTEST = frozenset({"TestCase", "main"})
_OF_CASE = frozenset(name for name in dir(TestCase) if not name.startswith("_"))
_BOUND_TO_FUNCTION = (ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Await)
_UNITTEST = re.compile(r"assert[A-Z]\w*$|skip\w*$|id$|shortDescription$|enter\w*Context$|doCleanups$|_test\w+$")
_MARKS = frozenset({"skip", "skipif", "xfail", "usefixtures"})
_OF_ALL = frozenset({"pytestmark", "setUpModule", "setup_module", "setup_function", "pytest_plugins"})
"""Names by which a test file says something of all its tests."""
_AROUND_CASE = re.compile(r"(?:set_?[uU]p|tear_?[dD]own)\w*$|setup_method$|teardown_method$|__init__$")
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


class ReplayedTests(NamedTuple):
    """The rewritten files as the program `python_replay` reads them, the ids in them, and their files.

    `plain` is the text of a program that has the tests' statements at its top level.
    """

    files: tuple[Mapping[str, Any], ...]
    ids: tuple[str, ...]
    paths: tuple[str, ...]
    plain: str


def replayed(
    places: Mapping[str, FunctionLocation], contents: Mapping[str, bytes], modules: str, directory: str
) -> ReplayedTests:
    """The tests that can be called so, in a process that begins in `directory`; others need their framework."""
    by_path: dict[str, dict[str, FunctionLocation]] = {}
    for name, place in places.items():
        by_path.setdefault(place.path, {})[name] = place
    files, ids, paths, plain = list[Mapping[str, Any]](), list[str](), list[str](), list[str]()
    for path, mine in by_path.items():
        source = PythonSource.of(contents[path])
        callable_ones = {} if source is None else {n: p for n, p in mine.items() if _is_callable(source.tree, p)}
        tree = _rewritten(source.tree) if source is not None and callable_ones else None
        tests = [
            {"id": name, "owner": ".".join(place.classes), "name": place.name}
            for name, place in callable_ones.items()
            if tree is not None and function_at(tree, place) is not None
        ]
        if tree is not None and tests:
            text = ast.unparse(tree)
            package = ".".join(PurePosixPath(path.removeprefix(f"{modules}/") if modules else path).parts[:-1])
            file = os.path.relpath(path, directory or ".") if "__file__" in text else ""
            recorded = ast.unparse(ast.fix_missing_locations(_Recorder().visit(copy.deepcopy(tree))))
            given = {"module": "examples", "package": package, "file": file, "text": text, "recorded": recorded}
            files.append({**given, "tests": tests})
            ids += [test["id"] for test in tests]
            paths.append(path)
            located = f"__file__ = _replay['os'].path.abspath({file!r})\n" if file else ""
            plain.append(f"__package__ = {package!r}\n{located}{text}")
            plain += [_at_top_level(tree, test["id"], mine[test["id"]]) for test in tests]
    return ReplayedTests(tuple(files), tuple(ids), tuple(paths), "\n".join(plain))


def program_text(paths: Sequence[str], plain: str) -> tuple[str, str]:
    """A program for `python -c`: the test doubles, then the tests as plain statements, then what its input says.

    The second text is what the input has to begin with.
    """
    test_doubles = Path(__file__).with_name("python_test_doubles.py").read_text("utf-8")
    text = (
        f"import sys\nsys.path += [path for path in {list(paths)!a} if path != '.']\n"
        f"_replay = {{'__name__': '__main__', 'first': {{}}, 'Any': None}}\nexec({test_doubles!a}, _replay)\n"
        "_replay['stays'] = _replay['ProcessStays']()\n"
        "_replay_equal, _replay_true, _replay_fresh = _replay['compare'].equal, _replay['true'], _replay['fresh']\n"
        "_replay_given = _replay['compare'].given\n"
        "_replay_pytest, _replay_unittest = _replay['Pytest'], _replay['Unittest']\n"
    )
    size, end = len(plain.encode()), f"\nexec({_READ}, _replay)"
    return (f"{text}{plain}{end}", "") if size < MAX_PLAIN else (f"{text}exec({_READ}){end}", f"{size}\n{plain}")


def _is_callable(tree: ast.Module, place: FunctionLocation) -> bool:
    """True if everything that the function is given is written beside it."""
    function = function_at(tree, place)
    if len(place.classes) > 1 or function is None or any(isinstance(node, ast.Nonlocal) for node in ast.walk(function)):
        return False
    needed = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return needed - {"self"} <= set(_parameters(function)) and function.args.vararg is None


def needs_own_file(place: FunctionLocation, content: bytes) -> bool:
    """False for a test that needs fixtures from elsewhere, if it needs its framework at all."""
    source = PythonSource.of(content)
    function = function_at(source.tree, place) if source is not None else None
    if source is None or function is None or _is_callable(source.tree, place):
        return True
    own = {node.name for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    needed = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    return not needed - own - {"self", *_parameters(function)}


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.parametrize"):
            for node in ast.walk(decorator.args[0]) if decorator.args else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from (name.strip() for name in node.value.split(","))


class _NeedsFrameworkError(Exception):
    """Something in the file cannot be run without its framework."""


def _rewritten(tree: ast.Module) -> ast.Module | None:
    """The module without what needs its framework; None if that concerns all of its tests."""
    kept, missing = list[ast.stmt](), set[str]()
    for statement in _apart(tree.body):
        try:
            found = _Rewriter().visit(statement)
        except (_NeedsFrameworkError, RecursionError):
            if _OF_ALL & _defined(statement) or _is_automatic(statement):
                return None
            missing |= _defined(statement)
        else:
            kept += found if isinstance(found, list) else [found]
    return ast.fix_missing_locations(ast.Module(_without(missing, kept), []))


def _apart(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Each imported name on its own, and no docstring."""
    for statement in _without_docstring(body):
        if isinstance(statement, ast.ImportFrom):
            yield from (ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names)
        else:
            yield statement


def _is_automatic(statement: ast.stmt) -> bool:
    """True for a fixture that each test gets."""
    decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any("autouse" in ast.unparse(decorator) for decorator in decorators)


def _is_around(statement: ast.stmt) -> bool:
    """True for what all tests of a class need."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return _AROUND_CASE.match(statement.name) is not None
    return True


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    nodes = list(ast.walk(statement))
    aliases = (node for node in nodes if isinstance(node, ast.alias))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored.union((alias.asname or alias.name.partition(".")[0]) for alias in aliases)


def _used(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _without(missing: set[str], body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that do not need what is missing, nor each other for that."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            methods = [one for one in statement.body if _is_around(one) or missing.isdisjoint(_used(one))]
            statement.body = methods or [ast.Pass()]
    left = [statement for statement in body if missing.isdisjoint(_used(statement))]
    if len(left) == len(body):
        return left
    gone = set[str]().union(*(_defined(statement) for statement in body if statement not in left))
    return _without(missing | gone, left)


def _at_top_level(tree: ast.Module, name: str, place: FunctionLocation) -> str:
    """The statements of one test as a part of a program; empty if they need a function around them."""
    function = function_at(tree, place)
    owner = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in place.classes), None)
    if (
        not isinstance(function, ast.FunctionDef)
        or function.decorator_list
        or any(isinstance(node, _BOUND_TO_FUNCTION) for node in ast.walk(function))
        or (owner is not None and not _is_plain_case(owner))
    ):
        return ""
    body = "\n".join(ast.unparse(statement) for statement in function.body)
    if owner is not None:
        body = f"self = {owner.name}()\nself.compare = _replay['compare']\nself.setUp()\n{body}\nself.tearDown()"
    return (
        f"_replay['compare'].begin({name!r})\ntry:\n{textwrap.indent(body, ' ')}\n"
        f"except BaseException as _replay_error:\n"
        f" _replay['first'][{name!r}] = (type(_replay_error).__name__, _replay['shown'](_replay_error))\n"
        f"else:\n _replay['first'][{name!r}] = ('', '')\n _replay['compare'].end()"
    )


def _is_plain_case(owner: ast.ClassDef) -> bool:
    """True for a class of unittest that prepares nothing for all its tests."""
    methods = {node.name for node in owner.body if isinstance(node, ast.FunctionDef)}
    return any(ast.unparse(base).endswith("TestCase") for base in owner.bases) and not (
        methods & {"setUpClass", "tearDownClass", "__init__"}
    )


def _is_assertion(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("self", "cls")


def _only_given(function: ast.AST) -> set[str]:
    """Names that a function only passes as arguments and never reads again."""
    nodes = list(ast.walk(function))
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    calls = [node for node in nodes if isinstance(node, ast.Call) and not _is_assertion(node)]
    used.subtract(one.id for call in calls for one in call.args if isinstance(one, ast.Name))
    return {name for name, others in used.items() if not others}


def _without_docstring(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The body without its docstring."""
    first = body[0] if body else None
    text = first.value if isinstance(first, ast.Expr) else None
    return body[1:] if isinstance(text, ast.Constant) and isinstance(text.value, str) else body


class _Rewriter(ast.NodeTransformer):
    given: frozenset[str] | set[str] = frozenset()

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if not _is_assertion(node):
            node.args = [self._given(one) for one in node.args]
        return node

    def _given(self, value: ast.expr) -> ast.expr:
        if isinstance(value, _DISPLAYS) or (isinstance(value, ast.Name) and value.id in self.given):
            return ast.Call(ast.Name("_replay_given", ast.Load()), [value], [])
        return value

    def visit_Import(self, node: ast.Import) -> Any:
        kept, made = list[ast.alias](), list[ast.stmt]()
        for alias in node.names:
            if alias.name in ("pytest", "unittest"):
                made.append(_bound(alias.asname or alias.name, ast.Name(f"_replay_{alias.name}", ast.Load())))
            else:
                kept.append(alias)
        return [*([ast.Import(kept)] if kept else []), *made]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.module == "__future__":
            return []
        if node.module not in ("pytest", "unittest") or node.level:
            return node
        offered = _OF_PYTEST if node.module == "pytest" else _OF_UNITTEST
        made: list[ast.stmt] = []
        for alias in node.names:
            if alias.name == "mock" and node.module == "unittest":
                made.append(ast.ImportFrom(node.module, [alias], 0))
            elif alias.name not in offered:
                raise _NeedsFrameworkError
            else:
                value = ast.Attribute(ast.Name(f"_replay_{node.module}", ast.Load()), alias.name, ast.Load())
                made.append(_bound(alias.asname or alias.name, value))
        return made

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr in _MARKS and ast.unparse(node.value).endswith("mark"):
            raise _NeedsFrameworkError
        if isinstance(node.value, ast.Name):
            of = {"pytest": _OF_PYTEST, "unittest": _OF_UNITTEST}.get(node.value.id)
            if of is not None and node.attr not in of:
                raise _NeedsFrameworkError
            if node.value.id in ("self", "cls") and _UNITTEST.match(node.attr) and node.attr not in _OF_CASE:
                raise _NeedsFrameworkError
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        return [] if "__name__" in ast.unparse(node.test) else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        if any(ast.unparse(base).endswith(("AsyncioTestCase", "TransactionTestCase")) for base in node.bases):
            raise _NeedsFrameworkError
        body = list[ast.stmt]()
        for statement in _without_docstring(node.body):
            try:
                found = self.visit(statement)
            except _NeedsFrameworkError:
                if _is_around(statement) or _is_automatic(statement):
                    raise
            else:
                body += found if isinstance(found, list) else [found]
        node.body = body or [ast.Pass()]
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        self.given = _only_given(node)
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        made: list[ast.stmt] = []
        for statement in _without_docstring(node.body):
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        node.body = made or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def visit_Match(self, node: ast.AST) -> Any:
        raise _NeedsFrameworkError

    def visit_Constant(self, node: ast.Constant) -> Any:
        if type(node.value) in (str, bytes, int, float) and node.value not in (0, "", b""):
            return ast.Call(ast.Name("_replay_fresh", ast.Load()), [node], [])
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        test = self.visit(node.test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return ast.Expr(ast.Call(ast.Name("_replay_equal", ast.Load()), [test.left, *test.comparators], []))
        return ast.Expr(ast.Call(ast.Name("_replay_true", ast.Load()), [test], []))


class _Recorder(ast.NodeTransformer):
    """Makes each call that a test writes one of `_replay_call`, which is given the function and its arguments."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name.startswith(("_replay_", "self.", "cls.")) or name in vars(builtins):
            return node
        return ast.Call(ast.Name("_replay_call", ast.Load()), [node.func, *node.args], node.keywords)


def _bound(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
