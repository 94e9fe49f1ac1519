"""The whole command in containers: plan, work, verification and branch, with nothing executed on this machine."""

from pathlib import Path

import pytest

from app.core.errors import ExitCode
from tests.support import wallet_project
from tests.support.console import Console
from tests.support.containers.engines import IMAGE, LocalEngine, containers

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def console(docker: LocalEngine, tmp_path: Path) -> Console:
    told = {name: value for name, value in docker.environment.items() if name.startswith(("DOCKER", "CONTAINER"))}
    return Console(tmp_path / "home", {**told, "AGENT_FIX_CONTAINER_IMAGE": IMAGE})


@pytest.mark.full
def test_an_issue_becomes_a_proved_change(console: Console, docker: LocalEngine, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    done = console.fix(repository, wallet_project.ISSUE, "--sandbox", "docker", recording=wallet_project.worked_on())
    assert (done.code, done.verification["verdict"]) == (0, "proved"), done.said
    assert "sandbox docker" in done.said
    assert containers(docker) == []


def test_a_missing_image_is_reported_before_any_model_call(console: Console, tmp_path: Path) -> None:
    console.environment["AGENT_FIX_CONTAINER_IMAGE"] = "agent-fix-tests:none"
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    done = console.fix(repository, wallet_project.ISSUE, "--sandbox", "docker", recording=wallet_project.worked_on())
    assert done.code == ExitCode.SANDBOX, done.said
    assert "docker pull agent-fix-tests:none" in done.said
    assert console.calls_bought() == 0
