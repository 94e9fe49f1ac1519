"""`agent-fix fix` is killed at every boundary of every step and inside each; it always continues to the same commit."""

import json
import random
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli_job import ANSWERS, TIMEOUT, CliJob, ended, replies, wait_until
from tests.support.openai_endpoint import OpenAIEndpoint, stall
from tests.support.repositories import git

STEPS = (
    *(
        "plan.1.answer",
        "plan.1.act",
        "baseline",
        "examples",
        "turn.1.answer",
        "turn.1.act",
        "turn.2.answer",
        "turn.2.act",
    ),
    *(
        "turn.3.answer",
        "turn.3.act",
        "turn.4.answer",
        "turn.4.act",
        "turn.5.answer",
        "verify.1",
        "review",
        "turn.5.act",
        "publish",
    ),
)
CALLS = tuple(said.key for said in ANSWERS)
ACTIONS = 8
"""What the model does in all turns together, the submission included."""
BOUNDARIES = tuple(f"{step}.{moment}" for step in STEPS for moment in ("before", "done", "stored"))
BOUGHT = tuple(f"{call}.booked" for call in CALLS)
INSIDE = (
    *(f"said.observation:{number}" for number in range(1, ACTIONS + 1)),
    *(f"said.command:{number}" for number in range(1, ACTIONS + 1)),
    *(f"said.verification:{number}" for number in range(1, 5)),
    *(f"said.state:{number}" for number in range(1, 5)),
)
WHILE_PLANNING = frozenset(
    {
        *(f"{step}.{moment}" for step in ("plan.1.answer", "plan.1.act", "baseline") for moment in ("done", "stored")),
        *("baseline.before", "plan.1.booked", "said.verification:1"),
        "said.verification:2",  # the examples are run on the base
    }
)
LOST = {("plan.1", "lost")}
ENDING = ("publish.committed", "publish.delivered", "finished", "report.begun", "report.done")
CHAINS = (
    (
        *("created", "acquired", "said.state:1", "plan.1.answer.done", "baseline.done", "turn.1.answer.before"),
        *("turn.1.act.done", "said.observation:1", "turn.3.answer.stored", "said.observation:1"),
        *("said.observation:2", "turn.4.act.before", "turn.5.booked", "said.verification:2"),
        *("publish.committed", "finished", "report.done"),
    ),
    (
        *("plan.1.answer.before", "plan.1.booked", "plan.1.answer.stored", "turn.1.booked", "said.command:2"),
        *("turn.2.answer.done", "turn.2.act.done", "turn.3.booked", "turn.3.act.done", "turn.4.answer.done"),
        *("turn.4.act.stored", "verify.1.before", "verify.1.done", "turn.5.act.before", "publish.before"),
        *("publish.delivered", "publish.stored", "report.begun"),
    ),
)
"""Deaths of one job, in the order of its story; what is counted is counted anew in each process."""


@dataclass(frozen=True, slots=True)
class UninterruptedRun:
    """What a job comes to that nobody kills, and how long its process takes."""

    commit: str
    seconds: float
    trajectory: str


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> UninterruptedRun:
    cli_job = CliJob(tmp_path_factory.mktemp("undisturbed"))
    begun = time.monotonic()
    done = cli_job.fix()
    assert done.code == 0, done.text
    return UninterruptedRun(commit_of(cli_job), time.monotonic() - begun, trajectory_of(cli_job))


@pytest.fixture
def cli_job(tmp_path: Path) -> Iterator[CliJob]:
    cli_job = CliJob(tmp_path)
    yield cli_job
    cli_job.assert_quiet()


def commit_of(cli_job: CliJob) -> str:
    """The one branch's commit as git keeps it, with the job's own date taken out: equal texts are equal ids."""
    [branch] = cli_job.branches
    assert branch == "agent-fix/split-loses-cents"
    raw = git(cli_job.repository, "cat-file", "commit", branch)
    created = cli_job.document["created_at"]
    seconds = git(cli_job.repository, "log", "-1", "--format=%at %ct %aI", branch)
    assert seconds.endswith(created), "the commit's date is the job's"
    return raw.replace(seconds.split()[0], "DATE")


_SUITE = "# The test suite before any change"


def trajectory_of(cli_job: CliJob) -> str:
    """What was done, without how long it took, and without the turn in which the suite on the base had ended."""
    steps = [json.loads(line) for line in (cli_job.out / "trajectory.jsonl").read_text().splitlines()]
    told = [note for step in steps for note in step["notes"] if _SUITE in note]
    assert len(told) == 1, told
    for step in steps:
        step["notes"] = [note for note in step["notes"] if _SUITE not in note]
    kept = [{name: value for name, value in step.items() if name != "seconds"} for step in steps]
    return re.sub(r"\b[\d.]+ ?s\b", "SECONDS", json.dumps(kept, indent=1))


def assert_killed(cli_job: CliJob, failpoint: str) -> None:
    died = cli_job.fix(failpoint=failpoint)
    assert died.code == -9, f"{failpoint} was not passed:\n{died.text}"


