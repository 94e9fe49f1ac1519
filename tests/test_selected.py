"""Chosen tests on small real projects, in a real sandbox: what honest code and liars get out of it."""

import os
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.patch import FileChange, Patch
from app.sandbox.base import Sandbox
from app.sandbox.bubblewrap import BubblewrapProvider
from app.verify.detect import find_suite
from app.verify.evidence import TestRun, TestSelection
from app.verify.selected import run_selected
from tests.fakes.memory_tree import MemoryTree
from tests.fakes.projects import ProjectWorkspaces, patch_of


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapProvider:
    root = tmp_path_factory.mktemp("selected")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return BubblewrapProvider(root / "sandboxes", caches=root / "caches", environment=environment)


class Project:
    """A tree in memory with its suite; `run` executes chosen tests on it, or on it with changes."""

    def __init__(self, provider: BubblewrapProvider, files: Mapping[str, str]) -> None:
        self.tree = MemoryTree({path: _text(content) for path, content in files.items()})
        suite = find_suite(self.tree)
        assert suite is not None
        self.suite = suite
        self.workspaces = ProjectWorkspaces(provider, self.tree, with_pytest=suite.framework == "pytest")

    @asynccontextmanager
    async def borrow(self, name: str, patch: Patch | None) -> AsyncIterator[Sandbox]:
        sandbox = await self.workspaces.fresh(name, patch)
        try:
            yield sandbox
        finally:
            await sandbox.destroy()

    async def run(
        self,
        *ids: str,
        changes: Mapping[str, str | None] | None = None,
        tests: Mapping[str, str] | None = None,
        seed: int = 1,
        watch: Mapping[str, set[int]] | None = None,
        timeout: float = 60.0,
    ) -> TestRun:
        patch = patch_of({path: _text(text) if text else None for path, text in changes.items()}) if changes else None
        files = tuple(
            FileChange(path=path, mode="100644", content=_text(text)) for path, text in (tests or {}).items()
        )
        selection = TestSelection(files=files, ids=ids)
        return await run_selected(
            self.suite, selection, self.borrow, patch, name="tests", timeout=timeout, seed=seed, watch=watch
        )


def _text(content: str) -> bytes:
    return textwrap.dedent(content).encode()


MONEY = {
    "money.py": """\
        def add(a, b):
            return a - b


        def half(a):
            if a % 2:
                raise ValueError("odd")
            return a // 2
        """,
    "tests/test_money.py": """\
        import pytest

        import money


        def test_add():
            assert money.add(1, 2) == 3


        @pytest.mark.parametrize("a, b", [(4, 2), (6, 3)])
        def test_half(a, b):
            assert money.half(a) == b


        class TestErrors:
            def test_odd(self):
                with pytest.raises(ValueError):
                    money.half(3)
        """,
}
IDS = ("tests/test_money.py::test_add", "tests/test_money.py::test_half", "tests/test_money.py::TestErrors::test_odd")
FIXED = {"money.py": MONEY["money.py"].replace("a - b", "a + b")}


async def test_pytest_reports_each_id_on_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, MONEY)
    base = await project.run(*IDS)
    assert base.untrusted == ""
    assert base.results == ((IDS[0], "failed"), (IDS[1], "passed"), (IDS[2], "passed"))
    assert dict(base.texts)[IDS[0]].endswith("AssertionError")
    assert "assert -1 == 3" in dict(base.texts)[IDS[0]]
    assert base.execution.exit_code == 1
    head = await project.run(*IDS, changes=FIXED, watch={"money.py": {1}})
    assert (head.untrusted, {status for _, status in head.results}) == ("", {"passed"})
    assert head.execution.exit_code == 0
    assert head.measured
    assert {2, 6, 7, 8} <= set(dict(head.executed)["money.py"])


