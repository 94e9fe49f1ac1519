"""Runs inside the sandbox: calls the functions of tests in a process that has no test framework.

Stand-alone and standard library only, and it imports as little as possible before the tests do. Its input is a line
with the channel (`supervise`), then one Python literal: `files` (`package`, `text`, `tests` as `id`, `owner`, `name`),
`directory`, `paths`, `environment`, `shifted` (under other conditions than a test has), `seconds` (how long the calls
are repeated), `pause`.

Messages are Python literals: ("result", id, phase, kind, text), where an empty kind means that the test passed there;
("odd", id, class, methods) for a result that is a changed built-in type; ("end",).
"""

import os
import sys
import time

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]  # Python 3.12 and later
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]

DEPTH = 150
MAX_ROUNDS = 600
MAX_KEPT = 300
MAX_TEXT = 400
PLAIN = (str, bytes, int, float, bool, complex, list, tuple, dict, set, frozenset, type(None))
MUTABLE = (list, dict, set)
OWN_METHODS = frozenset(
    "__%s__" % name
    for name in (
        "eq ne hash str repr format int index float bool iter len getitem contains lt le gt ge getattribute getattr"
        " reversed next add radd sub mul truediv floordiv mod and or keys json"
    ).split()
)
OF_C = ("wrapper_descriptor", "method_descriptor", "builtin_function_or_method", "NoneType", "method-wrapper")


def channel(descriptor, key):
    """A function that sends one message to the supervisor, with a keyed digest by hand."""
    os.set_inheritable(descriptor, False)
    padded = bytes.fromhex(key).ljust(64, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in padded)) for pad in (54, 92))
    state = [0]

    def send(*parts, _write=os.write, _text=ascii, _pid=os.getpid, _own=os.getpid()):
        if _pid() != _own:
            return
        text = _text(parts).encode()
        digest, mac = inner.copy(), outer.copy()
        digest.update(b"%d:%b" % (state[0], text))
        mac.update(digest.digest())
        line = b"%d %b %b\n" % (state[0], mac.hexdigest().encode(), text)
        state[0] += 1
        while line:
            line = line[_write(descriptor, line) :]

    return send


class Comparisons:
    """Compares results as the tests ask for, and again: exactly, and after everything else was called."""

    def __init__(self, trusted):
        self.trusted = tuple(trusted)
        self.now = []
        self.kept = []
        self.odd = {}
        self.test = ""

    def equal(self, left, right):
        if not left == right:
            raise AssertionError("%s is not %s" % (shown(left), shown(right)))
        if type(left) in PLAIN and type(right) in PLAIN and (left != right or not right == left):
            raise AssertionError("%s is and is not %s" % (shown(left), shown(right)))
        self._exact(left, right)
        self._exact(right, left)
        if type(left) in MUTABLE or type(right) in MUTABLE:
            self.now.append((left, right))

    def _exact(self, value, expected):
        """Note each part of a value that is no plain one although what it is compared with is."""
        if type(expected) not in PLAIN:
            return
        kind = type(value)
        if kind not in PLAIN:
            methods = self._own_methods(kind)
            if methods:
                self.odd.setdefault((self.test, kind.__qualname__, methods), None)
        elif kind is not type(expected):
            return
        elif kind in (list, tuple):
            for one, other in zip(value, expected):
                self._exact(one, other)
        elif kind is dict:
            others = {key: key for key in expected}
            for key, one in value.items():
                if key in others:
                    self._exact(key, others[key])
                    self._exact(one, expected[key])
        elif kind in (set, frozenset):
            others = {one: one for one in expected}
            for one in value:
                if one in others:
                    self._exact(one, others[one])

    def _own_methods(self, kind):
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

    def begin(self, test):
        self.test, self.now = test, []

    def end(self):
        """Keep what still is as the test compared it."""
        if len(self.kept) < MAX_KEPT:
            self.kept += [(self.test, left, right) for left, right in self.now if left == right]

    def changed(self):
        """Tests of which an earlier result is another now."""
        found = {}
        for test, left, right in self.kept:
            if not left == right:
                found.setdefault(test, "an earlier result became %s" % shown(left))
        return found


