"""While another agent is at work: Ctrl-C and a stop end it at once, and the same command goes on."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.openai_endpoint import Received, Reply
from tests.fakes.parrot import settle
from tests.fakes.shell_mind import ShellMind
from tests.integration.test_outside_agents import FIX, HAND_IN
from tests.workshop import HOLD, PLAN, Workshop, ended, wait_until

SOON = 60.0
MODEL = "openai/scripted"


@pytest.fixture
def mind() -> Iterator[ShellMind]:
    with ShellMind(PLAN, [HOLD, FIX, HAND_IN]) as made:
        yield made


@pytest.fixture
def workshop(mind: ShellMind, tmp_path: Path) -> Iterator[Workshop]:
    environment = {"OPENAI_API_BASE": mind.url, "OPENAI_API_KEY": "sk-scripted-0123456789", **settle(tmp_path / "p")}
    made = Workshop(tmp_path, environment=environment)
    yield made
    made.assert_quiet()


def begin_and_hold(workshop: Workshop) -> subprocess.Popen[str]:
    process = workshop.begin("--runner", "parrot", model=MODEL)
    assert wait_until(lambda: workshop.is_held() or process.poll() is not None, within=SOON)
    assert process.poll() is None, ended(process).text
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_an_interrupted_agent_is_ended_and_started_again(workshop: Workshop, number: signal.Signals) -> None:
    process = begin_and_hold(workshop)
    process.send_signal(number)
    done = ended(process, within=SOON)
    assert done.code == 3, done.text
    assert "interrupted; the same command goes on" in done.text
    workshop.assert_quiet()
    again = ended(workshop.begin("--runner", "parrot", model=MODEL), within=SOON)
    assert again.code == 0, again.text
    assert workshop.document["verification"]["verdict"] == "proved"
    assert workshop.rows("SELECT count(*) FROM calls WHERE state = 'reserved'") == [(0,)]


class Ponders(ShellMind):
    """Its first answer to an agent never comes."""

    asked = False

    def take(self, received: Received) -> Reply:
        if received.body.get("tools") and not self.asked:
            self.asked = True
            return Reply(stall=0)
        return super().take(received)


def test_killed_in_the_middle_of_a_call_that_call_is_lost_and_no_more_held(tmp_path: Path) -> None:
    with Ponders(PLAN, [FIX, HAND_IN]) as mind:
        environment = {"OPENAI_API_BASE": mind.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        workshop = Workshop(tmp_path, environment={**environment, **settle(tmp_path / "p")})
        process = workshop.begin("--runner", "parrot", model=MODEL)
        assert wait_until(lambda: mind.asked or process.poll() is not None, within=SOON)
        process.kill()
        assert ended(process, within=SOON).code == -9
        workshop.assert_quiet()
        again = ended(workshop.begin("--runner", "parrot", model=MODEL), within=SOON)
    assert again.code == 0, again.text
    states = workshop.rows("SELECT call, state FROM calls WHERE call LIKE 'parrot%' ORDER BY call, attempt")
    assert states == [("parrot.1.1", "lost"), *((f"parrot.1.{number}", "booked") for number in (1, 2, 3))]
    assert workshop.document["usage"]["lost"] == 1
    workshop.assert_quiet()


def test_a_stopped_agent_is_ended_and_nothing_comes_of_it(workshop: Workshop) -> None:
    process = begin_and_hold(workshop)
    assert workshop.jobs("cancel", workshop.job).code == 0
    done = ended(process, within=SOON)
    assert done.code != 0
    assert "was cancelled; no branch was made" in done.text
    assert workshop.branches == []
    workshop.assert_quiet()
