"""A job at a limit, or whose model gives up, is paused with its work; the same command continues it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.cli_job import ANSWERS, FIXED, CliJob, replies
from tests.support.openai_endpoint import OpenAIEndpoint, answer, error

BOOKED = [(said.key,) for said in ANSWERS]


def assert_put_down(cli_job: CliJob, *options: str) -> str:
    done = cli_job.fix(*options)
    assert done.code == 22, done.text
    assert cli_job.document["exit_status"] == "limit_reached"
    assert cli_job.document["plan"]["summary"] == "split drops the remainder"
    [listed] = json.loads(cli_job.jobs("list", "--json").text)
    assert listed["state"] == "paused"
    assert cli_job.branches == []
    cli_job.assert_quiet()
    return done.text


def assert_finished(cli_job: CliJob, *options: str, booked: Sequence[tuple[str]] = BOOKED) -> None:
    """By the same job, with every answer bought once."""
    done = cli_job.fix(*options)
    assert done.code == 0, done.text
    assert cli_job.rows("SELECT count(*) FROM jobs") == [(1,)]
    assert cli_job.rows("SELECT call FROM calls WHERE state = 'booked' ORDER BY call") == sorted(booked)
    assert len(cli_job.branches) == 1


def test_turns(cli_job: CliJob) -> None:
    text = assert_put_down(cli_job, "--max-steps", "2")
    assert "--max-steps" in text
    assert_put_down(cli_job)  # what is not said anew stays as it was
    assert cli_job.rows("SELECT count(*) FROM calls") == [(3,)]
    assert_finished(cli_job, "--max-steps", "20")


def test_minutes(cli_job: CliJob) -> None:
    assert_put_down(cli_job, "--max-minutes", "0.0001")
    assert_finished(cli_job, "--max-minutes", "20")


def test_money(cli_job: CliJob) -> None:
    cli_job.record(ANSWERS, dollars_per_million=1)
    text = assert_put_down(cli_job, "--budget", "0.008")
    assert "Of the budget of $0.0080, " in text
    assert cli_job.document["usage"]["cost"] <= 8_000
    assert_finished(cli_job, "--budget", "+1")
    assert cli_job.document["verification"]["verdict"] == "proved"
    assert cli_job.document["budget"]["usd"] == 1_008_000, "a sum with a plus is added to what the job had"


@pytest.mark.parametrize("options", [("--max-steps", "2"), ("--budget", "0.008")])
def test_a_change_that_was_not_submitted_is_a_file(cli_job: CliJob, options: tuple[str, str]) -> None:
    cli_job.record(ANSWERS, dollars_per_million=1)
    assert "no branch was made" in assert_put_down(cli_job, *options)
    kept = cli_job.out / cli_job.document["patch"]
    assert FIXED.splitlines()[0] in kept.read_text()
    assert cli_job.jobs("show", cli_job.job, "--patch").text == kept.read_text()


def test_a_model_that_gives_up_in_the_middle(tmp_path: Path) -> None:
    first, *rest = replies()
    with OpenAIEndpoint([first, rest[0], error(401, "Incorrect API key provided", code="invalid_api_key")]) as endpoint:
        cli_job = CliJob(
            tmp_path, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        )
        done = cli_job.fix("--budget", "+1", model="openai/scripted")
        assert done.code == 7, done.text
        assert "key" in done.text.splitlines()[-2]
        assert cli_job.document["exit_status"] == "paused"
        assert cli_job.branches == []
        endpoint.script(*rest[1:])
        again = cli_job.fix("--budget", "+1", model="openai/scripted")
        assert again.code == 0, again.text
        assert cli_job.document["budget"]["usd"] == 6_000_000, "the money was not spent, so it is added once"
        assert len(endpoint.requests) == len(rest) - 1
    cli_job.assert_quiet()


NO_KEY = error(401, "Incorrect API key provided", code="invalid_api_key")


@pytest.fixture
def endpoint_and_job(tmp_path: Path) -> Iterator[tuple[OpenAIEndpoint, CliJob]]:
    with OpenAIEndpoint() as endpoint:
        environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        cli_job = CliJob(tmp_path, environment=environment)
        yield endpoint, cli_job
    cli_job.assert_quiet()


def told_after_cancel(endpoint: OpenAIEndpoint, cli_job: CliJob) -> str:
    """The request of the next job on this issue."""
    assert cli_job.jobs("cancel", cli_job.job).code == 0
    endpoint.script(NO_KEY)
    assert cli_job.fix(model="openai/scripted").code == 7
    return json.dumps(endpoint.requests[-1].body)


def test_a_limit_after_a_missing_key_is_told_with_its_own_reason(
    endpoint_and_job: tuple[OpenAIEndpoint, CliJob],
) -> None:
    endpoint, cli_job = endpoint_and_job
    endpoint.script(replies()[0], NO_KEY)
    assert cli_job.fix(model="openai/scripted").code == 7
    endpoint.script(replies()[1])
    assert cli_job.fix("--max-steps", "1", model="openai/scripted").code == 22
    text = told_after_cancel(endpoint, cli_job)
    assert "it reached a limit before it was done" in text
    assert "Reason: The one turn is used." in text


def test_a_limit_before_a_missing_key_is_told(endpoint_and_job: tuple[OpenAIEndpoint, CliJob]) -> None:
    endpoint, cli_job = endpoint_and_job
    endpoint.script(*replies())
    assert cli_job.fix("--max-steps", "2", model="openai/scripted").code == 22
    endpoint.script(NO_KEY)
    assert cli_job.fix("--max-steps", "20", model="openai/scripted").code == 7
    text = told_after_cancel(endpoint, cli_job)
    assert "it reached a limit before it was done" in text
    assert "Reason: All 2 turns are used." in text


def test_a_later_limit_is_told_even_if_its_change_is_gone(endpoint_and_job: tuple[OpenAIEndpoint, CliJob]) -> None:
    endpoint, cli_job = endpoint_and_job
    endpoint.script(*replies())
    assert cli_job.fix("--max-steps", "2", model="openai/scripted").code == 22
    endpoint.script(answer("Undo.", tools=[("undo-1", "bash", json.dumps({"command": "git checkout -q ."}))]))
    assert cli_job.fix("--max-steps", "3", model="openai/scripted").code == 22
    assert "Reason: All 3 turns are used." in told_after_cancel(endpoint, cli_job)


def test_an_endpoint_that_is_gone(tmp_path: Path) -> None:
    with OpenAIEndpoint(replies()) as endpoint:
        environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        cli_job = CliJob(tmp_path, environment=environment)
        assert cli_job.fix(failpoint="turn.1.act.done", model="openai/scripted").code == -9
        answered = len(endpoint.requests)
    gone = cli_job.fix(model="openai/scripted")
    assert gone.code == 7, gone.text
    assert "Nothing answers" in gone.text
    [listed] = json.loads(cli_job.jobs("list", "--json").text)
    assert listed["state"] == "paused"
    assert "Nothing answers" in listed["reason"]
    with OpenAIEndpoint(replies()[answered:]) as endpoint:
        cli_job.environment["OPENAI_API_BASE"] = endpoint.url
        again = cli_job.fix(model="openai/scripted")
        assert again.code == 0, again.text
        assert answered + len(endpoint.requests) == len(replies())


def test_a_refused_command_leaves_a_job_that_waits_as_it_is(tmp_path: Path) -> None:
    with OpenAIEndpoint(replies()) as endpoint:
        environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        cli_job = CliJob(tmp_path, environment=environment)
        assert cli_job.fix("--max-steps", "2", model="openai/scripted").code == 22
        kept = cli_job.rows("SELECT id, state, reason, job FROM jobs")
        assert kept[0][1] == "paused"
        del cli_job.environment["OPENAI_API_KEY"]
        cli_job.environment["OPENAI_API_BASE"] = "http://127.0.0.1:9/v1"
        gone = cli_job.fix("--max-steps", "20", model="openai/scripted")
        assert gone.code == 7, gone.text
        assert cli_job.rows("SELECT id, state, reason, job FROM jobs") == kept
