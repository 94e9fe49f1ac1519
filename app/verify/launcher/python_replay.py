"""Runs inside the sandbox: calls the functions of tests in a process that has no test framework.

Stand-alone and standard library only; it is executed behind `python_test_doubles`, whose names it uses. Where the text
of the tests was executed as a plain program before, `first` has the results. Its input is a line with the channel
(`supervise`), then one Python literal: `files` (`package`, `file`, `text`, `recorded` with each call as one of
`_replay_call`, `tests` as `id`, `owner`, `name`), `paths`, `shifted` (under other conditions than a test has),
`seconds` (how long the calls are repeated), `pause`.

Messages are Python literals: ("result", id, phase, kind, text), where an empty kind means that the test passed there;
("odd", id, class, methods) for a result that is a changed built-in type, or without methods one that is of another
type than what it is compared with; ("end",).
"""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    first: dict[str, tuple[str, str]]
    stays: ProcessStays
    from app.verify.launcher.python_test_doubles import (
        CALLS_SECONDS,
        Printed,
        ProcessStays,
        Pytest,
        RecordedCalls,
        TestCase,
        Unittest,
        compare,
        fresh,
        open_files,
        shown,
        true,
    )

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]  # Python 3.12 and later
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]

DEPTH = 150
MAX_ROUNDS = 600
FORK_SECONDS = 5.0


def channel(descriptor: Any, key: Any) -> Any:
    """A function that sends one message to the supervisor, with a keyed digest by hand."""
    os.set_inheritable(descriptor, False)
    padded = bytes.fromhex(key).ljust(64, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in padded)) for pad in (54, 92))
    state, own = [0], os.getpid()

    def send(*parts: Any, _write: Any = os.write, _text: Any = ascii, _pid: Any = os.getpid) -> None:
        if _pid() != own:
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


# ---- The tests


class ReplayedFunction:
    """One function, with its rows of parameters."""

    def __init__(self, given: Any, names: Any, compare: Any) -> None:
        self.id = given["id"]
        self._compare = compare
        self._owner = names[given["owner"]] if given["owner"] else None
        self._name = given["name"]
        self._names = names

    def call(self) -> Any:
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

    def _plain(self, function: Any) -> None:
        for row in getattr(function, "_rows", [{}]):
            run_coroutine(function(**row))

    def _in_class(self, owner: Any) -> None:
        before, after = getattr(owner, "setup_method", None), getattr(owner, "teardown_method", None)
        if before is not None:
            before()
        try:
            self._plain(getattr(owner, self._name))
        finally:
            if after is not None:
                after()

    def _in_case(self, case: Any) -> None:
        case.compare = self._compare
        type(case).setUpClass()
        try:
            case.setUp()
            try:
                run_coroutine(getattr(case, self._name)())
            finally:
                case.tearDown()
        finally:
            while case._cleanups:
                case._cleanups.pop()()
            type(case).tearDownClass()


def run_coroutine(result: Any) -> None:
    """Coroutines are run to their end."""
    if hasattr(result, "cr_await"):
        import asyncio

        asyncio.run(result)


