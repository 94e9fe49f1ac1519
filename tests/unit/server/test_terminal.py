"""What people see at the terminal, and what nobody can make it do."""

import io
import subprocess
from pathlib import Path

import pytest

from app.server.terminal import TerminalProgress
from tests.support.console import SCRIPT


class Screen(io.StringIO):
    """A stream that says it is a terminal, or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class ClosedScreen(Screen):
    """A stream whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_one_labelled_line_for_each_fact() -> None:
    screen = Screen(terminal=False)
    progress = TerminalProgress(screen, colours=screen.isatty())
    progress.report("state", "working")
    progress.report("note", "first\nsecond")
    progress.report("command", "view money.py")
    progress.report("note", "")
    assert screen.getvalue() == "working\nnote     first\n         second\n         view money.py\n"


def test_fragments_are_shown_only_where_somebody_watches() -> None:
    watched, piped = Screen(terminal=True), Screen(terminal=False)
    for screen in (watched, piped):
        progress = TerminalProgress(screen, colours=screen.isatty())
        for piece in ("Let me ", "look."):
            progress.report("text", piece)
        progress.report("state", "working")
    assert piped.getvalue() == "working\n"
    assert watched.getvalue() == "\x1b[2mLet me \x1b[0m\x1b[2mlook.\x1b[0m\n\x1b[1mworking\x1b[0m\n"


def test_output_contains_no_terminal_escapes() -> None:
    hostile = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31mred\x1b[0m \x1b]0;title\x1b\\ \x08\x7f\u202e\x1b"
    screen = Screen(terminal=True)
    progress = TerminalProgress(screen, colours=screen.isatty())
    for kind in ("text", "output", "note", "state", "warning", "verification"):
        progress.report(kind, hostile)
    unpainted = screen.getvalue()
    for colour in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m"):
        unpainted = unpainted.replace(colour, "")
    assert "red" in unpainted
    assert [character for character in unpainted if not character.isprintable() and character != "\n"] == []


def test_a_sequence_cut_in_two_is_as_harmless() -> None:
    screen = Screen(terminal=True)
    progress = TerminalProgress(screen, colours=True)
    for piece in ("a\x1b", "]52;c;aGk=\x07", "\x1b[", "2Jb"):
        progress.report("output", piece)
    assert "\x1b]" not in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_streams_will_do(tmp_path: Path, closed: str, encoding: str) -> None:
    """A refusal with a character that ASCII lacks, told as far as somebody listens."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONIOENCODING": encoding}
    command = f'exec "$0" fix --repo . --issue "$1" {closed}'
    argv = ["bash", "-c", command, str(SCRIPT), "/nowhere/grün🦊"]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 40, done.stderr
    assert b"Traceback" not in done.stderr
    name = "grün🦊".encode(encoding, "backslashreplace")
    assert (b"/nowhere/" + name + b" does not exist" in done.stderr) is ("2>&-" not in closed)


def test_a_reader_who_has_gone_ends_nothing() -> None:
    progress = TerminalProgress(ClosedScreen(terminal=False))
    progress.report("note", "one")
    progress.report("note", "two")
    assert progress.closed
