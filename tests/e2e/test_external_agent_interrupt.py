"""While another agent is at work: Ctrl-C and a stop end it at once, and the same command goes on."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_external_agents import FIX, HAND_IN
from tests.support.cli_job import HOLD, PLAN, CliJob, ended, wait_until
from tests.support.openai_endpoint import ReceivedRequest, Reply
from tests.support.shell_agent import settle
from tests.support.shell_model import ShellModel

SOON = 60.0
MODEL = "openai/scripted"


@pytest.fixture
def model() -> Iterator[ShellModel]:
    with ShellModel(PLAN, [HOLD, FIX, HAND_IN]) as made:
        yield made


@pytest.fixture
def cli_job(model: ShellModel, tmp_path: Path) -> Iterator[CliJob]:
    environment = {"OPENAI_API_BASE": model.url, "OPENAI_API_KEY": "sk-scripted-0123456789", **settle(tmp_path / "p")}
    made = CliJob(tmp_path, environment=environment)
    yield made
    made.assert_quiet()


def begin_and_hold(cli_job: CliJob) -> subprocess.Popen[str]:
    process = cli_job.begin("--runner", "parrot", model=MODEL)
    assert wait_until(lambda: cli_job.is_held() or process.poll() is not None, within=SOON)
    assert process.poll() is None, ended(process).text
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_an_interrupted_agent_is_ended_and_started_again(cli_job: CliJob, number: signal.Signals) -> None:
    process = begin_and_hold(cli_job)
    process.send_signal(number)
    done = ended(process, within=SOON)
    assert done.code == 3, done.text
    assert "interrupted; run the same command to continue" in done.text
    cli_job.assert_quiet()
    again = ended(cli_job.begin("--runner", "parrot", model=MODEL), within=SOON)
    assert again.code == 0, again.text
    assert cli_job.document["verification"]["verdict"] == "proved"
    assert cli_job.rows("SELECT count(*) FROM calls WHERE state = 'reserved'") == [(0,)]


class WaitingModel(ShellModel):
    """Its first answer to an agent never comes."""

    asked = False

    def take(self, received: ReceivedRequest) -> Reply:
        names = str(received.body.get("tools") or "")
        if names and "counter" not in names and not ("plan" in names and "submit" in names) and not self.asked:
            self.asked = True
            return Reply(stall=0)
        return super().take(received)


def test_killed_in_the_middle_of_a_call_that_call_is_lost_and_no_more_held(tmp_path: Path) -> None:
    with WaitingModel(PLAN, [FIX, HAND_IN]) as model:
        environment = {"OPENAI_API_BASE": model.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        cli_job = CliJob(tmp_path, environment={**environment, **settle(tmp_path / "p")})
        process = cli_job.begin("--runner", "parrot", model=MODEL)
        assert wait_until(lambda: model.asked or process.poll() is not None, within=SOON)
        process.kill()
        assert ended(process, within=SOON).code == -9
        cli_job.assert_quiet()
        again = ended(cli_job.begin("--runner", "parrot", model=MODEL), within=SOON)
    assert again.code == 0, again.text
    states = cli_job.rows("SELECT call, state FROM calls WHERE call LIKE 'parrot%' ORDER BY call, attempt")
    assert states == [("parrot.1.1", "lost"), *((f"parrot.1.{number}", "booked") for number in (1, 2, 3))]
    assert cli_job.document["usage"]["lost"] == 1
    cli_job.assert_quiet()


def test_a_stopped_agent_is_ended_and_nothing_comes_of_it(cli_job: CliJob) -> None:
    process = begin_and_hold(cli_job)
    assert cli_job.jobs("cancel", cli_job.job).code == 0
    done = ended(process, within=SOON)
    assert done.code != 0
    assert "was cancelled; no branch was made" in done.text
    assert cli_job.branches == []
    cli_job.assert_quiet()