class Replay:
    """All tests, called in one way after the other."""

    def __init__(self, job: Any, send: Any, compare: Any) -> None:
        self._job, self._send, self._compare = job, send, compare
        self._tests: list[ReplayedFunction] = []
        self._calls = RecordedCalls(compare)

    def load(self, form: Any = "text") -> None:
        self._tests = []
        for file in self._job["files"]:
            names = {"__name__": file["module"], "__package__": file["package"], "__builtins__": __builtins__}
            names.update(
                _replay_equal=self._compare.equal,
                _replay_true=true,
                _replay_given=self._compare.given,
                _replay_call=self._calls.call,
                _replay_fresh=fresh,
                _replay_pytest=Pytest,
                _replay_unittest=Unittest,
            )
            if file["file"]:
                names["__file__"] = file["file"]
            try:
                exec(compile(file[form], "<string>", "exec", dont_inherit=True), names)  # noqa: S102 - that is its use
                self._tests += [ReplayedFunction(one, names, self._compare) for one in file["tests"]]
            except BaseException as error:  # noqa: BLE001 - whatever the tested code raises
                for one in file["tests"]:
                    self._send("result", one["id"], "loaded", type(error).__name__, shown(error))

    def phase(self, name: Any, around: Any = lambda call: call()) -> None:
        """Each test once."""
        for test in self._tests:
            self._send("result", test.id, name, *around(test.call))

    def arguments(self, stays: ProcessStays) -> None:
        """Checks whether containers passed to calls were modified, and what is shared with the process."""
        files, real = open_files(), sys.stdout
        sys.stdout = printed = Printed(real)
        for test in self._tests:
            test.call()
            text = self._compare.touched()
            if text is not None:
                self._send("result", test.id, "arguments", "changed" if text else "", text)
        sys.stdout = real
        found = [*stays.changed(), *(["the output"] if printed.text else [])]
        found += ["open files"] if open_files() > files else []
        for test in self._tests[:1]:
            self._send("result", test.id, "process", "changed" if found else "", repr(found))

    def varied(self) -> None:
        """Each call of the tests in other forms, in a child process, as long as there is time."""
        self.load("recorded")
        for test in self._tests:
            test.call()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                sys.stdout = Printed(sys.stdout)
                self._calls.examine(lambda *entries: os.write(writing, ascii(entries).encode() + b"\n"))
            finally:
                os._exit(0)
        os.close(writing)
        found: dict[str, dict[str, str]] = {}
        for line in lines_of(reading, CALLS_SECONDS):
            name, what, problem = eval(line)  # noqa: S307 - as our own program writes it
            found.setdefault(name, {})[what] = problem
        os.close(reading)
        os.kill(child, 9)
        os.waitpid(child, 0)
        for name, entries in found.items():
            self._send("result", name, "varied", "differs" if any(entries.values()) else "", repr(entries))

    def forked(self) -> Any:
        """Each test once in a child process, until one does not end there, which says nothing of its result.

        True if all ended.
        """
        ends = True
        for test in self._tests:
            found = call_in_fork(test.call) if ends else None
            ends = found is not None
            if found is not None:
                self._send("result", test.id, "forked", *found)
            else:
                self._send("result", test.id, "forked_end", "fork", "there is no result")
        return ends

    def many(self) -> None:
        """Again and again, as long as there is time; the first failure of each test counts."""
        failed = {}
        end, rounds = time.monotonic() + self._job["seconds"], 0
        while rounds < MAX_ROUNDS and (rounds < 2 or time.monotonic() < end):
            rounds += 1
            for test in self._tests:
                kind, text = test.call()
                if kind and test.id not in failed:
                    failed[test.id] = (kind, f"in call {rounds + 1}: {text}")
        for test in self._tests:
            self._send("result", test.id, "many", *failed.get(test.id, ("", "")))

    def kept(self) -> None:
        changed: dict[str, str] = {}
        for test in self._tests:
            test.call()
            changed.update(self._compare.changed())
        for test in self._tests:
            self._send(
                "result", test.id, "kept", *(("AssertionError", changed[test.id]) if test.id in changed else ("", ""))
            )
        for test, kind, methods in self._compare.odd:
            if methods or kind.partition(" ")[0] not in self._compare.usual:
                self._send("odd", test, kind, [list(method) for method in methods])


def call_in_thread(call: Any) -> Any:
    import _thread

    lock, found = _thread.allocate_lock(), []

    def work() -> None:
        try:
            found.append(call())
        finally:
            lock.release()

    lock.acquire()
    _thread.start_new_thread(work, ())
    lock.acquire()
    return found[0] if found else ("thread", "the thread did not finish")


def call_in_fork(call: Any) -> Any:
    """In a child process; None if it does not end there in time, such as where it waits for a thread of its parent."""
    import select

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, "\0".join(call()).encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(writing)
    ended, _, _ = select.select([reading], [], [], FORK_SECONDS)
    text = os.read(reading, 65536) if ended else b""
    os.close(reading)
    os.kill(child, 9)
    os.waitpid(child, 0)
    kind, separator, shown_text = text.decode("utf-8", "replace").partition("\0")
    if not ended:
        return None
    return (kind, shown_text) if separator else ("fork", "the forked process ended without a result")


