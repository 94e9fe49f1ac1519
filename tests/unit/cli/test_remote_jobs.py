"""`agent-fix jobs --server` when the server answers nonsense, or means harm."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.cli import main
from tests.support.loopback import listening, serving


@contextmanager
def answering(body: str, status: int = 200) -> Iterator[str]:
    async def answer(_: Request) -> Response:
        return Response(body, status, media_type="application/json")

    with listening() as listener:
        application = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
        with serving(application, listener) as address:
            yield address


def jobs(tmp_path: Path, address: str, *words: str) -> int:
    return main(["jobs", "--state", str(tmp_path), "--server", address, *words])


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FIX_API_TOKEN", "afk_x")


@pytest.mark.parametrize(
    "body", ["<html>", "{}", "[]", '{"jobs": [1]}', '{"jobs": [{"id": 5}]}', "[" * 100_000, '{"jobs": {"a": "b"}}']
)
def test_an_answer_that_is_not_the_apis_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    with answering(body) as address:
        assert jobs(tmp_path, address) == 2
    assert f"The server at {address} did not answer like the agent-fix API." in capsys.readouterr().err


@pytest.mark.parametrize("body", ["[]", '{"errors": [1]}', '{"errors": 7}', "nothing"])
def test_a_strange_refusal_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    with answering(body, 422) as address:
        assert jobs(tmp_path, address) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_escape_codes_of_the_server_stay_out_of_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering('{"id": "t1\\u001b]0;OWNED\\u0007\\u001b[2J"}') as address:
        assert jobs(tmp_path, address, "start", "ada/sample#1") == 0
    assert capsys.readouterr().out == "t1\n"


def test_a_log_that_does_not_advance_ends(tmp_path: Path) -> None:
    line = '{"kind": "note", "text": "again"}'
    with answering(f'{{"jobs": [], "lines": [{line}], "offset": 0}}') as address:
        assert jobs(tmp_path, address, "logs", "j1") == 2
