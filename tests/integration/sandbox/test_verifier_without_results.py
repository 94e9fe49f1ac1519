"""Verification where tests are missing, blocked, hang, are too many, or cannot be started."""

import asyncio
from collections.abc import Callable

import pytest

from app.config.repository import GateConfig
from app.core.verification import GateResult, Verification
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.verify.feedback import feedback
from app.verify.project import TimeLimits
from app.verify.suite import measure
from tests.support.suite_projects import Project
from tests.support.verifier_trial import (
    FIXED,
    NEW_TEST,
    PYTEST,
    REPRODUCTION,
    UNITTEST,
    Trial,
)


async def test_an_invalid_reproduction_command_is_broken(trial: Callable[..., Trial]) -> None:
    for command in ("true " + "x" * 300_000, "true \0"):
        found = await trial(NO_TESTS).verify({"README.md": "x"}, command)
        assert found.verdict == "broken"
        assert found.reasons == ("The agent's own test could not be run on the change.",)


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
    assert "it names no test" in found.reasons[0]
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


async def test_only_the_chosen_tests_run_if_the_framework_rejects_our_report(provider: BubblewrapProvider) -> None:
    files = {"test_a.py": "def test_a():\n    pass\n", "test_b.py": "def test_b():\n    raise ValueError\n"}
    project = Project(provider, files, test="python3 -m pytest -p no:junitxml")
    async with project.under_test.open("chosen", None) as sandbox:
        found = (await measure(sandbox, project.suite, timeout=60.0, only=("test_a.py",))).result
    assert (found.execution.command, found.execution.exit_code) == ("python3 -m pytest -p no:junitxml test_a.py", 0)
    assert "1 passed" in found.execution.excerpt


async def test_a_blocked_patch_is_not_executed_at_all(trial: Callable[..., Trial]) -> None:
    subject = trial(NO_TESTS)
    found = await subject.verify({".github/workflows/x.yml": "on: push\n", "greet.py": "x = 1\n"}, "python3 greet.py")
    assert found.verdict == "broken"
    assert subject.workspaces.opened == []
    assert found.suite is not None
    assert found.suite.not_run == "Not run: a gate blocks the change."
    assert "only people may change continuous integration, deployment and bot settings" in feedback(found)


def gate_named(found: Verification, name: str) -> GateResult:
    return next(gate for gate in found.gates if gate.name == name)


async def test_lint_blocks_what_it_newly_finds_and_warns_of_what_it_found_before(trial: Callable[..., Trial]) -> None:
    subject = trial(NO_TESTS, lint="! grep -rn TODO --include=*.py .")
    found = await subject.verify({"greet.py": "# TODO\n"})
    assert gate_named(found, "lint").outcome == "blocked"
    assert any("greet.py:1:# TODO" in line for line in gate_named(found, "lint").details)
    assert found.verdict == "broken"
    old = trial({"greet.py": "# TODO\n"}, lint="! grep -rn TODO --include=*.py .")
    known = gate_named(await old.verify({"README.md": "x"}), "lint")
    assert (known.outcome, known.details[1:]) == ("warned", ("./greet.py:1:# TODO",))
    for command in ("no-such-linter .", "python3 -m no_such_linter", "./tools/lint"):
        lost = gate_named(await trial(NO_TESTS, lint=command).verify({"README.md": "x"}), "lint")
        assert (lost.outcome, "install what it needs with `setup:`" in lost.details[1]) == ("warned", True), command
        assert len(lost.details) > 2, "what it printed"


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


async def test_tests_that_hang_are_ended_and_reported(trial: Callable[..., Trial]) -> None:
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


async def test_a_fixed_hang_counts_as_red_to_green(trial: Callable[..., Trial]) -> None:
    files = {"loop.py": "def spin():\n    while True:\n        pass\n"}
    subject = trial(files, limits=TimeLimits(reproduction=1))
    found = await subject.verify({"loop.py": "def spin():\n    pass\n"}, "python3 -c 'import loop; loop.spin()'")
    assert found.reproduction is not None
    assert (found.reproduction.on_base, found.reproduction.on_head) == ("red", "green")
    assert found.verdict == "unproved"


KNOWN_GOOD = ("tests.test_money.TestMoney.test_twice", "tests.test_money.TestMoney.test_zero")


async def test_an_overlong_suite_is_reduced_to_the_nearest_tests(trial: Callable[..., Trial]) -> None:
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


async def test_a_missing_framework_is_reported(trial: Callable[..., Trial]) -> None:
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
