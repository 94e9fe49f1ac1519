"""Runs inside the sandbox: repeats the calls of tests in other forms, and looks at what calls leave in their process.

Stand-alone; it is executed behind `python_test_doubles`, and a part of a program's text as that is. Nothing here
decides what is right: each finding is compared with the same call on the base.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from app.verify.launcher.python_test_doubles import Comparisons, copied, shown

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
