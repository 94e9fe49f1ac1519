"""A full disk, at the beginning and in the middle: it is named, and the same command continues the job."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import wallet_project
from tests.support.console import SCRIPT, Console, branches
from tests.support.recorded_answers import bash
from tests.support.repositories import git

FULL = 10


@dataclass(frozen=True)
class Ended:
    """One command of a script."""

    code: int
    said: str


@dataclass(frozen=True)
class SmallDisk:
    """A file system of a few megabytes that only the scripts below can see; it is gone when they end."""

    place: Path

    def script(self, *lines: str, size: str) -> list[Ended]:
        """Execute the lines where the small disk is mounted. Each `try_ COMMAND` gives one Ended."""
        head = f'mount -t tmpfs -o size={size} tmpfs "$PLACE"'
        trying = 'try_() { n=$((n + 1)) c=0; "$@" > "$LOG.$n" 2>&1 || c=$?; echo $c > "$LOG.$n.code"; }; n=0'
        log = self.place.with_name("log")
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-euc", "\n".join([head, trying, *lines])],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PLACE": str(self.place), "LOG": str(log)},
            capture_output=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        codes = sorted(log.parent.glob("log.*.code"), key=lambda path: int(path.suffixes[-2][1:]))
        return [Ended(int(path.read_text()), path.with_suffix("").read_text()) for path in codes]


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    mount = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if shutil.which("unshare") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk takes a privilege that is not there")
    place = tmp_path / "small"
    place.mkdir()
    return SmallDisk(place)


def command(console: Console, arguments: Sequence[str | Path]) -> str:
    """A line of a script that tries the command with the console's environment."""
    environment = [f"{name}={value}" for name, value in console.environment.items()]
    return shlex.join(["try_", "env", "-i", *environment, str(SCRIPT), *map(str, arguments)])


FILL = 'head -c 64M /dev/zero > "$PLACE/filler" || true'
FREE = 'rm "$PLACE/filler"'
GROW = 'mount -o remount,size=64m "$PLACE"'


@pytest.mark.parametrize("which", ["--out", "--state"])
def test_full_from_the_beginning(tmp_path: Path, disk: SmallDisk, which: str) -> None:
    console = Console(tmp_path)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    before = git(repository, "for-each-ref")
    fix = console.fix_arguments(
        repository, wallet_project.ISSUE, which, disk.place / "x", recording=wallet_project.mended()
    )
    line = command(console, fix)
    kept = f'cp -r "$PLACE/x" {shlex.quote(str(tmp_path))}/kept'
    full, again = disk.script(FILL, line, FREE, line, kept, size="24m")
    assert full.code == FULL, full.said
    assert "disk is full" in full.said
    assert "the same command" in full.said
    assert "turn 1" not in full.said
    assert again.code == 0, again.said
    assert git(repository, "for-each-ref") != before
    assert len(branches(repository)) == 2


def test_state_that_fills_while_the_work_goes_on(tmp_path: Path, disk: SmallDisk) -> None:
    """The model's own command fills the disk that the state is on; with more space the job is finished."""
    console = Console(tmp_path)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    recording = wallet_project.planned().turn(
        "Much output.", bash("head -c 40M /dev/zero > /workspace/large || true; ls -s")
    )
    recording.turn("Mend it.", bash("rm large"), wallet_project.FIX, wallet_project.ADD_TEST)
    recording.submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION)
    fix = console.fix_arguments(repository, wallet_project.ISSUE, "--state", disk.place / "x", recording=recording)
    line = command(console, fix)
    full, again = disk.script(line, GROW, line, size="24m")
    assert full.code == FULL, full.said
    assert "disk is full" in full.said.lower()
    assert "run the same command again to continue" in full.said
    assert "turn 1" in full.said
    assert branches(repository) == [wallet_project.BRANCH, "main"], "only the second command made one"
    assert again.code == 0, again.said
    assert "resumed" in again.said
    assert "cost     plan" not in again.said, "what was paid for is not bought again"


def test_an_output_directory_that_fills_up_during_the_job(tmp_path: Path, disk: SmallDisk) -> None:
    """What the job leaves is larger than what is free; the job itself is done, and only told again."""
    console = Console(tmp_path)
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    recording = wallet_project.planned().turn("word " * 600_000, wallet_project.FIX, wallet_project.ADD_TEST)
    recording.submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION)
    fix = console.fix_arguments(repository, wallet_project.ISSUE, "--out", disk.place / "x", recording=recording)
    line = command(console, fix)
    kept = f'cp -r "$PLACE/x" {shlex.quote(str(console.out))}'
    full, again = disk.script(line, GROW, line, kept, size="2m")
    assert full.code == FULL, full.said
    assert "disk is full" in full.said
    assert again.code == 0, again.said
    assert "turn 1" not in again.said, "the work is not done again"
    assert "\nproved: " in again.said
    assert branches(repository) == [wallet_project.BRANCH, "main"]
    assert {path.name for path in console.out.iterdir()} >= {"job.json", "pull-request.md", "trajectory.jsonl"}
