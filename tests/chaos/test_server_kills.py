"""A server whose roles are killed before and after everything they do: one branch, one draft, one comment, one end."""

import random
import time
from pathlib import Path

import pytest

from app.config.roles import ROLES, Role
from app.jobs.queue import MAX_CRASHES
from tests.chaos.invariants import assert_sound
from tests.chaos.server import ChaosServer, chaos_server
from tests.support.databases import DIALECTS

pytestmark = pytest.mark.timeout(900)

RECEIVER = ("delivery.storing", "delivery.stored")
RECEIVING = (
    *("delivery.claimed", "job.admitting", "job.admitted", "delivery.dealt_with", "delivery.finished"),
    *("base.fetched", "base.ready"),
)
EFFECTS = (
    *(f"effect.wanted:{n}" for n in range(1, 10)),
    *(f"effect.claimed:{n}" for n in range(1, 9)),
    *(f"effect.made:{n}" for n in range(1, 9)),
    *(f"receipt.written:{n}" for n in range(1, 9)),
    *("commit.rebuilt", "branch.made"),
)
TELLING = (
    *(f"status.queued:{n}" for n in range(1, 4)),
    *(f"status.posted:{n}" for n in range(1, 4)),
    *("job.finishing", "job.finished"),
)
PUBLISHER = (*RECEIVING, *EFFECTS, *TELLING)
STEPS = (
    *("plan.1.answer", "plan.1.act", "baseline", "turn.1.answer", "turn.1.act", "turn.2.answer", "verify.1"),
    *("review", "turn.2.act", "publish"),
)
CHILD = (
    *(f"{step}.{moment}" for step in STEPS for moment in ("before", "done", "stored")),
    *(f"{call}.booked" for call in ("plan.1", "turn.1", "turn.2")),
    *("publish.committed", "publish.wanted", "effect.wanted", "job.handed_over", "finished"),
)
WORKER = ("job.claimed", "job.begun", "job.ended", "job.released")

CELLS: tuple[tuple[Role, str], ...] = (
    *(("receiver", name) for name in RECEIVER),
    *(("publisher", name) for name in PUBLISHER),
    *(("worker", name) for name in (*WORKER, *CHILD)),
)
CHAINS: dict[str, dict[Role, tuple[str, ...]]] = {
    "sqlite": {
        "publisher": ("delivery.claimed", "job.admitted", "effect.made:2", "branch.made", "job.finishing"),
        "worker": ("plan.1.booked", "turn.1.act.done", "verify.1.done", "publish.wanted", "job.released"),
    },
    "postgresql": {
        "publisher": ("delivery.dealt_with", "base.fetched", "commit.rebuilt", "job.finished", "status.queued:2"),
        "worker": ("job.claimed", "turn.1.booked", "turn.2.answer.stored", "publish.committed", "job.handed_over"),
    },
}
"""Deaths during one job: each process may meet several, one life after the other."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_job_survives_repeated_kills_of_its_server(tmp_path: Path, dialect: str) -> None:
    with chaos_server(tmp_path, dialect) as play:
        for role, names in CHAINS[dialect].items():
            play.arm(role, *names)
        play.start()
        play.label()
        play.wait_for_end()
        assert play.unburnt == []
        lost = int("plan.1.booked" in CHAINS[dialect]["worker"])  # the tests' author is asked beside the plan
        assert_sound(play, lost_calls=lost)


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("role", "name"), CELLS)
def test_killed_at_each_moment(tmp_path: Path, dialect: str, role: Role, name: str) -> None:
    with chaos_server(tmp_path, dialect) as play:
        play.arm(role, name)
        play.start()
        play.try_to_label()
        play.wait_for_end()
        assert play.unburnt == [], "nobody came by"
        assert_sound(play)


@pytest.mark.parametrize(
    ("seed", "kills", "jobs"),
    [
        pytest.param(1, 4, 2, marks=pytest.mark.full),
        *(pytest.param(seed, 100, 10, marks=pytest.mark.full) for seed in range(2, 7)),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_killed_at_random(tmp_path: Path, dialect: str, seed: int, kills: int, jobs: int) -> None:
    chance = random.Random(f"{seed} {dialect}")
    with chaos_server(tmp_path, dialect) as play:
        play.add_issues(jobs - 1, repositories=True)
        play.start()
        play.label_all()
        for _ in range(kills):
            # The time of death is the experiment; nothing is inferred from where it struck.
            time.sleep(chance.uniform(0.05, 3.0))
            _kill_somebody(play, chance)
            play.revive()
        play.wait_for_end(timeout=600)
        assert_sound(play, lost_calls=jobs)  # those in flight at a death


def _kill_somebody(play: ChaosServer, chance: random.Random) -> None:
    """Kill a role, or a job's process unless that would be its third death at one step: then the job is given up."""
    role: Role = chance.choice(ROLES)
    at_last_try = {each.job.id for each in play.jobs() if each.crashes == MAX_CRASHES - 1}
    children = [pid for pid, job in play.children().items() if job not in at_last_try]
    if role == "worker" and children and chance.random() < 0.5:
        play.kill_process(chance.choice(children))
        return
    play.server.processes[role].kill()
    play.server.processes[role].wait(30)
