"""A job that comes to a limit, or whose model gives up, is put down as it stands; the same command goes on with it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.openai_endpoint import OpenAIEndpoint, error
from tests.workshop import ANSWERS, Workshop, replies

BOOKED = [(said.key,) for said in ANSWERS]


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    workshop.assert_quiet()


def assert_put_down(workshop: Workshop, *options: str) -> str:
    done = workshop.fix(*options)
    assert done.code == 22, done.text
    assert workshop.document["exit_status"] == "limit_reached"
    assert workshop.document["plan"]["summary"] == "split drops the remainder"
    [listed] = json.loads(workshop.jobs("list", "--json").text)
    assert listed["state"] == "paused"
    assert workshop.branches == []
    workshop.assert_quiet()
    return done.text


def assert_finished(workshop: Workshop, *options: str) -> None:
    """By the same job, with every answer bought once."""
    done = workshop.fix(*options)
    assert done.code == 0, done.text
    assert workshop.rows("SELECT count(*) FROM jobs") == [(1,)]
    assert workshop.rows("SELECT call FROM calls WHERE state = 'booked' ORDER BY rowid") == BOOKED
    assert len(workshop.branches) == 1


def test_turns(workshop: Workshop) -> None:
    text = assert_put_down(workshop, "--max-steps", "2")
    assert "--max-steps" in text
    assert_put_down(workshop)  # what is not said anew stays as it was
    assert workshop.rows("SELECT count(*) FROM calls") == [(3,)]
    assert_finished(workshop, "--max-steps", "20")


def test_minutes(workshop: Workshop) -> None:
    assert_put_down(workshop, "--max-minutes", "0.0001")
    assert_finished(workshop, "--max-minutes", "20")


def test_money(workshop: Workshop) -> None:
    workshop.record(ANSWERS, dollars_per_million=1)
    text = assert_put_down(workshop, "--budget", "0.008")
    assert "of the $0.0080 budget is spent" in text
    assert workshop.document["usage"]["cost"] <= 8_000
    assert_finished(workshop, "--budget", "+1")
    assert workshop.document["budget"]["usd"] == 1_008_000, "a sum with a plus is added to what the job had"


def test_a_model_that_gives_up_in_the_middle(tmp_path: Path) -> None:
    first, *rest = replies()
    with OpenAIEndpoint([first, rest[0], error(401, "Incorrect API key provided", code="invalid_api_key")]) as endpoint:
        workshop = Workshop(
            tmp_path, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        )
        done = workshop.fix(model="openai/scripted")
        assert done.code == 7, done.text
        assert "key" in done.text.splitlines()[-2]
        assert workshop.document["exit_status"] == "paused"
        assert workshop.branches == []
        endpoint.script(*rest[1:])
        again = workshop.fix(model="openai/scripted")
        assert again.code == 0, again.text
        assert len(endpoint.requests) == len(rest) - 1
    workshop.assert_quiet()


def test_an_endpoint_that_is_gone(tmp_path: Path) -> None:
    with OpenAIEndpoint(replies()) as endpoint:
        environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        workshop = Workshop(tmp_path, environment=environment)
        assert workshop.fix(failpoint="turn.1.act.done", model="openai/scripted").code == -9
        answered = len(endpoint.requests)
    gone = workshop.fix(model="openai/scripted")
    assert gone.code == 7, gone.text
    assert "Nothing answers" in gone.text
    [listed] = json.loads(workshop.jobs("list", "--json").text)
    assert listed["state"] == "paused"
    assert "Nothing answers" in listed["reason"]
    with OpenAIEndpoint(replies()[answered:]) as endpoint:
        workshop.environment["OPENAI_API_BASE"] = endpoint.url
        again = workshop.fix(model="openai/scripted")
        assert again.code == 0, again.text
        assert answered + len(endpoint.requests) == len(ANSWERS)


def test_a_refused_command_leaves_a_job_that_waits_as_it_is(tmp_path: Path) -> None:
    with OpenAIEndpoint(replies()) as endpoint:
        environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"}
        workshop = Workshop(tmp_path, environment=environment)
        assert workshop.fix("--max-steps", "2", model="openai/scripted").code == 22
        kept = workshop.rows("SELECT id, state, reason, job FROM jobs")
        assert kept[0][1] == "paused"
        del workshop.environment["OPENAI_API_KEY"]
        workshop.environment["OPENAI_API_BASE"] = "http://127.0.0.1:9/v1"
        gone = workshop.fix("--max-steps", "20", model="openai/scripted")
        assert gone.code == 7, gone.text
        assert workshop.rows("SELECT id, state, reason, job FROM jobs") == kept
