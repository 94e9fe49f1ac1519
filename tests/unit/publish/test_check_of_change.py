"""The check on somebody's pull request: never green without a verdict that is."""

from typing import get_args

import pytest

from app.core.job import FINAL, JobResult, JobState
from app.core.verification import Verdict
from app.github.base import CHECK_OF_CHANGE
from app.publish.effects import ChangeLabels, WriteCheckRun
from app.publish.status_updater import status_effects
from tests.support.pull_requests import verification
from tests.support.server_jobs import job, job_context
from tests.unit.publish.test_status_text import view

COMMIT = "c" * 40


def check(state: JobState, verdict: Verdict | None = None, *, required: bool = False) -> WriteCheckRun:
    found = verification(verdict=verdict, of_others=True) if verdict else None
    result = JobResult(exit_status=state, verification=found, commit=COMMIT) if verdict else None
    of = job("j1").model_copy(update={"aim": "verify", "change": COMMIT})
    where = job_context(aim="verify", publish_target="nowhere", required=required)
    effects = list(status_effects(view(state, of=of, where=where, result=result), "working"))
    assert [each for each in effects if isinstance(each, ChangeLabels)] == [ChangeLabels(remove=("agent-verify",))]
    (made,) = (each for each in effects if isinstance(each, WriteCheckRun))
    assert (made.name, made.commit) == (CHECK_OF_CHANGE, COMMIT)
    return made


@pytest.mark.parametrize(
    ("verdict", "conclusion"),
    [("proved", "success"), ("tested", "success"), ("unproved", "neutral"), ("broken", "failure")],
)
def test_conclusion_follows_the_verdict(verdict: Verdict, conclusion: str) -> None:
    assert check("verified", verdict).conclusion == conclusion


def test_a_required_check_is_never_neutral() -> None:
    assert check("verified", "unproved", required=True).conclusion == "action_required"
    assert check("verified", "broken", required=True).conclusion == "failure"


@pytest.mark.parametrize("state", [state for state in get_args(JobState) if state != "working"])
def test_without_a_verdict_it_is_never_green(state: JobState) -> None:
    made = check(state)
    assert made.conclusion not in {"success", "neutral"}
    assert (made.conclusion is None) == (state not in FINAL)