def lines_of(reading: Any, seconds: Any) -> Any:
    """What a child process writes, as long as it writes and there is time."""
    import select

    end, text, more = time.monotonic() + seconds, b"", b"begin"
    while more and select.select([reading], [], [], max(0, end - time.monotonic()))[0]:
        more = os.read(reading, 65536)
        text += more
    return text.decode("ascii").splitlines() if text.endswith(b"\n") else text.decode("ascii").splitlines()[:-1]


def call_in_event_loop(call: Any) -> Any:
    import asyncio

    async def work() -> Any:
        return call()

    kind, text = asyncio.run(work())
    return ("", "") if "event loop" in text else (kind, text)  # what starts a loop of its own says so, loudly


def call_deep_in_stack(call: Any, depth: Any = DEPTH) -> Any:
    return call() if depth == 0 else call_deep_in_stack(call, depth - 1)


def alter_environment() -> None:
    """Other conditions than those of a test, before anything of the project is imported."""
    import gc
    import locale

    gc.disable()
    os.environ.update(LANG="C", TERM="xterm", COLUMNS="53", HOME="/")
    try:
        locale.setlocale(locale.LC_ALL, "C")
    except locale.Error:
        return
    finally:
        sys.argv[:] = ["/usr/local/bin/program", "--verbose"]
        advance_clock(time, "time", 3300 * 86400)
        for name in ("monotonic", "perf_counter"):
            advance_clock(time, name, 5000)
        time.gmtime, time.localtime = with_current_time(time.gmtime), with_current_time(time.localtime)
        advance_clock(time, "process_time", -time.process_time())
        advance_clock(os, "getpid", 40000)


def forget_decimal_context() -> None:
    """What a test or its file sets in it is not there for other callers."""
    decimal = sys.modules.get("decimal")
    if decimal is not None:
        decimal.setcontext(decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN))


def link_as_installed_packages(paths: Any) -> Any:
    """The directories under names that those of installed packages have."""
    import tempfile

    found = [os.path.join(tempfile.mkdtemp(), "site-packages") for _ in paths]
    for path, link in zip(paths, found):
        os.symlink(os.path.abspath(path), link)
    return found


def with_current_time(read: Any) -> Any:
    """`time.gmtime` and the like, which do not ask `time.time`."""
    return lambda *given: read(*given or (time.time(),))


def advance_clock(module: Any, name: Any, by: Any) -> None:
    real = getattr(module, name)
    setattr(module, name, lambda: real() + by)


def main() -> None:
    stream = sys.stdin.buffer
    route = eval(stream.readline())  # noqa: S307 - the supervisor's line
    job = eval(stream.read())  # noqa: S307 - the harness's
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    send = channel(route["fd"], route["key"])
    leave, sleep = os._exit, time.sleep
    for file in job["files"]:
        file["file"] = os.path.abspath(file["file"]) if file["file"] else ""
    if job["shifted"]:
        sys.path[:] = [*link_as_installed_packages(job["paths"]), *(path for path in sys.path if path)]
        alter_environment()
        os.chdir("/")
    replay = Replay(job, send, compare)
    try:
        for name, (kind, text) in first.items():
            send("result", name, "first", kind, text)
        replay.load()
        if job["shifted"]:
            forget_decimal_context()
            replay.phase("shifted")
            replay.phase("loop", call_in_event_loop)
            sleep(job["pause"])
            replay.phase("pause")
        else:
            replay.phase("plain")
            replay.arguments(stays)
            replay.phase("thread", call_in_thread)
            ends = replay.forked()
            replay.phase("deep", call_deep_in_stack)
            replay.many()
            import gc

            gc.collect()
            replay.phase("collected")
            replay.kept()
            if ends:
                replay.varied()
        send("end")
    finally:
        sys.stdout.flush()
        leave(0)


if __name__ == "__main__":
    main()