def assert_as_if_nothing_had_happened(cli_job: CliJob, undisturbed: UninterruptedRun) -> None:
    assert commit_of(cli_job) == undisturbed.commit
    assert trajectory_of(cli_job) == undisturbed.trajectory
    assert cli_job.document["verification"]["verdict"] == "proved"
    assert (cli_job.out / "pull-request.md").is_file()
    booked = cli_job.rows("SELECT call FROM calls WHERE state = 'booked' ORDER BY call")
    assert booked == sorted((call,) for call in CALLS), "each answer is bought once"
    assert cli_job.rows("SELECT state, reported FROM jobs") == [("pr_opened", 1)]
    assert list((cli_job.state / "sandboxes").iterdir()) == []
    assert git(cli_job.repository, "status", "--porcelain") == ""
    assert git(cli_job.repository, "symbolic-ref", "HEAD") == "refs/heads/main"
    cli_job.assert_quiet()


def test_the_matrix_names_every_step_that_a_job_has(cli_job: CliJob) -> None:
    assert cli_job.fix().code == 0
    with closing(sqlite3.connect(cli_job.state / "journal.db")) as db:
        names = [name for (name,) in db.execute("SELECT function_name FROM operation_outputs ORDER BY function_id")]
    assert sorted(names) == sorted(STEPS)


@pytest.mark.parametrize("deaths", CHAINS, ids=["one", "other"])
def test_a_job_survives_repeated_kills(cli_job: CliJob, undisturbed: UninterruptedRun, deaths: Sequence[str]) -> None:
    for failpoint in deaths:
        assert_killed(cli_job, failpoint)
    again = cli_job.fix()
    assert again.code == 0, again.text
    assert_as_if_nothing_had_happened(cli_job, undisturbed)
    assert set(lost_calls(cli_job)) <= LOST


@pytest.mark.full
@pytest.mark.parametrize("failpoint", ["created", "acquired", *BOUNDARIES, *BOUGHT, *INSIDE, *ENDING])
def test_killed_anywhere_the_same_command_brings_the_same_commit(
    cli_job: CliJob, undisturbed: UninterruptedRun, failpoint: str
) -> None:
    assert_killed(cli_job, failpoint)
    again = cli_job.fix()
    assert again.code == 0, again.text
    assert_as_if_nothing_had_happened(cli_job, undisturbed)
    # Plan, suite and specification are made side by side: there a call may have been in flight.
    assert set(lost_calls(cli_job)) <= (LOST if failpoint in WHILE_PLANNING else set())


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 5), *(pytest.param(seed, 20, marks=pytest.mark.full) for seed in (2, 3, 4))]
)
def test_killed_at_random_times(cli_job: CliJob, undisturbed: UninterruptedRun, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        process = cli_job.begin()
        # The time of death is the experiment; nothing is inferred from where it struck.
        if not wait_until(lambda: process.poll() is not None, within=chance.uniform(0.1, 0.7 * undisturbed.seconds)):  # noqa: B023
            process.kill()
        code = ended(process).code
        if code == 0:
            break
        assert code == -9
        if is_reported(cli_job):
            break  # it died after the job's end; the same command would begin another job
    else:
        again = cli_job.fix()
        assert again.code == 0, again.text
    assert_as_if_nothing_had_happened(cli_job, undisturbed)


def is_reported(cli_job: CliJob) -> bool:
    try:
        return cli_job.rows("SELECT reported FROM jobs") == [(1,)]
    except sqlite3.OperationalError:  # it died before there was a table
        return False


def lost_calls(cli_job: CliJob) -> list[tuple[object, ...]]:
    return cli_job.rows("SELECT call, state FROM calls WHERE state <> 'booked'")


MORE_MODEL_DEATHS = (
    *(name for name in BOUGHT if name not in ("turn.2.booked", "review.1.booked")),
    *(name for name in BOUNDARIES if ".answer." in name),
)


@pytest.mark.parametrize(
    "failpoint", ["turn.2.booked", *(pytest.param(name, marks=pytest.mark.full) for name in MORE_MODEL_DEATHS)]
)
def test_an_endpoint_is_asked_once_for_each_answer(tmp_path: Path, failpoint: str) -> None:
    with OpenAIEndpoint(replies()) as endpoint:
        cli_job = of_endpoint(tmp_path, endpoint)
        died = cli_job.fix(failpoint=failpoint, model="openai/scripted")
        assert died.code == -9, died.text
        again = cli_job.fix(model="openai/scripted")
        assert again.code == 0, again.text
        cli_job.assert_quiet()
    lost = lost_calls(cli_job)
    assert set(lost) <= (LOST if failpoint in WHILE_PLANNING else set())
    # A call that was lost may not have reached the endpoint before the kill.
    assert 0 <= len(endpoint.requests) - len(replies()) <= lost.count(("plan.1", "lost"))
    assert 0 <= len(endpoint.review_requests) - 1 <= lost.count(("review.1", "lost"))


def test_a_call_in_flight_at_the_kill_is_counted_as_lost(tmp_path: Path) -> None:
    first, *rest = replies()
    with OpenAIEndpoint([first, stall(rest[0], 0)]) as endpoint:
        cli_job = of_endpoint(tmp_path, endpoint)
        process = cli_job.begin(model="openai/scripted")
        assert wait_until(lambda: len(endpoint.requests) == 2, within=TIMEOUT), ended(process).text
        process.kill()
        assert ended(process).code == -9
        endpoint.script(*rest)
        again = cli_job.fix(model="openai/scripted")
        assert again.code == 0, again.text
        assert len(endpoint.requests) == len(rest)
        cli_job.assert_quiet()
    assert lost_calls(cli_job) == [("turn.1", "lost")]
    assert cli_job.document["usage"]["lost"] == 1


def of_endpoint(place: Path, endpoint: OpenAIEndpoint) -> CliJob:
    return CliJob(place, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "sk-scripted-0123456789"})