def shown(value):
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the project's own repr
        text = object.__repr__(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def fresh(value):
    """An equal value that no program's text holds."""
    if type(value) is str:
        return "".join([letter for letter in value])
    if type(value) is bytes:
        return bytes([byte for byte in value])
    if type(value) is int:
        return int(str(value))
    return float(repr(value))


# ---- What the tests see in the place of their framework


class Raised:
    """`pytest.raises` and `assertRaises`."""

    def __init__(self, kinds, match=None):
        self._kinds, self._match = kinds, match
        self.value = self.exception = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        if kind is None:
            raise AssertionError("nothing was raised")
        if not issubclass(kind, self._kinds):
            return False
        self.value = self.exception = value
        self.type = kind
        if self._match is not None:
            matching(self._match, str(value))
        return True

    def match(self, pattern):
        matching(pattern, str(self.value))
        return True


def matching(pattern, text):
    import re

    if not re.search(pattern, text):
        raise AssertionError("%r does not match %r" % (text, pattern))


def raising(kinds, match, call, arguments, named):
    expected = Raised(kinds, match)
    if call is None:
        return expected
    with expected:
        call(*arguments, **named)
    return expected


def parametrized(names, values, **_):
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [getattr(row, "given", row if len(names) > 1 else (row,)) for row in values]

    def mark(function):
        before = getattr(function, "_rows", [{}])
        function._rows = [dict(known, **dict(zip(names, row))) for known in before for row in rows]
        return function

    return mark


class Param:
    def __init__(self, *given, **_):
        self.given = given


class Marks:
    parametrize = staticmethod(parametrized)

    def __getattr__(self, name):
        def mark(*given, **_):
            return given[0] if len(given) == 1 and callable(given[0]) else lambda function: function

        return mark


class Approximately:
    def __init__(self, expected, rel=None, abs=None):  # noqa: A002 - pytest's name
        self._expected, self._rel, self._abs = expected, rel, abs

    def _near(self, value, expected):
        if isinstance(expected, dict):
            return value.keys() == expected.keys() and all(self._near(value[key], expected[key]) for key in expected)
        if isinstance(expected, (list, tuple)):
            return len(value) == len(expected) and all(map(self._near, value, expected))
        if value == expected:
            return True
        near = max((1e-6 if self._rel is None and self._abs is None else self._rel or 0) * abs(expected), self._abs or 1e-12)
        return abs(value - expected) <= near

    def __eq__(self, value):
        return self._near(value, self._expected)

    __hash__ = None


def failing(message="", *_, **__):
    raise AssertionError(message or "the test calls fail()")


class Pytest:
    """`pytest`."""

    mark, param, approx, fail = Marks(), Param, Approximately, staticmethod(failing)

    @staticmethod
    def raises(kinds, *given, **named):
        match = named.pop("match", None)
        return raising(kinds, match, given[0] if given else None, given[1:], named)


class TestCase:
    """`unittest.TestCase`."""

    maxDiff = longMessage = None  # noqa: N815
    failureException = AssertionError  # noqa: N815
    compare = None

    def __init__(self):
        self._cleanups = []

    def setUp(self):  # noqa: N802 - unittest's names here and below
        """Nothing."""

    tearDown = setUp  # noqa: N815

    @classmethod
    def setUpClass(cls):  # noqa: N802
        """Nothing."""

    tearDownClass = setUpClass  # noqa: N815

    def addCleanup(self, function, *given, **named):  # noqa: N802
        self._cleanups.append(lambda: function(*given, **named))

    def subTest(self, *_, **__):  # noqa: N802
        return Nothing()

    def fail(self, message=""):
        failing(message)

    def _equal(self, one, other, *_, **__):
        self.compare.equal(one, other)

    assertEqual = assertListEqual = assertTupleEqual = assertDictEqual = assertSetEqual = _equal  # noqa: N815
    assertSequenceEqual = assertMultiLineEqual = _equal  # noqa: N815

    def assertNotEqual(self, one, other, *_):  # noqa: N802
        true(one != other)

    def assertTrue(self, value, *_):  # noqa: N802
        true(value)

    def assertFalse(self, value, *_):  # noqa: N802
        true(not value)

    def assertIs(self, one, other, *_):  # noqa: N802
        true(one is other)

    def assertIsNot(self, one, other, *_):  # noqa: N802
        true(one is not other)

    def assertIsNone(self, value, *_):  # noqa: N802
        true(value is None)

    def assertIsNotNone(self, value, *_):  # noqa: N802
        true(value is not None)

    def assertIn(self, one, other, *_):  # noqa: N802
        true(one in other)

    def assertNotIn(self, one, other, *_):  # noqa: N802
        true(one not in other)

    def assertIsInstance(self, value, kinds, *_):  # noqa: N802
        true(isinstance(value, kinds))

    def assertNotIsInstance(self, value, kinds, *_):  # noqa: N802
        true(not isinstance(value, kinds))

    def assertGreater(self, one, other, *_):  # noqa: N802
        true(one > other)

    def assertGreaterEqual(self, one, other, *_):  # noqa: N802
        true(one >= other)

    def assertLess(self, one, other, *_):  # noqa: N802
        true(one < other)

    def assertLessEqual(self, one, other, *_):  # noqa: N802
        true(one <= other)

    def assertAlmostEqual(self, one, other, places=7, msg=None, delta=None):  # noqa: N802
        true(one == other or (abs(one - other) <= delta if delta is not None else not round(abs(one - other), places)))

    def assertCountEqual(self, one, other, *_):  # noqa: N802
        left, right = list(one), list(other)
        for value in left:
            true(left.count(value) == right.count(value))
        true(len(left) == len(right))

    def assertRegex(self, text, pattern, *_):  # noqa: N802
        matching(pattern, text)

    def assertRaises(self, kinds, call=None, *given, **named):  # noqa: N802
        return raising(kinds, None, call, given, named)

    def assertRaisesRegex(self, kinds, match, call=None, *given, **named):  # noqa: N802
        return raising(kinds, match, call, given, named)


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Unittest:
    """`unittest`."""

    TestCase = TestCase


def true(value):
    if not value:
        raise AssertionError("%s is not true" % shown(value))


# ---- The tests


class Test:
    """One function, with its rows of parameters."""

    def __init__(self, given, names, compare):
        self.id = given["id"]
        self._compare = compare
        self._owner = names[given["owner"]] if given["owner"] else None
        self._name = given["name"]
        self._names = names

    def call(self):
        """(kind, text) of its failure; two empty texts if it passes."""
        self._compare.begin(self.id)
        try:
            if self._owner is None:
                self._plain(self._names[self._name])
            elif issubclass(self._owner, TestCase):
                self._in_case(self._owner())
            else:
                self._in_class(self._owner())
        except BaseException as error:  # noqa: BLE001 - whatever the tested code raises
            return type(error).__name__, shown(error)
        self._compare.end()
        return "", ""

    def _plain(self, function):
        for row in getattr(function, "_rows", [{}]):
            complete(function(**row))

    def _in_class(self, owner):
        before, after = getattr(owner, "setup_method", None), getattr(owner, "teardown_method", None)
        if before is not None:
            before()
        try:
            self._plain(getattr(owner, self._name))
        finally:
            if after is not None:
                after()

    def _in_case(self, case):
        case.compare = self._compare
        type(case).setUpClass()
        try:
            case.setUp()
            try:
                complete(getattr(case, self._name)())
            finally:
                case.tearDown()
        finally:
            while case._cleanups:
                case._cleanups.pop()()
            type(case).tearDownClass()


def complete(result):
    """Coroutines are run to their end."""
    if hasattr(result, "cr_await"):
        import asyncio

        asyncio.run(result)


class Replay:
    """All tests, called in one way after the other."""

    def __init__(self, job, send):
        self._job, self._send = job, send
        libraries = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        self._compare = Comparisons([os.path.dirname(os.__file__) + os.sep, "<frozen ", *libraries])
        self._tests = []

    def load(self):
        for file in self._job["files"]:
            names = {"__name__": file["module"], "__package__": file["package"], "__builtins__": __builtins__}
            names.update(
                _replay_equal=self._compare.equal,
                _replay_true=true,
                _replay_fresh=fresh,
                _replay_pytest=Pytest,
                _replay_unittest=Unittest,
            )
            try:
                exec(compile(file["text"], "<string>", "exec", dont_inherit=True), names)  # noqa: S102 - that is its use
                self._tests += [Test(one, names, self._compare) for one in file["tests"]]
            except BaseException as error:  # noqa: BLE001 - whatever the tested code raises
                for one in file["tests"]:
                    self._send("result", one["id"], "first", type(error).__name__, shown(error))

    def phase(self, name, around=lambda call: call()):
        """Each test once."""
        for test in self._tests:
            self._send("result", test.id, name, *around(test.call))

    def many(self):
        """Again and again, as long as there is time; the first failure of each test counts."""
        failed = {}
        end, rounds = time.monotonic() + self._job["seconds"], 0
        while rounds < MAX_ROUNDS and (rounds < 2 or time.monotonic() < end):
            rounds += 1
            for test in self._tests:
                kind, text = test.call()
                if kind and test.id not in failed:
                    failed[test.id] = (kind, "in call %d: %s" % (rounds + 1, text))
        for test in self._tests:
            self._send("result", test.id, "many", *failed.get(test.id, ("", "")))

    def kept(self):
        changed = self._compare.changed()
        for test in self._tests:
            self._send("result", test.id, "kept", *(("AssertionError", changed[test.id]) if test.id in changed else ("", "")))
        for test, kind, methods in self._compare.odd:
            self._send("odd", test, kind, [list(method) for method in methods])


def in_thread(call):
    import _thread

    lock, found = _thread.allocate_lock(), []

    def work():
        try:
            found.append(call())
        finally:
            lock.release()

    lock.acquire()
    _thread.start_new_thread(work, ())
    lock.acquire()
    return found[0] if found else ("thread", "the thread did not come to its end")


def in_loop(call):
    import asyncio

    async def work():
        return call()

    kind, text = asyncio.run(work())
    return ("", "") if "event loop" in text else (kind, text)  # what starts a loop of its own says so, loudly


def far_down(call, depth=DEPTH):
    return call() if depth == 0 else far_down(call, depth - 1)


def shift(job):
    """Other conditions than those of a test, before anything of the project is imported."""
    import gc
    import locale

    gc.disable()
    os.environ.update(TZ="XYZ-5:45", LANG="C", COLUMNS="53", HOME="/")
    time.tzset()
    try:
        locale.setlocale(locale.LC_ALL, "C")
    except locale.Error:
        return
    finally:
        sys.argv[:] = ["/usr/local/bin/program", "--verbose"]
        later(time, "time", 40 * 86400)
        for name in ("monotonic", "perf_counter", "process_time"):
            later(time, name, 5000)
        later(os, "getpid", 40000)


def later(module, name, by):
    real = getattr(module, name)
    setattr(module, name, lambda: real() + by)


def main():
    stream = sys.stdin.buffer
    route = eval(stream.readline())  # noqa: S307 - the supervisor's line
    job = eval(stream.read())  # noqa: S307 - the harness's
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    send = channel(route.pop("fd"), route.pop("key"))
    root = route["root"]
    leave, sleep = os._exit, time.sleep
    os.environ.update(route["environment"])
    os.environ.update(job["environment"])
    if job["shifted"]:
        shift(job)
    directory = os.path.join(root, job["directory"]) if job["directory"] else root
    os.chdir("/" if job["shifted"] else directory)
    paths = [os.path.normpath(os.path.join(root, path)) for path in job["paths"]]
    replay = Replay(job, send)
    # A plain program has an empty first place, which means the directory that it was started in.
    sys.path[:] = paths + [path for path in sys.path if path] if job["shifted"] else sys.path + paths
    replay.load()
    try:
        if job["shifted"]:
            replay.phase("shifted")
            replay.phase("loop", in_loop)
            sleep(job["pause"])
            replay.phase("pause")
        else:
            replay.phase("first")
            replay.phase("thread", in_thread)
            replay.phase("deep", far_down)
            replay.many()
            import gc

            gc.collect()
            replay.phase("collected")
            replay.kept()
        send("end")
    finally:
        sys.stdout.flush()
        leave(0)


if __name__ == "__main__":
    main()
