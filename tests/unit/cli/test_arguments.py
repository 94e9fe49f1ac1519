"""What the command line answers to wrong arguments, to none, to a missing library, and to a shell that completes."""

import argparse
import re
import subprocess
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import COMMANDS, EXTRAS, main, missing_extra, parser
from app.cli.python_api import FixSettings

ROOT = Path(__file__).parents[3]
IMPORTED_AS = {"prometheus-client": "prometheus_client", "pyjwt": "jwt"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["fxi"], "There is no command fxi. Did you mean fix?"),
        (["fix", "--modle", "x", "--issue", "a"], "There is no option --modle. Did you mean --model?"),
        (["fix", "--issue", "a", "--sandbox", "bubblwrap"], "Did you mean bubblewrap?"),
        (["fix", "a", "more"], "`agent-fix fix` takes no argument more."),
        (["fix"], "ISSUE is missing."),
        (["jobs", "cancle", "x"], "There is no command cancle. Did you mean cancel?"),
        (["jobs", "show", "x", "--pacth"], "There is no option --pacth. Did you mean --patch?"),
        (["completion", "tcsh"], "There is no value for shell tcsh. Known: bash, zsh, fish."),
        (["fix", "--issue", "a", "--attempts", "two"], "Argument --attempts: invalid int value: 'two'."),
        (["report", "--days", "99999999999"], "Argument --days: '99999999999' is no number from 1 to 36,500."),
        (["jobs", "list", "-n", "-1"], "Argument -n: '-1' is no number from 1 to"),
        (["jobs", "start", "a/b", "--limit", "x"], "Argument --limit: 'x' is no number from 1 to"),
        (["sweep", "--repo", "a/b/c"], "Argument --repo: 'a/b/c' is not a repository: use OWNER/NAME."),
        (["doctor", "--github", "a"], "Argument --github: 'a' is not a repository: use OWNER/NAME."),
        (["sweep", "--repo", "a/b", "--max", "0"], "Argument --max: '0' is no number from 1 to"),
        (["setup", "--repo", "a", "--seconds", "nan"], "Argument --seconds: 'nan' is no number from 1 to"),
    ],
)
def test_wrong_argument_is_refused_with_a_suggestion(
    words: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert answer in shown.err
    assert "--help` lists commands and options." in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["fix", "--issue", "ada/sample#3"],
        ["init", "--repo", "nowhere"],
        ["setup", "--repo", "nowhere"],
        ["demo"],
        ["doctor"],
        ["doctor", "--github", "ada/sample"],
        ["sweep", "--repo", "ada/sample"],
        ["jobs", "list"],
        ["view", "last"],
        ["runners"],
        ["lessons", "list"],
        ["report"],
        ["keys", "list"],
        ["serve", "--setup"],
    ],
    ids=" ".join,
)
def test_a_wrong_variable_is_named_by_every_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    for name, value in {"STATE_DIR": str(tmp_path), "GITHUB_URL": "ghe.example.com", "DEFAULTS": "lokc: []"}.items():
        monkeypatch.setenv(f"AGENT_FIX_{name}", value)
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert "2 settings are missing or invalid." in shown
    assert "AGENT_FIX_GITHUB_URL is not a usable URL. Set it to a URL such as" in shown
    assert "AGENT_FIX_DEFAULTS cannot be used: AGENT_FIX_DEFAULTS:1: lokc: is not a known key" in shown
    assert list(tmp_path.iterdir()) == []


def test_errors_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--repo", "\x1b[2J\x1b]0;title\x07nowhere"]) != 0
    shown = capsys.readouterr().err
    assert "nowhere does not exist.\n           Pass the top" in shown
    assert "\x1b" not in shown


def test_no_arguments_show_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    offered = {name for name in COMMANDS if name != "action"}  # for the Action only
    assert {line.split()[1] for line in shown.splitlines() if line.startswith("  agent-fix ")} == offered
    assert "doctor     check this machine" in shown


def test_every_command_of_the_parser_has_an_implementation() -> None:
    choices = next(each.choices for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    assert set(choices) == set(COMMANDS)


def test_fix_settings_has_the_options_of_the_command() -> None:
    """Without those that the call itself sets, and the one that asks at a terminal."""
    own = {"command", "repo", "issue", "out", "json", "events", "approve", "quiet", "verbose"}
    offered = set(vars(parser().parse_args(["fix", "--issue", "a"])))
    assert {each.name for each in fields(FixSettings)} == offered - own


@pytest.mark.parametrize("plan", [{"plan": Path("/plan.md")}, {"plan_only": True}, {"no_plan": True}], ids=str)
def test_fix_settings_reach_the_command(plan: dict[str, Any]) -> None:
    task = FixSettings(kind="bug", prompt="speed", allow=("a b", "-c"), fixed_by="abc", attempts=2, images=True)
    limits = replace(task, budget="2", max_steps=3, max_minutes=4.5, restart=True, **plan)
    how = replace(limits, model="m/x", reasoning="low", runner="native", sandbox="none", base="main")
    given = asdict(replace(how, record=Path("/recording"), state=Path("/state")))
    parsed = vars(parser().parse_args(["fix", "--issue", "a", *FixSettings(**given).as_arguments()]))
    assert {name: parsed[name] for name in given} == {**given, "allow": list(given["allow"])}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_lists_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "doctor" in script
    assert "max-minutes" in script


def test_bash_accepts_the_completion_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    asked = (
        f"source {script}; COMP_WORDS=(agent-fix fix --mod); COMP_CWORD=2; "
        "$(complete -p agent-fix | sed 's/.*-F \\([^ ]*\\).*/\\1/') agent-fix --mod fix; echo ${COMPREPLY[@]}"
    )
    found = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=False, timeout=30)
    assert "--model" in found.stdout, found.stderr


def test_a_missing_library_is_named_with_its_extra() -> None:
    found = missing_extra(ModuleNotFoundError("No module named 'githubkit.auth'", name="githubkit.auth"))
    assert found is not None
    assert "agent-fix[github]" in found.message
    assert "pip install '.[github]'" in found.hint
    assert missing_extra(ModuleNotFoundError(name="tomlkit")) is None


def test_table_of_extras_matches_pyproject() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = {
        (IMPORTED_AS.get(name, name), extra)
        for extra in ("e2b", "github", "notify", "server")
        for name in (re.split(r"[\[<>=;]", line)[0].lower() for line in extras[extra])
        if name != "agent-fix"
    }
    assert listed == set(EXTRAS.items())
