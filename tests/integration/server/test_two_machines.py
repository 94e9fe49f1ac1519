"""A worker on another machine: the same Postgres, a state directory of its own, and nothing shared besides."""

from pathlib import Path

import pytest

from app.cli.demo import demo_files
from tests.support.databases import fresh_postgres
from tests.support.github.running import running_github
from tests.support.server_process import running_server

SAMPLE = demo_files()
pytestmark = pytest.mark.timeout(300)


def sample_files() -> dict[str, bytes]:
    root = SAMPLE / "sample"
    found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_base_commits_and_patches_travel_through_the_database(tmp_path: Path) -> None:
    title, _, body = (SAMPLE / "issue.md").read_text().partition("\n")
    with running_github(tmp_path, sample_files(), title.lstrip("# "), body) as github:
        environment = github.environment | {
            "AGENT_FIX_DATABASE_URL": fresh_postgres(),
            "AGENT_FIX_MODEL": f"recorded/{SAMPLE / 'recorded.jsonl'}",
        }
        with running_server(tmp_path, environment) as server:
            github.receiver = server.url
            server.start("receiver")
            server.start("publisher")
            elsewhere = tmp_path / "elsewhere"
            server.start("worker", AGENT_FIX_STATE_DIR=str(elsewhere))
            assert github.label().status == 202
            (pull,) = server.wait(lambda: github.fake_github.repo.pulls, "the pull request", timeout=150)
            assert pull.pull is not None
            assert pull.pull.draft
            server.wait(lambda: "agent-done" in github.fake_github.issue.labels, "the final label")
            assert list((elsewhere / "mirrors").glob("r*.git"))
            assert not list((elsewhere / "sandboxes").glob("*")), "nothing is left on the worker's machine"
            assert not (elsewhere / "agent-fix.db").exists()
            assert "put down" not in server.log.read_text(), "the base is waited for where the job was taken up"
