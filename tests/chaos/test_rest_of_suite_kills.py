"""A server that dies between a draft and the result of the remaining tests: the draft shows that result, once."""

from pathlib import Path

import pytest

from app.core.job import JobResult
from tests.chaos.server import ChaosServer, chaos_server
from tests.support.databases import DIALECTS
from tests.support.github.world import Check, Issue

pytestmark = pytest.mark.timeout(900)

SLOW = "import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_slow(self):\n        time.sleep(4)\n"
FAR = """import unittest
from importlib import import_module


class Far(unittest.TestCase):
    def test_three(self):
        self.assertEqual(getattr(import_module("".join(("mon", "ey"))), "".join(("ha", "lf")))(3), 1)
"""
LONG = {
    "checks/__init__.py": "",
    "checks/test_a_far.py": FAR,
    **{f"checks/test_b_slow_{number}.py": SLOW for number in range(3)},
    ".github/agent-fix.yml": "budget:\n  suite_minutes: 0.16\n",
}
"""Tests in the order of their names: one far from the change, which breaks it, then some that outlast the limit."""
WORKER = ("rest.0.before", "rest.0.stored", "rest.done", "rest.ended")
PUBLISHER = ("job.finished", "rest.publishing", "rest.published")


def play_long_suite(play: ChaosServer) -> tuple[JobResult, Issue, Check]:
    """From the label until the rest is told: the result, the pull request, the check."""
    spot = play.spots[0]
    play.github.fake_github.world.push_as_human(spot.repo, "main", LONG)
    play.start()
    play.label()

    def is_over() -> bool:
        return play.is_settled() and play.job.waiting_for == "" and bool(spot.repo.pulls)

    play.until(is_over, "the end of the rest", timeout=600)
    assert len(spot.repo.pulls) == 1
    (check,) = [check for check in spot.repo.checks if check.name == "agent-fix"]
    assert play.job.row.state == "pr_opened"
    return JobResult.model_validate(play.job.row.result), spot.repo.pulls[0], check


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rest_survives_kills_of_worker_and_publisher(tmp_path: Path, dialect: str) -> None:
    with chaos_server(tmp_path, dialect) as play:
        play.arm("worker", *WORKER)
        play.arm("publisher", *PUBLISHER)
        result, pull, check = play_long_suite(play)
        assert play.unburnt == []
        assert result.verification is not None
        rest = result.verification.rest
        assert rest is not None
        assert (rest.state, rest.compared, rest.newly_failing) == ("finished", 4, ("checks.test_a_far.Far.test_three",))
        assert result.verification.verdict == "broken"
        assert pull.body.count("**Broken.**") == 1
        assert "still running" not in pull.body
        assert (check.status, check.conclusion) == ("completed", "failure")
        assert "agent-needs-human" in play.spots[0].issue.labels


def test_rest_that_always_dies_is_given_up_and_said_to_be(tmp_path: Path) -> None:
    with chaos_server(tmp_path) as play:
        play.arm_for_ever("worker", "rest.0.before")
        result, pull, check = play_long_suite(play)
        assert result.verification is not None
        assert result.verification.rest is not None
        assert result.verification.rest.state == "given_up"
        assert result.verification.verdict == "proved"
        assert "They did not finish. Their process ended too often, or their sandbox was lost." in pull.body
        assert (check.status, check.conclusion) == ("completed", "success")
