"""Chosen tests on small real projects, in a real sandbox: what honest code and liars get out of it."""

import textwrap

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.selecting import Project

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


async def test_a_test_of_which_no_copy_can_be_made_is_named(provider: BubblewrapProvider) -> None:
    made = (
        "import money\n\n\ndef make():\n    def made():\n        assert money.add(1, 2) == 3\n\n    return made\n\n\n"
    )
    files = {**MONEY, **FIXED, "tests/test_made.py": f"{made}test_made = make()\n"}
    found = await Project(provider, files).run(*IDS, "tests/test_made.py::test_made")
    assert {status for _, status in found.results} == {"passed"}
    assert (found.untrusted, found.unchecked) == ("", ("tests/test_made.py::test_made",))


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
async def test_a_patched_assertion_in_the_product_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    product = MONEY["money.py"] + textwrap.indent(textwrap.dedent(LIES[lie]), " " * 8)
    head = await Project(provider, MONEY).run(*IDS, changes={"money.py": product})
    assert head.untrusted or dict(head.results)[IDS[0]] != "passed", (lie, head)


async def test_modules_beside_the_tests_do_not_take_the_place_of_the_frameworks_own(
    provider: BubblewrapProvider,
) -> None:
    shadow = """\
        import _pytest.python
        _pytest.python.Function.runtest = lambda self: None
        """
    names = ("argparse", "difflib", "iniconfig", "doctest", "pdb", "pprint", "unittest", "inspect", "traceback")
    shadows = {f"{directory}{name}.py": shadow for directory in ("", "tests/") for name in names}
    head = await Project(provider, MONEY).run(*IDS, changes={"money.py": MONEY["money.py"] + "\n", **shadows})
    assert (head.untrusted, [status for _, status in head.results]) == ("", ["failed", "passed", "passed"])


HONEST = {
    "counter.py": """\
        import itertools

        numbers = itertools.count(1)
        seen = []


        def fresh():
            return next(numbers)


        def remember(thing):
            seen.append(thing)
            return len(seen)


        def leave(path):
            import pathlib

            before = pathlib.Path(path).exists()
            pathlib.Path(path).write_text("x")
            return before
        """,
    "conftest.py": """\
        import pytest

        @pytest.fixture
        def three():
            return 3
        """,
    "tests/conftest.py": """\
        def pytest_collection_modifyitems(items):
            items.reverse()
        """,
    "pyproject.toml": """\
        [tool.pytest.ini_options]
        addopts = "-x -q --strict-markers -m 'not slow'"
        markers = ["slow"]
        """,
    "tests/__init__.py": "",
    "tests/test_counter.py": """\
        import inspect
        import subprocess
        import sys
        from unittest import TestCase, expectedFailure, mock

        import pytest

        import counter


        def test_first_number():
            assert counter.fresh() == 1


        def test_second_time(three):
            assert counter.remember(three) == 1
            assert not counter.leave("left-behind.txt")


        def test_own_name(request):
            assert request.node.name == "test_own_name"
            assert __name__ == "tests.test_counter"
            assert "own_name" in inspect.getsource(test_own_name)


        def test_matchers():
            assert mock.ANY == counter.fresh()
            assert counter.fresh() == pytest.approx(3, abs=5)


        def test_a_program():
            done = subprocess.run([sys.executable, "-c", "import counter; print(counter.fresh())"], capture_output=True)
            assert done.stdout == b"1\\n", done.stderr


        def test_exit():
            with pytest.raises(SystemExit):
                sys.exit(3)


        def test_nothing_is_asserted():
            counter.fresh()


        @pytest.mark.slow
        def test_slow():
            assert "slow"


        def test_given_up():
            if counter.fresh():
                return
            assert False


        class TestInOrder:
            found = []

            def test_one(self):
                self.found.append(counter)

            def test_two(self):
                assert self.found == [counter]


        class Old(TestCase):
            @classmethod
            def setUpClass(cls):
                cls.value = counter.remember

            def test_equal(self):
                self.assertEqual(type(self).value(self), counter.seen.index(self) + 1)

            @expectedFailure
            def test_known(self):
                self.assertEqual(1, 2)
        """,
}


@pytest.mark.parametrize("seed", range(3))
async def test_honest_tests_are_believed_whatever_they_depend_on(provider: BubblewrapProvider, seed: int) -> None:
    project = Project(provider, HONEST)
    names = ["first_number", "second_time", "own_name", "exit", "nothing_is_asserted", "slow", "given_up"]
    ids = [f"tests/test_counter.py::test_{name}" for name in names]
    ids += [f"tests/test_counter.py::TestInOrder::test_{name}" for name in ("one", "two")]
    ids += ["tests/test_counter.py::Old::test_equal", "tests/test_counter.py::test_a_program"]
    for some in (ids[:1], ids[1:]):
        run = await project.run(*some, seed=seed)
        assert (run.untrusted, dict(run.results)) == ("", dict.fromkeys(some, "passed")), run.execution.excerpt


