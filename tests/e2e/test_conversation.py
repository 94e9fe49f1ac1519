"""A conversation on a GitHub emulator by a third party, from label to close; only the model's words are scripted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.conversation_model import ConversationModel
from tests.support.emulate.github import EmulatedGitHub, Repository
from tests.support.emulate.person import InlineComment
from tests.support.sample_project import ISSUE, MONEY, PROJECT, think
from tests.support.server_process import Server, running_server

pytestmark = [pytest.mark.xdist_group("emulate"), pytest.mark.timeout(300)]


@pytest.fixture
def repository(github: EmulatedGitHub) -> Repository:
    return github.add_repository("", PROJECT)


@pytest.fixture
def server(github: EmulatedGitHub, tmp_path: Path) -> Iterator[Server]:
    with ConversationModel(think) as model:
        environment = {
            "AGENT_FIX_APP_ID": str(github.app_id),
            "AGENT_FIX_PRIVATE_KEY": github.private_key,
            "AGENT_FIX_WEBHOOK_SECRET": github.webhook_secret,
            "AGENT_FIX_GITHUB_API_URL": github.api_url,
            "AGENT_FIX_GITHUB_URL": github.server_url,
            "AGENT_FIX_MODEL": "openai/mind",
            "OPENAI_API_BASE": model.url,
            "OPENAI_API_KEY": "sk-conversation-canary-7f3a9c",
        }
        with running_server(tmp_path, environment) as server:
            github.receiver = server.webhook
            server.start_all()
            yield server
            github.receiver = None


def test_from_a_label_to_a_second_commit(server: Server, github: EmulatedGitHub, repository: Repository) -> None:
    ada, grace, site = repository.as_user("ada"), repository.as_user("grace"), repository.site
    issue = ada.open_issue("half loses a cent", ISSUE)
    ada.label(issue, "agent-fix")

    server.wait(lambda: (github.bot, "eyes") in site.reactions(f"issues/{issue}"), "👀")
    (status,) = server.wait(lambda: site.comments(issue), "the status comment")
    assert status.author == github.bot
    server.wait(lambda: "Round half up" in site.comments(issue)[0].body, "the plan")
    (pull,) = server.wait(site.pulls, "the pull request")
    assert pull.draft
    assert re.fullmatch(rf"agent-fix/issue-{issue}-half-loses-a-cent", pull.branch)
    assert f"Fixes #{issue}" in pull.body
    assert "**Proved.**" in pull.body
    assert "| Reproduction" in pull.body or "reproduction" in pull.body
    assert "@everyone" not in re.sub(r"`[^`]*`", "", pull.body), "the model mentions nobody"
    assert site.file("money.py", pull.branch) == MONEY.replace("cents // 2", "(cents + 1) // 2").encode()
    server.wait(lambda: "agent-done" in site.labels(issue), "the final label")
    assert "agent-fix" not in site.labels(issue)
    server.wait(lambda: (github.bot, "rocket") in site.reactions(f"issues/{issue}"), "🚀")
    assert [check.conclusion for check in site.check_runs(pull.head)] == ["success"]
    assert len(site.comments(issue)) == 1

    grace.comment_inline(pull.number, InlineComment("money.py", 5, "/agent use a named constant for the divisor"))
    server.wait(lambda: site.branches()[pull.branch] != pull.head, "the second commit")
    head = site.branches()[pull.branch]
    assert b"// HALVES" in (site.file("money.py", pull.branch) or b"")
    answers = server.wait(lambda: site.inline_comments(pull.number)[1:], "the thread's answer")
    assert [answer.author for answer in answers] == [github.bot]
    assert head[:7] in answers[0].body
    assert [each.number for each in site.pulls()] == [pull.number]
    assert sorted(site.branches()) == [pull.branch, "main"]
    server.wait(lambda: "Follow-up" in site.pull(pull.number).body, "the pull request's text")

    ada.close(pull.number)
    github.delivered("pull_request", "closed")
    canary = "sk-conversation-canary-7f3a9c"
    assert canary not in str(github.calls)
