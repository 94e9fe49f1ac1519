"""`agent-fix sweep` beside a server: issues become jobs of its database, as if their labels' webhooks came now."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import settings_from
from app.core.errors import ExitCode
from app.server.context import ServerContext
from app.triggers.rules import LABEL
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import FakeGitHubSetup, make_fake_github, served
from tests.support.github.world import Issue, Pull


@dataclass(frozen=True)
class ServerMachine:
    """A server's machine: its settings, its database, and the command."""

    fake_github: FakeGitHubSetup
    server_context: ServerContext
    told: pytest.CaptureFixture[str]

    def issue(self, title: str, *labels: str) -> Issue:
        world = self.fake_github.world
        issue = world.open_issue(self.fake_github.repo, self.fake_github.owner, title, "It is.")
        for label in labels:
            world.label(issue, self.fake_github.owner, label)
        return issue

    def sweep(self, *options: str) -> str:
        assert main(["sweep", "--repo", "ada/sample", *options]) == ExitCode.OK
        return self.told.readouterr().out

    def jobs(self) -> list[int]:
        """The issues of all jobs, in the order of their admission."""
        return [
            row.job.task.origin.number
            for row in reversed(self.server_context.job_store().newest(50))
            if row.job.task.origin
        ]

    def configure(self, text: str) -> None:
        self.fake_github.world.push_as_human(self.fake_github.repo, "main", {".github/agent-fix.yml": text})


@pytest.fixture
def beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[ServerMachine]:
    (tmp_path / "github").mkdir()
    fake_github = make_fake_github(tmp_path / "github")
    with served(fake_github.github) as address:
        environment = {
            "AGENT_FIX_STATE_DIR": str(tmp_path / "state"),
            "AGENT_FIX_APP_ID": str(APP_ID),
            "AGENT_FIX_PRIVATE_KEY": app_key()[0],
            "AGENT_FIX_MODEL": "recorded/none",
            "AGENT_FIX_GITHUB_API_URL": address,
            "AGENT_FIX_GITHUB_URL": address,
        }
        for name in ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_OUTPUT", "AGENT_FIX_GITHUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        server_context = ServerContext(settings_from({**os.environ}, tmp_path / "state"))
        server_context.prepare()
        yield ServerMachine(fake_github, server_context, capsys)


def test_labelled_issues_become_jobs_and_are_not_taken_twice(beside: ServerMachine) -> None:
    other, first, closed = (
        beside.issue("Not ours", "bug"),
        beside.issue("First", LABEL),
        beside.issue("Done", LABEL),
    )
    second = beside.issue("Second", LABEL)
    beside.fake_github.world.turn(closed, beside.fake_github.owner, "closed")
    said = beside.sweep()
    assert beside.jobs() == [first.number, second.number]
    assert "2 of 2 taken." in said
    assert f"#{other.number}" not in said
    again = beside.sweep()
    assert beside.jobs() == [first.number, second.number], again


def test_the_most_urgent_first_as_many_as_were_asked_for(beside: ServerMachine) -> None:
    beside.issue("Low", LABEL, "priority: low")
    urgent = beside.issue("Urgent", LABEL, "P0")
    plain = beside.issue("Plain", LABEL)
    said = beside.sweep("--order", "priority", "--max", "2")
    assert beside.jobs() == [urgent.number, plain.number]
    assert "2 jobs, its limit" in said


def test_a_batch_is_what_a_search_finds_in_its_order(beside: ServerMachine) -> None:
    ada, world, repo = beside.fake_github.owner, beside.fake_github.world, beside.fake_github.repo
    little, bare = beside.issue("Liked a little", "bug", LABEL), beside.issue("Nobody asked", "bug")
    much, _ = beside.issue("Liked much", "bug", LABEL), beside.issue("No bug", LABEL)
    users = [world.add_user(f"fan-{number}") for number in range(3)]
    repo.reactions += [("issues", much.number, user.id, "+1") for user in users]
    repo.reactions += [("issues", little.number, ada.id, "+1"), ("issues", bare.number, ada.id, "+1")]
    said = beside.sweep("--query", "label:bug sort:reactions")
    assert beside.jobs() == [much.number, little.number]
    assert f"#{bare.number}" in said
    assert "it does not have the label agent-fix" in said


def test_open_pull_requests_and_the_days_money_are_caps(beside: ServerMachine) -> None:
    for name in ("a", "b", "c"):
        beside.issue(name, LABEL)
    beside.configure("budget: {usd: 2, usd_per_day: 3}\n")
    said = beside.sweep()
    assert len(beside.jobs()) == 1
    assert said.count("the day's budget is spent or reserved for earlier issues") == 2
    world, repo = beside.fake_github.world, beside.fake_github.repo
    world.push_as_human(repo, "agent-fix/issue-9-x", {"a.py": ""})
    world.open_issue(repo, world.bot, "Ours", pull=Pull("agent-fix/issue-9-x", "main", draft=True))
    beside.configure("max_open_pull_requests: 1\n")
    assert "the limit `max_open_pull_requests` is reached" in beside.sweep()
    assert len(beside.jobs()) == 1


def test_inspecting_changes_nothing(beside: ServerMachine) -> None:
    issue = beside.issue("Only looked at", LABEL)
    found: dict[str, Any] = json.loads(beside.sweep("--dry-run", "--json"))
    assert found["issues"] == [issue.number]
    assert beside.jobs() == []


def test_a_stranger_puts_no_label_on(beside: ServerMachine) -> None:
    issue = beside.issue("Mine")
    beside.fake_github.world.label(issue, beside.fake_github.world.add_user("rob"), LABEL)
    assert "whoever added the label has no write access" in beside.sweep()
    assert beside.jobs() == []
