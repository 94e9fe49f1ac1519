"""What people are told of a set-up: the running command, the cause of a failure, and what was refused."""

from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.sandbox.base import SetupPlan
from app.sandbox.setup.run_commands import carry_out, readable, setup_failure, to_repeat
from tests.support.local_sandbox import LocalSandbox

READABLE = {
    "pip install -e .": "pip install -e .",
    "npm ci --no-audit || npm install": "npm ci --no-audit",
    "python -I -c 'import os\nprint(1)' x": "python -I -c … x",
    "make 'unbalanced": "make 'unbalanced",
    f"printf %s {'x' * 500} > a": "printf %s … > a",
}


@pytest.mark.parametrize("command", READABLE)
def test_a_command_is_shown_without_its_other_attempts_and_programs(command: str) -> None:
    assert readable(command) == READABLE[command]


CAUSES = {
    "npm error code ENOENT\nnpm error Could not read package.json\nnpm error A complete log of this run": (
        "npm error Could not read package.json"
    ),
    "ok\nmake: gcc: No such file or directory\nmake: *** [x.o] Error 127\n": "make: gcc: No such file or directory",
    "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'b'\n": "KeyError: 'b'",
    "bash: line 1: composer: command not found\n": "bash: line 1: composer: command not found",
    "only words\n": "only words",
    "[ERROR] Rule 0 failed: Maven 3.8.7 is not allowed\n[ERROR] -> [Help 1]\n": (
        "[ERROR] Rule 0 failed: Maven 3.8.7 is not allowed"
    ),
    "Traceback (most recent call last):\na.b.LayoutError: two packages\n\nTo find more errors, read on.\n": (
        "a.b.LayoutError: two packages"
    ),
}


@pytest.mark.parametrize("output", CAUSES)
async def test_the_programs_own_words_come_first(tmp_path: Path, output: str) -> None:
    done = await LocalSandbox(tmp_path).exec(["sh", "-c", 'printf %s "$0"; exit 3', output])
    error = setup_failure("make deps || python -c '\nour own program\n'", done, "refused: a.example")
    first = error.message.partition("\n")[0]
    assert first == (f"{CAUSES[output]}: the set-up command `make deps` ended with exit code 3; refused: a.example.")


async def test_the_running_command_is_told_at_once_and_refused_hosts_in_any_case(tmp_path: Path) -> None:
    said = bytearray()
    plan = SetupPlan(("echo one || true", "echo two"))
    told = await carry_out(plan, LocalSandbox(tmp_path), said.extend, explain=lambda: "refused: a.example (allow it)")
    assert said.decode().splitlines() == ["$ echo one", "one", "$ echo two", "two"]
    assert told == ("network of the set-up: refused: a.example (allow it)",)
    assert not to_repeat(told)


async def test_a_failure_is_told_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^no luck here: the set-up command `echo no luck here; exit 4` ended"):
        await carry_out(SetupPlan(("echo no luck here; exit 4",)), LocalSandbox(tmp_path), None)
