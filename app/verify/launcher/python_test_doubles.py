"""Runs inside the sandbox: what tests find in the place of pytest and unittest when they run without them.

It also repeats the calls of tests in other forms, and looks at what calls leave in their process. Nothing here decides
what is right: each finding is compared with the same call on the base.

Stand-alone; it imports nothing that a program does not have anyway, and it is part of a program's text as it stands.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is not imported: it would be more than a plain program has
if TYPE_CHECKING:
    from typing import Any

MAX_KEPT = 300
MAX_TEXT = 400
PLAIN = (str, bytes, int, float, bool, complex, list, tuple, dict, set, frozenset, type(None))
MUTABLE = (list, dict, set)
OWN_METHODS = frozenset(
    f"__{name}__"
    for name in (
        *("eq", "ne", "hash", "str", "repr", "format", "int", "index", "float", "bool", "iter", "len", "getitem"),
        *("contains", "lt", "le", "gt", "ge", "getattribute", "getattr", "reversed", "next", "add", "radd", "sub"),
        *("mul", "truediv", "floordiv", "mod", "and", "or"),
    )
)
OF_C = ("wrapper_descriptor", "method_descriptor", "builtin_function_or_method", "NoneType", "method-wrapper")


class Comparisons:
    """Compares results as the tests ask for, and again: exactly, and after everything else was called."""

    def __init__(self) -> None:
        libraries = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        self.trusted = (os.path.dirname(os.__file__) + os.sep, "<frozen ", *libraries)
        self.now: list[tuple[Any, Any]] = []
        self.arguments: list[tuple[Any, Any]] = []
        self.kept: list[tuple[str, Any, Any]] = []
        self.odd: dict[tuple[str, str, tuple[tuple[str, str, int], ...]], None] = {}
        self.usual: set[str] = set()
        self.test = ""

    def given(self, value: Any) -> Any:
        """The argument of a call, of which a copy is kept."""
        if type(value) in MUTABLE:
            self.arguments.append((value, copied(value)))
        return value

    def touched(self) -> Any:
        """What became of the last test's arguments, empty if they are as they were; None if there were none."""
        found = [f"an argument became {shown(value)}" for value, before in self.arguments if value != before]
        return "".join(found[:1]) if self.arguments else None

    def equal(self, left: Any, right: Any) -> None:
        self._of_type(left, right)
        self._of_type(right, left)
        if not left == right:
            raise AssertionError(f"{shown(left)} is not {shown(right)}")
        if type(left) in PLAIN and type(right) in PLAIN and (left != right or not right == left):
            raise AssertionError(f"{shown(left)} is and is not {shown(right)}")
        self._exact(left, right)
        self._exact(right, left)
        if type(left) in MUTABLE or type(right) in MUTABLE:
            self.now.append((left, right))

    def _of_type(self, value: Any, expected: Any) -> None:
        """Note each part of a value that is of another type than what it is compared with, equal or not."""
        kind = type(value)
        if kind is type(expected):
            self.usual.add(kind.__name__)
            for one, other in parts(value, expected):
                self._of_type(one, other)
            return
        plain = type(expected) in PLAIN and expected is not None and value is not None
        if plain and (not issubclass(kind, type(expected)) or hasattr(kind, "__missing__")):
            self.odd.setdefault((self.test, f"{kind.__name__} for {type(expected).__name__}", ()), None)

    def _exact(self, value: Any, expected: Any) -> None:
        """Note each part of a value that is not plain although what it is compared with is."""
        if type(expected) not in PLAIN:
            return
        kind = type(value)
        if kind not in PLAIN:
            methods = self._own_methods(kind)
            if methods:
                self.odd.setdefault((self.test, kind.__qualname__, methods), None)
        elif kind is type(expected):
            for one, other in parts(value, expected):
                self._exact(one, other)

    def _own_methods(self, kind: Any) -> Any:
        """(name, file, line) of the methods that decide how a value compares and converts, and are the project's."""
        found = []
        for owner in kind.__mro__:
            for name, method in vars(owner).items():
                if name in OWN_METHODS or (name == "__class__" and owner is not object):
                    code = getattr(method, "__code__", None)
                    if code is None and type(method).__name__ in OF_C:
                        continue
                    file = code.co_filename if code is not None else ""
                    if not file.startswith(self.trusted):
                        found.append((name, file, code.co_firstlineno if code is not None else 0))
        return tuple(found)

    def begin(self, test: Any) -> None:
        self.test, self.now, self.arguments = test, [], []

    def end(self) -> None:
        """Keep what still is as the test compared it."""
        if len(self.kept) < MAX_KEPT:
            self.kept += [(self.test, left, right) for left, right in self.now if left == right]

    def changed(self) -> Any:
        """Tests of which an earlier result is another now."""
        found: dict[str, str] = {}
        for test, left, right in self.kept:
            if not left == right:  # noqa: SIM201 - an own `!=` may say something else
                found.setdefault(test, f"an earlier result became {shown(left)}")
        return found


