"""A whole fix as somebody at a terminal sees it: recorded as asciicast, and looked at on 80 and 140 columns.

The recordings stay in `.cache/recordings`; `asciinema play` shows them.
"""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte
import pytest

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / ".cache" / "recordings"
ROWS = 40
pytestmark = pytest.mark.timeout(900)


def record(words: Sequence[str], columns: int, cast: Path) -> int:
    """Run a program at a terminal of that width and write what it shows, with the time of each piece."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    names = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in names if name in os.environ} | {"TERM": "xterm-256color"}
    started = time.monotonic()
    program = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd="/")
    os.close(theirs)
    head = {"version": 2, "width": columns, "height": ROWS, "env": {"TERM": environment["TERM"]}}
    cast.parent.mkdir(parents=True, exist_ok=True)
    with cast.open("w", encoding="utf-8") as file, os.fdopen(ours, "rb", buffering=0) as shown:
        file.write(f"{json.dumps(head)}\n")
        rest = b""
        while piece := _read(shown.fileno()):
            text, rest = _whole(rest + piece)
            file.write(f"{json.dumps([round(time.monotonic() - started, 3), 'o', text])}\n")
    return program.wait()


def _read(terminal: int) -> bytes:
    """Empty at the end, which Linux tells as an error."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def _whole(data: bytes) -> tuple[str, bytes]:
    """The text up to the last whole character, and what is left of it."""
    for cut in range(min(4, len(data) + 1)):
        try:
            return data[: len(data) - cut].decode(), data[len(data) - cut :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def replay(cast: Path) -> tuple[list[str], set[str]]:
    """All lines at the end, and every stage that the live view showed, as a terminal emulator has them."""
    head, *events = map(json.loads, cast.read_text("utf-8").splitlines())
    screen = pyte.HistoryScreen(head["width"], head["height"], history=5_000)
    stream, seen = pyte.Stream(screen), set[str]()
    for _, kind, text in events:
        assert kind == "o"
        stream.feed(text)
        seen |= {stage for stage in ("plan", "work", "verify") for line in screen.display if stage in line.casefold()}
    above = ["".join(line[column].data for column in range(head["width"])) for line in screen.history.top]
    return [line.rstrip() for line in (*above, *screen.display)], seen


@pytest.mark.parametrize("columns", [80, 140])
def test_a_fix_from_the_first_line_to_the_last(columns: int, tmp_path: Path) -> None:
    cast = RECORDINGS / f"fix-{columns}.cast"
    program = Path(sys.executable).with_name("agent-fix")
    assert record([str(program), "demo", "--out", str(tmp_path / "demo")], columns, cast) == 0
    lines, stages = replay(cast)
    text = "\n".join(lines)
    assert "The model's answers are recorded." in text
    assert stages == {"plan", "work", "verify"}
    assert "proved" in text.casefold() or "tested" in text.casefold()
    for command in ("git -C", "diff", "merge", "branch -D"):
        assert command in text, command
    cost = text[text.index("\ncost ") : text.index("\nresults ")]
    assert re.search(r"out ·\s+[0-9]+ (s|min)", cost), f"the time is cut off: {cost}"
    assert not [line for line in lines if "\x1b" in line], "nothing of a sequence is left over"
    assert sum("Traceback" in line for line in lines) == 0
