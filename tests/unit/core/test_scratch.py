"""Scratch directories: gone with their work, and swept where whoever made them was killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.scratch import PREFIX, SETTLED_SECONDS, scratch, sweep_scratch

LATER = SETTLED_SECONDS + 5
HOLDER = """\
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from app.core.scratch import scratch
with scratch("held") as directory:
    (directory / "file").write_text("x")
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The machine's directory for temporary files, for the time of a test."""
    before = tempfile.tempdir
    tempfile.tempdir = str(tmp_path)
    yield tmp_path
    tempfile.tempdir = before


def test_scratch_directory_is_removed_after_use(place: Path) -> None:
    def work() -> None:
        with scratch("work") as directory:
            (directory / "deep" / "er").mkdir(parents=True)
            assert directory.parent == place
            assert directory.stat().st_mode & 0o077 == 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert list(place.iterdir()) == []


def test_sweep_removes_directories_of_dead_processes_only(place: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(place)]
    alive, dying = (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    held, left = (Path(process.stdout.readline().strip()) for process in (alive, dying) if process.stdout)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    assert sweep_scratch() == 0, "too young to be judged"
    assert sweep_scratch(time.time() + LATER) == 1
    assert [path for path in (held, left) if path.exists()] == [held]
    alive.communicate()
    assert list(place.iterdir()) == []


def test_sweep_leaves_foreign_files_alone(place: Path) -> None:
    target = place / "precious"
    target.mkdir()
    (place / f"{PREFIX}link").symlink_to(target)
    (place / f"{PREFIX}file").write_text("x")
    (place / "agent-fix-notes").mkdir()
    if os.getuid() == 0:
        theirs = place / f"{PREFIX}theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
    before = sorted(place.iterdir())
    assert sweep_scratch(time.time() + LATER) == 0
    assert sorted(place.iterdir()) == before
