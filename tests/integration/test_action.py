"""The Action on a GitHub that others wrote: from a real event file to a draft with proof, by steps that share no key."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.acting import Acted, Workflow
from tests.emulate.github import EmulatedGitHub, Repository, emulated_github
from tests.integration.test_conversation import ISSUE, MONEY, PROJECT, think
from tests.minds import Mind

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(300)]

KEY = "sk-action-canary-51c09d77e2"


@pytest.fixture(scope="module")
def github() -> Iterator[EmulatedGitHub]:
    with emulated_github() as github:
        yield github


@pytest.fixture(scope="module")
def mind() -> Iterator[Mind]:
    with Mind(think) as mind:
        yield mind


@pytest.fixture
def repository(github: EmulatedGitHub) -> Repository:
    return github.add_repository("", PROJECT)


class Runner:
    """GitHub's side of Actions for one repository: events become workflows, with a token of the job's permissions."""

    def __init__(self, github: EmulatedGitHub, repository: Repository, mind: Mind, place: Path) -> None:
        self.github = github
        self.repository = repository
        self.place = place
        self.token = github.workflow_token(repository)
        self.keys = f"OPENAI_API_KEY={KEY}\nOPENAI_API_BASE={mind.url}\n"

    def workflow(self, name: str = "first", **inputs: str) -> Workflow:
        given = {"model": "openai/mind", "model-keys": "${{ secrets.MODEL_KEYS }}", **inputs}
        return Workflow(self.place / name, self.repository.full_name, given)

    def act(self, workflow: Workflow, event: str, payload: Mapping[str, object]) -> Acted:
        return workflow.end(workflow.begin(event, payload, self.environment, self.secrets))

    @property
    def environment(self) -> dict[str, str]:
        return {"GITHUB_API_URL": self.github.api_url, "GITHUB_SERVER_URL": self.github.server_url}

    @property
    def secrets(self) -> dict[str, str]:
        return {"GITHUB_TOKEN": self.token, "MODEL_KEYS": self.keys}


@pytest.fixture
def runner(github: EmulatedGitHub, repository: Repository, mind: Mind, tmp_path: Path) -> Runner:
    return Runner(github, repository, mind, tmp_path)


def labelled(
    github: EmulatedGitHub, repository: Repository, title: str = "half loses a cent", body: str = ISSUE
) -> tuple[int, dict[str, object]]:
    """An issue with our label, and the event that tells of it."""
    since = len(github.deliveries)
    ada = repository.as_user("ada")
    issue = ada.open_issue(title, body)
    ada.label(issue, "agent-fix")
    return issue, github.delivered("issues", "labeled", since=since).payload


def test_from_a_label_to_a_draft_with_proof(github: EmulatedGitHub, repository: Repository, runner: Runner) -> None:
    issue, event = labelled(github, repository)
    acted = runner.act(runner.workflow(), "issues", event)

    assert acted.code == 0, acted.log[-8_000:]
    site = repository.site
    (pull,) = site.pulls()
    assert pull.draft
    assert "| Reproduction" in pull.body
    assert "**Proved.**" in pull.body
    assert site.file("money.py", pull.branch) == MONEY.replace("cents // 2", "(cents + 1) // 2").encode()
    (status,) = site.comments(issue)
    assert "A draft pull request is open" in status.body
    assert "/actions/runs/1" in status.body
    assert "agent-done" in site.labels(issue)
    assert (github.bot, "rocket") in site.reactions(f"issues/{issue}")