def copied(value: Any, depth: Any = 5) -> Any:
    """Copies containers; returns other values unchanged."""
    if depth and type(value) is dict:
        return {key: copied(one, depth - 1) for key, one in value.items()}
    return (
        type(value)(copied(one, depth - 1) for one in value) if depth and type(value) in (list, tuple, set) else value
    )


def parts(value: Any, expected: Any) -> Any:
    """The parts of a container, each with that of the other which it equals."""
    kind = type(value)
    if kind in (list, tuple):
        return zip(value, expected)
    if kind in (set, frozenset):
        others = {one: one for one in expected}
        return [(one, others[one]) for one in value if one in others]
    if kind is dict:
        others = {key: key for key in expected}
        keys = [(key, others[key]) for key in value if key in others]
        return [*keys, *((value[key], expected[other]) for key, other in keys)]
    return ()


compare = Comparisons()


def shown(value: Any) -> Any:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the project's own repr
        text = object.__repr__(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def fresh(value: Any) -> Any:
    """An equal value that no program's text holds."""
    if type(value) is str:
        return "".join(list(value))
    if type(value) is bytes:
        return bytes(list(value))
    if type(value) is int:
        return int(str(value))
    return float(repr(value))


# ---- What the tests see in the place of their framework


class Raised:
    """`pytest.raises` and `assertRaises`."""

    def __init__(self, kinds: Any, match: Any = None) -> None:
        self._kinds, self._match = kinds, match
        self.value = self.exception = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, value: Any, _: Any) -> Any:
        if kind is None:
            raise AssertionError("nothing was raised")
        if not issubclass(kind, self._kinds):
            return False
        self.value = self.exception = value
        self.type = kind
        if self._match is not None:
            matching(self._match, str(value))
        return True

    def match(self, pattern: Any) -> Any:
        matching(pattern, str(self.value))
        return True


def matching(pattern: Any, text: Any) -> None:
    import re

    if not re.search(pattern, text):
        raise AssertionError(f"{text!r} does not match {pattern!r}")


def raising(kinds: Any, match: Any, call: Any, arguments: Any, named: Any) -> Any:
    expected = Raised(kinds, match)
    if call is None:
        return expected
    with expected:
        call(*arguments, **named)
    return expected


def parametrized(names: Any, values: Any, **_: Any) -> Any:
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [getattr(row, "given", row if len(names) > 1 else (row,)) for row in values]

    def mark(function: Any) -> Any:
        before = getattr(function, "_rows", [{}])
        function._rows = [dict(known, **dict(zip(names, row))) for known in before for row in rows]
        return function

    return mark


class Param:
    def __init__(self, *given: Any, **_: Any) -> None:
        self.given = given


class Marks:
    parametrize = staticmethod(parametrized)

    def __getattr__(self, name: Any) -> Any:
        def mark(*given: Any, **_: Any) -> Any:
            return given[0] if len(given) == 1 and callable(given[0]) else lambda function: function

        return mark


class Approximately:
    def __init__(self, expected: Any, rel: Any = None, abs: Any = None) -> None:  # noqa: A002 - pytest's name
        self._expected, self._rel, self._abs = expected, rel, abs

    def _near(self, value: Any, expected: Any) -> Any:
        if isinstance(expected, dict):
            return value.keys() == expected.keys() and all(self._near(value[key], expected[key]) for key in expected)
        if isinstance(expected, (list, tuple)):
            return len(value) == len(expected) and all(map(self._near, value, expected))
        if value == expected:
            return True
        near = max(
            (1e-6 if self._rel is None and self._abs is None else self._rel or 0) * abs(expected), self._abs or 1e-12
        )
        return abs(value - expected) <= near

    def __eq__(self, value: Any) -> Any:
        return self._near(value, self._expected)

    __hash__ = None  # type: ignore[assignment]


