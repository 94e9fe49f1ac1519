"""The proof engine on small real projects, every command really run in a real sandbox."""

import asyncio
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.agent.base import Submission
from app.config.repository import GateConfig
from app.core.verification import BaselineResult, GateResult, SourceText, UnchangedSubmission, Verification
from app.sandbox.base import SandboxProvider
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.unsandboxed import UnsandboxedProvider
from app.verify.feedback import MAX_FEEDBACK, feedback
from app.verify.revert_fix import RevertedFix
from app.verify.tests_for_fix import FixUnderTest
from app.verify.verifier import TimeLimits, Verifier
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.sandbox_projects import ProjectWorkspaces, patch_of

Changes = dict[str, str | bytes | None]
NOTHING = Submission(summary="done")


class Trial:
    """One project: its verifier, and what was opened for it."""

    def __init__(self, provider: SandboxProvider, files: dict[str, str], **settings: object) -> None:
        self.files = {path: textwrap.dedent(content) for path, content in files.items()}
        tree = MemoryTree({path: content.encode() for path, content in self.files.items()})
        with_pytest = any("pytest" in content for content in self.files.values())
        self.workspaces = ProjectWorkspaces(provider, tree, with_pytest=with_pytest)
        self.verifier = Verifier(self.workspaces, tree=tree, progress=ListProgress(), **settings)  # type: ignore[arg-type]

    async def specified(self, files: dict[str, str], *ids: str) -> BaselineResult:
        """What is known of the base, with these tests of an independent author."""
        sources = [SourceText(path=path, text=textwrap.dedent(text)) for path, text in files.items()]
        frozen, told = await self.verifier.prover.specify(sources, ids)
        assert frozen.tests, told
        return (await self.verifier.baseline()).model_copy(update={"specification": frozen})

    async def verify(
        self,
        changes: Changes,
        reproduction: str = "",
        known: BaselineResult | None = None,
        earlier: tuple[UnchangedSubmission, ...] = (),
    ) -> Verification:
        patch = patch_of({path: textwrap.dedent(c) if isinstance(c, str) else c for path, c in changes.items()})
        submission = Submission(summary="All tests pass.", reproduction=reproduction)
        verified = await self.verifier.verify(patch, submission, known or await self.verifier.baseline(), earlier)
        assert verified.patch == patch
        assert self.workspaces.alive == set()
        assert len(verified.feedback) <= MAX_FEEDBACK
        return verified.verification


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapProvider:
    root = tmp_path_factory.mktemp("verifier")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return BubblewrapProvider(root / "sandboxes", caches=root / "caches", environment=environment)


@pytest.fixture
def trial(provider: BubblewrapProvider) -> Callable[..., Trial]:
    return lambda files, **settings: Trial(provider, files, **settings)


UNITTEST = {
    "money.py": """\
        def add(a, b):
            return a - b

        def twice(a):
            return a + a
        """,
    "tests/__init__.py": "",
    "tests/test_money.py": """\
        import unittest
        import money

        class TestMoney(unittest.TestCase):
            def test_zero(self):
                self.assertEqual(money.add(0, 0), 0)

            def test_twice(self):
                self.assertEqual(money.twice(2), 4)

            def test_known_bad(self):
                self.assertEqual(1, 2)
        """,
}
FIXED = UNITTEST["money.py"].replace("a - b", "a + b")
NEW_TEST = """\
    import unittest
    import money

    class TestAdd(unittest.TestCase):
        def test_one(self):
            self.assertEqual(money.add(1, 2), 3)
    """
REPRODUCTION = "python3 -m unittest tests.test_add"


SPECIFIED = {
    "tests/test_spec_example.py": """\
        import unittest
        import money

        class Example(unittest.TestCase):
            def test_example(self):
                \"\"\"The reported sum is right.\"\"\"
                self.assertEqual(money.add(1, 2), 3)
        """,
    "tests/test_spec_more.py": """\
        import unittest
        import money

        class More(unittest.TestCase):
            def test_negative(self):
                \"\"\"Negative numbers are added, too.\"\"\"
                self.assertEqual(money.add(-1, -2), -3)

            def test_large(self):
                \"\"\"So are large ones.\"\"\"
                self.assertEqual(money.add(10**20, 1), 10**20 + 1)

            def test_zero(self):
                \"\"\"Adding nothing changes nothing.\"\"\"
                self.assertEqual(money.add(5, 0), 5)
        """,
}
SPECIFIED_IDS = (
    "tests.test_spec_example.Example.test_example",
    "tests.test_spec_more.More.test_negative",
    "tests.test_spec_more.More.test_large",
    "tests.test_spec_more.More.test_zero",
)


