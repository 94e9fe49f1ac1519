"""What `doctor` says of git, disk, clock and model."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from app.cli.doctor import check_clock, check_disk, check_git, check_model
from app.config.settings import settings_from


@pytest.mark.parametrize(
    ("version", "state"),
    [("git version 2.39.5", "ok"), ("git version 2.33.0", "not ok"), ("git version 3.0", "ok"), ("?", "not ok")],
)
def test_git_version_is_checked(version: str, state: str) -> None:
    assert check_git(version).state == state


def test_uncreatable_state_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check_disk(settings_from({}, tmp_path / "file" / "state"))
    assert found.state == "not ok"
    assert "--state DIR" in found.repair


@pytest.mark.parametrize(
    ("date", "state"),
    [("Thu, 01 Jan 1998 00:00:00 GMT", "not ok"), ("yesterday", "cannot tell"), (None, "ok")],
)
def test_the_clock_is_compared_with_that_of_a_server(date: str | None, state: str) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert check_clock(f"http://127.0.0.1:{server.server_port}").state == state
        server.shutdown()


def test_unreachable_server_leaves_the_clock_unknown() -> None:
    assert check_clock("http://127.0.0.1:1").state == "cannot tell"


async def test_unusable_models_are_reported_with_a_suggestion(tmp_path: Path) -> None:
    settings = settings_from({"OPENAI_API_KEY": "k", "OPENAI_API_BASE": "http://127.0.0.1:1"}, tmp_path)
    assert (await check_model(settings, "", ask=False)).state == "cannot tell"
    found = await check_model(settings, "openai/gpt-4o", ask=False)
    assert found.state == "not ok"
    assert "Nothing answers" in found.detail
    misspelt = await check_model(
        settings_from({"ANTHROPIC_API_KEY": "k"}, tmp_path), "anthropic/claude-sonet-4-5", ask=False
    )
    assert "Did you mean anthropic/claude-sonnet-4-5" in misspelt.repair
