"""A server among faults that are no kill of its own: zombies, deploys, poison, stops, lost sandboxes, a bad GitHub."""

import os
import random
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.core.job import FINAL, JobState
from tests.chaos.invariants import assert_nothing_left, assert_sound
from tests.chaos.server import ChaosServer, IssueUnderTest, chaos_server
from tests.support.databases import DIALECTS
from tests.support.github.faults import HTML, Fault

pytestmark = pytest.mark.timeout(900)

AT_WORK = frozenset({"planning", "working", "verifying"})
full = pytest.mark.full


def tell(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def put_to_sleep(play: ChaosServer, processes: Sequence[int]) -> None:
    """Not in the middle of a transaction: who sleeps there keeps SQLite's lock from everybody for as long."""
    database = play.server.server_context.engine.url.database
    assert database is not None
    for _ in range(10):
        tell(processes, signal.SIGSTOP)
        with closing(sqlite3.connect(database, timeout=0.5)) as db, suppress(sqlite3.OperationalError):
            db.execute("BEGIN IMMEDIATE")
            return
        tell(reversed(processes), signal.SIGCONT)
    raise AssertionError("they hold the lock whenever they are stopped")


def is_at_work(play: ChaosServer) -> bool:
    return bool(play.children()) and bool(play.jobs()) and play.job.row.state in AT_WORK


def test_a_worker_that_lost_its_lease_changes_nothing(tmp_path: Path) -> None:
    """R10. Asleep in the middle of a job past its lease, then awake beside the worker that goes on with it."""
    with chaos_server(tmp_path) as play:
        play.start()
        play.label()
        play.until(lambda: is_at_work(play), "work")
        asleep = [play.server.processes["worker"].pid, *play.children()]
        zombie = play.server.processes.pop("worker")
        put_to_sleep(play, asleep)
        play.lapse(play.job.job.id)
        play.start("worker")
        play.until(lambda: play.job.row.epoch == 2, "the other worker")
        tell(reversed(asleep), signal.SIGCONT)
        play.wait_for_end()
        zombie.terminate()
        assert zombie.wait(60) == 0
        assert play.job.row.epoch == 2
        assert_sound(play, lost_calls=1)


@full
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_machine_that_is_gone_is_replaced_when_its_lease_ends(tmp_path: Path, dialect: str) -> None:
    """R8, R10: nobody can see that its processes have ended; the lease alone tells, within ninety seconds."""
    with chaos_server(tmp_path, dialect) as play:
        play.start()
        play.label()
        play.until(lambda: is_at_work(play), "work")
        asleep = [play.server.processes["worker"].pid, *play.children()]
        gone = play.server.processes.pop("worker")
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        play.start("worker")
        seconds = play.until(lambda: play.job.row.epoch == 2, "the takeover", timeout=90.0)
        report("takeover by lease", seconds)
        for pid in asleep:
            play.kill_process(pid)
        gone.wait(30)
        play.wait_for_end()
        assert_sound(play, lost_calls=1)


@full
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_killed_worker_is_followed_by_the_next_one(tmp_path: Path, dialect: str) -> None:
    """R8, R9, I7: another executor goes on at once, and what the dead one had in hand is gone with it."""
    with chaos_server(tmp_path, dialect) as play:
        play.start()
        play.label()
        play.until(lambda: is_at_work(play), "work")
        children = play.children()
        play.kill("worker")
        play.until(lambda: not set(children) & set(play.children()), "the children's end", timeout=10)
        play.start("worker")
        report("takeover on the same machine", play.until(lambda: play.job.row.epoch == 2, "the takeover", timeout=90))
        play.wait_for_end()
        assert_sound(play, lost_calls=1)


@full
@pytest.mark.parametrize(("jobs", "rounds"), [(2, 1), (10, 10)])
def test_a_deploy_during_jobs_leaves_none_unfinished(tmp_path: Path, jobs: int, rounds: int) -> None:
    """R31: every role is asked to end and is replaced, again and again."""
    with chaos_server(tmp_path) as play:
        play.add_issues(jobs - 1, repositories=True)
        play.start()
        play.label_all()
        for _ in range(rounds):
            play.until(lambda: bool(play.children()) or play.is_settled(), "work")
            for role in ("worker", "publisher", "receiver"):
                play.replace(role)
        play.wait_for_end(timeout=600)
        assert [each.crashes for each in play.jobs()] == [0] * jobs, "a deploy is no crash"
        assert_sound(play)


@full
def test_a_job_that_kills_its_processes_fails_and_blocks_no_other(tmp_path: Path) -> None:
    """R12: the third death at the same step ends it, with a comment; a plan asked for elsewhere is made meanwhile."""
    with chaos_server(tmp_path) as play:
        play.add_issues(1)
        play.arm_for_ever("worker", "turn.1.act.before")
        play.start()
        play.label()
        play.report("/agent plan", play.spots[1])
        play.wait_for_end()
        states = {each.job_context.issue_ref.number: each.row.state for each in play.jobs()}
        assert states == {1: "error", 2: "answered"}
        assert "died 3 times" in play.github.comments[0]
        assert_sound(play, states=("error", "answered"))


@dataclass
class DeliveryFault(Fault):
    """So much of what arrives meets one misfortune or another, whatever it is about."""

    share: float = 0.2
    chance: random.Random = field(default_factory=lambda: random.Random(20))

    def hits(self, method: str, path: str) -> bool:
        if self.chance.random() >= self.share or not re.fullmatch(self.match, f"{method} {path}"):
            return False
        kind = self.chance.choice(("before", "after", "cut", "page"))
        self.after, self.cut = kind == "after", kind == "cut" and method == "GET"
        self.status, self.body = (500, HTML) if kind == "page" else (502, "{}")
        return True


@full
@pytest.mark.parametrize(
    ("share", "jobs", "seed"),
    [(0.2, 1, 1), (0.2, 5, 2), (0.2, 5, 3), (0.5, 2, 4)],
)
def test_errors_on_every_github_route_only_delay_jobs(tmp_path: Path, share: float, jobs: int, seed: int) -> None:
    """R20."""
    with chaos_server(tmp_path) as play:
        play.add_issues(jobs - 1, repositories=True)
        play.start()
        play.until(lambda: "publisher ready" in play.server.tail(), "the publisher")
        play.github.fake_github.github.faults.append(DeliveryFault(".*", share=share, chance=random.Random(seed)))
        play.label_all()
        play.wait_for_end(timeout=800)
        assert_sound(play)


def test_a_sandbox_that_is_lost_is_made_again(tmp_path: Path) -> None:
    """R29: its files are gone between two turns; the work that was exported is put back into a new one."""
    with chaos_server(tmp_path) as play:
        play.arm("worker", "turn.2.answer.before", "job.ended")
        play.on_restart = lambda: shutil.rmtree(play.server.settings.state / "sandboxes")
        play.start()
        play.label()
        play.wait_for_end()
        assert play.unburnt == []
        assert play.deaths == ["worker"]
        assert_sound(play)


@full
def test_sandboxes_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """R30: a job that was ended while its worker lay dead leaves nothing on the machine for long."""
    with chaos_server(tmp_path) as play:
        play.start()
        play.label()
        play.until(lambda: is_at_work(play) and bool(sandboxes(play)), "a sandbox")
        play.kill("worker")
        assert sandboxes(play), "they are what a kill leaves"
        play.server.server_context.queue.stop(play.job.job.id, "It was stopped.")
        assert play.job.row.state == "stopped", "nobody has to be waited for"
        play.start("worker")
        play.wait_for_end()
        assert_nothing_left(play)


def sandboxes(play: ChaosServer) -> list[str]:
    root = play.server.settings.state / "sandboxes"
    return [path.name for path in root.iterdir()] if root.exists() else []


MOMENTS: tuple[JobState, ...] = ("queued", "planning", "working", "verifying", "publishing")


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        ("working", "stop"),
        *(pytest.param(moment, "stop", marks=full) for moment in MOMENTS if moment != "working"),
        *(pytest.param("working", how, marks=full) for how in ("close", "unlabel")),
    ],
)
def test_a_cancelled_job_ends_at_once(tmp_path: Path, moment: str, how: str) -> None:
    """R33: within fifteen seconds wherever it is, its sandbox within thirty; nothing is pushed afterwards."""
    with chaos_server(tmp_path) as play:
        play.start()
        play.label()
        play.until(lambda: bool(play.jobs()) and play.job.row.state == moment, moment)
        call_off(play, play.spots[0], how)
        seconds = play.until(lambda: play.job.row.state in FINAL, "the end", timeout=15.0)
        report(f"{how} while {moment}", seconds)
        pushed = len(play.spots[0].repo.pushes)
        play.wait_for_end()
        assert_nothing_left(play)
        assert len(play.spots[0].repo.pushes) == pushed, "nothing after the end"
        state = play.job.row.state
        assert state == "stopped" or moment == "publishing", "what is being published may have been faster"
        assert (state == "pr_opened") == bool(pushed)


