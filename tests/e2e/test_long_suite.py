"""A suite that is longer than its limit: the nearest tests decide about the branch, and the rest runs afterwards."""

import signal
import subprocess
from pathlib import Path

import pytest

from app.config.repository import SOURCE
from tests.support import wallet_project
from tests.support.console import LONGEST, SCRIPT, Console, ConsoleResult, branches

SLOW = "import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_slow(self):\n        time.sleep({})\n"
FAR = (
    "import unittest\nfrom importlib import import_module\n\n\nclass Far(unittest.TestCase):\n"
    "    def test_most(self):\n"
    "        module = import_module(''.join(('wal', 'let.sha', 'res')))\n"
    "        self.assertEqual(max(getattr(module, ''.join(('sp', 'lit')))({}, 3)), 33)\n"
)


def long_suite(path: Path, total: int, minutes: str = "") -> Path:
    """Tests in the order of their names: one far from the change, then some that outlast the suite's limit."""
    files = {
        "checks/__init__.py": "",
        "checks/test_a_far.py": FAR.format(total),
        **{f"checks/test_b_slow_{number}.py": SLOW.format(4) for number in range(3)},
        SOURCE: f"budget:\n  suite_minutes: 0.16\n{minutes}",
    }
    return wallet_project.make_wallet(path, files)


def test_a_regression_far_from_the_change_is_found_by_the_rest(console: Console, tmp_path: Path) -> None:
    repository = long_suite(tmp_path / "wallet", 100)
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 21, finished.said
    told = finished.stdout
    first = told.index(f"branch {wallet_project.BRANCH} created.")
    assert first < told.index("The remaining tests are running: 4 test files on base and head, for at most 30 min.")
    assert "Press Ctrl-C to skip them; branch and verdict are kept." in told
    assert wallet_project.BRANCH in branches(repository)
    rest = finished.verification["rest"]
    assert (rest["state"], rest["compared"]) == ("finished", 4)
    assert rest["newly_failing"] == ["checks.test_a_far.Far.test_most"]
    assert finished.verification["verdict"] == "broken"
    assert "**Broken.**" in finished.pull_request
    assert "4 of 4 test files further from the change ran on the base and with the change" in finished.pull_request
    assert "AssertionError: 34 != 33" in finished.pull_request


def test_without_minutes_there_is_no_rest(console: Console, tmp_path: Path) -> None:
    repository = long_suite(tmp_path / "wallet", 99, "  rest_of_suite_minutes: 0\n")
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 0, finished.said
    assert finished.verification["rest"] is None
    assert "remaining tests" not in finished.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_branch_and_verdict_are_kept_when_the_rest_is_ended(
    console: Console, tmp_path: Path, number: signal.Signals
) -> None:
    repository = long_suite(tmp_path / "wallet", 99)
    words = console.fix_arguments(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    process = subprocess.Popen(
        [SCRIPT, *words], stdout=subprocess.PIPE, text=True, env=console.environment, cwd=console.place
    )
    assert process.stdout is not None
    shown = next(line for line in process.stdout if "The remaining tests are running" in line)
    process.send_signal(number)
    said = shown + process.stdout.read()
    ended = ConsoleResult(process.wait(LONGEST), said, "", console.out)
    assert wallet_project.BRANCH in branches(repository)
    if number == signal.SIGINT:
        assert ended.code == 0, ended.said
        assert ended.verification["rest"]["state"] == "stopped"
        assert "They did not finish. They were interrupted." in ended.pull_request
        return
    assert "The remaining tests are still running" in ended.pull_request
    again = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert again.code == 0, again.said
    assert again.verification["rest"]["state"] == "finished"
    assert branches(repository) == [wallet_project.BRANCH, "main"]
