"""The proof engine on small real projects, every command really run in a real sandbox."""

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core.examples import PlanExamples, Review
from app.core.verification import UnchangedSubmission
from app.publish.result_view import meaning
from app.sandbox.base import SandboxProvider
from app.sandbox.unsandboxed import UnsandboxedProvider
from app.verify.feedback import feedback
from app.verify.verdict import earlier_proof, examples_of
from tests.support.sandbox_projects import patch_of
from tests.support.verifier_trial import (
    EXAMPLES,
    FIXED,
    ISSUE,
    NEW_TEST,
    PYTEST,
    REPRODUCTION,
    UNITTEST,
    Changes,
    Trial,
    example,
)

NOTHING = Review(nothing="It is right.")


async def test_hidden_examples_that_turn_are_proof(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST, text=ISSUE)
    known = await subject.planned(*EXAMPLES)
    assert known.examples is not None
    assert [one.base[0].stdout for one in known.examples.examples] == ["-1\n", "19\n", "99999999999999999999\n", "5\n"]
    found = await subject.verify({"money.py": FIXED}, "", known.model_copy(update={"review": NOTHING}))
    assert (found.verdict, found.rules, found.isolated, found.sandbox) == ("proved", (), True, "bubblewrap")
    assert all(one.holds for one in examples_of(found))


async def test_a_follow_up_is_run_on_the_examples_that_proved_the_first_commit(trial: Callable[..., Trial]) -> None:
    first = trial(UNITTEST, text=ISSUE)
    known = await first.planned(*EXAMPLES)
    proved = await first.verify({"money.py": FIXED}, "", known.model_copy(update={"review": NOTHING}))
    earlier = earlier_proof("1" * 40, proved)
    subject = trial({**UNITTEST, "money.py": FIXED}, text="rename the test", earlier=earlier)
    known = (await subject.baseline()).model_copy(update={"examples": PlanExamples(absent="the job has no plan.")})
    added = "\n    def test_more(self):\n        self.assertEqual(money.add(2, 2), 4)\n"
    tests = textwrap.dedent(UNITTEST["tests/test_money.py"]) + textwrap.indent(textwrap.dedent(added), "    ")
    found = await subject.verify({"tests/test_money.py": tests}, "", known)
    assert (found.verdict, found.rules, len(examples_of(found))) == ("proved", (), 4)
    assert meaning(found).startswith("Still proved: ")
    undone = await subject.verify({"money.py": UNITTEST["money.py"]}, "", known)
    assert (undone.verdict, undone.rules[0]) == ("broken", "example_fails")
    thrice = textwrap.dedent(FIXED) + "\n\ndef thrice(a):\n    return 3 * a\n"
    more = await subject.verify({"money.py": thrice}, "", known)
    assert (more.verdict, "request_not_shown" in more.rules) == ("tested", True)


async def test_a_fix_of_the_example_alone_is_broken_and_the_agent_sees_only_sentences(
    trial: Callable[..., Trial],
) -> None:
    subject = trial(UNITTEST, text=ISSUE)
    known = await subject.planned(*EXAMPLES)
    special = FIXED.replace("return a + b", "return 3 if (a, b) == (1, 2) else a - b")
    found = await subject.verify({"money.py": special, "tests/test_add.py": NEW_TEST}, REPRODUCTION, known)
    assert (found.verdict, found.rules[0]) == ("broken", "example_fails")
    told = feedback(found)
    assert "  2. Negative numbers are added, too.\n  3. So are large ones." in told
    assert "`objections`" in told
    for secret in ("-21", "10**20", "-20", "print("):
        assert secret not in told


async def test_a_change_that_breaks_what_must_go_on_is_broken(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST, text=ISSUE)
    known = await subject.planned(*EXAMPLES)
    found = await subject.verify({"money.py": FIXED.replace("a + b", "a + b if b else 0")}, "", known)
    assert found.verdict == "broken"
    assert "  4. Adding nothing changes nothing." in feedback(found)


async def test_an_example_that_the_agent_disputes_is_left_to_people(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST, text=ISSUE)
    wrong = example("money.add(7, 70)", "0", "Sums of sevens are nothing.")
    known = (await subject.planned(*EXAMPLES, wrong)).model_copy(update={"review": NOTHING})
    found = await subject.verify({"money.py": FIXED}, "", known, objections={"4": "The issue says nothing of sevens."})
    assert (found.verdict, found.rules[0]) == ("tested", "example_disputed")


