"""action.yml and the workflows are checked by tools that others wrote, and against what the documentation says."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from app.cli import parser
from app.config.workflow import MODEL_KEYS, Step, step_environment

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"NOT LOOKED OVER by {name}: it is not installed")
    return found


def looked_over(*words: str | Path) -> None:
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_has_no_findings_in_the_action() -> None:
    looked_over(tool("zizmor"), "--offline", "--no-progress", "--persona", "auditor", "action.yml", ".github/workflows")


def test_action_file_matches_the_github_schema() -> None:
    looked_over(tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", "action.yml")


def test_workflows_match_the_github_schema() -> None:
    looked_over(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)


def test_actionlint_has_no_findings_in_the_action(tmp_path: Path) -> None:
    """It reads actions through the workflows that use them: one that gives every input, and asks for every output."""
    workflow = {
        "name": "all",
        "on": {"issues": {"types": ["labeled"]}},
        "jobs": {
            "fix": {
                "runs-on": "ubuntu-24.04",
                "steps": [
                    {"uses": "./", "id": "fix", "with": dict.fromkeys(ACTION["inputs"], "x")},
                    {
                        "run": "env",
                        "env": {
                            f"OUT_{number}": f"${{{{ steps.fix.outputs.{name} }}}}"
                            for number, name in enumerate(ACTION["outputs"])
                        },
                    },
                ],
            }
        },
    }
    place = tmp_path / ".github" / "workflows"
    place.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    shutil.copy(ROOT / "action.yml", tmp_path)
    (place / "all.yml").write_text(yaml.safe_dump(workflow))
    looked_over(tool("actionlint"), "-no-color", place / "all.yml")
    for ours in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        looked_over(tool("actionlint"), "-no-color", ours)


def test_no_script_contains_an_expression() -> None:
    """What people wrote reaches a shell through its environment, as text."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_used_actions_are_pinned_to_commits() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", name)] == []


def test_modules_started_by_steps_can_be_executed() -> None:
    scripts = " ".join(step.get("run", "") for step in ACTION["runs"]["steps"])
    started = set(re.findall(r'"\$PYTHON" -I -m (\S+)', scripts)) - {"venv", "pip"}
    assert started
    for name in started:
        found = find_spec(name)
        assert found is not None, name
        assert not found.submodule_search_locations or find_spec(f"{name}.__main__"), name


@pytest.mark.parametrize("path", [ROOT / "action.yml", ROOT / "Dockerfile", *WORKFLOWS], ids=lambda path: path.name)
def test_modules_named_in_scripts_exist(path: Path) -> None:
    named = set(re.findall(r"\b(?:import|from) (app\.[a-z_.]+)", path.read_text()))
    assert [name for name in named if find_spec(name) is None] == []


def test_the_token_and_the_models_keys_are_in_different_steps() -> None:
    steps = {step["id"]: step.get("env", {}) for step in ACTION["runs"]["steps"] if "id" in step}
    with_token = {name for name, env in steps.items() if "inputs.token" in str(env) or "github.token" in str(env)}
    with_keys = {name for name, env in steps.items() if "inputs.model-keys" in str(env)}
    assert with_token == {"sweep", "receive", "progress", "publish", "published"}
    assert with_keys == {"solve"}


def test_every_step_of_ours_is_one_that_the_command_knows() -> None:
    scripts = " ".join(step.get("run", "") for step in ACTION["runs"]["steps"])
    started = re.findall(r"-m app action (\w+)", scripts)
    assert started == ["receive", "progress", "solve", "publish", "solve", "publish"], "the last two for a long suite"
    assert [parser().parse_args(["action", name]).step for name in started] == started


def test_steps_are_given_what_their_process_may_hold() -> None:
    for step in ACTION["runs"]["steps"]:
        if started := re.search(r"-m app action (\w+)", step.get("run", "")):
            given = {name: "A=b" for name in step["env"] if name.startswith("AGENT_FIX_")}
            kept = step_environment(cast("Step", started[1]), {"RUNNER_TEMP": "/nowhere", **given})
            assert given.keys() - kept.keys() <= {MODEL_KEYS}, step["name"]


