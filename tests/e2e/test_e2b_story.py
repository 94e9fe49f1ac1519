"""E2B from label to draft, by a server and by the Action: the real library speaks to a local E2B, checked against E2B's
published types; nothing of the project is executed on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_action import Runner, labelled
from tests.support.conversation_model import ConversationModel
from tests.support.e2b.server import LocalE2B, local_e2b
from tests.support.emulate.github import EmulatedGitHub, Repository
from tests.support.sample_project import ISSUE, MONEY, PROJECT
from tests.support.server_process import running_server

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(400)]
TEMPLATE = "my-team/python-312"
FIXED = MONEY.replace("cents // 2", "(cents + 1) // 2").encode()


@pytest.fixture
def repository(github: EmulatedGitHub) -> Repository:
    return github.add_repository("", {**PROJECT, ".github/agent-fix.yml": f"e2b_template: {TEMPLATE}\n"})


@pytest.fixture
def e2b(tmp_path: Path) -> Iterator[LocalE2B]:
    if os.geteuid():
        pytest.skip("a machine of the local E2B has two accounts, which only root can make")
    with local_e2b(tmp_path / "e2b") as server:
        server.templates.add(TEMPLATE)
        yield server


def _worked_in(e2b: LocalE2B) -> bool:
    """Whether machines were made of the repository's template, none with an open network, and none is left."""
    made = e2b.said("POST /v2/sandboxes")
    closed = all(not each["allow_internet_access"] and not each["network"]["allowOut"] for each in made)
    return bool(made) and {each["templateID"] for each in made} == {TEMPLATE} and closed


def test_a_server_works_in_e2b_from_a_label_to_a_draft(
    github: EmulatedGitHub, repository: Repository, e2b: LocalE2B, model: ConversationModel, tmp_path: Path
) -> None:
    environment = {
        "AGENT_FIX_APP_ID": str(github.app_id),
        "AGENT_FIX_PRIVATE_KEY": github.private_key,
        "AGENT_FIX_WEBHOOK_SECRET": github.webhook_secret,
        "AGENT_FIX_GITHUB_API_URL": github.api_url,
        "AGENT_FIX_GITHUB_URL": github.server_url,
        "AGENT_FIX_MODEL": "openai/mind",
        "OPENAI_API_BASE": model.url,
        "OPENAI_API_KEY": "sk-e2b-story",
        "AGENT_FIX_SANDBOX": "e2b",
        "E2B_API_KEY": e2b.account.key,
        "E2B_API_URL": e2b.account.api,
        "E2B_SANDBOX_URL": e2b.account.sandboxes,
    }
    with running_server(tmp_path, environment) as server:
        github.receiver = server.webhook
        server.start_all()
        ada, site = repository.as_user("ada"), repository.site
        issue = ada.open_issue("half loses a cent", ISSUE)
        ada.label(issue, "agent-fix")
        (pull,) = server.wait(site.pulls, "the pull request")
        github.receiver = None
    assert pull.draft
    assert "**Proved.**" in pull.body
    assert site.file("money.py", pull.branch) == FIXED
    assert _worked_in(e2b)
    assert e2b.account.key not in pull.body + "".join(comment.body for comment in site.comments(issue))
    assert not (tmp_path / "state" / "sandboxes").exists()


def test_the_action_works_in_e2b_and_changes_nothing_on_its_runner(
    github: EmulatedGitHub, repository: Repository, e2b: LocalE2B, model: ConversationModel, tmp_path: Path
) -> None:
    runner = Runner(github, repository, model, tmp_path / "runner")
    runner.keys += f"E2B_API_URL={e2b.account.api}\nE2B_SANDBOX_URL={e2b.account.sandboxes}\n"
    _, event = labelled(github, repository)
    inputs: dict[str, Any] = {"e2b-api-key": "${{ secrets.E2B_API_KEY }}"}
    workflow = runner.workflow(**inputs)
    acted = workflow.end(
        workflow.begin("issues", event, runner.environment, {**runner.secrets, "E2B_API_KEY": e2b.account.key})
    )
    assert acted.code == 0, acted.log[-8_000:]
    (pull,) = repository.site.pulls()
    assert "**Proved.**" in pull.body
    assert repository.site.file("money.py", pull.branch) == FIXED
    assert _worked_in(e2b)
    holders = [step for step in acted.environments if e2b.account.key in acted.given(step)]
    assert holders == ["solve"]
    assert "AppArmor" not in acted.log
    assert e2b.account.key not in acted.log
