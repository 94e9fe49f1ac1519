"""Jobs in a cluster, without one: what its answers mean, and when the worker has to act on them."""

import asyncio
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings, SettingsError, settings_from
from app.core.errors import AgentFixError, ExitCode
from app.jobs.queue import CLUSTERS, JobClaim
from app.server.context import ServerContext, make_launcher
from app.server.launch.base import (
    CRASHED,
    ChildProcesses,
    Cluster,
    ClusterJob,
    ClusterLauncher,
    LaunchError,
    read_template,
)
from app.server.worker import Intervals, Worker
from tests.support.server_jobs import issue_ref, job, job_context, trigger

CLAIM = JobClaim("j1", 1, "memory", resumed=False)
QUICK = Intervals(poll=0.005, heartbeat=0.0, stop=0.0, drain=0.5)


class MemoryCluster:
    """A cluster of which a test says what it lists."""

    owner = "memory"

    def __init__(self) -> None:
        self.listed: dict[JobClaim, ClusterJob] = {}
        self.removed: list[tuple[JobClaim, int]] = []
        self.lists = 0
        self.refusal = ""

    def check(self) -> None:
        """Every template is right."""

    def create(self, claim: JobClaim) -> None:
        if self.refusal:
            raise LaunchError(self.refusal)
        self.listed[claim] = ClusterJob(claim, "pending")

    def jobs(self) -> list[ClusterJob]:
        self.lists += 1
        return list(self.listed.values())

    def remove(self, claim: JobClaim, *, grace: int) -> None:
        self.removed.append((claim, grace))
        self.listed.pop(claim, None)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def launcher(cluster: Cluster) -> ClusterLauncher:
    return ClusterLauncher(cluster, list_seconds=0.001)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110  # the launcher says it through its handles only
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (ClusterJob(CLAIM, "ended", 0), 0),
        (ClusterJob(CLAIM, "ended", 26), 26),
        (ClusterJob(CLAIM, "ended"), CRASHED),
        (ClusterJob(CLAIM, "ended", 137), 137),
        (ClusterJob(CLAIM, "ended", 137, displaced=True), ExitCode.INTERRUPTED),
        (ClusterJob(CLAIM, "ended", displaced=True), ExitCode.INTERRUPTED),
        (ClusterJob(CLAIM, "running"), None),
    ],
)
def test_an_end_has_the_code_that_a_child_process_would_have(ended: ClusterJob, code: int | None) -> None:
    assert ended.returncode == code


async def test_the_worker_extends_a_lease_until_the_process_does_it(cluster: MemoryCluster) -> None:
    jobs = launcher(cluster)
    handle = await jobs.start(CLAIM)
    assert jobs.needs_heartbeat(CLAIM)
    cluster.listed[CLAIM] = ClusterJob(CLAIM, "running")
    await until(lambda: not handle.pending)
    assert not jobs.needs_heartbeat(CLAIM)
    cluster.listed[CLAIM] = ClusterJob(CLAIM, "ended", 0)
    assert await asyncio.wait_for(handle.wait(), 20) == 0
    assert not jobs.needs_heartbeat(CLAIM)


async def test_a_job_that_is_missing_once_is_not_lost_yet(cluster: MemoryCluster) -> None:
    handle = await launcher(cluster).start(CLAIM)
    handle.update(None)
    handle.update(None)
    assert handle.returncode is None
    handle.update(ClusterJob(CLAIM, "running"))
    for _ in range(3):
        assert handle.returncode is None
        handle.update(None)
    assert handle.returncode == CRASHED


async def test_jobs_of_an_earlier_worker_are_found(cluster: MemoryCluster) -> None:
    cluster.listed = {
        CLAIM: ClusterJob(CLAIM, "running"),
        JobClaim("j2", 1, "memory", resumed=False): ClusterJob(JobClaim("j2", 1, "memory", resumed=False), "ended", 0),
    }
    (found,) = await launcher(cluster).running()
    assert found[0] == CLAIM


async def test_a_cluster_that_refuses_is_asked_again_later(tmp_path: Path, cluster: MemoryCluster) -> None:
    server = ServerContext(Settings(state=tmp_path))
    server.prepare()
    where = issue_ref(1)
    server.queue.admit(job("a", where), job_context(where), trigger("a", where), ready=True)
    cluster.refusal = "Kubernetes refused it: exceeded quota."
    worker = Worker(server, launcher(cluster), intervals=QUICK)
    working = asyncio.create_task(worker.work())

    def reason() -> str:
        row = server.job_store().get("a")
        return row.reason if row and row.owner is None else ""

    await until(reason)
    worker.draining.set()
    await working
    found = server.job_queries.get("a")
    assert found is not None
    assert (found.row.state, found.crashes) == ("queued", 0)
    assert reason() == "Kubernetes refused it: exceeded quota. It is tried again."


async def test_a_stop_removes_what_has_not_started(tmp_path: Path, cluster: MemoryCluster) -> None:
    server = ServerContext(Settings(state=tmp_path))
    server.prepare()
    where = issue_ref(1)
    server.queue.admit(job("a", where), job_context(where), trigger("a", where), ready=True)
    worker = Worker(server, launcher(cluster), intervals=QUICK)
    working = asyncio.create_task(worker.work())
    await until(lambda: cluster.listed)
    server.queue.stop("a", "asked")
    await until(lambda: (row := server.job_store().get("a")) and row.state == "stopped")
    worker.draining.set()
    await working
    assert {(claim.job, grace) for claim, grace in cluster.removed} == {("a", 0)}