def test_environment_is_stored_before_project_code_runs() -> None:
    names = [step["name"] for step in ACTION["runs"]["steps"]]
    assert names.index("Receive") < names.index("Keep the environment") < names.index("Solve")
    build = next(step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Build the environment")
    assert "--require-hashes" in build
    for step in ACTION["runs"]["steps"]:
        for command in re.findall(r'(?<!--python )"\$(?:PYTHON|VENV/bin/python)" (\S+)', step.get("run", "")):
            assert command == "-I", step["name"]


# What a step does on machines that are not here: its own script, with programs that write down how they were called


class Machine:
    """A runner with or without AppArmor's switch. `namespaces` is whether bubblewrap can start there already."""

    def __init__(self, place: Path, *, switch: str | None = "1", namespaces: bool = False, sudo: bool = True) -> None:
        self._place, self._switch, self._asked = place, place / "switch", place / "asked"
        if switch is not None:
            self._switch.write_text(f"{switch}\n")
        self._program("bwrap", f"exit {0 if namespaces else 1}")
        # The script runs for real; what it finds is replaced by a bwrap that says what the test wants.
        self._program("python", f'"{sys.executable}" "$@" > /dev/null && echo {place}/bwrap')
        self._program("sudo", f'echo "sudo $*" >> {self._asked}; cat >> {self._asked}; exit {0 if sudo else 1}')
        self._program("podman", f'echo "podman $*" >> {self._asked}')

    def _program(self, name: str, script: str) -> None:
        (self._place / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._place / name).chmod(0o755)

    @property
    def asked(self) -> str:
        return self._asked.read_text() if self._asked.exists() else ""

    def start(self, name: str, **own: str) -> "subprocess.CompletedProcess[str]":
        step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
        script = step["run"].replace("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", str(self._switch))
        given = {"PATH": f"{self._place}:{os.environ['PATH']}", "PYTHON": str(self._place / "python")}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
            env={**given, "RUNNER_TEMP": str(self._place), **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


SYSCTL = "sudo -n sysctl -q -w kernel.apparmor_restrict_unprivileged_userns=0\n"


def test_github_hosted_runner_allows_user_namespaces_by_sysctl(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    done = machine.start("Let the sandbox start", SANDBOX="bubblewrap", MACHINE="github-hosted")
    assert done.returncode == 0, done.stderr
    assert machine.asked == SYSCTL


@pytest.mark.parametrize("where", ["self-hosted", ""])
def test_self_hosted_runner_allows_user_namespaces_for_bubblewrap_only(where: str, tmp_path: Path) -> None:
    """The switch would stay turned for everybody, until the machine is restarted."""
    machine = Machine(tmp_path)
    done = machine.start("Let the sandbox start", SANDBOX="bubblewrap", MACHINE=where)
    assert done.returncode == 0, done.stderr
    assert machine.asked.splitlines() == [
        "sudo -n apparmor_parser --replace",
        "abi <abi/4.0>,",
        f'"{tmp_path}/bwrap" flags=(unconfined) {{',
        "  userns,",
        "}",
    ]
    profile = machine.asked.partition("\n")[2].replace(str(tmp_path), "/PATH/TO")
    assert profile in (ROOT / "docs" / "how-to" / "github-action.md").read_text()


@pytest.mark.parametrize("where", ["self-hosted", "github-hosted"])
@pytest.mark.parametrize("about", [{"switch": None}, {"switch": "0"}, {"namespaces": True}], ids=str)
def test_machine_with_user_namespaces_is_not_changed(about: dict[str, Any], where: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, **about)
    assert machine.start("Let the sandbox start", SANDBOX="bubblewrap", MACHINE=where).returncode == 0
    assert machine.asked == ""


@pytest.mark.parametrize("where", ["self-hosted", "github-hosted"])
def test_missing_sudo_is_reported_and_the_step_succeeds(where: str, tmp_path: Path) -> None:
    done = Machine(tmp_path, sudo=False).start("Let the sandbox start", SANDBOX="bubblewrap", MACHINE=where)
    assert done.returncode == 0
    assert "the Action could not change that" in done.stdout


@pytest.mark.parametrize(
    ("sandbox", "asked"), [("none", ""), ("e2b", ""), ("podman", "podman image inspect python:3.12-bookworm\n")]
)
def test_other_sandboxes_need_no_namespaces(sandbox: str, asked: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.start("Let the sandbox start", SANDBOX=sandbox, MACHINE="github-hosted").returncode == 0
    assert machine.asked == asked


def test_non_linux_runner_is_refused_in_the_first_step(tmp_path: Path) -> None:
    first = ACTION["runs"]["steps"][0]
    assert first["if"] == "runner.os != 'Linux'"
    done = Machine(tmp_path).start(first["name"], RUNNER_OS="macOS")
    assert done.returncode == 1
    assert re.fullmatch("::error::.*Linux.*this one is macOS.*\n", done.stdout)


def test_artifact_upload_failure_does_not_fail_the_job() -> None:
    """Upload-artifact 4 and newer: "not currently supported on GHES", says its README."""
    keeping = {step["name"]: step for step in ACTION["runs"]["steps"] if step["name"].startswith("Keep ")}
    assert keeping.keys() == {"Keep the environment", "Keep the record"}
    assert all(step["continue-on-error"] is True for step in keeping.values())