async def test_independent_tests_that_turn_are_proof(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    known = await subject.specified(SPECIFIED, *SPECIFIED_IDS)
    assert known.specification is not None
    assert [(test.role, test.sentence) for test in known.specification.tests] == [
        ("shows", "The reported sum is right."),
        ("shows", "Negative numbers are added, too."),
        ("shows", "So are large ones."),
        ("guards", "Adding nothing changes nothing."),
    ]
    assert known.specification.example == "tests/test_spec_example.py"
    found = await subject.verify({"money.py": FIXED}, "", known)
    assert (found.verdict, found.rules, found.isolated, found.sandbox) == ("proved", (), True, "bubblewrap")
    assert found.specification is not None
    assert {test.head for test in found.specification.tests} == {"passed"}
    assert {control.outcome for control in found.controls} <= {"held", "not_applicable", "not_run"}


async def test_a_fix_of_the_example_alone_is_broken_and_only_sentences_are_told(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    known = await subject.specified(SPECIFIED, *SPECIFIED_IDS)
    special = FIXED.replace("return a + b", "return 3 if (a, b) == (1, 2) else a - b")
    found = await subject.verify({"money.py": special, "tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert (found.verdict, found.rules[0]) == ("broken", "specification_fails")
    told = feedback(found)
    assert "  - Negative numbers are added, too.\n  - So are large ones." in told
    assert "`objection`" in told
    for secret in ("test_negative", "10**20", "-3", "test_spec", "More"):
        assert secret not in told


async def test_what_independent_tests_guard_must_not_break(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    known = await subject.specified(SPECIFIED, *SPECIFIED_IDS)
    found = await subject.verify({"money.py": FIXED.replace("a + b", "a + b if b else 0")}, "", known)
    assert found.verdict == "broken"
    assert "require to keep working:\n  - Adding nothing changes nothing." in feedback(found)


async def test_unittest_red_to_green_is_tested(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    known = await subject.verifier.baseline()
    assert "2 passed, 1 failed" in known.brief
    assert "tests.test_money.TestMoney.test_known_bad" in known.brief
    found = await subject.verify({"money.py": FIXED, "tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert (found.verdict, found.isolated, found.sandbox) == ("tested", True, "bubblewrap")
    assert found.reproduction is not None
    assert found.reproduction.base is not None
    assert found.reproduction.base.exit_code == 1
    assert "AssertionError: -1 != 3" in found.reproduction.base.excerpt
    assert found.suite is not None
    assert found.suite.newly_failing == ()
    assert found.suite.head is not None
    assert found.suite.head.count is not None
    assert found.suite.head.count.passed == 2
    assert found.suite.own_tests is not None
    assert found.suite.own_tests.passing == ("tests.test_add.TestAdd.test_one",)
    assert subject.workspaces.opened.count("suite-base") == 1


async def test_a_lie_is_broken_and_the_agent_is_told_why(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    found = await subject.verify({"README.md": "mended\n", "tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "broken"
    assert "The reproduction still fails on the head." in found.reasons
    told = feedback(found)
    assert "Newly failing: tests.test_add.TestAdd.test_one" in told
    assert "AssertionError: -1 != 3" in told


async def test_breaking_another_test_is_broken_and_named(trial: Callable[..., Trial]) -> None:
    broken = FIXED.replace("a + a", "a")
    found = await trial(UNITTEST).verify({"money.py": broken, "tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "broken"
    assert found.suite is not None
    assert found.suite.newly_failing == ("tests.test_money.TestMoney.test_twice",)
    assert found.suite.recheck is not None
    assert "test_known_bad" not in found.suite.recheck.excerpt


async def test_deleting_the_test_that_is_in_the_way_does_not_look_green(trial: Callable[..., Trial]) -> None:
    fewer = UNITTEST["tests/test_money.py"].replace("test_twice", "check_twice")
    found = await trial(UNITTEST).verify({"money.py": FIXED, "tests/test_money.py": fewer})
    assert found.verdict == "unproved"
    assert found.suite is not None
    assert [(one.path, one.removed) for one in found.suite.changed_tests] == [("tests/test_money.py", ("test_twice",))]
    assert "existing_tests_changed" in found.rules
    assert any(gate.name == "tests" and gate.outcome == "warned" for gate in found.gates)


async def test_a_reproduction_that_passes_already_shows_nothing(trial: Callable[..., Trial]) -> None:
    found = await trial(UNITTEST).verify({"money.py": FIXED}, "python3 -c 'import money'")
    assert (found.verdict, found.rules[0]) == ("unproved", "nothing_shown")
    assert found.reproduction is not None
    assert found.reproduction.on_base == "green"
    assert "There it must fail because of the bug" in feedback(found)


async def test_a_reproduction_that_shows_nothing_does_not_replace_one_that_did(trial: Callable[..., Trial]) -> None:
    honest = "python3 -c 'import money; assert money.twice(money.add(1, 2)) == 6'"
    earlier = (UnchangedSubmission(command=honest, patch=patch_of({})),)
    wrong: Changes = {"money.py": FIXED.replace("return a + b", "return a * b * 2")}
    for empty in ("true", ""):
        found = await trial(UNITTEST).verify(wrong, empty, earlier=earlier)
        assert found.verdict == "unproved"
        assert found.reproduction is not None
        assert (found.reproduction.command, found.reproduction.on_head) == (honest, "red")
        assert found.reasons[0] == f"The agent's earlier reproduction `{honest}` still fails on the head."
    mended = await trial(UNITTEST).verify({"money.py": FIXED}, "true", earlier=earlier)
    assert mended.reproduction is not None
    assert (mended.reproduction.on_base, mended.reproduction.on_head) == ("red", "green")
    assert "`true` shows nothing" in mended.reproduction.note
    assert mended.rules[0] == "nothing_shown", "a shell line is a hint to people"


async def test_an_earlier_reproduction_is_run_with_its_own_tests(trial: Callable[..., Trial]) -> None:
    tests = patch_of({"tests/test_add.py": textwrap.dedent(NEW_TEST)})
    earlier = (UnchangedSubmission(command=REPRODUCTION, patch=tests),)
    wrong: Changes = {"money.py": FIXED.replace("return a + b", "return a * b * 2")}
    found = await trial(UNITTEST).verify(wrong, "true", earlier=earlier)
    assert found.verdict == "unproved", "that the test is gone does not hide its failure"
    newer = await trial(UNITTEST).verify(wrong, "python3 -c 'import nowhere'", earlier=earlier)
    assert newer.reproduction is not None
    assert newer.reproduction.command == "python3 -c 'import nowhere'", "one that fails stands for itself"


async def test_looking_at_the_source_is_no_proof(trial: Callable[..., Trial]) -> None:
    found = await trial(UNITTEST).verify({"money.py": FIXED}, "grep -q 'return a + b' money.py")
    assert found.verdict == "unproved"
    assert found.reproduction is not None
    assert found.reproduction.on_base == "was_not_there"
    assert "only reads source text" in found.reproduction.note


async def test_red_only_because_the_thing_is_new_shows_nothing(trial: Callable[..., Trial]) -> None:
    changes: Changes = {
        "taxes.py": "RATE = 3\n",
        "tests/test_taxes.py": NEW_TEST.replace("money.add(1, 2)", "taxes.RATE").replace("money", "taxes"),
    }
    found = await trial(UNITTEST).verify(changes, "python3 -m unittest tests.test_taxes")
    assert found.verdict == "unproved"
    assert found.reproduction is not None
    assert found.reproduction.on_base == "was_not_there"
    assert "the module taxes does not exist" in found.reproduction.note


async def test_without_a_reproduction_the_changed_tests_are_one(trial: Callable[..., Trial]) -> None:
    found = await trial(UNITTEST).verify({"money.py": FIXED, "tests/test_add.py": NEW_TEST})
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert found.reproduction.ids == ("tests.test_add.TestAdd.test_one",)
    assert (found.reproduction.origin, found.reproduction.on_base) == ("changed tests", "red")


async def test_changed_tests_beside_an_old_failure_in_the_same_file(trial: Callable[..., Trial]) -> None:
    more = textwrap.dedent(UNITTEST["tests/test_money.py"]) + textwrap.indent(
        "\ndef test_add(self):\n    self.assertEqual(money.add(1, 2), 3)\n", "    "
    )
    found = await trial(UNITTEST).verify({"money.py": FIXED, "tests/test_money.py": more})
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert found.reproduction.ids == ("tests.test_money.TestMoney.test_add",)
    assert "1 of these tests also fail on the base." in found.reproduction.note


async def test_a_command_that_is_not_there_is_broken(trial: Callable[..., Trial]) -> None:
    found = await trial(UNITTEST).verify({"money.py": FIXED}, "no-such-command --at-all")
    assert found.verdict == "broken"
    assert found.reasons == ("The reproduction could not be run on the head.",)


PYTEST = {
    "pytest.ini": "[pytest]\n",
    "calc.py": "def half(a):\n    return a // 2\n",
    "test_calc.py": "import calc\n\ndef test_even():\n    assert calc.half(4) == 2\n",
}


async def test_a_new_module_does_not_take_the_place_of_an_installed_one(trial: Callable[..., Trial]) -> None:
    found = await trial(PYTEST).verify({"iniconfig.py": "class IniConfig: ...\n"})
    assert found.verdict == "broken"
    assert "gate: shadowing" in found.rules
    other = await trial(PYTEST).verify({"figures.py": "PI = 3\n"})
    assert "gate: shadowing" not in other.rules


async def test_pytest_red_to_green_is_tested(trial: Callable[..., Trial]) -> None:
    changes: Changes = {
        "calc.py": "def half(a):\n    return a / 2\n",
        "test_calc.py": PYTEST["test_calc.py"] + "\ndef test_odd():\n    assert calc.half(3) == 1.5\n",
    }
    found = await trial(PYTEST).verify(changes, "python3 -m pytest -q test_calc.py | tail -3")
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert found.reproduction.ids == ("test_calc.py::test_odd",)
    assert found.suite is not None
    assert found.suite.head is not None
    assert found.suite.head.passing == ("test_calc.py::test_even",)
    assert found.suite.own_tests is not None
    assert found.suite.own_tests.passing == ("test_calc.py::test_even", "test_calc.py::test_odd")


FAILS_TOGETHER = """\
    import os
    import unittest

    class TestOrder(unittest.TestCase):
        def test_order(self):
            together = os.environ.get("TOGETHER")
            self.assertFalse(together and os.path.exists("README.md"))
    """
SETS_TOGETHER = """\
    import os
    import unittest

    class TestA(unittest.TestCase):
        def test_a(self):
            os.environ["TOGETHER"] = "1"
    """


async def test_a_test_that_fails_only_together_with_others_counts(trial: Callable[..., Trial]) -> None:
    subject = trial({"test_a.py": SETS_TOGETHER, "test_order.py": FAILS_TOGETHER})
    found = await subject.verify({"README.md": "x"})
    assert found.verdict == "broken"
    assert found.suite is not None
    assert found.suite.newly_failing == ("test_order.TestOrder.test_order",)
    assert "suite-head-again" in subject.workspaces.opened


FLAKY = """\
    import unittest

    class TestFlaky(unittest.TestCase):
        def test_flaky(self):
            self.assertNotIn(open(".opened").read(), {NAMES})

        def test_steady(self):
            pass
    """


async def test_a_test_that_fails_in_one_of_two_runs_is_flaky_and_said_to_be(trial: Callable[..., Trial]) -> None:
    subject = trial({"test_flaky.py": FLAKY.replace("{NAMES}", "['suite-head']")})
    found = await subject.verify({"README.md": "x"})
    assert found.verdict != "broken"
    assert found.suite is not None
    assert found.suite.newly_failing == ()
    assert found.suite.notes == (
        "test_flaky.TestFlaky.test_flaky failed in one of two runs on the head: flaky, not counted.",
    )


async def test_a_test_that_now_fails_on_the_base_too_is_not_counted(trial: Callable[..., Trial]) -> None:
    names = "['suite-head', 'suite-head-alone', 'suite-base-alone']"
    found = await trial({"test_flaky.py": FLAKY.replace("{NAMES}", names)}).verify({"README.md": "x"})
    assert found.verdict != "broken"
    assert found.suite is not None
    assert found.suite.notes == (
        "test_flaky.TestFlaky.test_flaky also fails on the base when it runs alone; not counted.",
    )


NODE = {
    "package.json": '{"name": "cart", "scripts": {"test": "node --test"}}',
    "cart.js": "exports.total = (items) => items.length\n",
    "test/cart.test.js": """\
        const test = require('node:test')
        const assert = require('node:assert')
        const { total } = require('../cart')
        test('an empty cart', () => assert.strictEqual(total([]), 0))
        """,
}


async def test_node_red_to_green_is_tested(trial: Callable[..., Trial]) -> None:
    new_test = textwrap.dedent(NODE["test/cart.test.js"]) + "test('adds', () => assert.strictEqual(total([2, 3]), 5))\n"
    changes: Changes = {
        "cart.js": "exports.total = (items) => items.reduce((sum, item) => sum + item, 0)\n",
        "test/cart.test.js": new_test,
    }
    found = await trial(NODE).verify(changes, "node --test test/cart.test.js")
    assert found.verdict == "tested"
    assert found.suite is not None
    assert found.suite.command == "npm test"
    assert found.suite.head is not None
    assert found.suite.head.passing == ("test/cart.test.js::an empty cart",)
    assert found.suite.own_tests is not None
    assert found.suite.own_tests.passing == tuple(f"test/cart.test.js::{name}" for name in ("adds", "an empty cart"))


@contextmanager
def unsandboxed(directory: Path) -> Iterator[SandboxProvider]:
    yield UnsandboxedProvider(directory / "jobs", path=os.environ["PATH"])


async def test_where_paths_are_mapped_names_are_the_same_in_every_run(tmp_path: Path) -> None:
    """Node names a file that does not load by its whole path, which there is another one in every run."""
    with unsandboxed(tmp_path) as provider:
        subject = Trial(provider, {**NODE, "test/broken.test.js": "require('./nope')\n"}, expects_red=False)
        known = await subject.verifier.baseline()
        assert known.suite is not None
        assert known.suite.failing == ("test/broken.test.js",)
        assert "/workspace/" in known.suite.execution.excerpt
        assert "/tree/" not in known.suite.execution.excerpt
        found = await subject.verify({"cart.js": f"{NODE['cart.js']}exports.none = 0\n"}, "", known)
    assert (found.verdict, found.isolated, found.sandbox) == ("tested", False, provider.name)
    assert found.suite is not None
    assert found.suite.newly_failing == ()


async def test_a_reproduction_that_no_shell_takes_is_broken(trial: Callable[..., Trial]) -> None:
    for command in ("true " + "x" * 300_000, "true \0"):
        found = await trial(NO_TESTS).verify({"README.md": "x"}, command)
        assert found.verdict == "broken"
        assert found.reasons == ("The reproduction could not be run on the head.",)


NO_TESTS = {"greet.py": "def greet(name):\n    return 'Hello ' + nme\n"}


async def test_a_repository_without_tests_is_unproved_and_says_so(trial: Callable[..., Trial]) -> None:
    subject = trial(NO_TESTS)
    known = await subject.verifier.baseline()
    assert known.suite is None
    assert "No test command was found" in known.brief
    found = await subject.verify(
        {"greet.py": "def greet(name):\n    return 'Hello ' + name\n"},
        "python3 -c \"import greet; assert greet.greet('x') == 'Hello x'\"",
        known,
    )
    assert (found.verdict, found.rules[0]) == ("unproved", "nothing_shown")
    assert "it names no test that the harness can run by its id" in found.reasons[0]
    assert "No test command was found in the repository." in found.reasons
    nothing = await subject.verify({"README.md": "x"}, "", known)
    assert nothing.verdict == "unproved"


async def test_without_a_suite_the_tests_that_guard_the_change_are_named(trial: Callable[..., Trial]) -> None:
    guarded = {"greet.py": ("checks/greeting.sh", "checks/more.sh")}
    subject = trial(NO_TESTS, guards=lambda paths: tuple(test for path in paths for test in guarded.get(path, ())))
    found = await subject.verify({"greet.py": "def greet(name):\n    return name\n"})
    assert found.suite is not None
    assert found.suite.notes == (
        "Existing tests of the changed files that were not run: checks/greeting.sh, checks/more.sh.",
    )


async def test_first_tests_of_a_repository_are_its_reproduction(trial: Callable[..., Trial]) -> None:
    test = NEW_TEST.replace("money.add(1, 2), 3", "greet.greet('x'), 'x'").replace("money", "greet")
    found = await trial(NO_TESTS).verify({"greet.py": "def greet(name):\n    return name\n", "test_greet.py": test})
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert (found.reproduction.origin, found.reproduction.on_base) == ("changed tests", "red")


async def test_a_blocked_patch_is_not_executed_at_all(trial: Callable[..., Trial]) -> None:
    subject = trial(NO_TESTS)
    found = await subject.verify({".github/workflows/x.yml": "on: push\n", "greet.py": "x = 1\n"}, "python3 greet.py")
    assert found.verdict == "broken"
    assert subject.workspaces.opened == []
    assert found.suite is not None
    assert found.suite.not_run == "Not run: a gate blocks the patch."
    assert "only people may change workflows, actions and bot settings" in feedback(found)


def gate_named(found: Verification, name: str) -> GateResult:
    return next(gate for gate in found.gates if gate.name == name)


async def test_lint_blocks_what_it_newly_finds_and_warns_of_what_it_found_before(trial: Callable[..., Trial]) -> None:
    subject = trial(NO_TESTS, lint="! grep -rn TODO --include=*.py .")
    found = await subject.verify({"greet.py": "# TODO\n"})
    assert gate_named(found, "lint").outcome == "blocked"
    assert any("greet.py:1:# TODO" in line for line in gate_named(found, "lint").details)
    assert found.verdict == "broken"
    old = trial({"greet.py": "# TODO\n"}, lint="! grep -rn TODO --include=*.py .")
    assert gate_named(await old.verify({"README.md": "x"}), "lint").outcome == "warned"


async def test_configured_gates_must_pass_or_print_a_number_that_is_not_worse(trial: Callable[..., Trial]) -> None:
    counting = "grep -rh covered . | wc -l | sed 's/^/TOTAL /'; echo took 9s; exit 3"
    gates = (
        GateConfig(name="covered", command=counting, must="not-worsen", metric="TOTAL"),
        GateConfig(name="short", command="cat *.py | wc -l", must="not-worsen", better="lower"),
        GateConfig(name="greets", command="grep hello greet.py"),
    )
    subject = trial({"greet.py": "# covered\nhello = 1\n"}, gates=gates)
    worse = await subject.verify({"greet.py": "x = 1\n", "more.py": "y = 2\n"})
    assert [(gate.name, gate.outcome, gate.details[:1]) for gate in worse.gates[-3:]] == [
        ("covered (configured)", "blocked", ("1 on the base, 0 on the head",)),
        ("short (configured)", "passed", ("2 on the base, 2 on the head",)),
        ("greets (configured)", "blocked", ("`grep hello greet.py` has exit code 1",)),
    ]
    assert worse.verdict == "broken"
    assert "covered (configured): 1 on the base, 0 on the head" in worse.reasons[0]
    opened = len(subject.workspaces.opened)
    better = await subject.verify({"greet.py": "# covered\nhello = 'covered'\n"})
    assert [gate.outcome for gate in better.gates[-3:]] == ["passed"] * 3
    assert [name for name in subject.workspaces.opened[opened:] if "gate-" in name and "base" in name] == []


async def test_a_gate_without_a_number_on_the_base_only_warns(trial: Callable[..., Trial]) -> None:
    gate = GateConfig(name="speed", command="cat speed.txt", must="not-worsen")
    found = await trial(NO_TESTS, gates=(gate,)).verify({"speed.txt": "12.5\n"})
    assert gate_named(found, "speed (configured)").outcome == "warned"
    lost = await trial({**NO_TESTS, "speed.txt": "12.5\n"}, gates=(gate,)).verify({"speed.txt": None})
    assert gate_named(lost, "speed (configured)").details[0] == "`cat speed.txt` prints no number; on the base 12.5"
    assert lost.verdict == "broken"


async def test_tests_that_hang_are_ended_and_that_is_said(trial: Callable[..., Trial]) -> None:
    hanging = {
        "loop.py": "def spin():\n    pass\n",
        "tests/__init__.py": "",
        "tests/test_a.py": NEW_TEST.replace("money.add(1, 2), 3", "loop.spin(), None").replace("money", "loop"),
    }
    subject = trial(hanging, limits=TimeLimits(suite=2, reproduction=1))
    known = await subject.verifier.baseline()
    endless = "import time\n\ndef spin():\n    while True:\n        time.sleep(60)\n"
    found = await subject.verify({"loop.py": endless}, "python3 -c 'import loop; loop.spin()'", known)
    assert found.verdict == "broken"
    assert found.reproduction is not None
    assert found.reproduction.head is not None
    assert found.reproduction.head.timed_out
    assert "did not finish within its limit" in found.reproduction.note


async def test_a_hang_that_is_mended_is_red_to_green(trial: Callable[..., Trial]) -> None:
    files = {"loop.py": "def spin():\n    while True:\n        pass\n"}
    subject = trial(files, limits=TimeLimits(reproduction=1))
    found = await subject.verify({"loop.py": "def spin():\n    pass\n"}, "python3 -c 'import loop; loop.spin()'")
    assert found.reproduction is not None
    assert (found.reproduction.on_base, found.reproduction.on_head) == ("red", "green")
    assert found.verdict == "unproved"


KNOWN_GOOD = ("tests.test_money.TestMoney.test_twice", "tests.test_money.TestMoney.test_zero")


async def test_of_a_suite_that_is_too_long_the_nearest_tests_are_run(trial: Callable[..., Trial]) -> None:
    slow = "import time, unittest\n\nclass S(unittest.TestCase):\n    def test_s(self):\n        time.sleep(60)\n"
    files = {**UNITTEST, "tests/test_aaa_slow.py": slow, "other/tests/__init__.py": "", "other/tests/test_far.py": slow}
    subject = trial({**files, "other/__init__.py": ""}, limits=TimeLimits(suite=12))
    known = await subject.verifier.baseline()
    assert "stopped at its limit of 12 s" in known.brief
    found = await subject.verify({"money.py": FIXED, "tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert found.verdict == "tested"
    assert found.suite is not None
    assert found.suite.head is not None
    assert "only the 3 of 4 test files nearest to the change were run" in found.suite.head.partial
    assert "stopped at its limit" in found.suite.head.partial
    assert found.suite.head.passing == KNOWN_GOOD
    assert found.suite.own_tests is not None
    assert found.suite.own_tests.passing == ("tests.test_add.TestAdd.test_one",)
    assert "the others were not" in " ".join(found.reasons)


async def test_an_interrupted_suite_keeps_the_results_it_had(trial: Callable[..., Trial]) -> None:
    slow = "import time\n\ndef test_s():\n    time.sleep(60)\n"
    subject = trial({**PYTEST, "test_zzz_slow.py": slow}, limits=TimeLimits(suite=5))
    known = await subject.verifier.baseline()
    assert known.suite is not None
    assert known.suite.execution.timed_out
    assert known.suite.passing == ("test_calc.py::test_even",)


async def test_two_hundred_megabytes_of_output_are_harmless(trial: Callable[..., Trial]) -> None:
    loud = NEW_TEST.replace("self.assertEqual(money.add(1, 2), 3)", "[print('x' * 2**20) for _ in range(200)]")
    subject = trial({"test_loud.py": loud.replace("import money", "")})
    known = await subject.verifier.baseline()
    assert known.suite is not None
    assert known.suite.execution.exit_code == 0
    assert len(known.suite.model_dump_json()) < 20_000


async def test_a_framework_that_is_not_installed_is_said(trial: Callable[..., Trial]) -> None:
    subject = trial({"test_a.py": "def test_a():\n    pass\n"}, test="python3 -S -m pytest")
    known = await subject.verifier.baseline()
    assert "pytest is not installed in the sandbox" in known.brief
    found = await subject.verify({"README.md": "x"}, "", known)
    assert found.verdict == "unproved"
    assert found.suite is not None
    assert found.suite.not_run == "pytest is not installed in the sandbox."


async def test_a_job_that_is_stopped_leaves_no_sandbox(trial: Callable[..., Trial]) -> None:
    subject = trial({"endless.py": "import time\n\ntime.sleep(600)\n"}, test="python3 endless.py")
    work = asyncio.create_task(subject.verifier.baseline())
    await subject.workspaces.executing.wait()
    assert subject.workspaces.alive == {"suite-base"}
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert subject.workspaces.alive == set()


BEFORE = textwrap.dedent(UNITTEST["money.py"])
MARKED = f"<<<<<<< branch\n{BEFORE}=======\nZERO = 0\n>>>>>>> main\n"


async def test_a_resolved_merge_is_compared_with_the_branch_before_it(trial: Callable[..., Trial]) -> None:
    """On the merge itself nothing can be run: its markers are no code."""
    before = patch_of({"money.py": BEFORE})
    settings = {"conflicts": ("money.py",), "before": lambda: before, "expects_red": False}
    subject = trial(UNITTEST | {"money.py": MARKED}, **settings)
    known = await subject.verifier.baseline()
    assert "2 passed, 1 failed" in known.brief
    resolved = await subject.verify({"money.py": f"{BEFORE}\nZERO = 0\n"}, known=known)
    assert resolved.verdict == "tested"
    wrong = await subject.verify({"money.py": f"{BEFORE}\nZERO = 0\n".replace("a + a", "a")}, known=known)
    assert wrong.verdict == "broken"
    assert "tests.test_money.TestMoney.test_twice" in wrong.reasons[0]


async def test_a_reproduction_of_a_merge_runs_on_the_branch_before_it(trial: Callable[..., Trial]) -> None:
    before = patch_of({"money.py": BEFORE})
    subject = trial(UNITTEST | {"money.py": MARKED}, conflicts=("money.py",), before=lambda: before)
    found = await subject.verify({"money.py": FIXED, "tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert found.reasons[0] == "One of the agent's own tests fails on the base and passes on the head."


async def test_nothing_is_run_while_a_conflict_is_left(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST | {"money.py": MARKED}, conflicts=("money.py",))
    known = await subject.verifier.baseline()
    opened = len(subject.workspaces.opened)
    found = await subject.verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert found.reasons == ("conflicts: money.py:1: contains a conflict marker",)
    assert len(subject.workspaces.opened) == opened


# tests for a fix that is there already


GUARDED = {**UNITTEST, "money.py": UNITTEST["money.py"].replace("a - b", "a + b")}
FIX = "f" * 40


def taken_back(content: str = UNITTEST["money.py"]) -> FixUnderTest:
    return FixUnderTest(FIX, lambda: RevertedFix(patch_of({"money.py": textwrap.dedent(content)})))


async def test_tests_that_fail_without_the_fix_are_tested(trial: Callable[..., Trial]) -> None:
    found = await trial(GUARDED, guarded=taken_back()).verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert found.reasons[0] == (
        "One of the agent's own tests fails on the base without ffffffffff and passes on the head."
    )
    assert found.reproduction is not None
    assert found.reproduction.without == FIX
    assert found.reproduction.base is not None
    assert "AssertionError: -1 != 3" in found.reproduction.base.excerpt


async def test_tests_that_pass_without_the_fix_show_nothing(trial: Callable[..., Trial]) -> None:
    useless = NEW_TEST.replace("money.add(1, 2), 3", "money.add(1, 0), 1")
    found = await trial(GUARDED, guarded=taken_back()).verify({"tests/test_add.py": useless}, REPRODUCTION)
    assert found.verdict == "unproved"
    assert "The reproduction already passes on the base without ffffffffff, so it shows nothing." in found.reasons


async def test_tests_that_need_a_name_of_the_fix_show_nothing(trial: Callable[..., Trial]) -> None:
    named = "import unittest\nfrom money import twice\n\nclass T(unittest.TestCase):\n    def test_it(self): twice(1)\n"
    without = taken_back("def add(a, b):\n    return a - b\n")
    found = await trial(GUARDED, guarded=without).verify({"tests/test_add.py": named}, REPRODUCTION)
    assert found.verdict == "unproved"
    assert found.reproduction is not None
    assert found.reproduction.on_base == "was_not_there"


@pytest.mark.parametrize(
    ("guarded", "said"),
    [
        (FixUnderTest(), "No fix is known"),
        (
            FixUnderTest(FIX, lambda: RevertedFix(None, "it is the first commit of its repository")),
            "The fix ffffffffff cannot be reverted: it is the first commit of its repository.",
        ),
    ],
)
async def test_without_a_fix_tests_are_tested_at_most(
    trial: Callable[..., Trial], guarded: FixUnderTest, said: str
) -> None:
    subject = trial(GUARDED, guarded=guarded)
    found = await subject.verify({"tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "tested"
    assert found.reproduction is not None
    assert (found.reproduction.on_base, found.reproduction.on_head) == ("not_run", "green")
    assert said in found.reproduction.note
    assert "reproduction-base" not in subject.workspaces.opened


async def test_tests_that_fail_as_it_is_are_broken(trial: Callable[..., Trial]) -> None:
    wrong = NEW_TEST.replace("3)", "4)")
    found = await trial(GUARDED, guarded=FixUnderTest()).verify({"tests/test_add.py": wrong}, REPRODUCTION)
    assert found.verdict == "broken"


async def test_whoever_is_to_write_tests_cannot_touch_the_code(trial: Callable[..., Trial]) -> None:
    subject = trial(GUARDED, guarded=taken_back())
    found = await subject.verify({"tests/test_add.py": NEW_TEST, "money.py": FIXED + "\n"}, REPRODUCTION)
    assert found.verdict == "broken"
    assert "tests alone: money.py: is not a test" in found.reasons[0]
    assert "→ Revert these files" in feedback(found)
    assert not any(name.startswith("reproduction") for name in subject.workspaces.opened)
