"""The sweep of a worker or a command line: machines of jobs that have ended are killed, in the cloud too."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from app.config.settings import settings_from
from app.core.job import Budget, Job
from app.core.task import Issue, Task
from app.jobs.schema import prepare_local_tables
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from app.pipeline.wiring.sandboxes import make_e2b, sweep_everywhere
from app.sandbox.base import SandboxSpec
from tests.support.e2b.server import LocalE2B
from tests.support.sandboxes import filler


def _job(name: str) -> Job:
    task = Task(repository="/r", issue=Issue(title="T", body="B"), base="0" * 40, base_ref="HEAD", slug="t")
    return Job(id=name, task=task, branch=f"b/{name}", budget=Budget(), model="m", created_at=datetime.now(UTC))


async def _parked(e2b: LocalE2B, settings: dict[str, str], state: Path) -> None:
    provider = make_e2b(settings_from(settings, state))
    for job in ("living", "ended", "unknown"):
        await (await provider.open(SandboxSpec(f"{job}.work", filler({"a": b"a\n"})))).close()


def test_only_those_of_jobs_that_have_ended(e2b: LocalE2B, tmp_path: Path) -> None:
    environment = {
        "E2B_API_KEY": e2b.account.key,
        "E2B_API_URL": e2b.account.api,
        "E2B_SANDBOX_URL": e2b.account.sandboxes,
    }
    state = tmp_path / "state"
    settings = settings_from(environment, state)
    state.mkdir()
    engine = sqlite_engine(state / "jobs.db")
    store = JobStore(engine, lambda: datetime.now(UTC))
    prepare_local_tables(engine)
    for name in ("living", "ended"):
        store.create(_job(name), name)
    store.stop("ended", "enough")
    assert sweep_everywhere(settings, store) == 0
    assert e2b.requests == [], "nothing is asked where the cloud was never used"
    asyncio.run(_parked(e2b, environment, state))
    assert sweep_everywhere(settings, store) == 1
    assert sorted(machine.metadata["agent-fix-key"] for machine in e2b.machines.values()) == [
        "living.work",
        "unknown.work",
    ]
    e2b.faults.status["GET /v2/sandboxes"] = 500
    assert sweep_everywhere(settings, store) == 0
    engine.dispose()