def failing(message: Any = "", *_: Any, **__: Any) -> None:
    raise AssertionError(message or "the test calls fail()")


class Pytest:
    """`pytest`."""

    mark, param, approx, fail = Marks(), Param, Approximately, staticmethod(failing)

    @staticmethod
    def raises(kinds: Any, *given: Any, **named: Any) -> Any:
        match = named.pop("match", None)
        return raising(kinds, match, given[0] if given else None, given[1:], named)


def asserting(holds: Any, takes: Any = 2) -> Any:
    """A method that asserts what `holds` says of so many arguments; a message may follow."""

    def check(_: Any, *given: Any) -> None:
        true(holds(*given[:takes]))

    return check


class TestCase:
    """`unittest.TestCase`."""

    maxDiff = longMessage = None
    failureException = AssertionError
    compare: Any = None

    def __init__(self) -> None:
        self._cleanups: list[Any] = []

    def setUp(self) -> None:
        """Nothing."""

    tearDown = setUp

    @classmethod
    def setUpClass(cls) -> None:
        """Nothing."""

    tearDownClass = setUpClass

    def addCleanup(self, function: Any, *given: Any, **named: Any) -> None:  # noqa: N802
        self._cleanups.append(lambda: function(*given, **named))

    def subTest(self, *_: Any, **__: Any) -> Any:  # noqa: N802
        return Nothing()

    def fail(self, message: Any = "") -> None:
        failing(message)

    def _equal(self, one: Any, other: Any, *_: Any, **__: Any) -> None:
        self.compare.equal(one, other)

    assertEqual = assertListEqual = assertTupleEqual = assertDictEqual = assertSetEqual = _equal  # noqa: N815
    assertSequenceEqual = assertMultiLineEqual = _equal  # noqa: N815

    assertNotEqual = asserting(lambda one, other: one != other)  # noqa: N815 - unittest's names here and below
    assertTrue = asserting(lambda value: value, 1)  # noqa: N815
    assertFalse = asserting(lambda value: not value, 1)  # noqa: N815
    assertIs = asserting(lambda one, other: one is other)  # noqa: N815
    assertIsNot = asserting(lambda one, other: one is not other)  # noqa: N815
    assertIsNone = asserting(lambda value: value is None, 1)  # noqa: N815
    assertIsNotNone = asserting(lambda value: value is not None, 1)  # noqa: N815
    assertIn = asserting(lambda one, other: one in other)  # noqa: N815
    assertNotIn = asserting(lambda one, other: one not in other)  # noqa: N815
    assertIsInstance = asserting(isinstance)  # noqa: N815
    assertNotIsInstance = asserting(lambda value, kinds: not isinstance(value, kinds))  # noqa: N815
    assertGreater = asserting(lambda one, other: one > other)  # noqa: N815
    assertGreaterEqual = asserting(lambda one, other: one >= other)  # noqa: N815
    assertLess = asserting(lambda one, other: one < other)  # noqa: N815
    assertLessEqual = asserting(lambda one, other: one <= other)  # noqa: N815

    def assertAlmostEqual(self, one: Any, other: Any, places: Any = 7, msg: Any = None, delta: Any = None) -> None:  # noqa: N802
        true(one == other or (abs(one - other) <= delta if delta is not None else not round(abs(one - other), places)))

    def assertCountEqual(self, one: Any, other: Any, *_: Any) -> None:  # noqa: N802
        left, right = list(one), list(other)
        for value in left:
            true(left.count(value) == right.count(value))
        true(len(left) == len(right))

    def assertRegex(self, text: Any, pattern: Any, *_: Any) -> None:  # noqa: N802
        matching(pattern, text)

    def assertRaises(self, kinds: Any, call: Any = None, *given: Any, **named: Any) -> Any:  # noqa: N802
        return raising(kinds, None, call, given, named)

    def assertRaisesRegex(self, kinds: Any, match: Any, call: Any = None, *given: Any, **named: Any) -> Any:  # noqa: N802
        return raising(kinds, match, call, given, named)


