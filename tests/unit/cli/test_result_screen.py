"""How the last screen of `fix` names this program."""

import os
import shutil
from pathlib import Path

import pytest

from app.cli.result_screen import COMMAND, own_command


def test_command_on_the_path_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / COMMAND
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert own_command(str(program)) == COMMAND


def test_command_off_the_path_is_called_by_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "with space" / COMMAND
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert shutil.which(COMMAND) is None
    assert own_command(str(program)) == f"'with space{os.sep}{COMMAND}'"


def test_another_program_that_embeds_this_one_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert own_command("/usr/bin/pytest") == COMMAND
