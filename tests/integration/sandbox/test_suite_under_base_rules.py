"""The suite on the head has the base's own tests, fixtures and settings; the patch's are run afterwards."""

import re
import textwrap
from collections.abc import Mapping

import pytest

from app.core.verification import Execution, RestOfSuite, SuiteComparison, SuiteResult, TestCount
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.verify.base_rules import JudgedPatch
from app.verify.rest_of_suite import RestRunner
from app.verify.verdict import suite_regression
from tests.support.memory_journal import MemoryJournal
from tests.support.sandbox_projects import patch_of
from tests.support.suite_projects import Project

Files = dict[str, str]
MONEY: Files = {
    "money.py": "def add(a, b):\n    return a + b\n\n\ndef half(a):\n    return a / 2\n",
    "pytest.ini": "[pytest]\naddopts = -q\n",
    "conftest.py": "import pytest\n\n\n@pytest.fixture\ndef two():\n    return 2\n",
    "tests/test_money.py": """\
        from money import add, half


        def test_add(two):
            assert add(1, two) == 3


        def test_half(two):
            assert half(two) == 1
        """,
}
BROKEN = {"money.py": MONEY["money.py"].replace("a / 2", "a // 3")}
NEWLY = ("tests/test_money.py::test_half",)
TESTS = textwrap.dedent(MONEY["tests/test_money.py"])


async def compared(
    provider: BubblewrapProvider, changes: Mapping[str, str | None], files: Files = MONEY
) -> SuiteComparison:
    return await Project(provider, files).compare(changes)


