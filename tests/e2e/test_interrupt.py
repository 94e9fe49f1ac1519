"""Ctrl-C and SIGTERM end a job at once at any point, say how to continue, and the same command continues it."""

import fcntl
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cli_job import (
    HOLD,
    TIMEOUT,
    CliJob,
    CommandEnd,
    bash,
    ended,
    replies,
    submit,
    wait_until,
    with_turn,
)
from tests.support.openai_endpoint import OpenAIEndpoint, stall
from tests.support.repositories import commit_files, git

SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
SOON = 30.0
"""Seconds that are long on the slowest machine, and nothing to a command that waits for ever."""


def interrupt(cli_job: CliJob, process: subprocess.Popen[str], number: signal.Signals) -> CommandEnd:
    """The console's answer to a signal, once all that the command had started is gone too."""
    process.send_signal(number)
    done = ended(process, within=SOON)
    assert done.code == 3, done.text
    assert "interrupted; run the same command to continue" in done.text
    cli_job.assert_quiet()
    return done


def assert_goes_on(cli_job: CliJob, *options: str, model: str = "") -> None:
    """The same command ends well, with what it holds at let go."""
    process = cli_job.begin(*options, model=model)

    def over() -> bool:
        cli_job.let_go()
        return process.poll() is not None

    assert wait_until(over, within=TIMEOUT), ended(process).text
    again = ended(process)
    assert again.code == 0, again.text
    assert cli_job.rows("SELECT count(*), max(epoch) FROM jobs") == [(1, 2)]
    assert len(cli_job.branches) == 1


def begin_and_hold(cli_job: CliJob, *options: str) -> subprocess.Popen[str]:
    """A job that waits at HOLD."""
    process = cli_job.begin(*options)
    assert wait_until(lambda: cli_job.is_held() or process.poll() is not None)
    assert process.poll() is None, ended(process).text
    return process


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_while_a_command_runs(cli_job: CliJob, number: signal.Signals, sandbox: str) -> None:
    cli_job.record(with_turn("turn.4", bash(f"echo once >> CHANGES.txt; {HOLD}")))
    process = begin_and_hold(cli_job, "--sandbox", sandbox)
    said = interrupt(cli_job, process, number)
    assert f"job {cli_job.job}, or end it with `agent-fix jobs cancel {cli_job.job}`" in said.text
    assert "working (interrupted)" in cli_job.jobs().text
    assert_goes_on(cli_job, "--sandbox", sandbox)
    changes = git(cli_job.repository, "show", f"{cli_job.branches[0]}:CHANGES.txt")
    assert changes.count("once") == 1, "the command that was interrupted is executed again on the tree as it was before"


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_model_thinks(tmp_path: Path, number: signal.Signals) -> None:
    first, *rest = replies()
    with OpenAIEndpoint([first, stall(rest[0], 3)]) as endpoint:
        cli_job = CliJob(
            tmp_path, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        )
        process = cli_job.begin(model="openai/scripted")
        assert wait_until(lambda: len(endpoint.requests) == 2)
        interrupt(cli_job, process, number)
        endpoint.script(*rest)
        assert_goes_on(cli_job, model="openai/scripted")
        assert len(endpoint.requests) == len(rest), "what was answered is not asked for again"


def test_while_the_set_up_runs(tmp_path: Path) -> None:
    cli_job = CliJob(tmp_path, config=f"setup: '{HOLD}'\n")
    interrupt(cli_job, begin_and_hold(cli_job), signal.SIGINT)
    assert "planning (interrupted)" in cli_job.jobs().text
    assert_goes_on(cli_job)


def test_while_the_fix_is_verified(cli_job: CliJob) -> None:
    cli_job.record(with_turn("turn.5", submit(f"{HOLD}; python3 -m unittest tests.test_money")))
    interrupt(cli_job, begin_and_hold(cli_job), signal.SIGTERM)
    assert "verifying (interrupted)" in cli_job.jobs().text
    assert cli_job.branches == []
    assert_goes_on(cli_job)


def test_killed_without_a_sandbox_what_ran_is_ended_by_the_next(cli_job: CliJob) -> None:
    """Nothing dies with a killed process there; so the same command ends what it finds."""
    cli_job.record(with_turn("turn.4", bash(f"echo once >> CHANGES.txt; {HOLD}")))
    process = begin_and_hold(cli_job, "--sandbox", "none")
    process.kill()
    assert ended(process).code == -9
    left = cli_job.running()
    assert left
    assert_goes_on(cli_job, "--sandbox", "none")


def test_before_the_job_is_known(cli_job: CliJob) -> None:
    """The repository is brought into the mirror first, which can take long; here it waits for another process."""
    assert cli_job.fix(failpoint="created").code == -9
    commit_files(cli_job.repository, {"NEW.txt": "not in the mirror yet\n"})
    [lock] = (cli_job.state / "mirrors").glob(".*.fetch.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = cli_job.begin()
        assert wait_until(lambda: lock in opened(process))
        interrupt(cli_job, process, signal.SIGINT)
    assert cli_job.fix().code == 0


def opened(process: subprocess.Popen[str]) -> set[Path]:
    """The files that a process has open."""
    found = set()
    with suppress(OSError):  # a file is closed, or the process ends, while we look
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            found.add(link.readlink())
    return found
