"""Ctrl-C and SIGTERM end a job at once wherever it stands, say how to go on, and the same command goes on."""

import fcntl
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.openai_endpoint import OpenAIEndpoint, stall
from tests.repositories import commit_files, git
from tests.workshop import ANSWERS, HOLD, Ended, Workshop, bash, ended, replies, submit, wait_until, with_turn

SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
SOON = 30.0
"""Seconds that are long on the slowest machine, and nothing to a command that waits for ever."""


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    workshop.assert_quiet()


def interrupt(workshop: Workshop, process: subprocess.Popen[str], number: signal.Signals) -> Ended:
    """The console's answer to a signal, once all that the command had started is gone too."""
    process.send_signal(number)
    done = ended(process, within=SOON)
    assert done.code == 3, done.text
    assert "interrupted; the same command goes on" in done.text
    workshop.assert_quiet()
    return done


def assert_goes_on(workshop: Workshop, *options: str, model: str = "") -> None:
    """The same command ends well, with what it holds at let go."""
    process = workshop.begin(*options, model=model)

    def over() -> bool:
        workshop.let_go()
        return process.poll() is not None

    assert wait_until(over, within=SOON), ended(process).text
    again = ended(process)
    assert again.code == 0, again.text
    assert workshop.rows("SELECT count(*), max(epoch) FROM jobs") == [(1, 2)]
    assert len(workshop.branches) == 1


def begin_and_hold(workshop: Workshop, *options: str) -> subprocess.Popen[str]:
    """A job that waits at HOLD."""
    process = workshop.begin(*options)
    assert wait_until(lambda: workshop.is_held() or process.poll() is not None)
    assert process.poll() is None, ended(process).text
    return process


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_while_a_command_runs(workshop: Workshop, number: signal.Signals, sandbox: str) -> None:
    workshop.record(with_turn("turn.4", bash(f"echo once >> CHANGES.txt; {HOLD}")))
    process = begin_and_hold(workshop, "--sandbox", sandbox)
    said = interrupt(workshop, process, number)
    assert f"job {workshop.job}, `agent-fix jobs cancel {workshop.job}` ends it" in said.text
    assert "working (interrupted)" in workshop.jobs().text
    assert_goes_on(workshop, "--sandbox", sandbox)
    changes = git(workshop.repository, "show", f"{workshop.branches[0]}:CHANGES.txt")
    assert changes.count("once") == 1, "the command that was interrupted is executed again on the tree as it was before"


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_model_thinks(tmp_path: Path, number: signal.Signals) -> None:
    first, *rest = replies()
    with OpenAIEndpoint([first, stall(rest[0], 3)]) as endpoint:
        workshop = Workshop(
            tmp_path, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        )
        process = workshop.begin(model="openai/scripted")
        assert wait_until(lambda: len(endpoint.requests) == 2)
        interrupt(workshop, process, number)
        endpoint.script(*rest)
        assert_goes_on(workshop, model="openai/scripted")
        assert len(endpoint.requests) == len(ANSWERS) - 1, "what was answered is not asked for again"


def test_while_the_set_up_runs(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, config=f"setup: '{HOLD}'\n")
    interrupt(workshop, begin_and_hold(workshop), signal.SIGINT)
    assert "planning (interrupted)" in workshop.jobs().text
    assert_goes_on(workshop)


def test_while_the_fix_is_verified(workshop: Workshop) -> None:
    workshop.record(with_turn("turn.5", submit(f"{HOLD}; python3 -m unittest tests.test_money")))
    interrupt(workshop, begin_and_hold(workshop), signal.SIGTERM)
    assert "verifying (interrupted)" in workshop.jobs().text
    assert workshop.branches == []
    assert_goes_on(workshop)


def test_killed_without_a_sandbox_what_ran_is_ended_by_the_next(workshop: Workshop) -> None:
    """Nothing dies with a killed process there; so the same command ends what it finds."""
    workshop.record(with_turn("turn.4", bash(f"echo once >> CHANGES.txt; {HOLD}")))
    process = begin_and_hold(workshop, "--sandbox", "none")
    process.kill()
    assert ended(process).code == -9
    left = workshop.running()
    assert left
    assert_goes_on(workshop, "--sandbox", "none")


def test_before_the_job_is_known(workshop: Workshop) -> None:
    """The repository is brought into the mirror first, which can take long; here it waits for another process."""
    assert workshop.fix(failpoint="created").code == -9
    commit_files(workshop.repository, {"NEW.txt": "not in the mirror yet\n"})
    [lock] = (workshop.state / "mirrors").glob(".*.fetch.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = workshop.begin()
        assert wait_until(lambda: lock in opened(process))
        interrupt(workshop, process, signal.SIGINT)
    assert workshop.fix().code == 0


def opened(process: subprocess.Popen[str]) -> set[Path]:
    """The files that a process has open."""
    found = set()
    with suppress(OSError):  # a file is closed, or the process ends, while we look
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            found.add(link.readlink())
    return found
