"""`agent-fix setup` on small repositories, in the real sandbox and without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repositories import make_repository

PROGRAM = Path(sys.executable).with_name("agent-fix")
CHECK = (
    "import unittest\n\nclass Adds(unittest.TestCase):\n    def test_adds(self):\n        self.assertEqual(1 + 1, 2)\n"
)
WORKFLOW = """
on: push
jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - run: python -m unittest discover -v -s checks -p 'check_*.py'
"""
WRONG = "import unittest\nimport absent\n\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"


def setup(repository: Path, state: Path, *options: str) -> tuple[int, str]:
    argv = [str(PROGRAM), "setup", "--repo", str(repository), "--state", str(state), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ}, timeout=300)
    return done.returncode, done.stdout if "--json" in options else done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What its manifests suggest fails, and what its CI executes passes."""
    files = {"checks/check_a.py": CHECK, "test_old.py": WRONG, ".github/workflows/ci.yml": WORKFLOW}
    return make_repository(tmp_path / "repository", files)


def test_the_command_of_the_ci_workflow_is_chosen(repository: Path, tmp_path: Path) -> None:
    code, output = setup(repository, tmp_path / "state", "--json")
    found: dict[str, Any] = json.loads(output)
    assert code == 0
    assert found.keys() == {
        *("candidate", "setup", "test", "passed", "failed", "not_run", "comparable", "by_exit_code", "candidates"),
        *("stopped", "seconds", "reasons"),
    }
    assert found["candidate"] == ".github/workflows/ci.yml, job tests"
    assert found["test"] == "python3 -m unittest discover -v -s checks -p 'check_*.py'"
    assert (found["passed"], found["failed"], found["comparable"], found["setup"]) == (1, 0, True, [])


def test_the_chosen_setup_is_written_to_the_configuration_once(repository: Path, tmp_path: Path) -> None:
    code, _ = setup(repository, tmp_path / "state", "--write", "--explain")
    assert code == 0
    written = yaml.safe_load((repository / ".github/agent-fix.yml").read_text())
    assert written == {"setup": [], "test": "python3 -m unittest discover -v -s checks -p 'check_*.py'"}
    code, output = setup(repository, tmp_path / "state", "--write")
    assert code == 2
    assert "already" in output


def test_the_configuration_is_what_is_tried(tmp_path: Path) -> None:
    """As in a job: its set-up and its build, whose results are there for the tests; progress goes to stderr."""
    config = "setup: mkdir made && echo 1 > made/one\nbuild: cp made/one made/two\ntest: python3 -m unittest -v\n"
    check = CHECK.replace("1 + 1, 2", "open('made/two').read(), '1\\n'")
    files = {"test_a.py": check, ".github/agent-fix.yml": config}
    repository = make_repository(tmp_path / "repository", files)
    argv = [str(PROGRAM), "setup", "--repo", str(repository), "--state", str(tmp_path / "state"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ}, timeout=300)
    found = json.loads(done.stdout)
    assert (found["candidate"], found["passed"], found["failed"]) == ("configuration", 1, 0)
    assert found["setup"] == ["mkdir made && echo 1 > made/one"]
    assert "$ mkdir made && echo 1 > made/one" in done.stderr


def test_a_suite_in_which_nothing_passes_is_not_a_set_up(tmp_path: Path) -> None:
    failing = CHECK.replace("self.assertEqual(1 + 1, 2)", "import absent")
    files = {f"test_{name}.py": failing for name in "abcdef"}
    code, output = setup(make_repository(tmp_path / "repository", files), tmp_path / "state", "--json")
    found = json.loads(output)
    assert (code, found["comparable"], found["failed"]) == (8, False, 6)
    assert found["reasons"] == [
        "manifests: 0 passed, 6 failed, 0 not run. 6 of 6 tests fail: ModuleNotFoundError: No module named 'absent'"
    ]
