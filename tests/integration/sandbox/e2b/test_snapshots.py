"""Set-ups kept at E2B: found by name, made again when they are old, and removed; other people's are not touched."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import ENV, SandboxSpec, SetupPlan
from app.sandbox.e2b.provider import DAYS, E2BProvider
from tests.support.e2b.server import LocalE2B
from tests.support.sandboxes import filler, opened, shell

SETUP = SetupPlan((f"echo made > {ENV}/made",), key="kept")
DAY = 86_400.0


@dataclass
class Clock:
    """Days from now."""

    days: float = 0

    def __call__(self) -> float:
        return time.time() + self.days * DAY


@dataclass
class Workers:
    """Machines with agent-fix, and what they share of an account."""

    e2b: LocalE2B
    place: Path
    clock: Clock = field(default_factory=Clock)

    def one(self, name: str = "one", scope: str = "ours") -> E2BProvider:
        return E2BProvider(self.e2b.account, scope=scope, caches=self.place / name, now=self.clock)

    @property
    def begun(self) -> list[str]:
        """What the machines began as, in order."""
        return [body["templateID"] for body in self.e2b.said("POST /v2/sandboxes")]


@pytest.fixture
def workers(e2b: LocalE2B, tmp_path: Path) -> Workers:
    return Workers(e2b, tmp_path)


async def use(provider: E2BProvider, setup: SetupPlan = SETUP) -> None:
    async with opened(provider, SandboxSpec("job", filler({"a": b"a\n"}), setup)) as sandbox:
        assert await shell(sandbox, f"cat {ENV}/made") == "made\n"


async def test_another_worker_finds_it_and_so_does_one_who_forgot(workers: Workers) -> None:
    await use(workers.one())
    (kept,) = workers.e2b.snapshots
    await use(workers.one("another"))
    shutil.rmtree(workers.place / "one")
    await use(workers.one())
    assert workers.begun == ["base", kept, kept]


async def test_snapshots_are_not_shared_between_scopes(workers: Workers) -> None:
    await use(workers.one())
    await use(workers.one("stranger", scope="theirs"))
    assert workers.begun == ["base", "base"]


async def test_an_old_one_is_made_anew_and_removed(workers: Workers) -> None:
    await use(workers.one())
    workers.clock.days = DAYS
    assert await workers.one().sweep(_none) == 0
    await use(workers.one())
    (old,) = workers.e2b.snapshots
    workers.clock.days = DAYS + 2
    await use(workers.one())
    assert workers.begun == ["base", old, "base"]
    assert await workers.one().sweep(_none) == 1
    assert old not in workers.e2b.snapshots
    assert len(workers.e2b.snapshots) == 1


@pytest.mark.parametrize("forgotten", [False, True])
async def test_an_unused_snapshot_is_removed(workers: Workers, forgotten: bool) -> None:
    await use(workers.one())
    await use(workers.one("stranger", scope="theirs"))
    if forgotten:
        shutil.rmtree(workers.place / "one")
    ours, theirs = workers.e2b.snapshots
    workers.e2b.snapshots |= {"t1:default": "somebody-s-own", "t2:default": ""}
    workers.clock.days = DAYS + 2
    assert await workers.one().sweep(_none) == 1
    assert ours not in workers.e2b.snapshots
    assert {theirs, "t1:default", "t2:default"} == set(workers.e2b.snapshots)
    assert await workers.one().sweep(_none) == 0


async def test_a_nameless_snapshot_is_removed_by_its_maker(workers: Workers) -> None:
    await use(workers.one())
    for kept in workers.e2b.snapshots:
        workers.e2b.snapshots[kept] = ""
    workers.clock.days = DAYS + 2
    assert await workers.one("another").sweep(_none) == 0
    assert await workers.one().sweep(_none) == 1
    assert workers.e2b.snapshots == {}


async def test_without_a_snapshot_list_the_setup_runs_again(workers: Workers) -> None:
    workers.e2b.faults.status["GET /snapshots"] = 500
    await use(workers.one())
    await use(workers.one("another"))
    assert workers.begun == ["base", "base"]
    with pytest.raises(SandboxError, match="asking for kept set-ups"):
        await workers.one().sweep(_none)


def _none(key: str) -> bool:
    return False
