"""`agent-fix jobs --server` when the server answers nonsense, or means harm."""

import json
import os
import subprocess
import sys
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
def answering(*bodies: str, status: int = 200) -> Iterator[str]:
    """A server that gives these answers in order, and the last one from then on."""
    rest = list(bodies)

    async def answer(_: Request) -> Response:
        return Response(rest.pop(0) if len(rest) > 1 else rest[0], status, media_type="application/json")

    with listening() as listener:
        application = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT"])])
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
    with answering(body, status=422) as address:
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


def test_a_log_is_json_lines_if_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"seq": 3, "at": "2026-01-01T00:00:00Z", "kind": "note", "text": "\u001b[2Jone"}
    pages = [{"lines": [line], "offset": 3}, {"lines": [], "offset": 3}]
    job = {"state": "error", "reason": "lost", "verdict": None, "id": "j1"}
    with answering('{"jobs": []}', *(json.dumps(page) for page in (*pages, job))) as address:
        assert jobs(tmp_path, address, "logs", "--json", "j1") == 0
    shown = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    del line["seq"], job["id"]
    assert shown == [line, job]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
@pytest.mark.parametrize("words", [("start", "ada/sample", "--text"), ("plan", "j1", "--edit")])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], content: bytes | None
) -> None:
    file = tmp_path / "text.md"
    if content is not None:
        file.write_bytes(content)
    with answering('{"jobs": []}', '{"version": 1}') as address:
        assert jobs(tmp_path, address, *words, str(file)) == 2
    assert f"agent-fix: {file} cannot be read: " in capsys.readouterr().err


def test_a_closed_reader_of_the_list_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with answering('{"jobs": []}') as address, os.fdopen(write, "w") as closed:
        command = [sys.executable, "-I", "-m", "app", "jobs", "--state", str(tmp_path), "--server", address, "list"]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
