"""What people type from habit: help, version, an issue without an option, a reader that goes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main, parser
from app.cli.run_local import QuietTerminal, open_terminal
from app.server.terminal import TerminalProgress


@pytest.mark.parametrize("words", [["help"], []])
def test_help_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "agent-fix fix" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["help", "fix"], ["fix", "--help"], ["help", "jobs", "watch"]])
def test_help_explains_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert f"usage: agent-fix {words[1] if words[0] == 'help' else words[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"]])
def test_version_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("agent-fix ")


@pytest.mark.parametrize("words", [["fix", "a.md"], ["fix", "--issue", "a.md"], ["fix", "--budget", "3", "a.md"]])
def test_an_issue_needs_no_option(words: list[str]) -> None:
    assert parser().parse_args(words).issue == "a.md"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fix"], "ISSUE is missing."),
        (["fix", "a.md", "--issue", "b.md"], "not allowed with argument"),
        (["jbos"], "There is no command jbos. Did you mean jobs?"),
        (["fix", "a.md", "-q", "-v"], "not allowed with argument"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_quiet_terminal_shows_warnings_and_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = open_terminal(sys.stdout, "quiet")
    assert isinstance(terminal, QuietTerminal)
    terminal.report("step", "turn 1")
    terminal.report("warning", "no sandbox")
    terminal.show("proved")
    said = capsys.readouterr().out
    assert ("turn 1" in said, "no sandbox" in said, "proved" in said) == (False, True, True)
    assert type(open_terminal(sys.stdout, "verbose")) is TerminalProgress


def test_config_says_where_each_setting_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = tmp_path / "r"
    (repository / ".github").mkdir(parents=True)
    (repository / ".github/agent-fix.yml").write_text("budget:\n  usd: 3\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
    assert main(["config", "--repo", str(repository), "--state", str(tmp_path / "s"), "--json"]) == 0
    rows = {row["key"]: (row["value"], row["from"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["budget.usd"] == (3.0, ".github/agent-fix.yml")
    assert rows["budget.steps"][1] == "default"
    assert rows["--state"][0] == str(tmp_path / "s")


@pytest.mark.parametrize("words", [["completion", "bash"], ["help"], ["fix", "--help"]])
def test_a_reader_that_goes_is_no_error(words: list[str]) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "app", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    program.stdout.close()
    _, said = program.communicate(timeout=60)
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
