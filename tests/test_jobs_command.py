"""`agent-fix jobs`: list, show, follow and cancel, from another terminal than the one that works."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workshop import HOLD, Workshop, bash, ended, wait_until, with_turn


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    workshop.assert_quiet()


@pytest.fixture
def at_work(workshop: Workshop) -> Iterator[subprocess.Popen[str]]:
    """A job whose fourth turn waits for ever."""
    workshop.record(with_turn("turn.4", bash(HOLD)))
    process = workshop.begin()
    assert wait_until(lambda: workshop.is_held() or process.poll() is not None)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_of_no_jobs_it_is_said_how_to_begin(workshop: Workshop) -> None:
    listed = workshop.jobs()
    assert listed.code == 0
    assert "agent-fix fix --repo PATH --issue FILE" in listed.text
    assert json.loads(workshop.jobs("list", "--json").text) == []
    unknown = workshop.jobs("show", "nosuch")
    assert unknown.code == 2
    assert "No job has an id that begins with 'nosuch'" in unknown.text


def test_a_finished_job(workshop: Workshop) -> None:
    assert workshop.fix().code == 0
    job = workshop.job
    line = workshop.jobs("list").text.splitlines()[1].split()
    assert line[:2] == [job, "pr_opened"]
    assert "proved" in line
    assert "$0.0060" in line

    shown = workshop.jobs("show", job[:6])
    assert shown.code == 0
    for told in (
        "split drops the remainder",
        "turn 5 of at most 100",
        "agent-fix/split-loses-cents",
        "$0.0060 of $5.00",
    ):
        assert told in shown.text
    document = json.loads(workshop.jobs("show", job, "--json").text)
    assert document["verdict"] == "proved"
    assert document["cost"] == 6000
    assert document["result"]["commit"] == workshop.document["commit"]
    assert len(document["steps"]) == 5

    logged = workshop.jobs("logs", "-f", job)
    assert logged.code == 0, "the end of a job is the end of its log"
    assert "bash python3 -m unittest discover" in logged.text
    assert logged.text.rstrip().splitlines()[-2] == "publishing"
    assert "1 lesson learned" in logged.text.rstrip().splitlines()[-1]
    assert workshop.jobs("cancel", job).text.strip() == f"Job {job} has ended already: pr_opened."
    assert len(workshop.branches) == 1


def test_an_id_that_fits_several_jobs_is_refused(workshop: Workshop) -> None:
    for _ in range(2):
        assert workshop.fix("--restart", failpoint="created").code == -9
    refused = workshop.jobs("show", workshop.job[:3])
    assert refused.code == 2
    assert "Several jobs have an id that begins with" in refused.text
    assert len(json.loads(workshop.jobs("list", "--json").text)) == 2
    assert len(json.loads(workshop.jobs("list", "-n", "1", "--json").text)) == 1


def test_a_second_command_for_the_same_work_is_turned_away(workshop: Workshop, at_work: subprocess.Popen[str]) -> None:
    second = workshop.fix()
    assert second.code == 4, second.text
    assert f"Job {workshop.job} is being worked on by process {at_work.pid}" in second.text
    assert f"agent-fix jobs logs -f {workshop.job}" in second.text
    assert at_work.poll() is None, "the first is not disturbed"
    [listed] = json.loads(workshop.jobs("list", "--json").text)
    assert (listed["state"], listed["cost"]) == ("working", 5000)


def test_a_running_job_is_followed_and_cancelled(workshop: Workshop, at_work: subprocess.Popen[str]) -> None:
    follower = workshop.begin_jobs("logs", "-f", workshop.job)
    cancelled = workshop.jobs("cancel", workshop.job)
    assert cancelled.code == 0
    assert cancelled.text.strip() == f"Job {workshop.job} is stopped."
    done = ended(at_work)
    assert done.code == 26, done.text
    assert "was cancelled; no branch was made" in done.text
    followed = ended(follower)
    assert followed.code == 0
    assert "until [ -e /tmp/gate ]" in followed.text
    assert_stopped(workshop)


def test_an_interrupted_job_is_cancelled(workshop: Workshop, at_work: subprocess.Popen[str]) -> None:
    at_work.kill()
    assert ended(at_work).code == -9
    [listed] = json.loads(workshop.jobs("list", "--json").text)
    assert listed["state"] == "working (interrupted)"
    assert workshop.jobs("logs", "-f", workshop.job).code == 0, "nobody is there to say more"
    assert workshop.jobs("cancel", workshop.job).text.strip() == f"Job {workshop.job} is stopped."
    assert_stopped(workshop)


def assert_stopped(workshop: Workshop) -> None:
    """For good: no branch, nothing left, and the same command begins anew."""
    workshop.assert_quiet()
    stopped = workshop.job
    [listed] = json.loads(workshop.jobs("list", "--json").text)
    assert listed["state"] == "stopped"
    assert workshop.branches == []
    assert list((workshop.state / "sandboxes").iterdir()) == []
    assert workshop.fix(failpoint="created").code == -9
    assert workshop.job != stopped


def test_two_jobs_of_one_state_directory_work_at_once(workshop: Workshop, at_work: subprocess.Popen[str]) -> None:
    other = Workshop(workshop.directory, environment={"AGENT_FIX_STATE_DIR": str(workshop.state)})
    assert other.fix(failpoint="turn.2.act.done").code == -9
    again = other.fix()
    assert again.code == 0, again.text
    assert other.branches == ["agent-fix/split-loses-cents"]
    assert at_work.poll() is None
    assert workshop.is_held(), "nobody has touched the sandbox of the first"


def test_a_reader_that_has_seen_enough_is_no_error(workshop: Workshop, at_work: subprocess.Popen[str]) -> None:
    follower = workshop.begin_jobs("logs", "-f", workshop.job)
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.stdout.close()
    assert workshop.jobs("cancel", workshop.job).code == 0
    assert follower.wait(30) == 0
    assert ended(at_work).code == 26
