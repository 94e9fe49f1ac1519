"""A real agent, installed from its registry in a cloud machine: no key, no network but the tunnel, the same proof."""

import json
import os
from pathlib import Path

import pytest

from app.sandbox.setup.plan import find_tool_for_sandbox
from tests.e2e.test_external_agents import FIX, HAND_IN, LOOK_AROUND, TIMEOUT
from tests.support.cli_job import PLAN, CliJob, ended
from tests.support.e2b.server import LocalE2B
from tests.support.secret_canaries import canary, find_canary
from tests.support.shell_model import ShellModel


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("runner", ["kilo", "codex"])
def test_a_real_agent_reaches_proved(runner: str, e2b: LocalE2B, tmp_path: Path) -> None:
    if find_tool_for_sandbox("npm") is None:
        pytest.skip(f"{runner} was NOT TESTED: this machine lacks npm, which stands for that of E2B's template")
    secrets = {"model key": canary(), "E2B's key": e2b.account.key}
    with ShellModel(PLAN, [LOOK_AROUND, FIX, HAND_IN]) as model:
        environment = {
            "PATH": os.environ["PATH"],
            "OPENAI_API_BASE": model.url,
            "OPENAI_API_KEY": secrets["model key"],
            "E2B_API_KEY": e2b.account.key,
            "E2B_API_URL": e2b.account.api,
            "E2B_SANDBOX_URL": e2b.account.sandboxes,
        }
        cli_job = CliJob(tmp_path, environment=environment)
        begun = cli_job.begin("--runner", runner, "--sandbox", "e2b", model="openai/scripted")
        done = ended(begun, within=TIMEOUT)
        assert done.code == 0, done.text
        assert cli_job.document["verification"]["verdict"] == "proved"
        assert cli_job.document["runner"] == runner
        sent = json.dumps([request.body for request in model.requests])
    assert e2b.machines == {}
    hosts = [one["allowOut"] for one in e2b.said("PUT /sandboxes/")]
    assert hosts[0] != []
    assert hosts[1:] == [[]], "open while the agent was installed, and never again"
    for secret in (*secrets.values(), e2b.account.api, str(tmp_path)):
        assert secret not in sent
    assert find_canary(secrets, cli_job.out, cli_job.repository) == []
