"""The program that starts test programs inside a sandbox: what it writes to them and reads from them."""

from pathlib import Path

import pytest

from app.verify.launcher.base import SupervisorStep, supervise
from tests.support.local_sandbox import LocalSandbox

SIZE = 1_000_000
"""More than a pipe holds."""
WRITES_FIRST = f"import sys; print('x' * {SIZE}, flush=True); print(len(sys.stdin.read()))"


async def test_a_program_may_write_much_before_it_reads_its_input(tmp_path: Path) -> None:
    step = SupervisorStep(argv=("python3", "-c", WRITES_FIRST), timeout=20.0, input="y" * SIZE, keep=4 * SIZE)
    answer = await supervise(LocalSandbox(tmp_path), [step])
    (ended,) = answer.steps or (None,)
    assert ended is not None, answer.problem
    assert (ended.exit_code, ended.output.decode()) == (0, f"{'x' * SIZE}\n{SIZE}\n")


@pytest.mark.parametrize("program", ["pass", "os.close(0)"])
async def test_a_program_that_does_not_read_its_input_is_stopped_at_its_limit(tmp_path: Path, program: str) -> None:
    argv = ("python3", "-c", f"import os, time; {program}; time.sleep(60)")
    step = SupervisorStep(argv=argv, timeout=0.5, input="y" * SIZE)
    answer = await supervise(LocalSandbox(tmp_path), [step])
    assert [ended.timed_out for ended in answer.steps] == [True], answer.problem


async def test_a_program_without_input_finds_its_end(tmp_path: Path) -> None:
    step = SupervisorStep(argv=("python3", "-c", "import sys; print(repr(sys.stdin.read()))"), timeout=20.0)
    answer = await supervise(LocalSandbox(tmp_path), [step])
    assert [ended.output for ended in answer.steps] == [b"''\n"]
