"""The template that users copy, with the real action in it, on a GitHub that others wrote: from a label to a draft."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.acting import OURS, Workflow
from tests.emulate.github import EmulatedGitHub, emulated_github
from tests.integration.test_action import KEY, labelled
from tests.integration.test_conversation import MONEY, PROJECT, think
from tests.minds import Mind
from tests.templates import as_act_reads_it

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def github() -> Iterator[EmulatedGitHub]:
    with emulated_github() as github:
        yield github


@pytest.fixture(scope="module")
def mind() -> Iterator[Mind]:
    with Mind(think) as mind:
        yield mind


class Copied(Workflow):
    """A repository whose workflow is the template itself, with the variables that its owner set."""

    def __init__(self, place: Path, repository: str, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(place, repository, {})

    def _write_workflow(self, inputs: Mapping[str, str]) -> None:
        text, action = as_act_reads_it("agent-fix.yml")
        (self.checkout / ".github" / "workflows" / "agent-fix.yml").write_text(text.replace(action, OURS), "utf-8")
        lines = "".join(f"{name}={value}\n" for name, value in self._variables.items())
        (self.checkout / ".vars").write_text(lines, "utf-8")


def test_the_template_makes_a_draft_of_a_label(github: EmulatedGitHub, mind: Mind, tmp_path: Path) -> None:
    repository = github.add_repository("", PROJECT)
    issue, event = labelled(github, repository)
    owned = {"AGENT_FIX_MODEL": "openai/mind", "OPENAI_API_BASE": mind.url}
    workflow = Copied(tmp_path / "copied", repository.full_name, owned)
    token = github.workflow_token(repository)
    addresses = {"GITHUB_API_URL": github.api_url, "GITHUB_SERVER_URL": github.server_url}
    secrets = {"GITHUB_TOKEN": token, "OPENAI_API_KEY": KEY}
    acted = workflow.end(workflow.begin("issues", event, addresses, secrets))

    assert acted.code == 0, acted.log[-8_000:]
    (pull,) = repository.site.pulls()
    assert pull.draft
    assert "**Proved.**" in pull.body
    assert repository.site.file("money.py", pull.branch) == MONEY.replace("cents // 2", "(cents + 1) // 2").encode()
    assert "agent-done" in repository.site.labels(issue)
    for step, environment in acted.environments.items():
        # A runner gives a composite action's steps no INPUT_ variables; act does.
        values = " ".join(value for name, value in environment.items() if not name.startswith("INPUT_"))
        assert (KEY in values) == (step in {"ready", "solve"}), step
        assert (token in values) == (step in {"receive", "publish"}), step