def call_off(play: ChaosServer, spot: IssueUnderTest, how: str) -> None:
    owner = play.github.fake_github.owner
    place = (spot.repo, spot.installation, owner, spot.issue)
    match how:
        case "stop":
            play.report("/agent stop")
        case "close":
            play.github.tell(lambda hooks: hooks.turned(*place, "closed"))
        case "unlabel":
            label = "agent-in-progress" if "agent-in-progress" in spot.issue.labels else "agent-fix"
            play.github.tell(lambda hooks: hooks.unlabeled(*place, label))


@full
@pytest.mark.parametrize("seconds", [3, 45])
def test_a_locked_database_is_waited_for(tmp_path: Path, seconds: int) -> None:
    """R13, R15: another process keeps SQLite's only lock, for longer than anybody's patience in the full case."""
    with chaos_server(tmp_path) as play:
        play.start()
        play.label()
        play.until(lambda: is_at_work(play), "work")
        with closing(sqlite3.connect(play.server.settings.state / "agent-fix.db", timeout=60)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)  # the time is the experiment
            holder.rollback()
        play.wait_for_end()
        assert_sound(play, lost_calls=1)


def report(what: str, seconds: float) -> None:
    """Printed with `-s`, and by `-rA`; never asserted beyond what the fault table promises."""
    print(f"measured: {what}: {seconds:.1f} s")
