"""Stories with a pod or a task for each job: from label to draft, with deaths, stops and deploys on the way."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.jobs.store import JobWithContext
from tests.chaos.invariants import assert_sound
from tests.chaos.server import ChaosServer, chaos_server
from tests.support.clusters import (
    NAMESPACE,
    ClusterUnderTest,
    apply_manifests,
    ecs_cluster,
    kubectl,
    kubernetes_cluster,
    secret_of,
)
from tests.support.github.authentication import app_key
from tests.support.installed_programs import ROOT
from tests.support.kubernetes.control_plane import TOOLS, ControlPlane, control_plane
from tests.support.server_process import SECRET

pytestmark = [pytest.mark.timeout(420), pytest.mark.xdist_group("clusters")]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found:
        apply_manifests(found)
        yield found


@pytest.fixture(params=["kubernetes", "ecs"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> "Story":
    plane = request.getfixturevalue("plane") if request.param == "kubernetes" else None
    return Story(tmp_path, plane)


class Story:
    """A server whose jobs run in a cluster. `failpoint` is where a job's process kills itself, once."""

    def __init__(self, place: Path, plane: ControlPlane | None) -> None:
        self._place = place
        self._plane = plane
        self.cluster: ClusterUnderTest
        self.server: ChaosServer

    @contextmanager
    def running(self, *, failpoint: str = "") -> Iterator["Story"]:
        with chaos_server(self._place, "postgresql") as server:
            secret = secret_of(server.server.settings.for_role("worker"))
            if failpoint:
                fuse = self._place / "fuse"
                fuse.touch()
                secret["AGENT_FIX_FAILPOINT"] = f"{failpoint}:1@{fuse}"
            made = (
                ecs_cluster(self._place, secret)
                if self._plane is None
                else kubernetes_cluster(self._plane, self._place, secret)
            )
            with made as cluster:
                self.cluster, self.server = cluster, server
                server.start("receiver", "publisher")
                self.start_worker()
                yield self

    def start_worker(self) -> None:
        self.server.server.start("worker", **self.cluster.worker)

    @property
    def job(self) -> JobWithContext:
        return self.server.job

    def until(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 240
        while not true():
            pods = self.cluster.log.read_text(errors="replace")[-3_000:] if self.cluster.log.exists() else ""
            assert time.monotonic() < end, f"{what} did not come:\n{self.server.account()}\n{pods}"
            time.sleep(0.05)

    def label(self) -> None:
        assert self.server.label().status == 202

    def starts(self) -> str:
        """The pod or task, once its process works on the job."""
        self.until(
            lambda: self.cluster.started and self.server.jobs() and self.job.row.state != "queued", "a started job"
        )
        return self.cluster.started[0]

    def ends(self) -> None:
        self.until(self.server.is_settled, "the end")
        self.until(lambda: not self.cluster.listed, "the end of all pods")


def test_an_api_server_with_kedas_types_takes_the_manifests_for_keda(plane: ControlPlane) -> None:
    """Its types are really there; KEDA itself does not run."""
    types = TOOLS / "keda"
    if not types.is_dir():
        pytest.skip("KEDA's types were NOT USED on a real Kubernetes API: they are missing (`make kubernetes-tools`)")
    kubectl(plane, "apply", "--server-side", "-f", str(types))
    kubectl(plane, "wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=60s")
    kubectl(plane, "apply", "--validate=strict", "-f", str(ROOT / "deploy" / "keda" / "scaled-object.yaml"))
    stored = json.loads(kubectl(plane, "get", "scaledobject", "worker", "-n", NAMESPACE, "-o", "json"))
    (trigger,) = stored["spec"]["triggers"]
    assert (trigger["type"], stored["spec"]["minReplicaCount"]) == ("postgresql", 0)


def test_a_label_leads_to_a_draft_from_a_pod_that_holds_no_key_of_the_app(cluster: Story) -> None:
    with cluster.running() as story:
        story.label()
        story.ends()
        assert_sound(story.server)
        assert story.job.row.epoch == 1
        (environment,) = story.cluster.environments
        assert not {name for name in environment if name.startswith(("AGENT_FIX_PRIVATE", "AGENT_FIX_WEB"))}
        said = "\n".join(environment.values())
        assert app_key()[0] not in said
        assert SECRET not in said
        log = story.cluster.log.read_text()
        assert "state: verifying" in log, "the job's progress is in the pod's log too"
        stored = [row.text for row in story.server.server.server_context.job_store().progress_since(story.job.job.id)]
        assert "verifying" in stored


def test_a_crashed_pod_is_replaced_and_nothing_happens_twice(cluster: Story) -> None:
    with cluster.running(failpoint="turn.2.answer.stored") as story:
        story.label()
        story.ends()
        assert_sound(story.server)
        assert story.job.row.epoch == 2
        assert len(story.cluster.environments) == 2


@pytest.mark.parametrize("how", ["delete", "displace"])
def test_a_lost_pod_is_replaced(cluster: Story, how: str) -> None:
    with cluster.running() as story:
        story.label()
        name = story.starts()
        (story.cluster.delete if how == "delete" else story.cluster.displace)(name)
        story.ends()
        assert_sound(story.server, lost_calls=1)
        assert len(story.cluster.environments) == 2
        assert story.job.crashes == 0


def test_a_job_goes_on_while_its_worker_is_replaced(cluster: Story) -> None:
    with cluster.running() as story:
        story.label()
        story.starts()
        assert story.server.server.end("worker") == 0
        story.start_worker()
        story.ends()
        assert_sound(story.server)
        assert (story.job.row.epoch, len(story.cluster.environments)) == (1, 1)


@pytest.mark.parametrize("held", [True, False], ids=["pending", "working"])
def test_a_stop_reaches_a_job_wherever_it_is(cluster: Story, held: bool) -> None:
    with cluster.running() as story:
        if held:
            story.cluster.hold.set()
        story.label()
        if held:
            story.until(lambda: story.cluster.listed, "a pending pod")
        else:
            story.starts()
        story.server.report("/agent stop")
        story.ends()
        assert_sound(story.server, states=("stopped",), lost_calls=1)
        assert len(story.cluster.environments) == (0 if held else 1)
