"""`agent-fix jobs`: list, show, follow and cancel, from another terminal than the one that works."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.cli_job import HOLD, CliJob, bash, ended, wait_until, with_turn


@pytest.fixture
def at_work(cli_job: CliJob) -> Iterator[subprocess.Popen[str]]:
    """A job whose fourth turn waits for ever."""
    cli_job.record(with_turn("turn.4", bash(HOLD)))
    process = cli_job.begin()
    assert wait_until(lambda: cli_job.is_held() or process.poll() is not None)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_an_empty_job_list_says_how_to_begin(cli_job: CliJob) -> None:
    listed = cli_job.jobs()
    assert listed.code == 0
    assert "agent-fix fix --repo PATH --issue FILE" in listed.text
    assert json.loads(cli_job.jobs("list", "--json").text) == []
    unknown = cli_job.jobs("show", "nosuch")
    assert unknown.code == 2
    assert "No job has an id that begins with 'nosuch'" in unknown.text


def test_a_finished_job(cli_job: CliJob) -> None:
    assert cli_job.fix().code == 0
    job = cli_job.job
    line = cli_job.jobs("list").text.splitlines()[1].split()
    assert line[:3] == [job, "branch", "made"]
    assert "proved" in line
    assert "$0.0070" in line

    shown = cli_job.jobs("show", job[:6])
    assert shown.code == 0
    for told in (
        "split drops the remainder",
        "turn 5 of at most 100",
        "agent-fix/split-loses-cents",
        "$0.0070 of $5.00",
    ):
        assert told in shown.text
    document = json.loads(cli_job.jobs("show", job, "--json").text)
    assert document["verdict"] == "proved"
    assert document["cost"] == 7000
    assert document["result"]["commit"] == cli_job.document["commit"]
    assert len(document["steps"]) == 5

    logged = cli_job.jobs("logs", "-f", job)
    assert logged.code == 0, "the end of a job is the end of its log"
    assert "bash python3 -m unittest discover" in logged.text
    *_, publishing, last = logged.text.rstrip().splitlines()
    assert publishing.endswith(" publishing")
    assert last.startswith("branch made, proved: ")
    assert cli_job.jobs("cancel", job).text.strip() == f"Job {job} has already ended: branch made."
    assert len(cli_job.branches) == 1


def test_an_id_that_fits_several_jobs_is_refused(cli_job: CliJob) -> None:
    for _ in range(2):
        assert cli_job.fix("--restart", failpoint="created").code == -9
    refused = cli_job.jobs("show", cli_job.job[:3])
    assert refused.code == 2
    assert "Several jobs have an id that begins with" in refused.text
    assert len(json.loads(cli_job.jobs("list", "--json").text)) == 2
    assert len(json.loads(cli_job.jobs("list", "-n", "1", "--json").text)) == 1


def test_a_second_command_for_the_same_job_is_refused(cli_job: CliJob, at_work: subprocess.Popen[str]) -> None:
    second = cli_job.fix()
    assert second.code == 4, second.text
    assert f"Job {cli_job.job} is being worked on by process {at_work.pid}" in second.text
    assert f"agent-fix jobs logs -f {cli_job.job}" in second.text
    assert at_work.poll() is None, "the first is not disturbed"
    [listed] = json.loads(cli_job.jobs("list", "--json").text)
    assert (listed["state"], listed["cost"]) == ("working", 5000)


def test_a_running_job_is_followed_and_cancelled(cli_job: CliJob, at_work: subprocess.Popen[str]) -> None:
    follower = cli_job.begin_jobs("logs", "-f", cli_job.job)
    cancelled = cli_job.jobs("cancel", cli_job.job)
    assert cancelled.code == 0
    assert cancelled.text.strip() == f"Job {cli_job.job} is stopped."
    done = ended(at_work)
    assert done.code == 26, done.text
    assert "was cancelled; no branch was made" in done.text
    followed = ended(follower)
    assert followed.code == 0
    assert "until [ -e /tmp/gate ]" in followed.text
    assert_stopped(cli_job)


def test_an_interrupted_job_is_cancelled(cli_job: CliJob, at_work: subprocess.Popen[str]) -> None:
    at_work.kill()
    assert ended(at_work).code == -9
    [listed] = json.loads(cli_job.jobs("list", "--json").text)
    assert listed["state"] == "working (interrupted)"
    assert cli_job.jobs("logs", "-f", cli_job.job).code == 0, "nobody is there to say more"
    assert cli_job.jobs("cancel", cli_job.job).text.strip() == f"Job {cli_job.job} is stopped."
    assert_stopped(cli_job)


def assert_stopped(cli_job: CliJob) -> None:
    """For good: no branch, nothing left, and the same command begins anew."""
    cli_job.assert_quiet()
    stopped = cli_job.job
    [listed] = json.loads(cli_job.jobs("list", "--json").text)
    assert listed["state"] == "stopped"
    assert cli_job.branches == []
    assert list((cli_job.state / "sandboxes").iterdir()) == []
    assert cli_job.fix(failpoint="created").code == -9
    assert cli_job.job != stopped


def test_two_jobs_of_one_state_directory_work_at_once(cli_job: CliJob, at_work: subprocess.Popen[str]) -> None:
    other = CliJob(cli_job.directory, environment={"AGENT_FIX_STATE_DIR": str(cli_job.state)})
    assert other.fix(failpoint="turn.2.act.done").code == -9
    again = other.fix()
    assert again.code == 0, again.text
    assert other.branches == ["agent-fix/split-loses-cents"]
    assert at_work.poll() is None
    assert cli_job.is_held(), "nobody has touched the sandbox of the first"


def test_a_closed_output_pipe_is_not_an_error(cli_job: CliJob, at_work: subprocess.Popen[str]) -> None:
    follower = cli_job.begin_jobs("logs", "-f", cli_job.job)
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.stdout.close()
    assert cli_job.jobs("cancel", cli_job.job).code == 0
    assert follower.wait(30) == 0
    assert ended(at_work).code == 26