LIES = {
    "reports are rewritten": """
        import _pytest.reports
        made = _pytest.reports.TestReport.from_item_and_call.__func__
        def lie(cls, item, call):
            report = made(cls, item, call)
            report.outcome, report.longrepr = "passed", None
            return report
        _pytest.reports.TestReport.from_item_and_call = classmethod(lie)
        """,
    "a plugin that swallows": """
        import gc, pytest
        class Swallows:
            @pytest.hookimpl(hookwrapper=True)
            def pytest_runtest_call(self, item):
                outcome = yield
                outcome.force_result(None)
        from _pytest.config import PytestPluginManager
        for thing in gc.get_objects():
            if isinstance(thing, PytestPluginManager):
                thing.register(Swallows())
        """,
    "nothing is run": """
        import _pytest.python
        _pytest.python.Function.runtest = lambda self: None
        """,
    "nothing is run, in another way": """
        import _pytest.runner
        inner = _pytest.runner.CallInfo.from_call.__func__
        def quiet(cls, func, when, reraise=None):
            return inner(cls, (lambda: None) if when == "call" else func, when, reraise)
        _pytest.runner.CallInfo.from_call = classmethod(quiet)
        """,
    "functions of tests are emptied": """
        import gc, types
        def nothing(): pass
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType) and thing.__name__.startswith("test_"):
                thing.__code__ = nothing.__code__
        real = __build_class__
        import sys
        def emptied(frame, event, arg):
            if frame.f_code.co_name.startswith("test_") and event == "call":
                frame.f_trace_lines = True
                return over
        def over(frame, event, arg):
            if event == "line":
                try:
                    frame.f_lineno = max(line for *_, line in frame.f_code.co_lines() if line) + 0
                except ValueError:
                    pass
            return over
        """,
    "equal to everything": """
        class Everything(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            __hash__ = None
        def add(a, b): return Everything(a - b)
        """,
    "an early exit": """
        import os
        os._exit(0)
        """,
    "an exit at the end": """
        import atexit, os
        def add(a, b): os._exit(0)
        atexit.register(os._exit, 0)
        """,
    "a polite exit": """
        def add(a, b): raise SystemExit(0)
        """,
    "skipped": """
        import pytest
        def add(a, b): pytest.skip("not today")
        """,
    "expected to fail": """
        import pytest
        def add(a, b): pytest.xfail("known")
        """,
    "what the caller expects": """
        import ast, linecache, sys
        def add(a, b):
            frame = sys._getframe(1)
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            return ast.literal_eval(line.rpartition("==")[2].strip().rstrip(")") or "0")
        """,
    "only for a known name": """
        import sys
        def add(a, b):
            return a + b if sys._getframe(1).f_code.co_name == "test_add" else a - b
        """,
    "only in a known file": """
        import sys
        def add(a, b):
            return a + b if sys._getframe(1).f_code.co_filename.endswith("/test_money.py") else a - b
        """,
    "not run under a known name": """
        import _pytest.python
        inner = _pytest.python.Function.runtest
        def runtest(self):
            if self.name != "test_add":
                inner(self)
        _pytest.python.Function.runtest = runtest
        """,
    "not run where the framework says which": """
        import os
        def add(a, b):
            return a + b if "test_add" in os.environ.get("PYTEST_CURRENT_TEST", "") else a - b
        """,
    "results of its own": """
        import gc, os
        for thing in gc.get_objects():
            if type(thing).__name__ == "Reports":
                for name in ("add", "half[4-2]", "half[6-3]"):
                    thing.send("test", f"tests/test_money.py::test_{name}", "passed", True, "")
                thing.send("test", "tests/test_money.py::TestErrors::test_odd", "passed", True, "")
                thing.send("end", 0)
                os._exit(0)
        """,
    "noise in every descriptor": """
        import os
        for number in range(3, 1000):
            try:
                os.write(number, b"0 00 ('test',)\\n")
            except OSError:
                pass
        def add(a, b): return a + b if False else a - b
        """,
    "an end to its parent": """
        import os, signal
        os.kill(os.getppid(), signal.SIGKILL)
        """,
    "a forked copy": """
        import os
        if os.fork() == 0:
            os._exit(0)
        """,
    "the parent's memory": """
        import os
        parent = os.getppid()
        for name in ("mem", "fd/1", "environ"):
            try:
                open(f"/proc/{parent}/{name}", "rb+").close()
            except OSError:
                continue
            raise SystemExit(f"{name} was opened")
        """,
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_of_the_product_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    project = Project(provider, MONEY)
    head = await project.run(*IDS, changes={"money.py": textwrap.dedent(MONEY["money.py"]) + _text(LIES[lie]).decode()})
    assert head.untrusted or dict(head.results)[IDS[0]] != "passed", (lie, head)
    print(lie, "|", head.untrusted, head.results, head.execution.excerpt[-300:])
