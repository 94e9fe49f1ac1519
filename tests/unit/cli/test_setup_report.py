"""What `agent-fix setup` shows to people, and what it writes into a configuration."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from app.cli import main
from app.cli.setup import SetupReport, write_configuration
from app.config.repository import SOURCE
from app.core.errors import AgentFixError, ConfigError, OutputError
from app.core.verification import Execution, SuiteResult, TestCount
from app.pipeline.wiring.project_setup import ChosenSetup
from app.sandbox.base import SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.verify.candidates import Candidate, Trial
from app.verify.frameworks import SuiteCommand
from tests.support.repositories import git

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
    assert "Tried, the best first:\n  - tox.ini: 99 passed, 1 failed, 2 not run. what tox.ini says\n" in shown


def test_a_missing_program_and_an_exit_code_come_first_and_are_in_the_json() -> None:
    def ended(code: int, reason: str) -> SetupReport:
        execution = Execution(command="mix test", exit_code=code, seconds=1)
        trial = Trial(Candidate("a", "b", 1, SetupChoice(), SUITE), 1.0, SuiteResult(execution=execution), reason)
        return SetupReport(ChosenSetup(PLAN, SUITE, trials=(trial,)), 9.0)

    missing = ended(127, "The command mix is not in the sandbox.")
    assert next(missing.lines(explain=False)) == "The command mix is not in the sandbox (1 s)."
    assert missing.as_json()["candidates"] == [
        {"name": "a", "test": "pytest -q", "ran": "no results", "reason": "The command mix is not in the sandbox."}
    ]
    found = ended(0, "").as_json()
    assert (found["by_exit_code"], found["comparable"], missing.as_json()["by_exit_code"]) == (True, False, False)


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


@pytest.mark.parametrize("link", [".github", SOURCE])
def test_a_configuration_behind_a_link_is_not_written(tmp_path: Path, link: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "repository"
    outside.mkdir()
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside / ("" if link == ".github" else "written.yml"))
    with pytest.raises(OutputError, match="is a symlink"):
        write_configuration(root, report(99, 1))
    assert list(outside.iterdir()) == []


def test_a_link_to_itself_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".github").symlink_to(".github")
    with pytest.raises(OutputError, match="cannot be written"):
        write_configuration(tmp_path, report(99, 1))


UNUSABLE: dict[str, tuple[bytes, type[AgentFixError], str]] = {
    "in braces": (b"{lint: make lint}\n", ConfigError, "cannot be added to"),
    "with an end": (b"lint: make lint\n...\n", ConfigError, "cannot be added to"),
    "indented": (b"  lint: make lint\n", ConfigError, "cannot be added to"),
    "broken": (b"lint: [\n", ConfigError, "lint: "),
    "not text": (b"lint: \xff\n", ConfigError, "is not UTF-8 text"),
    "with an empty key": (b"test:\n", AgentFixError, "has `test:` already"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_configuration_that_cannot_be_added_to_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    content, error, said = UNUSABLE[kind]
    path = tmp_path / SOURCE
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(error, match=said):
        write_configuration(tmp_path, report(99, 1))
    assert path.read_bytes() == content


def test_lines_are_added_to_a_configuration_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / SOURCE
    path.parent.mkdir()
    path.write_bytes(b"# ours\r\nlint: make lint")
    write_configuration(tmp_path, report(99, 1))
    assert path.read_bytes() == b"# ours\r\nlint: make lint\ntest: pytest -q\n"


@pytest.mark.parametrize("place", [SOURCE, ".github"])
def test_something_else_in_the_place_of_a_configuration_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / ".github").mkdir()
    if place == SOURCE:
        (tmp_path / SOURCE).mkdir()
    else:
        (tmp_path / ".github").rmdir()
        (tmp_path / ".github").touch()
    with pytest.raises(OutputError, match=r"agent-fix\.yml cannot be"):
        write_configuration(tmp_path, report(99, 1))


def committed(root: Path) -> Path:
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=Begin")
    return root


def setup(root: Path, *words: str) -> int:
    return main(["setup", "--repo", str(root), "--state", str(root.parent / "state"), "--sandbox", "none", *words])


def test_a_configuration_is_checked_before_anything_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "README").touch()
    committed(root)
    (root / SOURCE).parent.mkdir()
    (root / SOURCE).write_text("{lint: make lint}\n")
    assert setup(root, "--write") == 5
    assert "cannot be added to" in capsys.readouterr().err


def test_a_committed_link_is_not_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "repository" / ".github").mkdir(parents=True)
    (tmp_path / "repository" / SOURCE).symlink_to("{lint: x}")
    assert setup(committed(tmp_path / "repository")) == 5
    assert "is not a regular file" in capsys.readouterr().err


def test_json_has_the_lines_that_a_person_writes() -> None:
    venv = "python3 -I -m venv /env"
    assert report(99, 1).as_json()["setup"] == ["pip install -e ."]
    chosen = ChosenSetup(SetupPlan((venv, "make deps"), short=(venv, "make deps")), SUITE)
    assert SetupReport(chosen, 1.0).as_json()["setup"] == ["make deps"]


def test_lines_that_the_configuration_has_are_not_written_again(tmp_path: Path) -> None:
    configured = replace(report(99, 1), configured=frozenset({"setup", "test"}))
    assert "Nothing is written" in write_configuration(tmp_path, configured)
    assert not (tmp_path / SOURCE).exists()
    assert list(configured.lines(explain=False))[-1].startswith("This is what .github/agent-fix.yml says")
    half = replace(report(99, 1, keeps_setup=True), configured=frozenset({"setup"}))
    write_configuration(tmp_path, half)
    assert yaml.safe_load((tmp_path / SOURCE).read_text()) == {"test": "pytest -q"}
