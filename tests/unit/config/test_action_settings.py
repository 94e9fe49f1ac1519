"""Each step of the Action holds its own keys and no other's, whatever a workflow puts into everybody's environment."""

from pathlib import Path

import pytest

from app.config.settings import SettingsError
from app.config.workflow import STEPS, Step, read_workflow, step_environment, workflow_from

TOKEN, KEY = "ghs_tokencanary0123456789", "sk-modelcanary0123456789"
CARELESS = {
    "PATH": "/usr/bin",
    "HOME": "/home/runner",
    "RUNNER_TEMP": "/home/runner/temp",
    "GITHUB_OUTPUT": "/home/runner/output",
    "GITHUB_REPOSITORY": "ada/sample",
    "GITHUB_SERVER_URL": "https://ghes.example",
    "GITHUB_API_URL": "https://ghes.example/api/v3",
    "GITHUB_RUN_ID": "77",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_TOKEN": TOKEN,
    "GH_TOKEN": TOKEN,
    "MY_OWN": TOKEN,
    "INPUT_TOKEN": TOKEN,
    "INPUT_MODEL-KEYS": f"OPENAI_API_KEY={KEY}",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": TOKEN,
    "OPENAI_API_KEY": KEY,
    "PYTHONPATH": "/home/runner/checkout",
}
"""As where a workflow sets everything at its top."""


@pytest.mark.parametrize("step", STEPS)
def test_steps_get_only_their_own_keys_from_a_careless_workflow(step: Step) -> None:
    own = step_environment(step, {**CARELESS, "AGENT_FIX_GITHUB_TOKEN": TOKEN})
    values = " ".join(own.values())
    assert (TOKEN in values) == (step != "solve")
    assert (KEY in values) == (step == "solve")
    assert "PYTHONPATH" not in own
    assert own["AGENT_FIX_STATE_DIR"] == "/home/runner/temp/agent-fix-state"


@pytest.mark.parametrize("step", STEPS)
def test_app_key_reaches_only_the_publishing_steps(step: Step) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"
    own = step_environment(step, {**CARELESS, "AGENT_FIX_PRIVATE_KEY": key, "AGENT_FIX_APP_ID": "7", "MY_KEY": key})
    assert ("c2VjcmV0" in " ".join(own.values())) == (step != "solve")
    assert "MY_KEY" not in own


@pytest.mark.parametrize("step", STEPS)
def test_the_process_of_the_progress_step_carries_the_runners_mark(step: Step) -> None:
    ends = {"RUNNER_TRACKING_ID": "github_1", "AGENT_FIX_RUNNER_PROCESS": "4711"}
    own = step_environment(step, {**CARELESS, **ends})
    assert (ends.items() <= own.items()) == (step == "progress")
    assert workflow_from(own).runner == (4711 if step == "progress" else 0)


@pytest.mark.parametrize("alone", ["AGENT_FIX_APP_ID", "AGENT_FIX_PRIVATE_KEY"])
def test_app_id_and_key_must_be_set_together(monkeypatch: pytest.MonkeyPatch, alone: str) -> None:
    for name in ("AGENT_FIX_APP_ID", "AGENT_FIX_PRIVATE_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**CARELESS, "AGENT_FIX_GITHUB_TOKEN": TOKEN, alone: "7"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        read_workflow("receive")
    assert "`private-key` belong together" in str(raised.value.hint) + raised.value.message


@pytest.mark.parametrize("step", STEPS)
def test_solve_step_gets_prices_and_all_steps_get_model_and_sandbox(step: Step) -> None:
    ours = {"AGENT_FIX_PRICES": "/w/prices.yml", "AGENT_FIX_MODEL_PLAN": "openai/o3", "AGENT_FIX_SANDBOX": "none"}
    own = step_environment(step, {**CARELESS, **ours})
    assert ("AGENT_FIX_PRICES" in own) == (step == "solve")
    assert (own["AGENT_FIX_MODEL_PLAN"], own["AGENT_FIX_SANDBOX"]) == ("openai/o3", "none")


@pytest.mark.parametrize("step", STEPS)
def test_step_environment_is_idempotent(step: Step) -> None:
    own = step_environment(
        step, {**CARELESS, "AGENT_FIX_MODEL_KEYS": f"OPENAI_API_KEY={KEY}\nOPENAI_API_BASE=http://x"}
    )
    assert step_environment(step, own) == own


def test_model_keys_are_unpacked_in_the_solve_step_only() -> None:
    given = {"PATH": "/bin", "RUNNER_TEMP": "/t", "AGENT_FIX_MODEL_KEYS": "A_KEY=one=two\n\n  B_KEY = three\nEMPTY=\n"}
    with pytest.raises(SettingsError, match="1 setting") as raised:
        step_environment("solve", given)
    assert "line 3" in raised.value.hint
    assert "three" not in raised.value.hint
    own = step_environment("solve", {**given, "AGENT_FIX_MODEL_KEYS": "A_KEY=one=two\nEMPTY=\n"})
    assert own["A_KEY"] == "one=two"
    assert "EMPTY" not in own
    assert "AGENT_FIX_MODEL_KEYS" not in own


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "GITHUB_TOKEN", "AGENT_FIX_STATE_DIR", "HTTPS_PROXY"]
)
def test_model_keys_cannot_override_step_settings(name: str) -> None:
    with pytest.raises(SettingsError):
        step_environment("solve", {"RUNNER_TEMP": "/t", "AGENT_FIX_MODEL_KEYS": f"{name}=x"})


def test_github_addresses_come_from_the_runner_environment() -> None:
    workflow = workflow_from({**CARELESS, "AGENT_FIX_GITHUB_TOKEN": TOKEN, "AGENT_FIX_ISSUE": " 12 "})
    assert (workflow.owner, workflow.name, workflow.issue, workflow.run) == ("ada", "sample", 12, "77-2")
    assert workflow.page == "https://ghes.example/ada/sample/actions/runs/77"
    assert workflow.settings.github_api_url == "https://ghes.example/api/v3"
    assert workflow.temp == Path("/home/runner/temp")
    assert TOKEN not in repr(workflow)
    assert TOKEN in workflow.settings.secrets


@pytest.mark.parametrize("issue", ["-1", "0", "1; id", "٣", "x" * 90, "1" * 14, "1" * 5_000])
def test_issue_input_must_be_a_number(issue: str) -> None:
    with pytest.raises(SettingsError):
        workflow_from({**CARELESS, "AGENT_FIX_ISSUE": issue})


def test_lessons_are_off_in_the_action() -> None:
    settings = workflow_from({**CARELESS, "AGENT_FIX_LESSONS": "fts"}).settings
    assert settings.lessons == "off"
    assert settings.for_role("worker")["AGENT_FIX_LESSONS"] == "off", "nor by the process that works on the job"


def test_missing_runner_environment_is_reported() -> None:
    with pytest.raises(SettingsError) as raised:
        step_environment("receive", {"PATH": "/bin"})
    assert "RUNNER_TEMP" in raised.value.hint
