"""Runs inside the sandbox: executes chosen tests of pytest, unittest or Django and reports each over a channel.

Stand-alone and standard library only. It loads the framework and its plugins before the project's directories come
onto the path. Its input is a line with the channel (`supervise`), then one JSON document: `framework`, `ids`,
`arguments`, `directory`, `environment`, `as_module` (the directory goes onto the path, as `python -m` does), `watch`
(files whose executed lines are asked for). Without `ids` the framework executes what the arguments choose.

Messages are Python literals: ("begin", id), ("test", id, status, plain, text), ("file", path, text), ("own",) where
the framework is the project's, ("apart",) where other processes execute the tests, ("missing", module),
("lines", path, numbers), ("programs", count), ("end", exit code).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import runpy
import sys
import threading
import traceback
import unittest
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

MAX_TEXT = 20_000
NEEDED_LATER = (
    *("argparse", "ast", "bdb", "cmd", "code", "codeop", "contextlib", "copy", "datetime", "decimal", "difflib"),
    *("dis", "doctest", "faulthandler", "fnmatch", "gc", "getpass", "glob", "heapq", "html", "inspect", "io"),
    *("json", "linecache", "locale", "logging", "math", "numbers", "pdb", "platform", "posixpath", "pprint", "queue"),
    *("re", "shlex", "shutil", "signal", "stat", "string", "struct", "subprocess", "tempfile", "textwrap", "time"),
    *("timeit", "token", "tokenize", "tomllib", "types", "typing", "uuid", "warnings", "weakref", "zipfile"),
    *("zipimport", "asyncio", "concurrent.futures", "importlib.metadata", "importlib.resources"),
    *("logging.handlers", "xml.etree.ElementTree"),
    *("unittest.async_case", "unittest.case", "unittest.loader", "unittest.main", "unittest.mock", "unittest.result"),
    *("unittest.runner", "unittest.signals", "unittest.suite", "unittest.util", "urllib.parse", "encodings.idna"),
)
"""Modules that frameworks import late: a file of that name next to the tests must not be imported instead."""


class ReportChannel:
    """Sends messages to the supervisor. Everything it calls is part of the interpreter, and bound at the start."""

    def __init__(self, descriptor: int, key: str) -> None:
        os.set_inheritable(descriptor, False)
        # An HMAC by hand: the module `hmac` is written in Python, which tested code could change.
        inner, outer = (
            hashlib.sha256(bytes(byte ^ pad for byte in bytes.fromhex(key).ljust(64, b"\0"))) for pad in (54, 92)
        )
        lock = threading.Lock()
        count = 0

        def send(
            *parts: Any,
            _write: Callable[[int, bytes], int] = os.write,
            _text: Callable[[object], str] = ascii,
            _pid: Callable[[], int] = os.getpid,
            _own: int = os.getpid(),
            _lock: Any = lock,
        ) -> None:
            nonlocal count
            if _pid() != _own:  # a test forked, and its child runs this code too
                return
            with _lock:
                text = _text(parts).encode()
                digest, mac = inner.copy(), outer.copy()
                digest.update(b"%d:%b" % (count, text))
                mac.update(digest.digest())
                line = b"%d %b %b\n" % (count, mac.hexdigest().encode(), text)
                count += 1
                while line:
                    line = line[_write(descriptor, line) :]

        self.send = send


class LineTracer:
    """Records which lines of the watched files are executed, from the first import on."""

    def __init__(self, watched: list[str]) -> None:
        self._names = {os.path.realpath(path): path for path in watched}
        self._known: dict[str, str | None] = {}
        self.found: dict[str, set[int]] = {path: set() for path in watched}
        self.programs = 0

    def start(self) -> None:
        if not self.found:
            return
        sys.addaudithook(self._audit)
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            threading.settrace(self._trace)
            sys.settrace(self._trace)

    def _monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        tool = next((number for number in (4, 5, 3, 1) if monitoring.get_tool(number) is None), 4)
        monitoring.use_tool_id(tool, "lines")

        def line(code: CodeType, number: int) -> Any:
            path = self._path(code.co_filename)
            if path is not None:
                self.found[path].add(number)
            return monitoring.DISABLE

        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        path = self._path(frame.f_code.co_filename)
        if path is None:
            return None
        lines = self.found[path]

        def each(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return each

        lines.add(frame.f_lineno)
        return each

    def _audit(self, event: str, _: Any) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.spawn", "os.exec", "os.system"):
            self.programs += 1

    def _path(self, name: str) -> str | None:
        try:
            return self._known[name]
        except KeyError:
            found = self._names.get(os.path.realpath(name))
            self._known[name] = found
            return found


class ReportedCase:
    """A test in progress: the results of its phases."""

    def __init__(self) -> None:
        self.status = ""
        self.plain = True
        self.text = ""
        self.raised: Any = None
        """The kind of failure and the exception, until a report says what became of it."""

    def report(self, status: str, text: str = "", *, plain: bool = True) -> None:
        """The worst result counts, with the text of its first report."""
        rank = {"": 0, "passed": 1, "skipped": 2, "error": 3, "failed": 4}
        self.plain = self.plain and plain
        if rank[status] > rank[self.status]:
            self.status, self.text = status, text


def shortened(text: str) -> str:
    half = MAX_TEXT // 2
    return text if len(text) <= MAX_TEXT else f"{text[:half]}\n…\n{text[-half:]}"


def preload(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:  # not in this version, or not in this build
            continue


# ---- pytest


def load_pytest() -> ModuleType:
    pytest = importlib.import_module("pytest")
    inner = importlib.import_module("_pytest")
    names = [found.name for found in pkgutil.walk_packages(inner.__path__, "_pytest.")]
    others = ("iniconfig", "pluggy", "packaging.version", "packaging.requirements", "pygments.formatters")
    preload((*names, *others, "exceptiongroup"))
    return pytest


class SelectionPlugin:
    """A plugin that chooses tests, orders them, and watches each phase. `HOOKS` has what it needs of pluggy."""

    def __init__(self, job: dict[str, Any], reports: ReportChannel) -> None:
        self._job = job
        self._root: str = job["root"]
        self._wanted: list[str] = job["ids"]
        self._send = reports.send
        self._skips = (importlib.import_module("_pytest.outcomes").Skipped, unittest.SkipTest)
        self._case = ReportedCase()
        self._top = self._root

    def _name(self, item: Any) -> str:
        path = os.path.relpath(str(getattr(item, "path", None) or item.fspath), self._root)
        return "::".join([path, *item.nodeid.split("::")[1:]])

    def _place(self, item: Any) -> int:
        """A test's position in our order; unrequested tests come last."""
        name = self._name(item)
        for number, one in enumerate(self._wanted):
            if name == one or name.startswith((f"{one}[", f"{one}::")):
                return number
        return len(self._wanted)

    def pytest_load_initial_conftests(self, early_config: Any, args: list[str]) -> None:
        if early_config.pluginmanager.hasplugin("xdist") and self._wanted:
            args.append("-n0")
        if early_config.pluginmanager.hasplugin("pytest_cov") and self._wanted:
            args.append("--no-cov")  # a few tests do not reach what the whole suite has to cover
            early_config.known_args_namespace.no_cov = True
        self._top = str(early_config.rootpath if hasattr(early_config, "rootpath") else early_config.rootdir)
        enter_project(self._job)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> Iterator[None]:
        yield
        if not self._wanted:
            return
        places = {id(item): self._place(item) for item in items}
        chosen = [item for item in items if places[id(item)] < len(self._wanted)]
        left_out = [item for item in items if places[id(item)] == len(self._wanted)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
        items[:] = sorted(chosen, key=lambda item: places[id(item)])

    def pytest_collection(self, session: Any) -> None:
        if session.config.pluginmanager.hasplugin("dsession"):  # what other processes execute is not seen here
            self._send("apart")
            session.shouldstop = "the tests are executed by several processes"

    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self._case = ReportedCase()
        self._send("begin", self._name(item))
        yield
        case = self._case
        self._send("test", self._name(item), case.status or "error", case.plain, shortened(case.text))

    def pytest_runtest_setup(self) -> Iterator[None]:
        self._case = ReportedCase()  # a plugin may run a test again: its last attempt counts
        yield from self._phase("error")

    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._phase("failed", passed="passed")

    def pytest_runtest_teardown(self) -> Iterator[None]:
        yield from self._phase("error")

    def _phase(self, failed: str, passed: str = "") -> Generator[None, Any, None]:
        case = self._case
        outcome = yield
        raised = outcome.excinfo
        if raised is None:
            case.report(passed)
        elif issubclass(raised[0], self._skips):
            case.report("skipped", str(raised[1]))
        else:
            case.raised = (failed, raised)

    def pytest_runtest_logreport(self, report: Any) -> None:
        case = self._case
        raised, case.raised = case.raised, None
        if getattr(report, "wasxfail", None) is not None:
            case.report("skipped" if report.outcome == "skipped" else "passed", plain=False)
        elif report.outcome == "failed":
            case.report("failed" if report.when == "call" else "error", report.longreprtext)
        elif raised is not None and report.outcome == "passed":  # something reports a failure as another result
            case.report(raised[0], "".join(traceback.format_exception(*raised[1])), plain=False)
        elif report.outcome == "skipped" and not type(report).__name__.lower().startswith("subtest"):
            case.report("skipped", plain=False)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            path = os.path.relpath(Path(self._top, report.nodeid.split("::")[0]), self._root)
            self._send("file", path, shortened(str(report.longreprtext)))


HOOKS: dict[str, dict[str, bool]] = {
    "pytest_load_initial_conftests": {"tryfirst": True},
    "pytest_collection": {"tryfirst": True},
    "pytest_collection_modifyitems": {"hookwrapper": True, "tryfirst": True},
    "pytest_runtest_protocol": {"hookwrapper": True, "tryfirst": True},
    # Inside all other wrappers, which may turn an exception into something else.
    "pytest_runtest_setup": {"hookwrapper": True, "trylast": True},
    "pytest_runtest_call": {"hookwrapper": True, "trylast": True},
    "pytest_runtest_teardown": {"hookwrapper": True, "trylast": True},
}


def run_pytest(job: dict[str, Any], reports: ReportChannel) -> int:
    try:
        pytest = load_pytest()
    except ModuleNotFoundError as error:
        reports.send("missing", str(error.name))
        return 1
    for name, options in HOOKS.items():
        setattr(SelectionPlugin, name, pytest.hookimpl(**options)(getattr(SelectionPlugin, name)))
    if Path(job["root"]) in Path(str(pytest.__file__)).parents:
        reports.send("own")
    sys.path.extend(job["paths"])  # for plugins of the project named by its options: behind everything installed
    arguments = [*job["arguments"], "--maxfail=0", "--continue-on-collection-errors"]
    arguments += ["-k", "", "-m", ""] if job["ids"] else []
    files = dict.fromkeys(one.split("::")[0] for one in job["ids"])
    arguments += [os.path.relpath(Path(job["root"], file)) for file in files if Path(job["root"], file).exists()]
    return int(pytest.main(arguments, plugins=[SelectionPlugin(job, reports)]))


# ---- unittest and Django


class UnittestRecorder(unittest.TestResult):
    """Results of unittest; a test is reported when it is over."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send = send
        self._cases: dict[int, ReportedCase] = {}
        self.unloaded: dict[int, str] = {}
        """Requested ids by the placeholder for tests that could not be loaded."""
        self.failed = False

    def _name(self, test: Any) -> str:
        return self.unloaded.get(id(test)) or test.id()

    def startTest(self, test: Any) -> None:  # noqa: N802 - unittest's names here and below
        self._cases[id(test)] = ReportedCase()
        self._send("begin", self._name(test))
        super().startTest(test)

    def stopTest(self, test: Any) -> None:  # noqa: N802
        super().stopTest(test)
        case = self._cases.pop(id(test), ReportedCase())
        self._send("test", self._name(test), case.status or "error", case.plain, shortened(case.text))

    def _say(self, test: Any, status: str, text: str = "", *, plain: bool = True) -> None:
        self.failed = self.failed or status in ("failed", "error")
        if id(test) in self._cases:
            self._cases[id(test)].report(status, text, plain=plain)
        else:  # setUpClass and the like
            self._send("test", test.id(), status, plain, shortened(text))

    def _failure_text(self, error: Any) -> str:
        return "".join(traceback.format_exception(*error))

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        self._say(test, "passed")

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self._say(test, "failed", self._failure_text(err))

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._say(test, "error", self._failure_text(err))

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self._say(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self._say(test, "passed", plain=False)

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self._say(test, "failed", "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            kind = "failed" if issubclass(err[0], test.failureException) else "error"
            self._say(test, kind, f"{subtest}\n{self._failure_text(err)}")


def run_unittest(job: dict[str, Any], reports: ReportChannel) -> int:
    run, load = unittest.TestSuite.run, unittest.TestLoader().loadTestsFromName
    recorder = UnittestRecorder(reports.send)
    suites = []
    main = unittest.TestProgram
    enter_project(job)
    if not job["ids"]:
        return run_unittest_command(main, job["arguments"], run, recorder)
    for name in job["ids"]:
        tests = load(name)
        suites.append(tests)
        if isinstance(tests, unittest.TestSuite):
            recorder.unloaded |= {id(test): name for test in tests if type(test).__name__ == "_FailedTest"}
    run(unittest.TestSuite(suites), recorder)
    return 1 if recorder.failed else 0


def run_unittest_command(
    main: type[unittest.TestProgram], arguments: list[str], run: Callable[..., Any], recorder: UnittestRecorder
) -> int:
    """All tests that `python -m unittest` finds with these arguments, or that they name."""

    class RecordingRunner:
        def run(self, tests: Any) -> UnittestRecorder:
            run(unittest.TestSuite([tests]), recorder)
            return recorder

    runner: Any = RecordingRunner()
    started = main(module=None, argv=["python -m unittest", *arguments], testRunner=runner, exit=False)
    return 1 if recorder.failed or started.result is not recorder else 0


def run_django(job: dict[str, Any], reports: ReportChannel) -> int:
    """`manage.py test` with Django's own runner, whose results are all children of unittest's."""
    recorder = UnittestRecorder(reports.send)
    names = ("startTest", "stopTest", "addSuccess", "addFailure", "addError", "addSkip", "addExpectedFailure")
    for name in (*names, "addUnexpectedSuccess", "addSubTest"):
        _also_record(name, getattr(recorder, name))
    preload(("django", "django.test", "django.test.runner", "django.core.management"))
    enter_project(job)
    sys.argv = ["manage.py", *job["arguments"], *job["ids"]]
    try:
        runpy.run_path("manage.py", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _also_record(name: str, record: Callable[..., None]) -> None:
    own = getattr(unittest.TestResult, name)

    def both(result: Any, *arguments: Any) -> Any:
        if not isinstance(result, UnittestRecorder):
            record(*arguments)
        return own(result, *arguments)

    setattr(unittest.TestResult, name, both)


# ---- the start


def enter_project(job: dict[str, Any]) -> None:
    """From here on the project's own modules can be imported."""
    os.environ.update(job["environment"])
    for path in job["paths"]:
        if path in sys.path:
            sys.path.remove(path)
    sys.path[:0] = job["paths"]


def project_paths(job: dict[str, Any]) -> list[str]:
    """What the project's command puts at the start of the path."""
    directory = str(Path(job["root"], job["directory"]))
    own = [directory] if job["as_module"] and not job["environment"].get("PYTHONSAFEPATH") else []
    given = job["environment"].get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys(own + [os.path.normpath(Path(directory, path)) for path in given if path]))


def main() -> None:
    leave = os._exit
    stream = sys.stdin.buffer
    route = json.loads(stream.readline())
    job = json.load(stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    reports = ReportChannel(route.pop("fd"), route.pop("key"))
    send = reports.send
    job["root"] = route["root"]
    job["environment"] = {**route["environment"], **job["environment"]}
    job["paths"] = project_paths(job)
    sys.path[:] = [path for path in sys.path if path]
    preload(NEEDED_LATER)
    runs = {"pytest": run_pytest, "unittest": run_unittest, "django": run_django}
    os.chdir(Path(job["root"], job["directory"]))
    sys.argv = ["tests"]
    lines = LineTracer([str(Path(job["root"], path)) for path in job["watch"]])
    lines.start()
    code = 1
    try:
        code = runs[job["framework"]](job, reports)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        for path, numbers in lines.found.items():
            send("lines", os.path.relpath(path, job["root"]), sorted(numbers))
        send("programs", lines.programs)
        send("end", code)
        leave(code)


if __name__ == "__main__":
    main()