async def test_a_reviewer_finds_what_the_plan_did_not_look_at(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST, text=ISSUE)
    known = await subject.planned(*EXAMPLES)
    text = textwrap.dedent(FIXED.replace("a + a", "a * 2 if a < 100 else a"))
    halved: Changes = {"money.py": text}
    counter = [example("money.twice(150)", "300", "Large numbers are doubled, too.", kind="keeps")]
    review = await subject.verifier.judge.counter(counter, patch_of({"money.py": text}))
    assert [one.name for one in review.examples] == ["r1"]
    assert review.examples[0].fails
    found = await subject.verify(halved, "", known.model_copy(update={"review": review}))
    assert (found.verdict, found.rules[0]) == ("broken", "example_fails")
    assert "A reviewer's counter-examples" in feedback(found)
    assert "300" not in feedback(found)


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


async def test_a_false_claim_is_broken_and_the_agent_is_told_why(trial: Callable[..., Trial]) -> None:
    subject = trial(UNITTEST)
    found = await subject.verify({"README.md": "mended\n", "tests/test_add.py": NEW_TEST}, REPRODUCTION)
    assert found.verdict == "broken"
    assert "The agent's own test still fails on the change." in found.reasons
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
        assert f"The agent's earlier reproduction `{honest}` still fails on the head." in found.reasons
    mended = await trial(UNITTEST).verify({"money.py": FIXED}, "true", earlier=earlier)
    assert mended.reproduction is not None
    assert (mended.reproduction.on_base, mended.reproduction.on_head) == ("red", "green")
    assert "own reproduction `true`: it passes on the base" in mended.reproduction.note
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


async def test_a_reproduction_that_only_reads_the_source_shows_nothing(trial: Callable[..., Trial]) -> None:
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


async def test_a_missing_command_is_broken(trial: Callable[..., Trial]) -> None:
    found = await trial(UNITTEST).verify({"money.py": FIXED}, "no-such-command --at-all")
    assert found.verdict == "broken"
    assert found.reasons == ("The agent's own test could not be run on the change.",)


async def test_a_new_module_does_not_shadow_an_installed_one(trial: Callable[..., Trial]) -> None:
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


NEEDS_ANOTHER = """\
    import os
    import unittest

    class TestOrder(unittest.TestCase):
        def test_order(self):
            self.assertTrue(os.environ.get("TOGETHER"))
            self.assertFalse(os.path.exists("README.md"))
    """


async def test_a_test_that_needs_another_one_counts_if_only_the_head_fails(trial: Callable[..., Trial]) -> None:
    """Alone it fails on both, so only whole runs can tell."""
    subject = trial({"test_a.py": SETS_TOGETHER, "test_order.py": NEEDS_ANOTHER})
    found = await subject.verify({"README.md": "x"})
    assert found.verdict == "broken"
    assert found.suite is not None
    assert found.suite.newly_failing == ("test_order.TestOrder.test_order",)


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


async def test_test_names_do_not_depend_on_the_sandboxs_path(tmp_path: Path) -> None:
    """Node names a file that does not load by its whole path, which there is another one in every run."""
    with unsandboxed(tmp_path) as provider:
        subject = Trial(provider, {**NODE, "test/broken.test.js": "require('./nope')\n"}, wants_red=False)
        known = await subject.verifier.baseline()
        assert known.suite is not None
        assert known.suite.failing == ("test/broken.test.js",)
        assert "/workspace/" in known.suite.execution.excerpt
        assert "/tree/" not in known.suite.execution.excerpt
        found = await subject.verify({"cart.js": f"{NODE['cart.js']}exports.none = 0\n"}, "", known)
    assert (found.verdict, found.isolated, found.sandbox) == ("tested", False, provider.name)
    assert found.suite is not None
    assert found.suite.newly_failing == ()


SECOND = """\
    import unittest
    import money

    class Second(unittest.TestCase):
        def test_order(self):
            '''The order of the two numbers makes no difference.'''
            self.assertEqual(money.add(7, 2), money.add(2, 7))

        def test_twice(self):
            '''Doubling a number still works.'''
            self.assertEqual(money.twice(8), 16)
    """
SECOND_IDS = ("tests.test_second.Second.test_order", "tests.test_second.Second.test_twice")
