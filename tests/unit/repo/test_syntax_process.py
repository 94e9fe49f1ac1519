"""Files that break parsers break a process of their own, which comes back."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.repo.syntax import first_error, symbols
from app.repo.syntax_process import SyntaxProcess

LARGE = b"def f(): pass\n" * 1_000


@pytest.fixture
def parser() -> Iterator[SyntaxProcess]:
    process = SyntaxProcess("app.repo.syntax")
    yield process
    process.close()


def pid_of(parser: SyntaxProcess) -> int:
    assert parser.ask("first_error", "a.py", b"x = 1\n") is None
    assert parser.pid is not None
    return parser.pid


def test_large_files_are_answered_like_small_ones() -> None:
    assert len(symbols("a.py", LARGE)) == 1_000
    assert symbols("a.py", LARGE)[999].line == 1_000
    assert first_error("a.py", LARGE) is None
    problem = first_error("a.py", LARGE + b"def f(:\n")
    assert problem is not None
    assert problem.line == 1_001
    assert first_error("a.json", b"[" + b"1," * 10_000) is not None


def test_odd_paths_and_contents_arrive(parser: SyntaxProcess) -> None:
    (found,) = parser.ask("symbols", "b\udcff\n\u202e.py", "def größe(): pass\n".encode())
    assert found[0] == "größe"
    assert parser.ask("symbols", "a.py", b"") == []


def test_a_process_that_was_killed_is_replaced(parser: SyntaxProcess) -> None:
    os.kill(pid_of(parser), 9)
    assert parser.ask("symbols", "a.py", LARGE) is None
    assert len(parser.ask("symbols", "a.py", LARGE)) == 1_000


def test_an_idle_process_that_ended_is_started_again() -> None:
    parser = SyntaxProcess("app.repo.syntax", idle=0)
    try:
        assert [len(parser.ask("symbols", "a.py", LARGE)) for _ in range(3)] == [1_000] * 3
    finally:
        parser.close()


def test_a_parse_that_takes_too_long_is_given_up() -> None:
    parser = SyntaxProcess("app.repo.syntax", timeout=0)
    assert parser.ask("symbols", "a.py", LARGE) is None
    assert parser.pid is None


def test_the_parser_process_has_no_environment_and_ends_on_close(parser: SyntaxProcess) -> None:
    pid = pid_of(parser)
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    parser.close()
    assert not Path(f"/proc/{pid}").exists()
    parser.close()
