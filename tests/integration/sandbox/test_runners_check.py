"""`runners check`: newer versions, by a package index of the test's own."""

import os
import subprocess
from pathlib import Path

import pytest

from app.core.errors import ExitCode
from tests.support.cli_job import PROGRAM as COMMAND
from tests.support.cli_job import TIMEOUT
from tests.support.shell_agent import VERSION, settle


def check(root: Path, *words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [COMMAND, "runners", "check", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            **settle(root, VERSION, "1.1"),
            "AGENT_FIX_STATE_DIR": str(root / "state"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("words", [(), ("--versions",)])
def test_a_newer_version_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    code, text = check(tmp_path, "parrot", *words)
    assert (code, "newest is 1.1" in text) == (1, True), text


def test_the_newest_version_is_fine(tmp_path: Path) -> None:
    code, text = check(tmp_path, "parrot", **settle(tmp_path / "other"))
    assert (code, "usable here; the newest" in text) == (0, True), text


def test_an_index_that_says_nothing_is_not_taken_for_good_news(tmp_path: Path) -> None:
    code, text = check(tmp_path, "parrot", PIP_INDEX_URL=f"file://{tmp_path}")
    assert code == 1
    assert "could not look for" in text


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    code, text = check(tmp_path, "robot")
    assert code == ExitCode.CONFIG
    assert "There is no runner 'robot'" in text
