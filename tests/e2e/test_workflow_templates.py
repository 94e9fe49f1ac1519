"""The templates that users copy, with the real action in them, on an emulated GitHub: label, failing check, night."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.test_action import KEY, labelled
from tests.support.act_runner import OURS, ActResult, ActWorkflow
from tests.support.conversation_model import ConversationModel
from tests.support.emulate.github import EmulatedGitHub
from tests.support.repositories import git
from tests.support.sample_project import MONEY, PROJECT
from tests.support.workflow_templates import TEMPLATES, as_act_reads_it

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(300)]


class Copied(ActWorkflow):
    """A repository whose workflow is a template itself, with the variables that its owner set."""

    def __init__(self, place: Path, repository: str, variables: Mapping[str, str], template: str) -> None:
        self._variables = variables
        self._template = template
        super().__init__(place, repository, {})
        gh = place / "bin" / "gh"
        gh.parent.mkdir()
        gh.write_text(f'#!/bin/sh\necho "$@" >> {place}/asked\n')
        gh.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """What GitHub's own program was asked for."""
        file = self.place / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def _write_workflow(self, inputs: Mapping[str, str]) -> None:
        text, action = as_act_reads_it(self._template)
        (self.checkout / ".github" / "workflows" / self._template).write_text(text.replace(action, OURS), "utf-8")
        lines = "".join(f"{name}={value}\n" for name, value in self._variables.items())
        (self.checkout / ".vars").write_text(lines, "utf-8")


class TemplateOwner:
    """A repository whose owner copied the templates, and what GitHub starts there."""

    def __init__(self, github: EmulatedGitHub, model: ConversationModel, place: Path) -> None:
        self.repository = github.add_repository("", PROJECT)
        self._github = github
        self.token = ""
        """Of the last workflow."""
        self._variables = {"AGENT_FIX_MODEL": "openai/mind", "OPENAI_API_BASE": model.url}
        self._addresses = {"GITHUB_API_URL": github.api_url, "GITHUB_SERVER_URL": github.server_url}
        self._place = place

    def act(self, template: str, job: str, event: str, payload: Mapping[str, Any]) -> tuple[ActResult, list[str]]:
        """The token may do what the template's job says, and nothing else."""
        held = yaml.safe_load((TEMPLATES / template).read_text("utf-8"))["jobs"][job]["permissions"]
        permissions = {name.replace("-", "_"): access for name, access in held.items()}
        self.token = self._github.workflow_token(self.repository, permissions)
        place = self._place / f"{template}.{event}"
        workflow = Copied(place, self.repository.full_name, self._variables, template)
        secrets = {"GITHUB_TOKEN": self.token, "OPENAI_API_KEY": KEY}
        acted = workflow.end(workflow.begin(event, payload, self._addresses, secrets))
        assert acted.code == 0, acted.log[-8_000:]
        return acted, workflow.asked


@pytest.fixture
def owned(github: EmulatedGitHub, model: ConversationModel, tmp_path: Path) -> TemplateOwner:
    return TemplateOwner(github, model, tmp_path)


FIXED = MONEY.replace("cents // 2", "(cents + 1) // 2")


def test_the_template_makes_a_draft_of_a_label(github: EmulatedGitHub, owned: TemplateOwner) -> None:
    issue, event = labelled(github, owned.repository)
    acted, _ = owned.act("agent-fix.yml", "work", "issues", event)
    (pull,) = owned.repository.site.pulls()
    assert pull.draft
    assert "**Proved.**" in pull.body
    assert owned.repository.site.file("money.py", pull.branch) == FIXED.encode()
    assert "agent-done" in owned.repository.site.labels(issue)
    for step, environment in acted.environments.items():
        # A runner gives a composite action's steps no INPUT_ variables; act does.
        values = " ".join(value for name, value in environment.items() if not name.startswith("INPUT_"))
        assert (KEY in values) == (step in {"ready", "solve"}), step
        assert (owned.token in values) == (step in {"receive", "progress", "publish"}), step


@pytest.mark.full
def test_failing_checks_on_its_draft_are_fixed_by_a_second_commit(github: EmulatedGitHub, owned: TemplateOwner) -> None:
    repository = owned.repository
    _, event = labelled(github, repository)
    owned.act("agent-fix.yml", "work", "issues", event)
    (pull,) = repository.site.pulls()
    repository.add_check(pull.head, "lint", "failure", log="money.py:4: write the divisor as a named constant\n")
    finished = {
        "id": 31,
        "name": "CI",
        "conclusion": "failure",
        "head_branch": pull.branch,
        "head_sha": pull.head,
        "head_repository": {"id": repository.id, "full_name": repository.full_name},
        "pull_requests": [{"number": pull.number}],
    }
    payload = {"action": "completed", "workflow_run": finished}
    payload |= {"repository": event["repository"], "sender": event["sender"]}
    acted, _ = owned.act("agent-fix-ci.yml", "fix-checks", "workflow_run", payload)
    assert acted.reached("solve"), acted.log[-4_000:]
    (again,) = repository.site.pulls()
    assert again.number == pull.number
    assert again.head != pull.head
    assert b"HALVES = 2" in (repository.site.file("money.py", pull.branch) or b"")
    assert git(repository.path, "rev-parse", f"{again.head}^") == pull.head, "one more commit on top of the first"


@pytest.mark.full
def test_a_question_about_a_job_is_answered_by_a_token_that_cannot_push(
    github: EmulatedGitHub, owned: TemplateOwner
) -> None:
    """No check, no status and no branch is the business of the job that answers `status` and `stop`."""
    repository = owned.repository
    issue, event = labelled(github, repository)
    owned.act("agent-fix.yml", "work", "issues", event)
    since = len(github.deliveries)
    asked = repository.as_user("ada").comment(issue, "/agent status")
    payload = github.delivered("issue_comment", "created", since=since).payload
    payload["comment"]["author_association"] = "OWNER"
    acted, _ = owned.act("agent-fix.yml", "now", "issue_comment", payload)
    assert not acted.reached("solve")
    last = repository.site.comments(issue)[-1]
    assert (last.author, last.id > asked) == (github.bot, True), acted.log[-4_000:]
    assert not [call for call in github.calls if call.token and call.token.text == owned.token and call.status == 403]


@pytest.mark.full
def test_the_nightly_sweep_starts_labelled_issues(github: EmulatedGitHub, owned: TemplateOwner) -> None:
    """Its label's event was lost; another issue has a branch already."""
    repository = owned.repository
    issue, event = labelled(github, repository)
    begun, _ = labelled(github, repository)
    repository.as_user("ada").push(f"agent-fix/issue-{begun}-half-loses-a-cent", {"money.py": FIXED})
    night = {"schedule": "17 3 * * *", "repository": event["repository"], "sender": event["sender"]}
    swept, asked = owned.act("agent-fix-sweep.yml", "sweep", "schedule", night)
    assert not swept.reached("solve")
    assert asked == [f"workflow run agent-fix.yml --field issue={issue}"]
    by_number = {"inputs": {"issue": str(issue)}, "repository": event["repository"], "sender": event["sender"]}
    owned.act("agent-fix.yml", "work", "workflow_dispatch", by_number)
    (pull,) = repository.site.pulls()
    assert pull.draft
    assert f"Fixes #{issue}" in pull.body
    assert repository.site.file("money.py", pull.branch) == FIXED.encode()
