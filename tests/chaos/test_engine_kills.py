"""The durable engine is killed at every boundary of every step; finished steps are never executed again."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

STEPS = ["plan", "baseline", "turn.0", "turn.1", "turn.2", "refused", "lost", "publish"]
CHILD = Path(__file__).with_name("engine_child.py")


def command_of(directory: Path, failpoint: str, *journal: Path) -> list[str]:
    return [sys.executable, "-m", "tests.chaos.engine_child", str(directory), failpoint, *map(str, journal)]


def work(directory: Path, failpoint: str = "", *journal: Path) -> subprocess.CompletedProcess[str]:
    command = command_of(directory, failpoint, *journal)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=CHILD.parents[2], check=False)


def marks(directory: Path, step: str) -> int:
    path = directory / step
    return len(path.read_text()) if path.exists() else 0


@pytest.mark.parametrize("moment", ["before", "done", "stored"])
@pytest.mark.parametrize("step", STEPS)
def test_a_job_killed_anywhere_resumes_at_the_same_step(tmp_path: Path, step: str, moment: str) -> None:
    died = work(tmp_path, f"{step}.{moment}")
    assert died.returncode == -9, died.stderr
    finished = {name for name in STEPS if marks(tmp_path, name)} - {step}
    again = work(tmp_path)
    assert again.returncode == 0, again.stderr
    turns = {"turn.0", "turn.1", "turn.2"}
    concurrent = {"plan", "baseline"} | (turns if step == "baseline" else set()) if step not in STEPS[5:] else set()
    for name in finished - concurrent - {"lost"}:
        assert marks(tmp_path, name) == 1, f"{name} was executed again"
    assert marks(tmp_path, step if step != "lost" else "publish") == (2 if moment == "done" and step != "lost" else 1)


@pytest.mark.parametrize(("died_at", "restored"), [("plan.done", 1), ("turn.0.done", 1), ("turn.2.before", 1), ("", 0)])
def test_state_is_restored_once_before_the_first_turn_of_the_next_process(
    tmp_path: Path, died_at: str, restored: int
) -> None:
    """Even where a step that has gone on beside the turns since the start is executed before them."""
    if died_at:
        assert work(tmp_path, died_at).returncode == -9
        (tmp_path / "turn.1").touch()  # so that the baseline ends at once
    again = work(tmp_path)
    assert again.returncode == 0, again.stderr
    assert marks(tmp_path, "restored") == restored


def test_a_waiting_job_resumes_after_an_answer(tmp_path: Path) -> None:
    (tmp_path / "park").touch()
    assert work(tmp_path).stdout.strip() == "WaitingForUser"
    assert work(tmp_path).stdout.strip() == "WaitingForUser", "it stays parked while nobody answers"
    (tmp_path / "park").unlink()
    assert work(tmp_path).returncode == 0
    assert marks(tmp_path, "turn.1") == 1
    assert marks(tmp_path, "refused") == 1, "an error that ended a step for good is kept"
    assert (tmp_path / "hint").read_text() == "kept", "and comes back as it was"


def test_a_step_that_may_succeed_later_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "no-sandbox").touch()
    assert work(tmp_path).stdout.strip() == "SandboxError"
    (tmp_path / "no-sandbox").unlink()
    assert work(tmp_path).returncode == 0
    assert marks(tmp_path, "plan") == 1


def test_steps_side_by_side_that_both_fail_are_both_begun_again(tmp_path: Path) -> None:
    """As in a deploy while plan and baseline are under way: only the first failure is told, and neither is kept."""
    (tmp_path / "nothing-works").touch()
    assert work(tmp_path).stdout.strip() == "SandboxError"
    (tmp_path / "nothing-works").unlink()
    again = work(tmp_path)
    assert again.returncode == 0, again.stderr
    assert marks(tmp_path, "plan") == marks(tmp_path, "baseline") == 1


def test_a_job_of_another_version_starts_over_and_goes_on_from_there(tmp_path: Path) -> None:
    """R9, R32: a deploy that works in other steps leaves nobody's job behind, nor touches the old journal."""
    assert work(tmp_path, "turn.1.stored").returncode == -9
    (tmp_path / "version").write_text("next")
    assert work(tmp_path, "turn.1.stored").returncode == -9
    assert marks(tmp_path, "turn.0") == marks(tmp_path, "turn.1") == 2
    assert work(tmp_path).returncode == 0
    assert marks(tmp_path, "turn.1") == 2, "in its new journal no step is repeated"
    assert marks(tmp_path, "publish") == 1


def test_a_finished_job_gives_its_result_again_without_working(tmp_path: Path) -> None:
    first = work(tmp_path)
    second = work(tmp_path)
    assert first.returncode == second.returncode == 0, second.stderr
    assert first.stdout == second.stdout
    assert marks(tmp_path, "publish") == 1


def test_a_process_does_not_take_another_live_processs_job(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    (other / "hold").touch()
    with subprocess.Popen(
        command_of(other, "", tmp_path), cwd=CHILD.parents[2], stdout=subprocess.PIPE
    ) as other_process:
        while not marks(other, "baseline"):
            assert other_process.poll() is None
            time.sleep(0.01)
        for failpoint in ("turn.0.done", "turn.1.done", "turn.2.done"):
            assert work(mine, failpoint, tmp_path).returncode == -9
        again = work(mine, "", tmp_path)
        assert again.returncode == 0, again.stderr
        assert marks(mine, "publish") == 1
        (other / "hold").unlink()
        other_process.communicate(timeout=60)
    assert other_process.returncode == 0
    assert marks(other, "publish") == 1
