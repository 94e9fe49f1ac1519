"""Another agent's place in a job: which jobs have one, and which are refused before anything costs."""

import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.agent.external.recipe import built_in
from app.config.settings import Settings, settings_from
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget, Job
from app.core.task import Issue, Task
from app.pipeline.wiring.external_agent import DOWNLOADS, external_agent, find_python, python_downloads


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_from({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, tmp_path / "state")


def job(**told: Any) -> Job:
    task = Task(issue=Issue(title="t", body="b"), base="0" * 40, repository="r", base_ref="main", slug="s")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    fields: dict[str, Any] = {"runner": "kilo", "model": "openai/m", "aim": "fix", **told}
    return Job(id="j", task=task, branch="b", budget=Budget(), created_at=now, **fields)


def test_external_agent_handles_changes(settings: Settings) -> None:
    agent = external_agent(job(), settings)
    assert agent is not None
    with closing(agent):
        assert agent.recipe.name == "kilo"
        assert agent.socket.parent.is_dir()
    assert not agent.socket.parent.exists()


@pytest.mark.parametrize("told", [{"runner": "native"}, {"aim": "ask"}])
def test_native_runner_handles_other_jobs(settings: Settings, told: dict[str, Any]) -> None:
    """A question is answered by our own loop: other agents are told how to make a change, and nothing else."""
    assert external_agent(job(**told), settings) is None


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"sandbox": "none"}, "it needs a sandbox"),
        ({"model": "recorded/answers.jsonl"}, "is a recording"),
        ({"runner": "robot"}, "no runner 'robot'"),
        ({"runner": "robot", "aim": "ask"}, "no runner 'robot'"),
    ],
)
def test_unusable_agent_configuration_is_refused_at_once(
    settings: Settings, told: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(AgentFixError, match=complaint) as error:
        external_agent(job(**told), settings)
    assert error.value.code is ExitCode.CONFIG
    assert error.value.hint


def test_python_of_a_version_manager_is_found(tmp_path: Path) -> None:
    program = tmp_path / "versions" / "3.14.0" / "bin" / "python3.14"
    program.parent.mkdir(parents=True)
    program.touch()
    settings = settings_from({"PATH": "/nowhere", "PYENV_ROOT": str(tmp_path)}, tmp_path / "state")
    recipe = built_in()["openhands"].model_copy(update={"least_python": "3.14"})
    assert find_python(recipe, settings, Path("/ours")) == program


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, DOWNLOADS),
        ({"UV_PYTHON_INSTALL_MIRROR": "https://mirror.corp:8443/python"}, ("https://mirror.corp:8443",)),
        ({"UV_PYTHON_DOWNLOADS": "never"}, None),
    ],
)
def test_uv_downloads_python_where_that_is_allowed(environment: dict[str, str], hosts: tuple[str, ...] | None) -> None:
    found = python_downloads(environment)
    assert (found and found.hosts) == hosts