HIDING: Mapping[str, Mapping[str, str | None]] = {
    "a hook in a new conftest.py": {
        "tests/conftest.py": "def pytest_collection_modifyitems(items):\n    items[:] = items[:1]\n"
    },
    "a fixture": {"conftest.py": MONEY["conftest.py"].replace("return 2", "return 3")},
    "a setting": {"pytest.ini": "[pytest]\naddopts = -q --deselect tests/test_money.py::test_half\n"},
    "another configuration": {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-k add"\n', "pytest.ini": None},
    "a plugin of the project": {
        "lie.py": "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n",
        "pytest.ini": "[pytest]\naddopts = -q -p lie\n",
    },
}


@pytest.mark.parametrize("way", HIDING)
async def test_settings_cannot_hide_new_failures(provider: BubblewrapProvider, way: str) -> None:
    found = await compared(provider, {**BROKEN, **HIDING[way]})
    told = [name for one in found.changed_tests for name in one.failing]
    assert {*NEWLY} <= {*found.newly_failing, *told}
    assert {one.path for one in found.changed_tests} <= HIDING[way].keys()


async def test_a_test_that_the_patch_had_to_change_is_named(provider: BubblewrapProvider) -> None:
    found = await compared(
        provider, BROKEN | {"tests/test_money.py": TESTS.replace("half(two) == 1", "half(two) == 0")}
    )
    assert found.newly_failing == ()
    (changed,) = found.changed_tests
    assert (changed.path, changed.failing, changed.removed) == ("tests/test_money.py", NEWLY, ())
    assert "+    assert half(two) == 0" in changed.diff


UNITTESTS: Files = {
    "money.py": MONEY["money.py"],
    "tests/__init__.py": "",
    "tests/test_money.py": """\
        import unittest

        from money import half


        class TestMoney(unittest.TestCase):
            def test_half(self):
                self.assertEqual(half(2), 1)
        """,
}


@pytest.mark.parametrize(
    ("files", "failing"),
    [(MONEY, "tests/test_money.py"), (UNITTESTS, "unittest.loader._FailedTest.tests.test_money")],
    ids=["pytest", "unittest"],
)
async def test_a_test_file_that_no_longer_loads_is_named(
    provider: BubblewrapProvider, files: Files, failing: str
) -> None:
    renamed = {path: re.sub(r"\bhalf\b", "halve", textwrap.dedent(text)) for path, text in files.items()}
    found = await compared(provider, renamed, files)
    assert (found.newly_failing, found.missing) == ((), ())
    (changed,) = found.changed_tests
    assert (changed.path, changed.failing) == ("tests/test_money.py", (failing,))
    untouched = await compared(provider, {"money.py": renamed["money.py"]}, files)
    assert untouched.newly_failing == (failing,)


async def test_a_deleted_test_is_still_run(provider: BubblewrapProvider) -> None:
    found = await compared(provider, BROKEN | {"tests/test_money.py": TESTS.partition("\n\n\ndef test_half")[0] + "\n"})
    assert found.newly_failing == NEWLY
    assert [one.removed for one in found.changed_tests] == [("test_half",)]
    gone = await compared(provider, {**BROKEN, "tests/test_money.py": None})
    assert gone.newly_failing == NEWLY
    assert [one.removed for one in gone.changed_tests] == [("test_add", "test_half")]


async def test_new_tests_are_run_with_the_patchs_own_settings(provider: BubblewrapProvider) -> None:
    new = {"money.py": MONEY["money.py"] + "\n\ndef third(a):\n    return a / 3\n"}
    test = "from money import third\n\n\ndef test_third(three):\n    assert third(three) == 1\n"
    fixture = {"tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef three():\n    return 3\n"}
    found = await compared(provider, new | fixture | {"tests/test_third.py": test})
    assert (found.newly_failing, found.missing, found.changed_tests) == ((), (), ())
    assert found.head is not None
    assert found.head.passing == found.base.passing if found.base else None
    assert found.own_tests is not None
    assert "tests/test_third.py::test_third" in (found.own_tests.passing or ())
    failing = await compared(provider, new | {"tests/test_third.py": test.replace("== 1", "== 2")})
    assert failing.newly_failing == ("tests/test_third.py::test_third",)


async def test_settings_that_disable_the_suite_are_seen(provider: BubblewrapProvider) -> None:
    found = await compared(provider, {"money.py": MONEY["money.py"] + "\n", "conftest.py": "import gone\n"})
    assert found.head is not None
    assert found.head.count is None or found.newly_failing


async def test_a_head_that_reports_nothing_is_not_excused_by_a_new_test(provider: BubblewrapProvider) -> None:
    quits = {"money.py": "import os\n\nos._exit(3)\n", "tests/test_own.py": "def test_own():\n    pass\n"}
    assert suite_regression(await compared(provider, quits))


async def test_a_patch_without_tests_is_run_once(provider: BubblewrapProvider) -> None:
    found = await compared(provider, BROKEN)
    assert (found.newly_failing, found.own_tests, found.changed_tests) == (NEWLY, None, ())


async def rest_of(
    provider: BubblewrapProvider, changes: Mapping[str, str | None], outdated: tuple[str, ...] = ()
) -> RestOfSuite:
    """The same tests, far from the change."""
    project = Project(provider, MONEY)
    judged = JudgedPatch.of(project.tree, patch_of(dict(changes)))
    known = SuiteResult(execution=Execution(command="pytest", exit_code=124, seconds=200.0, timed_out=True))
    rest = RestRunner(project.suite_runner(), judged, known, lambda _: None, outdated)
    left = RestOfSuite(files=1, minutes=30, command="pytest")
    return await rest.run([("tests/test_money.py",)], left, MemoryJournal())


async def test_a_far_test_that_the_patch_had_to_change_is_named(provider: BubblewrapProvider) -> None:
    changed = {"tests/test_money.py": TESTS.replace("half(two) == 1", "half(two) == 0")}
    rest = await rest_of(provider, BROKEN | changed)
    assert (rest.newly_failing, rest.worse) == ((), "")
    assert rest.changed == (f"tests/test_money.py: without this change {NEWLY[0]} would fail",)


async def test_far_tests_that_fail_with_the_patchs_own_fixtures_as_well_newly_fail(
    provider: BubblewrapProvider,
) -> None:
    fixture = {"conftest.py": MONEY["conftest.py"].replace("return 2", "return 4 - 2")}
    rest = await rest_of(provider, BROKEN | fixture)
    assert (rest.newly_failing, rest.changed) == (NEWLY, ())


async def test_far_tests_that_the_issue_contradicts_may_be_changed_or_removed(provider: BubblewrapProvider) -> None:
    changed = BROKEN | {"tests/test_money.py": TESTS.replace("half(two) == 1", "half(two) == 0")}
    rest = await rest_of(provider, changed, NEWLY)
    assert (rest.newly_failing, rest.worse, rest.changed) == ((), "", ())
    removed = BROKEN | {"tests/test_money.py": TESTS.partition("\n\n\ndef test_half")[0] + "\n"}
    assert (await rest_of(provider, removed, NEWLY)).newly_failing == ()
    assert (await rest_of(provider, removed)).newly_failing == NEWLY
    gone = {**BROKEN, "tests/test_money.py": None}
    assert (await rest_of(provider, gone, NEWLY)).newly_failing == ()


BESIDE: Files = {
    "money.py": "SEEN = []\n",
    "pytest.ini": "[pytest]\naddopts = -q\n",
    "tests/test_a.py": "import money\n\n\ndef test_a():\n    money.SEEN.append(1)\n",
    "tests/test_b.py": "import money\n\n\ndef test_b():\n    money.SEEN.clear()\n",
    "tests/test_c.py": "import money\n\n\ndef test_c():\n    assert not money.SEEN\n",
}


async def test_a_far_test_that_needs_a_file_of_another_part_is_not_newly_failing(provider: BubblewrapProvider) -> None:
    project = Project(provider, BESIDE)
    judged = JudgedPatch.of(project.tree, patch_of({"money.py": "SEEN = list()\n"}))
    whole = Execution(command="pytest", exit_code=124, seconds=200.0, timed_out=True)
    names = tuple(f"tests/test_{name}.py::test_{name}" for name in "abc")
    known = SuiteResult(execution=whole, count=TestCount(passed=3), passing=names, failing=())
    left = [(f"tests/test_{name}.py",) for name in "ac"]
    rest = RestOfSuite(files=2, minutes=30, command="pytest")
    found = await RestRunner(project.suite_runner(), judged, known, lambda _: None).run(left, rest, MemoryJournal())
    assert (found.newly_failing, found.state, found.compared) == ((), "finished", 2)