class Nothing:
    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> Any:
        return False


class Unittest:
    """`unittest`."""

    TestCase = TestCase


def true(value: Any) -> None:
    if not value:
        raise AssertionError(f"{shown(value)} is not true")


# ---- The calls of tests in other forms

MAX_CALLS = 30
LARGE = 3000
CALLS_SECONDS = 5.0
UNINTENDED = (TypeError, AttributeError, NameError, LookupError, RecursionError, StopIteration, MemoryError)
"""Errors that code raises for what nobody thought of."""


# ---- The process


def process_state() -> Any:
    """What calls share with the rest of their process, by name."""
    import _signal  # type: ignore[import-not-found]
    import _warnings
    import gc

    found = {
        "the working directory": os.getcwd(),
        "the environment": sorted(os.environ.items()),
        "the limit of recursion": sys.getrecursionlimit(),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "the hook for errors": sys.excepthook,
        "signal handlers": [_signal.getsignal(number) for number in range(1, 32)],
        "the filters of warnings": [entry[:1] for entry in _warnings.filters],
        "running threads": len(sys._current_frames()),
    }
    decimal: Any = sys.modules.get("decimal")
    log: Any = sys.modules.get("logging")
    if hasattr(decimal, "getcontext"):
        now, usual = decimal.getcontext(), decimal.DefaultContext
        found["the decimal context"] = [getattr(now, name) == getattr(usual, name) for name in ("prec", "rounding")]
    if hasattr(log, "root"):
        found["the root logger"] = (len(log.root.handlers), log.root.level, log.root.manager.disable)
    return found


USUAL = {"the decimal context": [True, True], "the root logger": (0, 30, 0)}
"""What modules begin with that may be imported later."""


class ProcessStays:
    """What a process has that it did not have at the start of this object."""

    def __init__(self) -> None:
        self._before = {**USUAL, **process_state()}

    def changed(self) -> Any:
        now = process_state()
        return [name for name, value in now.items() if value != self._before[name]]


def open_files() -> Any:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class Printed:
    """In the place of the standard output: notes that something was written."""

    def __init__(self, real: Any) -> None:
        self._real, self.text = real, ""

    def write(self, text: Any) -> Any:
        self.text = (self.text + text)[:200]
        return len(text)

    def __getattr__(self, name: Any) -> Any:
        return getattr(self._real, name)


# ---- The calls


class Text(str):
    """A text of a class of its own, as libraries have them."""

    __slots__ = ()