async def test_an_expected_failure_is_not_a_checked_pass(provider: BubblewrapProvider) -> None:
    text = (
        "import unittest\n\n\nclass A(unittest.TestCase):\n    @unittest.expectedFailure\n"
        "    def test_known(self):\n        self.assertEqual(1, 2)\n"
    )
    run = await Project(provider, {"a.py": "x = 1\n", "test_a.py": text}).run("test_a.A.test_known")
    assert (dict(run.results), run.unchecked) == ({"test_a.A.test_known": "passed"}, ("test_a.A.test_known",))


async def test_lines_of_other_programs_are_not_measured(provider: BubblewrapProvider) -> None:
    project = Project(provider, HONEST)
    watch: dict[str, set[int]] = {"counter.py": {8}}
    run = await project.run("tests/test_counter.py::test_first_number", watch=watch)
    assert run.measured
    assert 8 in dict(run.executed)["counter.py"]


OLD_MONEY = {
    "money.py": MONEY["money.py"],
    "tests/test_money.py": """\
        import unittest

        import money


        class TestMoney(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.two = 2

            def test_add(self):
                self.assertEqual(money.add(1, self.two), 3)

            def test_odd(self):
                with self.assertRaises(ValueError):
                    money.half(3)

            def test_half(self):
                for number in (2, 4):
                    with self.subTest(number=number):
                        self.assertEqual(money.half(number), number // 2)


        if __name__ == "__main__":
            unittest.main()
        """,
}
OLD_IDS = tuple(f"test_money.TestMoney.test_{name}" for name in ("add", "odd", "half"))


async def test_unittest_reports_each_id_on_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, OLD_MONEY)
    base = await project.run(*OLD_IDS)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed", "passed"])
    assert "AssertionError: -1 != 3" in dict(base.texts)[OLD_IDS[0]]
    head = await project.run(*OLD_IDS, changes=FIXED, watch={"money.py": {1}})
    assert (head.untrusted, {status for _, status in head.results}) == ("", {"passed"})
    assert 2 in dict(head.executed)["money.py"]


OLD_LIES = {
    "assertions do nothing": """
        import unittest
        unittest.TestCase.assertEqual = lambda *_: None
        """,
    "failures are successes": """
        import unittest
        def run(self, result=None):
            result.startTest(self), result.addSuccess(self), result.stopTest(self)
        unittest.TestCase.run = run
        """,
    "failures of one test are successes": """
        import unittest
        inner = unittest.TestCase.run
        def run(self, result=None):
            if self._testMethodName != "test_add":
                return inner(self, result)
            result.startTest(self), result.addSuccess(self), result.stopTest(self)
        unittest.TestCase.run = run
        """,
    "the result is another": """
        import gc, unittest
        for thing in gc.get_objects():
            if isinstance(thing, type) and issubclass(thing, unittest.TestResult):
                thing.addFailure = lambda self, test, err: self.addSuccess(test)
        """,
    "equal to everything": LIES["equal to everything"],
    "an early exit": LIES["an early exit"],
    "only for a known name": LIES["only for a known name"],
}


@pytest.mark.parametrize("lie", OLD_LIES)
async def test_a_forged_unittest_result_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    product = OLD_MONEY["money.py"] + textwrap.indent(textwrap.dedent(OLD_LIES[lie]), " " * 8)
    head = await Project(provider, OLD_MONEY).run(*OLD_IDS, changes={"money.py": product})
    assert head.untrusted or dict(head.results)[OLD_IDS[0]] != "passed", (lie, head)


async def test_hanging_and_missing_tests_are_reported(provider: BubblewrapProvider) -> None:
    hangs = MONEY["money.py"].replace("return a - b", "import time; time.sleep(600)")
    run = await Project(provider, MONEY).run(
        *IDS[:1], "tests/test_gone.py::test_x", changes={"money.py": hangs}, timeout=6
    )
    assert run.execution.timed_out
    assert [status for _, status in run.results] == ["failed", "not_run"]
    assert dict(run.texts)[IDS[0]] == "It did not finish within 6 s."
    broken = await Project(provider, MONEY).run(*IDS, changes={"money.py": "def add(:\n"})
    assert {status for _, status in broken.results} == {"error"}
    assert "SyntaxError" in dict(broken.texts)[IDS[1]]


async def test_new_tests_are_laid_over_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, MONEY)
    tests = {"tests/test_new.py": "import money\n\ndef test_zero():\n    assert money.add(2, 2) == 4\n"}
    assert (await project.run("tests/test_new.py::test_zero", tests=tests)).results[0][1] == "failed"
    assert (await project.run("tests/test_new.py::test_zero", tests=tests, changes=FIXED)).results[0][1] == "passed"
