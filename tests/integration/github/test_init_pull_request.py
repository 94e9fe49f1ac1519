"""`agent-fix init --pull-request`: the files reach GitHub as a draft, and the work tree stays as it is."""

import json
from pathlib import Path

import pytest

from app.cli import main
from app.cli.init import WORKFLOW, workflow_text
from app.config.repository import SOURCE
from app.core.errors import ExitCode
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.running import RunningGitHub, running_github
from tests.support.github.world import Token
from tests.support.repositories import git

TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"
MAY = {"contents": "write", "pull_requests": "write", "workflows": "write", "issues": "write", "metadata": "read"}


def cloned(github: RunningGitHub, folder: Path) -> Path:
    git(folder.parent, "clone", "--quiet", str(github.fake_github.repo.path), str(folder))
    git(folder, "remote", "set-url", "origin", f"{github.address}/ada/sample.git")
    return folder


def prepared(github: RunningGitHub, monkeypatch: pytest.MonkeyPatch) -> FakeGitHubSetup:
    fake = github.fake_github
    until = fake.world.now.replace(year=2099)
    fake.world.tokens[TOKEN] = Token(fake.installation.id, frozenset({fake.repo.id}), MAY, until)
    for name in ("AGENT_FIX_GITHUB_API_URL", "AGENT_FIX_GITHUB_URL"):
        monkeypatch.setenv(name, github.address)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    return fake


def run(repository: Path, *words: str) -> int:
    state = str(repository.parent / "state")
    return main(["init", "--repo", str(repository), "--state", state, "--yes", "--model", "openai/gpt-4o", *words])


def test_files_are_proposed_and_the_work_tree_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_github(tmp_path, {"README.md": "# Sample\n"}, "Totals", "…") as github:
        fake = prepared(github, monkeypatch)
        folder = cloned(github, tmp_path / "sample")
        monkeypatch.delenv("GITHUB_TOKEN", raising=False)
        assert run(folder, "--pull-request") == ExitCode.USAGE
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        capsys.readouterr()
        assert run(folder, "--pull-request", "--json") == 0
        document = json.loads(capsys.readouterr().out)
        (pull,) = fake.repo.pulls
        assert document["pull_request"].endswith(f"/pull/{pull.number}")
        assert pull.pull is not None
        assert (pull.pull.draft, pull.title) == (True, "Add agent-fix")
        assert "gh secret set OPENAI_API_KEY" in pull.body
        tip = fake.repo.branches["agent-fix-init"]
        shown = git(fake.repo.path, "show", f"{tip}:{WORKFLOW}")
        assert shown.strip() == workflow_text().strip()
        assert "openai/gpt-4o" in git(fake.repo.path, "show", f"{tip}:{SOURCE}")
        assert not (folder / ".github").exists()
        assert git(folder, "status", "--porcelain").strip() == ""


def test_commits_that_github_does_not_have_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_github(tmp_path, {"README.md": "# Sample\n"}, "Totals", "…") as github:
        fake = prepared(github, monkeypatch)
        folder = cloned(github, tmp_path / "sample")
        (folder / ".env").write_text("DB_PASSWORD=hunter2\n")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message=Local only")
        assert run(folder, "--pull-request") == ExitCode.USAGE
        assert "on GitHub does not have the commit" in capsys.readouterr().err
        assert set(fake.repo.branches) == {"main"}
        git(folder, "push", "--quiet", str(fake.repo.path), "HEAD:refs/heads/topic")
        assert run(folder, "--pull-request") == ExitCode.USAGE, "it would bring the other branch's commits with it"


@pytest.mark.parametrize("site", ["https://gitlab.example", "https://github.example.evil.example"])
def test_repository_elsewhere_is_not_pushed_to_github(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_github(tmp_path, {"README.md": "# Sample\n"}, "Totals", "…") as github:
        fake = prepared(github, monkeypatch)
        folder = cloned(github, tmp_path / "sample")
        git(folder, "remote", "set-url", "origin", f"{site}/ada/sample.git")
        before = len(fake.github.calls)
        assert run(folder, "--pull-request") == ExitCode.USAGE
        assert "not a repository on GitHub" in capsys.readouterr().err
        assert len(fake.github.calls) == before
        assert set(fake.repo.branches) == {"main"}
