"""`agent-fix init`: what it writes, what it leaves alone, and what it says is left to do."""

import json
from pathlib import Path

import pytest

from app.cli import main
from app.cli.init import WORKFLOW, workflow_text
from app.config.repository import SOURCE, parse_config
from tests.support.repositories import git

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "sample"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "test_it.py").write_text("import unittest\n\n\nclass T(unittest.TestCase):\n    pass\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "remote", "add", "origin", "git@github.com:ada/sample.git")
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=Begin")
    return folder


def run(repository: Path, *words: str) -> int:
    return main(["init", "--repo", str(repository), "--state", str(repository.parent / "state"), "--yes", *words])


def test_workflow_and_configuration_are_written(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(repository, "--model", "groq/fast", "--budget", "2.50") == 0
    shown = capsys.readouterr().out
    assert (repository / WORKFLOW).read_text() == (ROOT / "workflows" / "agent-fix.yml").read_text() == workflow_text()
    config = parse_config((repository / SOURCE).read_bytes())
    assert config.model is not None
    assert config.model.models.code == "groq/fast"
    assert config.budget.usd == 2.5
    assert config.test is not None
    assert "unittest" in config.test
    for step in (
        "gh secret set GROQ_API_KEY --repo ada/sample",
        "# then add GROQ_API_KEY=${{ secrets.GROQ_API_KEY }} to `model-keys`",
        "gh variable set AGENT_FIX_MODEL --body groq/fast --repo ada/sample",
        "gh pr create --fill --base main --repo ada/sample",
    ):
        assert step in shown


def test_without_a_remote_on_github_no_step_needs_one(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "remote", "remove", "origin")
    monkeypatch.setenv("OPENAI_API_BASE", "https://models.example/v1")
    assert run(repository, "--model", "openai/ours") == 0
    shown = capsys.readouterr().out
    assert "gh variable set OPENAI_API_BASE --body https://models.example/v1\n" in shown
    assert "allow GitHub Actions to create and approve pull requests" in shown
    for step in ("git push", "push -u", "gh pr create", "--repo"):
        assert step not in shown


def test_an_endpoint_with_a_password_is_a_secret_and_is_not_printed(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "https://us:hidden-word@models.example/v1")
    assert run(repository, "--model", "openai/ours") == 0
    shown = capsys.readouterr()
    assert "hidden-word" not in shown.out + shown.err
    assert "gh secret set OPENAI_API_BASE --repo ada/sample\n" in shown.out


def test_existing_files_are_kept(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / SOURCE).parent.mkdir()
    (repository / SOURCE).write_text("model: openai/mine\n")
    assert run(repository, "--model", "openai/gpt-4o", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kept"] == [SOURCE]
    assert document["written"] == [WORKFLOW]
    assert (repository / SOURCE).read_text() == "model: openai/mine\n"


def test_without_a_model_nothing_is_written(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(repository, "--budget", "1") == 7
    assert "No model is set." in capsys.readouterr().err
    assert not (repository / ".github").exists()


@pytest.mark.parametrize("link", [".github", ".github/agent-fix.yml"])
def test_a_committed_link_out_of_the_repository_is_not_followed(
    repository: Path, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    outside = repository.parent / "outside"
    outside.mkdir()
    (repository / link).parent.mkdir(exist_ok=True)
    (repository / link).symlink_to(outside / ("" if link == ".github" else "written.yml"))
    assert run(repository, "--model", "groq/fast") != 0
    assert "is a symlink" in capsys.readouterr().err
    assert list(outside.rglob("*")) == []


def test_a_strange_origin_is_printed_without_escape_codes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "remote", "set-url", "origin", "git@github.com:ada/sam\x1b[31mple;id.git")
    assert run(repository, "--model", "groq/fast") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert " --repo ada/sample;id" not in shown
