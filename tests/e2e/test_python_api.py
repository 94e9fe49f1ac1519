"""The call for Python programs: from an issue's text to a branch, with the progress as it happens."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import app
from app.core.errors import AgentFixError, ExitCode
from tests.support import wallet_project
from tests.support.repositories import git


def test_an_issue_is_fixed_from_a_program(tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    model = f"recorded/{wallet_project.worked_on().save(tmp_path / 'recording.jsonl')}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    events: list[app.FixProgress] = []
    done = app.fix(
        repository,
        wallet_project.ISSUE,
        app.FixSettings(model=model, state=tmp_path / "state"),
        out=tmp_path / "out",
        on_progress=events.append,
        environment=environment,
    )
    assert (done.exit_code, done.exit_status, done.verdict) == (ExitCode.OK, "branch_made", "proved")
    assert done.proved
    assert done.branch in git(repository, "branch", "--list", done.branch)
    assert done.plan is not None
    assert done.usage.calls > 0
    kinds = [event.kind for event in events]
    assert kinds.index("plan") < kinds.index("step")
    assert {"state", "verification", "command"} <= set(kinds)
    with pytest.raises(AgentFixError, match="does not exist"):
        app.fix(tmp_path / "nothing", "Title", environment=environment, out=tmp_path / "other")


def test_a_killed_job_is_an_error_that_says_so(tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    model = f"recorded/{wallet_project.worked_on().save(tmp_path / 'recording.jsonl')}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AGENT_FIX_FAILPOINT": "created"}
    settings = app.FixSettings(model=model, state=tmp_path / "state")
    with pytest.raises(AgentFixError, match="ended by signal 9") as raised:
        app.fix(repository, wallet_project.ISSUE, settings, out=tmp_path / "out", environment=environment)
    assert raised.value.code == ExitCode.INTERRUPTED


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, app; print(len([name for name in sys.modules if name.startswith('app')]))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "1"