class RecordedCall:
    """A call that a test made of the project's code, with its arguments as they were."""

    def __init__(self, test: Any, number: Any, function: Any, given: Any, named: Any) -> None:
        self.test, self.number, self.function = test, number, function
        self.given, self.named = copied(list(given)), {name: copied(value) for name, value in named.items()}
        self.result: Any = None

    def again(self, given: Any = None) -> Any:
        given = self.given if given is None else given
        return comparable(self.function(*copied(given), **{name: copied(one) for name, one in self.named.items()}))

    def forms(self) -> Any:
        """(name, arguments) of calls that mean the same."""
        for at, value in enumerate(self.given):
            for name, other in other_forms(value):
                yield f"{name} as argument {at + 1}", at, other

    def sizes(self) -> Any:
        """(name, arguments) of calls with much, or with what may be wrong."""
        for at, value in enumerate(self.given):
            if type(value) in (list, tuple, str) and value:
                yield f"a large argument {at + 1}", at, value * (LARGE // len(value) + 1)
            if type(value) is dict and value and all(type(key) is str for key in value):
                more = {
                    f"{key}{number}": one for key, one in value.items() for number in range(LARGE // len(value) + 1)
                }
                yield f"a large argument {at + 1}", at, more
            if type(value) is str:
                yield f"a question mark as argument {at + 1}", at, "?"


def other_forms(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        yield "a tuple", lambda: tuple(value)
        yield "an iterator", lambda: iter(copied(value))
        if value and all(type(one) is tuple for one in value):
            yield "a list of lists", lambda: [list(one) for one in value]
    if kind is tuple and value:
        yield "a list", lambda: list(value)
    if kind is str and value:
        yield "a text of another class", lambda: Text(value)
    if kind is dict and value:
        yield "a dictionary that cannot be changed", lambda: type(type.__dict__)(value)


def comparable(value: Any) -> Any:
    """A value that can be compared: the first items of an iterator."""
    if hasattr(value, "cr_await"):
        value.close()
        raise _NotComparedError
    if hasattr(value, "__next__"):
        return [one for one, _ in zip(value, range(LARGE * 2))]
    return value


class _NotComparedError(Exception):
    """The call has no result that could be compared."""


class RecordedCalls:
    """The calls of the tests, and what they give in other forms."""

    def __init__(self, compare: Any) -> None:
        self._compare: Comparisons = compare
        self._calls: list[RecordedCall] = []
        self._numbers: dict[Any, Any] = {}

    def call(self, function: Any, *given: Any, **named: Any) -> Any:
        """In the place of each call that a test writes."""
        if len(self._calls) >= MAX_CALLS or not self._of_project(function):
            return function(*given, **named)
        test = self._compare.test
        self._numbers[test] = self._numbers.get(test, 0) + 1
        one = RecordedCall(test, self._numbers[test], function, given, named)
        result = function(*given, **named)
        # What a method gives depends on the calls before, and what modifies its arguments on their type.
        if not hasattr(function, "__self__") and all(map(unchanged, given, one.given)):
            self._calls.append(one)
        return result

    def _of_project(self, function: Any) -> Any:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None) or ""
        return file and not file.startswith(self._compare.trusted)

    def examine(self, tell: Any) -> None:
        """`tell(test, what, problem)` of each other call; the problem is empty if there is none."""
        usual = []
        for one in self._calls:
            try:
                one.result = one.again()
            except BaseException:  # noqa: BLE001, S112 - whatever the tested code raises
                continue
            usual.append(one)
        for one in usual:
            for name, problem in self._other(one):
                tell(one.test, f"call {one.number} with {name}", problem)
        for one in usual:
            tell(one.test, f"call {one.number} once others failed", same(one, one.given))

    def _other(self, one: Any) -> Any:
        code = getattr(one.function, "__code__", None)
        if code is not None:
            names = code.co_varnames[code.co_posonlyargcount : code.co_argcount]
            problem = "" if len(names) >= len(one.given) else "has no such names"
            yield "arguments by name", problem or same(one, [], dict(zip(names, copied(one.given))))
        for name, at, other in one.forms():
            given = list(one.given)
            given[at] = other()
            yield name, same(one, given)
        for name, at, value in one.sizes():
            given = list(one.given)
            given[at] = value
            yield name, unintended(lambda given=given: one.again(given))
        if isinstance(one.function, type) or self._of_project(type(one.result)):
            for name, use in USES.items():
                yield f"a result that {name}", unintended(lambda use=use: use(one.again()), BaseException)


def unchanged(value: Any, before: Any) -> Any:
    return type(value) not in (list, dict, set) or value == before


def same(one: Any, given: Any, named: Any = ()) -> Any:
    try:
        result = comparable(one.function(*given, **{**one.named, **dict(named)}))
        kind: Any = type(result)
        plain = kind.__eq__ is object.__eq__
        return "" if plain or result == one.result else f"gives {shown(result)}"
    except BaseException as error:  # noqa: BLE001 - whatever the tested code raises
        return f"raises {type(error).__name__}"


def unintended(call: Any, kinds: Any = UNINTENDED) -> Any:
    try:
        call()
    except kinds as error:
        return f"raises {type(error).__name__}"
    except BaseException:  # noqa: BLE001 - whatever the tested code raises
        return ""
    return ""


def _copy(value: Any) -> None:
    import copy

    copy.copy(value)


def _pickle(value: Any) -> None:
    import pickle  # nothing is read

    pickle.dumps(value)


USES = {
    "is in a set": hash,
    "is copied": _copy,
    "is pickled": _pickle,
    "gets an attribute": lambda value: setattr(value, "_title", ""),
}
"""What callers do with an object."""
