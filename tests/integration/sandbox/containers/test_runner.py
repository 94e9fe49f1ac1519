"""Another coding agent in a container: no network, one way out over a command's streams, every call booked."""

from pathlib import Path

import pytest

from app.sandbox.container.provider import ContainerProvider
from tests.integration.sandbox.test_external_runner import FIX, FIXED, HAND_IN, RunnerHarness, ScriptedTexts


@pytest.mark.xdist_group("docker")
async def test_an_agent_without_network_fixes_and_every_call_is_recorded(
    provider: ContainerProvider, tmp_path: Path
) -> None:
    (tmp_path / "s").mkdir()
    case_runner = RunnerHarness(tmp_path / "s", provider)
    long = f"# {'x' * 90_000}\n"
    ending = await case_runner.work(ScriptedTexts(["ls", long, FIX, HAND_IN, "exit"]))
    assert (ending.exit_status, ending.turns) == ("submitted", 5)
    assert case_runner.patch == {"app.py": FIXED}
    assert case_runner.ledger.spent() == 5 * 110
