"""What `agent-fix setup` shows to people, and what it writes into a configuration."""

from dataclasses import replace
from pathlib import Path

import yaml

from app.cli.setup import SetupReport, write_configuration
from app.core.verification import Execution, SuiteResult, TestCount
from app.pipeline.wiring.project_setup import ChosenSetup
from app.sandbox.base import SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.verify.candidates import Candidate, Trial
from app.verify.frameworks import SuiteCommand

PLAN = SetupPlan(
    commands=(
        "python3 -I -m venv /env",
        "node -e '\nfirst\nsecond'",
        "/tmp/uv/bin/uv pip install -e . || pip install -e ." + " x" * 400,
    ),
    short=("pip install -e .",),
    notes=("b is left out",),
)
SUITE = SuiteCommand("pytest -q")


def report(passed: int, failed: int, *, keeps_setup: bool = False) -> SetupReport:
    execution = Execution(command="pytest -q", exit_code=1 if failed else 0, seconds=1)
    result = SuiteResult(execution=execution, count=TestCount(passed=passed, failed=failed, skipped=2))
    trial = Trial(Candidate("tox.ini", "what tox.ini says", 1, SetupChoice(), SUITE), 8.2, result, "", ("a is absent",))
    return SetupReport(ChosenSetup(PLAN, SUITE, trials=(trial,)), 9.0, keeps_setup=keeps_setup)


def test_the_result_comes_first_and_commands_are_as_a_person_writes_them() -> None:
    assert list(report(99, 1).lines(explain=False)) == [
        "99 of 100 tests pass, 2 more are skipped (8 s).",
        "",
        "  chosen  what tox.ini says",
        "  set-up  pip install -e .",
        "  tests   pytest -q",
        "  note    a is absent",
        "  note    b is left out",
        "",
        "agent-fix finds this by itself. --write keeps it in .github/agent-fix.yml, --explain shows every command.",
    ]


def test_explained_it_has_every_command_and_candidate() -> None:
    shown = "\n".join(report(99, 1).lines(explain=True))
    assert f"  set-up  node -e ' (… 2 more lines: --json)\n  set-up  {PLAN.commands[2]}\n" in shown
    assert "Tried, the best first:\n  - tox.ini: what tox.ini says\n" in shown


def test_a_set_up_that_does_not_work_says_what_to_do() -> None:
    shown = list(report(1, 99).lines(explain=False))
    assert shown[0] == "1 of 100 tests pass, 2 more are skipped (8 s)."
    assert shown[-1] == "Write `setup:` and `test:` into .github/agent-fix.yml, as you would type them here."
    assert list(SetupReport(None, 1.0, ("No index answers.",)).lines(explain=False)) == [
        "No set-up works here.",
        "  note    No index answers.",
        "",
        shown[-1],
    ]


def test_a_suite_that_is_too_long_is_not_called_wrong() -> None:
    stopped = SuiteResult(execution=Execution(command="pytest -q", exit_code=124, seconds=9, timed_out=True))
    trial = Trial(Candidate("tox.ini", "what tox.ini says", 1, SetupChoice(), SUITE), 9.2, stopped, "It was stopped.")
    shown = list(SetupReport(ChosenSetup(PLAN, SUITE, trials=(trial,)), 9.0).lines(explain=False))
    assert shown[-1].startswith("The suite needs more time: give --seconds, or a `test:`")
    first = stopped.model_copy(update={"count": TestCount(passed=60)})
    trial = replace(trial, result=first)
    shown = list(SetupReport(ChosenSetup(PLAN, SUITE, trials=(trial,)), 9.0).lines(explain=False))
    assert shown[0] == "60 of 60 tests pass, until the suite was stopped at its limit (9 s)."


def test_only_lines_that_were_tried_are_written(tmp_path: Path) -> None:
    written = tmp_path / ".github/agent-fix.yml"
    assert "the same result" in write_configuration(tmp_path, report(99, 1, keeps_setup=True))
    assert yaml.safe_load(written.read_text()) == {"setup": ["pip install -e ."], "test": "pytest -q"}
    written.write_text("model: openai/gpt-5\n")
    assert "`test:` only" in write_configuration(tmp_path, report(99, 1))
    assert yaml.safe_load(written.read_text()) == {"model": "openai/gpt-5", "test": "pytest -q"}
