"""Other coding agents, really installed from their registries: no key, no network, one model, and the same proof."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app.agent.external.recipe import AgentRecipe, built_in
from app.sandbox.setup.plan import find_tool_for_sandbox
from app.sandbox.setup.toolchains import newer_pythons
from tests.support.cli_job import FIXED, PLAN, TESTED, CliJob, ended
from tests.support.secret_canaries import canary, find_canary
from tests.support.shell_model import ShellModel

ALWAYS = ("kilo", "codex")
"""Two of different kinds, by two protocols; `make runners` tries them all."""
TIMEOUT = 900.0
"""Seconds for an installation from a registry on a busy machine, and the work."""
SUBMISSION = {
    "summary": "Give the remainder to the first people.",
    "reproduction": "python3 -m unittest tests.test_money.TestSplit.test_remainder",
}
LOOK_AROUND = (
    "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls -la /run /opt/agent /home/agent /tmp; "
    "grep -rIl CANARY / --exclude-dir=proc --exclude-dir=sys 2>/dev/null; "
    "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 443), 2)\"; true"
)
FIX = f"""python3 - <<'EOF'
from pathlib import Path
money, tests = Path("/workspace/money.py"), Path("/workspace/tests/test_money.py")
money.write_text(money.read_text().replace("    return [share] * people\\n", {FIXED!r}))
tests.write_text(tests.read_text().replace("25, 25, 25, 25])\\n", {TESTED!r}))
EOF"""
HAND_IN = f"cat > /tmp/submission.json <<'EOF'\n{json.dumps(SUBMISSION)}\nEOF"


def _each() -> Iterator[object]:
    for name, recipe in sorted(built_in().items()):
        yield pytest.param(recipe, id=name, marks=() if name in ALWAYS else pytest.mark.full)


def _lacking(recipe: AgentRecipe, environment: Mapping[str, str]) -> str:
    if recipe.client == "npm":
        return ", ".join(tool for tool in ("node", "npm") if find_tool_for_sandbox(tool) is None)
    least = int(recipe.least_python.partition(".")[2])
    return "" if sys.version_info.minor >= least or newer_pythons(environment) else f"Python {recipe.least_python}"


@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize("recipe", list(_each()))
def test_a_real_agent_reaches_proved_with_the_gateway_alone(recipe: AgentRecipe, tmp_path: Path) -> None:
    if lacks := _lacking(recipe, os.environ):
        pytest.skip(f"{recipe.name} was NOT TESTED: this machine lacks {lacks}")
    secrets = {"model key": canary(), "other key": canary()}
    with ShellModel(PLAN, [LOOK_AROUND, FIX, HAND_IN]) as model:
        environment = {
            "PATH": os.environ["PATH"],
            "OPENAI_API_BASE": model.url,
            "OPENAI_API_KEY": secrets["model key"],
            "ANTHROPIC_API_KEY": secrets["other key"],
        }
        cli_job = CliJob(tmp_path, environment=environment)
        done = ended(cli_job.begin("--runner", recipe.name, model="openai/scripted"), within=TIMEOUT)
        assert done.code == 0, done.text
        assert cli_job.document["verification"]["verdict"] == "proved"
        assert cli_job.document["runner"] == recipe.name
        assert len(cli_job.branches) == 1
        assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {secrets['model key']}"}
        sent = json.dumps([request.body for request in model.requests])
    cli_job.assert_quiet()
    steps = [json.loads(line) for line in (cli_job.out / "trajectory.jsonl").read_text().splitlines()]
    assert "submission.json" in json.dumps([step["actions"] for step in steps])
    assert cli_job.document["usage"]["calls"] == sum(not step["refused"] for step in steps) + 2, (
        "plan, tests, and these"
    )
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "to-the-model.json").write_text(sent)
    assert "model.sock" not in sent, "no path of the host is seen inside"
    assert find_canary(secrets, cli_job.state, cli_job.out, cli_job.repository, tmp_path / "sent") == []