async def test_a_drained_worker_leaves_pods_alone(tmp_path: Path, cluster: MemoryCluster) -> None:
    server = ServerContext(Settings(state=tmp_path))
    server.prepare()
    where = issue_ref(1)
    server.queue.admit(job("a", where), job_context(where), trigger("a", where), ready=True)
    worker = Worker(server, launcher(cluster), intervals=QUICK)
    working = asyncio.create_task(worker.work())
    await until(lambda: cluster.listed)
    worker.draining.set()
    await working
    row = server.job_store().get("a")
    assert row is not None
    assert (row.owner, cluster.removed) == ("memory", [])


def test_a_cluster_needs_a_template_and_postgres() -> None:
    settings = settings_from({"HOME": "/nowhere", "AGENT_FIX_JOBS_RUN_ON": "kubernetes"})
    with pytest.raises(SettingsError) as refused:
        settings.check("worker")
    assert [problem.split()[0] for problem in refused.value.problems] == [
        "AGENT_FIX_JOBS_TEMPLATE",
        "AGENT_FIX_DATABASE_URL",
    ]
    settings_from({"HOME": "/nowhere"}).check("worker")


def test_processes_are_the_default() -> None:
    assert isinstance(make_launcher(settings_from({"HOME": "/nowhere"})), ChildProcesses)


@pytest.mark.parametrize("text", ["- a list", "a: [", "just a text"])
def test_a_template_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(AgentFixError, match="cannot be used") as refused:
        read_template(path)
    assert refused.value.code == ExitCode.CONFIG


# What Kubernetes reports.


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, **status}}


def terminated(code: int, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"containerStatuses": [{"name": "sidecar", "state": {}}, {"name": "job", "state": state}]}


FAILED = {"status": {"conditions": [{"type": "Failed", "reason": "BackoffLimitExceeded", "message": "once"}]}}
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "message": "preempted"}]}
UNSCHEDULED = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
}


@pytest.mark.parametrize(
    ("listed", "its_pod", "expected"),
    [
        ({"status": {}}, None, ClusterJob(CLAIM, "pending")),
        (FAILED, None, ClusterJob(CLAIM, "ended", reason="BackoffLimitExceeded once")),
        ({"status": {}}, pod("Pending", **UNSCHEDULED), ClusterJob(CLAIM, "pending", reason="Unschedulable no room")),
        ({"status": {}}, pod("Running"), ClusterJob(CLAIM, "running")),
        ({"status": {}}, pod("Unknown"), ClusterJob(CLAIM, "running")),
        ({"status": {}}, pod("Succeeded", **terminated(0, "")), ClusterJob(CLAIM, "ended", 0)),
        (FAILED, pod("Failed", **terminated(137, "OOMKilled")), ClusterJob(CLAIM, "ended", 137, reason="OOMKilled")),
        (
            FAILED,
            pod("Failed", **terminated(143), **EVICTED),
            ClusterJob(CLAIM, "ended", 143, displaced=True, reason="preempted"),
        ),
        (FAILED, pod("Running"), ClusterJob(CLAIM, "ended")),
    ],
)
def test_the_state_of_a_job_is_that_of_its_pod(
    listed: dict[str, Any], its_pod: dict[str, Any] | None, expected: ClusterJob
) -> None:
    pytest.importorskip("kubernetes", reason="NOT TESTED: the package kubernetes is not installed")
    from app.server.launch.kubernetes_jobs import job_state

    assert job_state(CLAIM, listed, its_pod) == expected


# What ECS reports.


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"lastStatus": "PROVISIONING"}, ClusterJob(CLAIM, "pending", reason="PROVISIONING")),
        ({"lastStatus": "RUNNING"}, ClusterJob(CLAIM, "running")),
        ({"lastStatus": "DEACTIVATING"}, ClusterJob(CLAIM, "running")),
        (
            {"lastStatus": "STOPPED", "containers": [{"name": "job", "exitCode": 0}]},
            ClusterJob(CLAIM, "ended", 0),
        ),
        (
            {
                "lastStatus": "STOPPED",
                "containers": [{"name": "job"}],
                "stopCode": "TaskFailedToStart",
                "stoppedReason": "CannotPullContainerError",
            },
            ClusterJob(CLAIM, "ended", reason="CannotPullContainerError"),
        ),
        (
            {"lastStatus": "STOPPED", "containers": [{"name": "job", "exitCode": 137}], "stopCode": "SpotInterruption"},
            ClusterJob(CLAIM, "ended", 137, displaced=True),
        ),
    ],
)
def test_the_state_of_a_task_is_what_ecs_says(task: dict[str, Any], expected: ClusterJob) -> None:
    pytest.importorskip("boto3", reason="NOT TESTED: the package boto3 is not installed")
    from app.server.launch.ecs_tasks import job_state

    assert job_state(CLAIM, task) == expected


@pytest.mark.parametrize(
    ("cluster", "library"), [("kubernetes_jobs.KubernetesJobs", "kubernetes"), ("ecs_tasks.EcsTasks", "boto3")]
)
def test_the_queue_knows_whose_jobs_extend_their_own_leases(cluster: str, library: str) -> None:
    pytest.importorskip(library, reason=f"NOT TESTED: the package {library} is not installed")
    assert pkgutil.resolve_name(f"app.server.launch.{cluster}").owner in CLUSTERS
